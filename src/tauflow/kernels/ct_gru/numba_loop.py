r"""The CT-GRU over whole sequences, compiled.

With the memories D that a sample finds, and the gates' arguments z, a step is

.. math::
    r, s = \mathrm{softmax}(-z^2), \quad u = \sum_k r_k D_k, \quad q = \tanh(q_x + U_q u), \quad
    P_k = D_k + s_k (q - D_k)

and the backward pass through it, with the gradient of P,

.. math::
    \bar q = \sum_k s_k \bar P_k, \quad
    \bar z_{s,k} = -2 z_k s_k \Big(\bar s_k - \sum_l s_l \bar s_l\Big), \quad
    \bar s_k = \bar P_k (q - D_k)

    \bar z_{r,k} = -2 z_k r_k \bar u\, (D_k - u), \quad
    \bar D_k = (1 - s_k) \bar P_k + r_k \bar u + U^T \bar z

One thread takes a slice of the batch through all steps. What the gates make of z is computed again
in the backward pass, which is cheaper than to keep it. Gradients of the weights are left to one
product over the whole sequence, after the loop. Arrays are explained in
:mod:`tauflow.kernels.ct_gru`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import add, copy, exp, tanh
from tauflow.kernels.cpu.matmul import matmul, transpose

_ZERO = f4(0.0)
_ONE = f4(1.0)
_TWO = f4(2.0)
_UNFUSED = {"nsz"}
"""No fused multiply-adds: a difference of equals would be a rounding, huge where z is, not 0."""


@inline(math=_UNFUSED)
def _softmax_over_scales(z, shares, least, total):
    """Write the softmax over the scales of -z^2, neuron by neuron.

    Args:
        z: (M N,).
        shares: (M, N), written.
        least, total: (N,), overwritten.
    """
    scales, n = shares.shape
    for j in range(n):
        least[j], total[j] = z[j] * z[j], _ZERO
    for k in range(1, scales):
        z_k = z[k * n : (k + 1) * n]
        for j in range(n):
            square = z_k[j] * z_k[j]
            least[j] = square if square < least[j] else least[j]
    for k in range(scales):
        z_k, shares_k = z[k * n : (k + 1) * n], shares[k]
        for j in range(n):
            shares_k[j] = exp(least[j] - z_k[j] * z_k[j])
            total[j] += shares_k[j]
    for j in range(n):
        total[j] = _ONE / total[j]
    for k in range(scales):
        shares_k = shares[k]
        for j in range(n):
            shares_k[j] *= total[j]


@inline
def _is_valid(sequence, b, t):
    return sequence.mask.shape[1] == 0 or sequence.mask[b, t]


@inline
def _decay_traces(sequence, b, t, traces, decayed_traces):
    """Write the memories that a sample finds, (M, N)."""
    n = decayed_traces.shape[1]
    for k in range(decayed_traces.shape[0]):
        factor = sequence.decay_factors[b, t, k] if sequence.decays_first else _ONE
        memory, found_k = traces[k * n : (k + 1) * n], decayed_traces[k]
        for j in range(n):
            found_k[j] = factor * memory[j]


@inline
def _sum_scales(traces, total):
    """Write the sums of each neuron's memories, (M, N) to (N,)."""
    copy(traces[0], total)
    for k in range(1, traces.shape[0]):
        add(total, traces[k])


@inline
def _update_traces(sequence, b, t, decayed_traces, shares, q, after):
    """Write the memories after a sample, (M N,)."""
    n = q.shape[0]
    for k in range(decayed_traces.shape[0]):
        factor = _ONE if sequence.decays_first else sequence.decay_factors[b, t, k]
        found_k, shares_k, after_k = decayed_traces[k], shares[k], after[k * n : (k + 1) * n]
        for j in range(n):
            after_k[j] = factor * (found_k[j] + shares_k[j] * (q[j] - found_k[j]))


@kernel(is_launched=True)
def ct_gru_forward(index, low, high, weights, activations, sequence):
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        weights, activations, sequence: see :mod:`tauflow.kernels.ct_gru`.
    """
    W_h, W_q = transpose(weights.W_h), transpose(weights.W_q)
    memories, rows, n = activations.traces, high - low, weights.W_q.shape[0]
    scales = sequence.decay_factors.shape[2]
    width = scales * n
    decayed, fresh = np.empty((rows, scales, n), f4), np.empty((rows, n), f4)
    shares, least, total = np.empty((scales, n), f4), np.empty(n, f4), np.empty(n, f4)
    for t in range(sequence.decay_factors.shape[1]):
        now, read = t % activations.trace_sums.shape[0], activations.read[t, low:high]
        sums, chosen = activations.trace_sums[now, low:high], activations.retrieved[now, low:high]
        before = memories[t % memories.shape[0], low:high]
        after = memories[(t + 1) % memories.shape[0], low:high]
        for row in range(rows):
            _decay_traces(sequence, low + row, t, before[row], decayed[row])
            _sum_scales(decayed[row], sums[row])
        matmul(sums, W_h, read, True)
        for row in range(rows):
            _softmax_over_scales(read[row, :width], shares, least, total)
            chosen_row = chosen[row]
            chosen_row[:] = _ZERO
            for k in range(scales):
                found_k, shares_k = decayed[row, k], shares[k]
                for j in range(n):
                    chosen_row[j] += shares_k[j] * found_k[j]
            copy(read[row, 2 * width :], fresh[row])
        matmul(chosen, W_q, fresh, True)
        for row in range(rows):
            b, q = low + row, read[row, 2 * width :]
            for j in range(n):
                q[j] = tanh(fresh[row, j])
            if _is_valid(sequence, b, t):
                _softmax_over_scales(read[row, width : 2 * width], shares, least, total)
                _update_traces(sequence, b, t, decayed[row], shares, q, after[row])
            else:
                copy(before[row], after[row])
            _sum_scales(after[row].reshape(scales, n), sequence.out[b, t])


@inline(math=_UNFUSED)
def _update_traces_backward(decayed_traces, shares, z, q, grad_traces, grad_z, grad_q, dots):
    """Take the gradients of the memories after a sample back to what was written, and where.

    Args:
        decayed_traces, shares: (M, N).
        z: (M N,), of which the shares are.
        q: (N,).
        grad_traces: (M, N), gradient; becomes the direct part of that of the memories found.
        grad_z: (M N,), receives that of z.
        grad_q: (N,), receives that of q before tanh.
        dots: (N,), overwritten.
    """
    n = q.shape[0]
    grad_q[:], dots[:] = _ZERO, _ZERO
    for k in range(decayed_traces.shape[0]):
        found_k, shares_k, grad_k = decayed_traces[k], shares[k], grad_traces[k]
        for j in range(n):
            part = shares_k[j] * grad_k[j]
            grad_q[j] += part
            dots[j] += part * (q[j] - found_k[j])
    for k in range(decayed_traces.shape[0]):
        found_k, shares_k, grad_k = decayed_traces[k], shares[k], grad_traces[k]
        z_k, grad_z_k = z[k * n : (k + 1) * n], grad_z[k * n : (k + 1) * n]
        for j in range(n):
            apart = grad_k[j] * (q[j] - found_k[j]) - dots[j]
            grad_z_k[j] = -_TWO * z_k[j] * shares_k[j] * apart
            grad_k[j] *= _ONE - shares_k[j]
    for j in range(n):
        grad_q[j] *= _ONE - q[j] * q[j]


@inline
def _retrieve_backward(decayed_traces, shares, z, retrieved, grad_retrieved, grad_traces, grad_z):
    """Take the gradient of what was read back to the memories, adding, and to z."""
    n = retrieved.shape[0]
    for k in range(decayed_traces.shape[0]):
        found_k, shares_k, grad_k = decayed_traces[k], shares[k], grad_traces[k]
        z_k, grad_z_k = z[k * n : (k + 1) * n], grad_z[k * n : (k + 1) * n]
        for j in range(n):
            part = shares_k[j] * grad_retrieved[j]
            grad_k[j] += part
            grad_z_k[j] = -_TWO * z_k[j] * part * (found_k[j] - retrieved[j])


@inline
def _add_to_all_scales(grad_traces, part):
    """Add to the gradient of every memory of a neuron."""
    for k in range(grad_traces.shape[0]):
        add(grad_traces[k], part)


@inline
def _decay_backward(factors, at, part, grad_traces, grad_factors):
    """Add to gradients and take them back through a decay.

    Args:
        factors: (M,).
        at: (M, N), the memories before the decay; empty if nothing is wanted for the factors.
        part: (N,), added first, as :func:`_add_to_all_scales` does.
        grad_traces: (M, N), changed.
        grad_factors: (M,), receives the gradient of the factors; empty if not wanted.
    """
    for k in range(grad_traces.shape[0]):
        grad_k, factor = grad_traces[k], factors[k]
        if grad_factors.size > 0:
            at_k, total = at[k], _ZERO
            for j in range(grad_k.shape[0]):
                total += (grad_k[j] + part[j]) * at_k[j]
            grad_factors[k] = total
        for j in range(grad_k.shape[0]):
            grad_k[j] = factor * (grad_k[j] + part[j])


@inline
def _mix_traces(decayed_traces, shares, q, after):
    """Write the memories after a sample, before a decay, (M, N)."""
    for k in range(decayed_traces.shape[0]):
        found_k, shares_k, after_k = decayed_traces[k], shares[k], after[k]
        for j in range(q.shape[0]):
            after_k[j] = found_k[j] + shares_k[j] * (q[j] - found_k[j])


@kernel(is_launched=True)
def ct_gru_backward(  # noqa: C901 - an inner loop, which calls would slow
    index, low, high, weights, activations, sequence, deltas
):
    """Run the slice back through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        weights, activations, sequence: as for :func:`ct_gru_forward`.
        deltas: written.
    """
    rows, n, scales = high - low, weights.W_q.shape[0], sequence.decay_factors.shape[2]
    width, wanted = scales * n, deltas.decay_factors.size > 0
    grad = deltas.traces[low:high].reshape(rows, scales, n)
    decayed, after = np.empty((rows, scales, n), f4), np.empty((scales, n), f4)
    fresh, grad_source = np.empty((rows, n), f4), np.empty((rows, n), f4)
    shares, least, total = np.empty((scales, n), f4), np.empty(n, f4), np.empty(n, f4)
    nothing, no_left = np.zeros(n, f4), np.empty(0, f4)
    for t in range(sequence.decay_factors.shape[1] - 1, -1, -1):
        read, delta = activations.read[t, low:high], deltas.read[t, low:high]
        for row in range(rows):
            b = low + row
            grad_left = deltas.decay_factors[b, t] if wanted else no_left
            grad_out = sequence.out[b, t] if sequence.out.size > 0 else nothing
            if not _is_valid(sequence, b, t):
                delta[row], fresh[row], grad_left[:] = _ZERO, _ZERO, _ZERO
                _add_to_all_scales(grad[row], grad_out)
                continue
            z, q = read[row, width : 2 * width], read[row, 2 * width :]
            _decay_traces(sequence, b, t, activations.traces[t, b], decayed[row])
            _softmax_over_scales(z, shares, least, total)
            if sequence.decays_first:
                _add_to_all_scales(grad[row], grad_out)
            else:
                if wanted:
                    _mix_traces(decayed[row], shares, q, after)
                _decay_backward(sequence.decay_factors[b, t], after, grad_out, grad[row], grad_left)
            grad_z = delta[row, width : 2 * width]
            _update_traces_backward(
                decayed[row], shares, z, q, grad[row], grad_z, fresh[row], total
            )
            copy(fresh[row], delta[row, 2 * width :])
        matmul(fresh, weights.W_q, grad_source, False)
        for row in range(rows):
            if _is_valid(sequence, low + row, t):
                z, grad_z, chosen = (
                    read[row, :width],
                    delta[row, :width],
                    activations.retrieved[t, low + row],
                )
                _softmax_over_scales(z, shares, least, total)
                _retrieve_backward(
                    decayed[row], shares, z, chosen, grad_source[row], grad[row], grad_z
                )
        matmul(delta, weights.W_h, grad_source, False)
        for row in range(rows):
            b = low + row
            if not _is_valid(sequence, b, t):
                continue
            if sequence.decays_first:
                at = activations.traces[t, b].reshape(scales, n)
                grad_left = deltas.decay_factors[b, t] if wanted else no_left
                _decay_backward(
                    sequence.decay_factors[b, t], at, grad_source[row], grad[row], grad_left
                )
            else:
                _add_to_all_scales(grad[row], grad_source[row])
