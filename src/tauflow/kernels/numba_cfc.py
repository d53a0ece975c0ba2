"""Closed-form continuous-time cells over sequences: compiled loops.

One thread takes a slice of the batch through all steps. A step is a chain of matrix products, done
by the BLAS inside torch, with one pass over the activations between two of them. Gradients of the
weights are left to one product over the whole sequence, after the loop.
"""

from .activation_codes import Phi
from .cfc_arrays import Form, PureGradients
from .numba_blas import matmul, set_blas_threads
from .numba_cfc_math import activate, exp, quadratic_slope, sigmoid, times_slope
from .numba_math import FAST_SUMS, f4, inlined, kernel


@inlined
def read_form(numbers):
    """Return the :class:`Form` of which ``form_numbers`` made an array."""
    n = numbers
    backbone = Phi(int(n[1]), n[2], n[3], n[4], n[5], n[6])
    phi = Phi(int(n[8]), n[9], n[10], n[11], n[12], n[13])
    return Form(int(n[0]), backbone, n[7] != 0, phi, n[14], n[15], n[16] != 0)


@inlined
def core_forward(blas, form, weights, tape, keep, t, low, high, source, accumulate, gaps, after):
    """Write the state after step ``t`` of the slice.

    Args:
        blas: a :class:`~tauflow.kernels.blas.Blas`.
        form, weights, tape, gaps: see :mod:`tauflow.kernels.cfc_arrays`.
        keep: whether a backward pass follows.
        t: step.
        low, high: slice of the batch.
        source: what the first layer reads, (B, R).
        accumulate: whether ``tape.first`` holds the input's part of the product.
        after: receives the state, (B, N).
    """
    z = tape.first[t, low:high]
    recurrent = weights.recurrent
    width, reads = recurrent.shape
    matmul(blas, source[low:high], recurrent, z, width, reads, True, accumulate)
    heads = tape.heads[t % tape.heads.shape[0], low:high]
    if form.layers > 0:
        keep_slopes = tape.slopes.shape[0] > 0
        activate_layer(form, tape, 0, t, z, low, weights.first_bias, keep_slopes)
        for layer in range(form.layers - 1):
            deeper = tape.deep[layer, t % tape.deep.shape[1], low:high]
            matmul(blas, z, weights.deep[layer], deeper, width, width, True, False)
            z = deeper
            bias = weights.deep_bias[layer]
            activate_layer(form, tape, layer + 1, t, z, low, bias, keep_slopes)
        matmul(blas, z, weights.heads, heads, weights.heads.shape[0], width, True, False)
    for row in range(heads.shape[0]):
        b = low + row
        if form.pure:
            _pure_form(heads[row], gaps.dt[b, t], weights, after[b])
        else:
            _gated_form(form, heads[row], gaps.dt[b, t], weights.heads_bias, after[b])


@inlined
def activate_layer(form, tape, layer, t, z, low, bias, keep_slopes):
    """Add the bias and apply the backbone's activation to the slice's rows."""
    for row in range(z.shape[0]):
        slope = tape.slopes[layer, t, low + row] if keep_slopes else bias
        activate(form.backbone, z[row], bias, slope, keep_slopes)


@inlined
def _pure_form(r, dt, weights, after):
    """Write A - A exp(-dt (|w_tau| + |r|)) r; ``r`` gets its bias."""
    bias, rate, amplitude = weights.heads_bias, weights.rate, weights.amplitude
    for j in range(after.size):
        value = r[j] + bias[j]
        decay = exp(-dt * (rate[j] + abs(value)))
        after[j] = amplitude[j] - amplitude[j] * decay * value
        r[j] = value


@inlined
def _gated_form(form, heads, dt, bias, after):
    """Join the four heads; they become phi(g), phi(h), p and t_a."""
    n = after.size
    states = heads[: 2 * n]
    activate(form.phi, states, bias[: 2 * n], states, False)
    g, h, gate, time = heads[:n], heads[n : 2 * n], heads[2 * n : 3 * n], heads[3 * n :]
    bias_a, bias_b = bias[2 * n : 3 * n], bias[3 * n :]
    elapsed = form.sign * dt
    if form.time_bias:
        for j in range(n):
            t_a = gate[j] + bias_a[j]
            gate[j] = sigmoid(t_a * elapsed + (time[j] + bias_b[j]))
            time[j] = t_a
    else:
        for j in range(n):
            time[j] = gate[j] + bias_a[j]
            gate[j] = sigmoid(time[j] * elapsed)
    for j in range(n):
        p = gate[j]
        rest = f4(1.0) - p if form.blend != f4(0.0) else f4(1.0)
        after[j] = g[j] * rest + h[j] * p


@inlined
def core_backward(
    blas, form, weights, tape, deltas, t, low, high, gradient, gaps, pure, source_gradient
):
    """Write the gradients of step ``t``'s products and of what its first layer read.

    Args:
        blas, form, weights, tape, deltas, gaps: as for :func:`core_forward`.
        t: step.
        low, high: slice of the batch.
        gradient: of the state after the step, (B, N).
        pure: rows of :class:`~tauflow.kernels.cfc_arrays.PureGradients` for this slice.
        source_gradient: receives the gradient of the source, (B, R); may be ``gradient`` itself.
    """
    heads = deltas.heads[t, low:high]
    for row in range(heads.shape[0]):
        b = low + row
        if gaps.valid.size > 0 and not gaps.valid[b, t]:
            heads[row] = f4(0.0)
        elif form.pure:
            _pure_backward(tape.heads[t, b], heads[row], gradient[b], weights, gaps, b, t, pure)
        else:
            _gated_backward(form, tape.heads[t, b], heads[row], gradient[b], gaps, b, t)
    delta = heads
    if form.layers > 0:
        top = form.layers - 1
        delta = deltas.deep[top - 1, t, low:high] if top > 0 else deltas.first[t, low:high]
        rows, width = weights.heads.shape
        matmul(blas, heads, weights.heads, delta, width, rows, False, False)
        for layer in range(top, -1, -1):
            z = tape.deep[layer - 1, t, low:high] if layer > 0 else tape.first[t, low:high]
            _through_activation(form, tape, layer, t, delta, z, low)
            if layer > 0:
                below = (
                    deltas.deep[layer - 2, t, low:high] if layer > 1 else deltas.first[t, low:high]
                )
                matmul(blas, delta, weights.deep[layer - 1], below, width, width, False, False)
                delta = below
    out = source_gradient[low:high]
    inner, reads = weights.recurrent.shape
    matmul(blas, delta, weights.recurrent, out, reads, inner, False, False)


@inlined
def _through_activation(form, tape, layer, t, delta, z, low):
    kept = tape.slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = tape.slopes[layer, t, low + row] if kept else z[row]
        times_slope(form.backbone, delta[row], z[row], slope)


@inlined
def _pure_backward(r, delta, gradient, weights, gaps, b, t, pure):
    dt, rate, amplitude = gaps.dt[b, t], weights.rate, weights.amplitude
    if gaps.gradient.size > 0:
        gaps.gradient[b, t] = _pure_gap_gradient(r, gradient, dt, rate, amplitude)
    for j in range(gradient.size):
        value, pull = r[j], gradient[j]
        decay = exp(-dt * (rate[j] + abs(value)))
        fallen = pull * amplitude[j] * decay
        pure.amplitude[j] += pull * (f4(1.0) - decay * value)
        pure.rate[j] += fallen * value * dt
        delta[j] = fallen * abs(value) * dt - fallen  # dt |r| alone may be infinite


@inlined  # in any order the last two may be infinite before a factor of 0 makes nothing of them
def _in_order(pull, factor, first, second):
    return pull * factor * first * second


@inlined(math=FAST_SUMS)
def _pure_gap_gradient(r, gradient, dt, rate, amplitude):
    total = f4(0.0)
    for j in range(gradient.size):
        speed = rate[j] + abs(r[j])
        total += _in_order(gradient[j] * amplitude[j], exp(-dt * speed), r[j], speed)
    return total


@inlined
def _gated_backward(form, values, delta, gradient, gaps, b, t):
    n = gradient.size
    elapsed = form.sign * gaps.dt[b, t]
    g, h, gate = values[:n], values[n : 2 * n], values[2 * n : 3 * n]
    if gaps.gradient.size > 0:
        time = values[3 * n :]
        gaps.gradient[b, t] = form.sign * _gap_gradient(g, h, gate, time, gradient, form.blend)
    to_g, to_h, to_a, to_b = delta[:n], delta[n : 2 * n], delta[2 * n : 3 * n], delta[3 * n :]
    phi = form.phi
    for j in range(n):
        left, right, p, pull = g[j], h[j], gate[j], gradient[j]
        # chosen, not multiplied: 0 times an infinite value would be NaN
        apart = right - left if form.blend != f4(0.0) else right
        rest = f4(1.0) - p if form.blend != f4(0.0) else f4(1.0)
        turn = pull * apart * (p - p * p)
        to_g[j] = pull * rest * quadratic_slope(phi, left)
        to_h[j] = pull * p * quadratic_slope(phi, right)
        to_a[j] = turn * elapsed
        to_b[j] = turn


@inlined(math=FAST_SUMS)
def _gap_gradient(g, h, gate, time, gradient, blend):
    total = f4(0.0)
    for j in range(gradient.size):
        p = gate[j]
        apart = h[j] - g[j] if blend != f4(0.0) else h[j]
        total += _in_order(gradient[j], p - p * p, apart, time[j])
    return total


@kernel
def cfc_forward(index, low, high, blas, numbers, weights, tape, gaps, keep, states, outputs):
    """Run the slice through all steps.

    Args:
        index: number of the slice.
        low, high: slice of the batch.
        numbers: of the form, by ``form_numbers``.
        blas, weights, tape, gaps, keep: as for :func:`core_forward`.
        states: (T + 1 or 2, B, N), the initial state first; receives the others, in turns.
        outputs: (B, T, N), receives the states.
    """
    form = read_form(numbers)
    threads = set_blas_threads(blas, 1)
    for t in range(outputs.shape[1]):
        before, after = states[t % states.shape[0]], states[(t + 1) % states.shape[0]]
        core_forward(blas, form, weights, tape, keep, t, low, high, before, True, gaps, after)
        for b in range(low, high):
            if gaps.valid.size > 0 and not gaps.valid[b, t]:
                after[b] = before[b]
            outputs[b, t] = after[b]
    set_blas_threads(blas, threads)


@kernel
def cfc_backward(
    index, low, high, blas, numbers, weights, tape, deltas, gaps, pulls, carry, kept, pure
):
    """Run the slice back through all steps.

    Args:
        index: number of the slice, and of its row in ``pure``.
        low, high: slice of the batch.
        numbers: of the form, by ``form_numbers``.
        blas, weights, tape, deltas, gaps: as for :func:`core_backward`.
        pulls: (B, T, N), gradient of the outputs; empty if there is none.
        carry: (B, N), gradient of the last state; becomes that of the first.
        kept: (B, N), memory for masked steps; empty if there are none.
        pure: :class:`~tauflow.kernels.cfc_arrays.PureGradients`.
    """
    form = read_form(numbers)
    threads = set_blas_threads(blas, 1)
    own = PureGradients(pure.rate[index], pure.amplitude[index])
    for t in range(gaps.dt.shape[1] - 1, -1, -1):
        if pulls.size > 0:
            for b in range(low, high):
                add(carry[b], pulls[b, t])
        keep_masked(gaps, t, low, high, carry, kept)
        core_backward(blas, form, weights, tape, deltas, t, low, high, carry, gaps, own, carry)
        give_back_masked(gaps, t, low, high, carry, kept)
    set_blas_threads(blas, threads)


@inlined
def add(total, more):
    """Add one row to another."""
    for j in range(total.size):
        total[j] += more[j]


@inlined
def keep_masked(gaps, t, low, high, carry, kept):
    """Copy the gradients that a masked step passes on untouched."""
    if gaps.valid.size > 0:
        for b in range(low, high):
            if not gaps.valid[b, t]:
                kept[b] = carry[b]


@inlined
def give_back_masked(gaps, t, low, high, carry, kept):
    """Restore the gradients of :func:`keep_masked`."""
    if gaps.valid.size > 0:
        for b in range(low, high):
            if not gaps.valid[b, t]:
                carry[b] = kept[b]
