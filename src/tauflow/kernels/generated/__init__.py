"""Triton kernels generated from the traced step of a cell without hand-written kernels."""
