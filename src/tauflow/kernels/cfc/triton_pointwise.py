"""The closed form joined from its heads, and its adjoint, in Triton: functions of tiles.

What depends on options is known when a kernel is compiled: MODE, the closed form, as in
:mod:`.config`, and what :mod:`tauflow.kernels.gpu.math` knows.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from tauflow.kernels.gpu.math import sigmoid, slope_from_value

DEFAULT: tl.constexpr = tl.constexpr(0)
NO_GATE: tl.constexpr = tl.constexpr(1)
PURE: tl.constexpr = tl.constexpr(2)


@triton.jit
def gated_forward(g, h, t_a, t_b, dt, MODE: tl.constexpr, SIGN: tl.constexpr):
    """Return the state after ``dt``, and the gate, from phi of the state heads and time heads."""
    p = sigmoid(SIGN * t_a * dt + t_b)
    after = g + p * h if MODE == NO_GATE else g * (1.0 - p) + h * p
    return after, p


@triton.jit
def gated_backward(
    grad_after,
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
    """Return the gradients of the four heads before phi, and that of the time step, per neuron."""
    grad_p = grad_after * h if MODE == NO_GATE else grad_after * (h - g)
    grad_exponent = grad_p * p * (1.0 - p)
    grad_g = grad_after if MODE == NO_GATE else grad_after * (1.0 - p)
    grad_g = grad_g * slope_from_value(g, PHI, SCALE, RATE)
    grad_h = grad_after * p * slope_from_value(h, PHI, SCALE, RATE)
    return grad_g, grad_h, SIGN * dt * grad_exponent, grad_exponent, SIGN * t_a * grad_exponent


@triton.jit
def pure_forward(r, rate, amplitude, dt):
    """Return the state after ``dt`` of the pure form."""
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + tl.abs(r)))
    return amplitude - amplitude * decay * r


@triton.jit
def pure_backward(grad_after, r, rate, amplitude, dt):
    """Return the gradients of the head, of the time step, and of rate and amplitude, per neuron."""
    size = tl.abs(r)
    decay = tl.exp2(-1.4426950408889634 * dt * (rate + size))
    scaled = grad_after * amplitude * decay
    grad_gap = scaled * r * (rate + size)
    return -scaled * (1.0 - dt * size), grad_gap, scaled * dt * r, grad_after * (1.0 - decay * r)
