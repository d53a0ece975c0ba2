"""The closed form joined from its heads, one row at a time, and its adjoint: compiled loops."""

# mypy: ignore-errors

from tauflow.kernels.cpu.jit import FAST_SUMS, f4, inline
from tauflow.kernels.cpu.math import activate, exp, quadratic_slope, sigmoid

from .config import DEFAULT, PURE


@inline
def cfc_gate_forward(code, weights, heads, dt, after):
    """Write the states after the time steps of some rows to ``after``, (rows, N).

    Args:
        code: a :class:`~tauflow.kernels.cfc.config.CfCCode`.
        weights: see :mod:`tauflow.kernels.cfc.config`.
        heads: (rows, K N), products without bias; become phi(g), phi(h), p and t_a, or r.
        dt: (rows,).
        after: written.
    """
    # each row is given only what it reads: arrays cost, even those that a function leaves alone
    bias, rate, amplitude = weights.heads_bias, weights.rate, weights.amplitude
    if code.mode == PURE:
        for row in range(dt.size):
            _pure_forward(heads[row], dt[row], bias, rate, amplitude, after[row])
    else:
        for row in range(dt.size):
            _gated_forward(code, heads[row], dt[row], bias, after[row])


@inline
def cfc_gate_backward(code, weights, values, dt, valid, gradient, delta, grad_parameters):
    """Write the gradients of the products of some rows' heads to ``delta``.

    Args:
        code, weights, dt: as for :func:`cfc_gate_forward`.
        values: (rows, K N), what that left of the heads.
        valid: (rows,) bool, where there are gradients; empty if everywhere.
        gradient: (rows, N), of the states after the step.
        delta: (rows, K N), may be ``values``.
        grad_parameters: gradients of rate and amplitude, (N,) each, added to.
    """
    rate, amplitude = weights.rate, weights.amplitude
    grad_rate, grad_amplitude = grad_parameters
    for row in range(dt.size):
        if valid.size > 0 and not valid[row]:
            delta[row] = f4(0.0)
        elif code.mode == PURE:
            _pure_backward(
                values[row], dt[row], rate, amplitude, gradient[row], delta[row], grad_rate,
                grad_amplitude,
            )  # fmt: skip
        else:
            _gated_backward(code, values[row], dt[row], gradient[row], delta[row])


@inline
def dt_gradients(code, weights, values, dt, valid, gradient, grad_dt):
    """Write the gradients of some rows' dt; call it before :func:`cfc_gate_backward`."""
    rate, amplitude, n = weights.rate, weights.amplitude, gradient.shape[1]
    for row in range(dt.size):
        row_values, grad = values[row], gradient[row]
        if valid.size > 0 and not valid[row]:
            grad_dt[row] = f4(0.0)
        elif code.mode == PURE:
            grad_dt[row] = _pure_dt_gradient(row_values, grad, dt[row], rate, amplitude)
        else:
            g, h, gate, time = (
                row_values[:n],
                row_values[n : 2 * n],
                row_values[2 * n : 3 * n],
                row_values[3 * n :],
            )
            blends = code.mode == DEFAULT
            grad_dt[row] = code.sign * _gated_dt_gradient(g, h, gate, time, grad, blends)


@inline
def _pure_forward(r, dt, bias, rate, amplitude, after):
    """Write A - A exp(-dt (|w_tau| + |r|)) r; ``r`` gets its bias."""
    for j in range(after.size):
        value = r[j] + bias[j]
        decay = exp(-dt * (rate[j] + abs(value)))
        after[j] = amplitude[j] - amplitude[j] * decay * value
        r[j] = value


@inline
def _gated_forward(code, heads, dt, bias, after):
    """Join the four heads; they become phi(g), phi(h), p and t_a."""
    n = after.size
    states = heads[: 2 * n]
    activate(code.phi, states, bias[: 2 * n], states, False)
    g, h, gate, time = heads[:n], heads[n : 2 * n], heads[2 * n : 3 * n], heads[3 * n :]
    bias_a, bias_b = bias[2 * n : 3 * n], bias[3 * n :]
    elapsed = code.sign * dt
    if code.time_bias:
        for j in range(n):
            t_a = gate[j] + bias_a[j]
            gate[j] = sigmoid(t_a * elapsed + (time[j] + bias_b[j]))
            time[j] = t_a
    else:
        for j in range(n):
            time[j] = gate[j] + bias_a[j]
            gate[j] = sigmoid(time[j] * elapsed)
    blends = code.mode == DEFAULT
    for j in range(n):
        p = gate[j]
        rest = f4(1.0) - p if blends else f4(1.0)
        after[j] = g[j] * rest + h[j] * p


@inline
def _pure_backward(r, dt, rate, amplitude, gradient, delta, grad_rate, grad_amplitude):
    for j in range(gradient.size):
        value, grad = r[j], gradient[j]
        decay = exp(-dt * (rate[j] + abs(value)))
        fallen = grad * amplitude[j] * decay
        grad_amplitude[j] += grad * (f4(1.0) - decay * value)
        grad_rate[j] += fallen * value * dt
        delta[j] = fallen * abs(value) * dt - fallen  # dt |r| alone may be infinite


@inline  # in any order the last two may be infinite before a factor of 0 makes nothing of them
def _multiply_in_order(grad_state, factor, first, second):
    return grad_state * factor * first * second


@inline(math=FAST_SUMS)
def _pure_dt_gradient(r, gradient, dt, rate, amplitude):
    total = f4(0.0)
    for j in range(gradient.size):
        speed = rate[j] + abs(r[j])
        total += _multiply_in_order(gradient[j] * amplitude[j], exp(-dt * speed), r[j], speed)
    return total


@inline
def _gated_backward(code, values, dt, gradient, delta):
    n = gradient.size
    elapsed, blends, phi = code.sign * dt, code.mode == DEFAULT, code.phi
    g, h, gate = values[:n], values[n : 2 * n], values[2 * n : 3 * n]
    grad_g, grad_h, grad_a, grad_b = (
        delta[:n],
        delta[n : 2 * n],
        delta[2 * n : 3 * n],
        delta[3 * n :],
    )
    for j in range(n):
        left, right, p, grad = g[j], h[j], gate[j], gradient[j]
        # chosen, not multiplied: 0 times an infinite value would be NaN
        apart = right - left if blends else right
        rest = f4(1.0) - p if blends else f4(1.0)
        turn = grad * apart * (p - p * p)
        grad_g[j] = grad * rest * quadratic_slope(phi, left)
        grad_h[j] = grad * p * quadratic_slope(phi, right)
        grad_a[j] = turn * elapsed
        grad_b[j] = turn


@inline(math=FAST_SUMS)
def _gated_dt_gradient(g, h, gate, time, gradient, blends):
    total = f4(0.0)
    for j in range(gradient.size):
        p = gate[j]
        apart = h[j] - g[j] if blends else h[j]
        total += _multiply_in_order(gradient[j], p - p * p, apart, time[j])
    return total
