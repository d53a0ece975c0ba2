"""Functions of tiles that generated kernels call."""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import sigmoid, tanh

__all__ = ["expm1", "gelu", "maximum", "minimum", "rounded", "sigmoid", "softplus"]
__all__ += ["sign", "tanh"]


@triton.jit
def maximum(a, b):
    """Return the larger one; NaN comes through."""
    return tl.where((a >= b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    """Return the smaller one; NaN comes through."""
    return tl.where((a <= b) | (a != a), a, b)


@triton.jit
def expm1(z):
    """Return ``exp(z) - 1``, exact near 0."""
    return tanh(0.5 * z) * (tl.exp(z) + 1.0)


@triton.jit
def softplus(z):
    """Return ``log(1 + exp(z))``."""
    return tl.where(z > 20.0, z, tl.log(1.0 + tl.exp(tl.where(z > 20.0, 0.0, z))))


@triton.jit
def rounded(z):
    """Return the nearest integer, the even one of two."""
    shifted = tl.where(z < 0.0, -12582912.0, 12582912.0)
    return tl.where(tl.abs(z) < 4194304.0, (z + shifted) - shifted, z)


@triton.jit
def sign(z):
    """Return -1, 0 or 1; NaN comes through."""
    return tl.where(z > 0.0, 1.0, tl.where(z < 0.0, -1.0, z))


@triton.jit
def gelu(z):
    """Return ``z`` times the normal distribution function."""
    return z * (0.5 + 0.5 * tl.math.erf(0.7071067811865476 * z))
