"""Functions of tiles that Triton kernels share: loads, products, exponentials, activations.

What depends on options is known when a kernel is compiled: the number PHI of an activation as in
:mod:`tauflow.kernels.engine.activations` with its SCALE and RATE. Infinities and NaN come through
as in torch.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

TANH: tl.constexpr = tl.constexpr(0)
IDENTITY: tl.constexpr = tl.constexpr(1)
SIGMOID: tl.constexpr = tl.constexpr(2)
RELU: tl.constexpr = tl.constexpr(3)
HARDTANH: tl.constexpr = tl.constexpr(4)
SILU: tl.constexpr = tl.constexpr(5)


@triton.jit
def load_matrix(weights, stride_i, stride_j, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load a matrix (M, N) into a tile."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    return tl.load(weights + i * stride_i + j * stride_j, (i < M) & (j < N), other=0.0)


@triton.jit
def load_vector(bias, J, COLUMNS: tl.constexpr):
    """Load a vector into a tile of one row."""
    j = tl.arange(0, COLUMNS)[None, :]
    return tl.load(bias + j, j < J, other=0.0).to(tl.float32)


@triton.jit
def matmul_add(values, weights, total, PRECISION: tl.constexpr):
    """Return ``total`` plus the product, the values rounded to what the weights are stored in."""
    values = values.to(weights.dtype)
    if PRECISION == "converted":  # the interpreter multiplies the bits of bfloat16
        total = tl.dot(values.to(tl.float32), weights.to(tl.float32), total)
    else:
        total = tl.dot(values, weights, total, input_precision=PRECISION)
    return total


@triton.jit
def sigmoid2(y):
    """Return ``1 / (1 + 2^y)``; as the square of a root, which takes half a division's steps."""
    root = tl.rsqrt(1.0 + tl.exp2(y))
    return root * root


@triton.jit
def sigmoid(z):
    """Return the logistic sigmoid."""
    return sigmoid2(-1.4426950408889634 * z)


@triton.jit
def tanh(z):
    """Return tanh, by a polynomial where a quotient would cancel."""
    square = z * z
    # Minimax polynomial of tanh(z) / z on |z| < 0.7 through 0, relative error 2e-8.
    p = 0.133291106 + square * (-0.0535588562 + square * (0.020091959 + square * -0.00513865366))
    near = z + z * square * (-0.333331899 + square * p)
    far = 1.0 - 2.0 * sigmoid2(2.8853900817779268 * tl.abs(z))
    return tl.where(square < 0.49, near, tl.where(z < 0.0, -far, far))


@triton.jit
def activate(z, PHI: tl.constexpr, SCALE: tl.constexpr, RATE: tl.constexpr):
    """Return phi(z), and its slope, which matters only where the value does not tell it."""
    slope = z
    if PHI == TANH:
        value = SCALE * tanh(RATE * z)
    elif PHI == IDENTITY:
        value = z
    elif PHI == SIGMOID:
        value = sigmoid(z)
    elif PHI == RELU:
        value = tl.where(z <= 0.0, 0.0, z)
    elif PHI == HARDTANH:
        value = tl.where(z > 1.0, 1.0, tl.where(z < -1.0, -1.0, z))
    elif PHI == SILU:
        gate = sigmoid(z)
        value = z * gate
        slope = gate * (1.0 + z * (1.0 - gate))
    else:
        below = 0.5 + 0.5 * tl.math.erf(0.7071067811865476 * z)
        value = z * below
        slope = below + z * 0.3989422804014327 * tl.exp2(-0.7213475204444817 * z * z)
    return value, slope


@triton.jit
def slope_from_value(value, PHI: tl.constexpr, SCALE: tl.constexpr, RATE: tl.constexpr):
    """Return the slope of phi where it has a value that tells it."""
    if PHI == TANH:
        slope = RATE * (SCALE - value * value / SCALE)
    elif PHI == SIGMOID:
        slope = value * (1.0 - value)
    elif PHI == RELU:
        slope = tl.where(value <= 0.0, 0.0, 1.0)
    elif PHI == HARDTANH:
        slope = tl.where(tl.abs(value) >= 1.0, 0.0, 1.0)
    else:
        slope = value * 0.0 + 1.0
    return slope
