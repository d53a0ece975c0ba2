r"""The CT-GRU over whole sequences, compiled.

With the memories D that a sample finds, and the gates' arguments z, a step is

.. math::
    r, s = \mathrm{softmax}(-z^2), \quad u = \sum_k r_k D_k, \quad q = \tanh(q_x + U_q u), \quad
    P_k = D_k + s_k (q - D_k)

and the way back through it, with the gradient of P,

.. math::
    \bar q = \sum_k s_k \bar P_k, \quad
    \bar z_{s,k} = -2 z_k s_k \Big(\bar s_k - \sum_l s_l \bar s_l\Big), \quad
    \bar s_k = \bar P_k (q - D_k)

    \bar z_{r,k} = -2 z_k r_k \bar u\, (D_k - u), \quad
    \bar D_k = (1 - s_k) \bar P_k + r_k \bar u + U^T \bar z

One thread takes a slice of the batch through all steps; products are done by the BLAS inside torch.
What the gates make of z is computed again on the way back, which is cheaper than to keep it.
Gradients of the weights are left to one product over the whole sequence, after the loop. Arrays are
explained in :mod:`tauflow.kernels.scales`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import add, copy, exp, tanh

_ZERO = f4(0.0)
_ONE = f4(1.0)
_TWO = f4(2.0)
_UNFUSED = {"nsz"}
"""No fused multiply-adds: a difference of equals would be a rounding, huge where z is, not 0."""


@inlined(math=_UNFUSED)
def _choose(z, shares, least, total):
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


@inlined
def _is_valid(run, b, t):
    return run.mask.shape[1] == 0 or run.mask[b, t]


@inlined
def _find(run, b, t, memories, found):
    """Write the memories that a sample finds, (M, N)."""
    n = found.shape[1]
    for k in range(found.shape[0]):
        factor = run.left[b, t, k] if run.decays_first else _ONE
        memory, found_k = memories[k * n : (k + 1) * n], found[k]
        for j in range(n):
            found_k[j] = factor * memory[j]


@inlined
def _sum_scales(memories, total):
    """Write the sums of each neuron's memories, (M, N) to (N,)."""
    copy(memories[0], total)
    for k in range(1, memories.shape[0]):
        add(total, memories[k])


@inlined
def _write(run, b, t, found, shares, q, after):
    """Write the memories after a sample, (M N,)."""
    n = q.shape[0]
    for k in range(found.shape[0]):
        factor = _ONE if run.decays_first else run.left[b, t, k]
        found_k, shares_k, after_k = found[k], shares[k], after[k * n : (k + 1) * n]
        for j in range(n):
            after_k[j] = factor * (found_k[j] + shares_k[j] * (q[j] - found_k[j]))


@kernel
def scales_forward(index, low, high, blas, weights, tape, run):
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        weights, tape, run: see :mod:`tauflow.kernels.scales`.
    """
    threads = set_blas_threads(blas, 1)
    memories, rows, n = tape.memories, high - low, weights.W_q.shape[0]
    scales = run.left.shape[2]
    width = scales * n
    found, fresh = np.empty((rows, scales, n), f4), np.empty((rows, n), f4)
    shares, least, total = np.empty((scales, n), f4), np.empty(n, f4), np.empty(n, f4)
    for t in range(run.left.shape[1]):
        now, read = t % tape.sums.shape[0], tape.read[t, low:high]
        sums, chosen = tape.sums[now, low:high], tape.chosen[now, low:high]
        before = memories[t % memories.shape[0], low:high]
        after = memories[(t + 1) % memories.shape[0], low:high]
        for row in range(rows):
            _find(run, low + row, t, before[row], found[row])
            _sum_scales(found[row], sums[row])
        matmul(blas, sums, weights.W_h, read, 2 * width, n, True, True)
        for row in range(rows):
            _choose(read[row, :width], shares, least, total)
            chosen_row = chosen[row]
            chosen_row[:] = _ZERO
            for k in range(scales):
                found_k, shares_k = found[row, k], shares[k]
                for j in range(n):
                    chosen_row[j] += shares_k[j] * found_k[j]
            copy(read[row, 2 * width :], fresh[row])
        matmul(blas, chosen, weights.W_q, fresh, n, n, True, True)
        for row in range(rows):
            b, q = low + row, read[row, 2 * width :]
            for j in range(n):
                q[j] = tanh(fresh[row, j])
            if _is_valid(run, b, t):
                _choose(read[row, width : 2 * width], shares, least, total)
                _write(run, b, t, found[row], shares, q, after[row])
            else:
                copy(before[row], after[row])
            _sum_scales(after[row].reshape(scales, n), run.out[b, t])
    set_blas_threads(blas, threads)


@inlined(math=_UNFUSED)
def _unwrite(found, shares, z, q, pull, to_z, to_q, dots):
    """Take the gradients of the memories after a sample back to what was written, and where.

    Args:
        found, shares: (M, N).
        z: (M N,), of which the shares are.
        q: (N,).
        pull: (M, N), gradient; becomes the direct part of that of the memories found.
        to_z: (M N,), receives that of z.
        to_q: (N,), receives that of q before tanh.
        dots: (N,), overwritten.
    """
    n = q.shape[0]
    to_q[:], dots[:] = _ZERO, _ZERO
    for k in range(found.shape[0]):
        found_k, shares_k, pull_k = found[k], shares[k], pull[k]
        for j in range(n):
            part = shares_k[j] * pull_k[j]
            to_q[j] += part
            dots[j] += part * (q[j] - found_k[j])
    for k in range(found.shape[0]):
        found_k, shares_k, pull_k = found[k], shares[k], pull[k]
        z_k, to_z_k = z[k * n : (k + 1) * n], to_z[k * n : (k + 1) * n]
        for j in range(n):
            apart = pull_k[j] * (q[j] - found_k[j]) - dots[j]
            to_z_k[j] = -_TWO * z_k[j] * shares_k[j] * apart
            pull_k[j] *= _ONE - shares_k[j]
    for j in range(n):
        to_q[j] *= _ONE - q[j] * q[j]


@inlined
def _unread(found, shares, z, chosen, pull_chosen, pull, to_z):
    """Take the gradient of what was read back to the memories, adding, and to z."""
    n = chosen.shape[0]
    for k in range(found.shape[0]):
        found_k, shares_k, pull_k = found[k], shares[k], pull[k]
        z_k, to_z_k = z[k * n : (k + 1) * n], to_z[k * n : (k + 1) * n]
        for j in range(n):
            part = shares_k[j] * pull_chosen[j]
            pull_k[j] += part
            to_z_k[j] = -_TWO * z_k[j] * part * (found_k[j] - chosen[j])


@inlined
def _add_to_all(pull, part):
    """Add to the gradient of every memory of a neuron."""
    for k in range(pull.shape[0]):
        add(pull[k], part)


@inlined
def _undecay(factors, at, part, pull, to_left):
    """Add to gradients and take them back through a decay.

    Args:
        factors: (M,).
        at: (M, N), the memories before the decay; empty if nothing is wanted for the factors.
        part: (N,), added first, as :func:`_add_to_all` does.
        pull: (M, N), changed.
        to_left: (M,), receives the gradient of the factors; empty if not wanted.
    """
    for k in range(pull.shape[0]):
        pull_k, factor = pull[k], factors[k]
        if to_left.size > 0:
            at_k, total = at[k], _ZERO
            for j in range(pull_k.shape[0]):
                total += (pull_k[j] + part[j]) * at_k[j]
            to_left[k] = total
        for j in range(pull_k.shape[0]):
            pull_k[j] = factor * (pull_k[j] + part[j])


@inlined
def _mix(found, shares, q, after):
    """Write the memories after a sample, before a decay, (M, N)."""
    for k in range(found.shape[0]):
        found_k, shares_k, after_k = found[k], shares[k], after[k]
        for j in range(q.shape[0]):
            after_k[j] = found_k[j] + shares_k[j] * (q[j] - found_k[j])


@kernel
def scales_backward(  # noqa: C901 - an inner loop, which calls would slow
    index, low, high, blas, weights, tape, run, deltas
):
    """Run the slice back through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas, weights, tape, run: as for :func:`scales_forward`.
        deltas: written.
    """
    threads = set_blas_threads(blas, 1)
    rows, n, scales = high - low, weights.W_q.shape[0], run.left.shape[2]
    width, wanted = scales * n, deltas.left.size > 0
    pull = deltas.memories[low:high].reshape(rows, scales, n)
    found, after = np.empty((rows, scales, n), f4), np.empty((scales, n), f4)
    fresh, pulled = np.empty((rows, n), f4), np.empty((rows, n), f4)
    shares, least, total = np.empty((scales, n), f4), np.empty(n, f4), np.empty(n, f4)
    nothing, no_left = np.zeros(n, f4), np.empty(0, f4)
    for t in range(run.left.shape[1] - 1, -1, -1):
        read, delta = tape.read[t, low:high], deltas.read[t, low:high]
        for row in range(rows):
            b = low + row
            to_left = deltas.left[b, t] if wanted else no_left
            to_out = run.out[b, t] if run.out.size > 0 else nothing
            if not _is_valid(run, b, t):
                delta[row], fresh[row], to_left[:] = _ZERO, _ZERO, _ZERO
                _add_to_all(pull[row], to_out)
                continue
            z, q = read[row, width : 2 * width], read[row, 2 * width :]
            _find(run, b, t, tape.memories[t, b], found[row])
            _choose(z, shares, least, total)
            if run.decays_first:
                _add_to_all(pull[row], to_out)
            else:
                if wanted:
                    _mix(found[row], shares, q, after)
                _undecay(run.left[b, t], after, to_out, pull[row], to_left)
            to_z = delta[row, width : 2 * width]
            _unwrite(found[row], shares, z, q, pull[row], to_z, fresh[row], total)
            copy(fresh[row], delta[row, 2 * width :])
        matmul(blas, fresh, weights.W_q, pulled, n, n, False, False)
        for row in range(rows):
            if _is_valid(run, low + row, t):
                z, to_z, chosen = read[row, :width], delta[row, :width], tape.chosen[t, low + row]
                _choose(z, shares, least, total)
                _unread(found[row], shares, z, chosen, pulled[row], pull[row], to_z)
        matmul(blas, delta, weights.W_h, pulled, n, 2 * width, False, False)
        for row in range(rows):
            b = low + row
            if not _is_valid(run, b, t):
                continue
            if run.decays_first:
                at = tape.memories[t, b].reshape(scales, n)
                to_left = deltas.left[b, t] if wanted else no_left
                _undecay(run.left[b, t], at, pulled[row], pull[row], to_left)
            else:
                _add_to_all(pull[row], pulled[row])
    set_blas_threads(blas, threads)
