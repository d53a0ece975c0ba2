"""Triton kernels generated from the traced step of a cell that has none of its own."""
