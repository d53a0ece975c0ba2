"""Triton kernels generated from the recorded step of a cell that has none of its own."""
