"""Activations and closed-form updates in Triton: functions of tiles that kernels share.

What depends on options is known when a kernel is compiled: the number PHI of an activation as in
:mod:`.activation_codes` with its SCALE and RATE, and MODE, the closed form. Infinities and NaN come
through as in torch.
"""

import triton
import triton.language as tl

from .triton_synapses import sigmoid2

TANH: tl.constexpr = tl.constexpr(0)
IDENTITY: tl.constexpr = tl.constexpr(1)
SIGMOID: tl.constexpr = tl.constexpr(2)
RELU: tl.constexpr = tl.constexpr(3)
HARDTANH: tl.constexpr = tl.constexpr(4)
SILU: tl.constexpr = tl.constexpr(5)

DEFAULT: tl.constexpr = tl.constexpr(0)
NO_GATE: tl.constexpr = tl.constexpr(1)
PURE: tl.constexpr = tl.constexpr(2)


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
def slope_of(value, PHI: tl.constexpr, SCALE: tl.constexpr, RATE: tl.constexpr):
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


@triton.jit
def gated(g, h, t_a, t_b, dt, MODE: tl.constexpr, SIGN: tl.constexpr):
    """Return the state after ``dt``, and the gate, from phi of the state heads and time heads."""
    p = sigmoid(SIGN * t_a * dt + t_b)
    after = g + p * h if MODE == NO_GATE else g * (1.0 - p) + h * p
    return after, p


@triton.jit
def pull_gated(
    g_after,
    g,
    h,
    p,
    t_a,
    dt,
    MODE: tl.constexpr,
    SIGN: tl.constexpr,
    PHI: tl.constexpr,
    SCALE: tl.constexpr,
    RATE: tl.constexpr,
):
    """Return the gradients of the four heads before phi, and that of the gap, per neuron."""
    g_p = g_after * h if MODE == NO_GATE else g_after * (h - g)
    g_exponent = g_p * p * (1.0 - p)
    to_g = g_after if MODE == NO_GATE else g_after * (1.0 - p)
    to_g = to_g * slope_of(g, PHI, SCALE, RATE)
    to_h = g_after * p * slope_of(h, PHI, SCALE, RATE)
    return to_g, to_h, SIGN * dt * g_exponent, g_exponent, SIGN * t_a * g_exponent


@triton.jit
def pure(r, rate, amplitude, dt):
    """Return the state after ``dt`` of the pure form."""
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + tl.abs(r)))
    return amplitude - amplitude * decay * r


@triton.jit
def pull_pure(g_after, r, rate, amplitude, dt):
    """Return the gradients of the head, of the gap, and of rate and amplitude, per neuron."""
    size = tl.abs(r)
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + size))
    pulled = g_after * amplitude * decay
    to_gap = pulled * r * (rate + size)
    return -pulled * (1.0 - dt * size), to_gap, pulled * dt * r, g_after * (1.0 - decay * r)
