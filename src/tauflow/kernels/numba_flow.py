r"""Explicit Runge-Kutta steps of a flow over whole sequences, compiled.

With :math:`\delta = gap / substeps`, the stages of one sub-step are

.. math::
    h_i = h + \delta \sum_{j < i} a_{ij} F_j, \qquad F_i = F(h_i), \qquad
    h' = h + \delta \sum_i b_i F_i

and with :math:`e_j = b_j \bar h' + \sum_{i > j} a_{ij} \bar h_i` their gradients

.. math::
    \bar F_j = \delta e_j, \qquad \bar\delta = \sum_j \langle e_j, F_j \rangle, \qquad
    \bar h_j = (\partial F / \partial h)^T \bar F_j, \qquad \bar h = \bar h' + \sum_j \bar h_j

Where the state is clipped after a sub-step, its gradient ends at what was cut off. The tape does
not hold the state before the cut: the backward loop takes that sub-step again from what it holds.

One thread takes a slice of the batch through all steps; products are done by the BLAS inside
torch. Gradients of the weights are left to one product over the whole sequence, after the loop.
Arrays are explained in :mod:`tauflow.kernels.flow_arrays`.
"""

import numpy as np

from .activation_codes import Phi
from .numba_blas import matmul, set_blas_threads
from .numba_cfc_math import activate, times_slope
from .numba_math import FAST_SUMS, f4, inlined, kernel

_ZERO = f4(0.0)


@inlined
def read_phi(numbers):
    """Return the activation of a :class:`Field`."""
    n = numbers
    return Phi(int(n[0]), n[1], n[2], n[3], n[4], n[5])


@inlined
def _add_scaled(total, factor, part):
    for j in range(total.size):
        total[j] += factor * part[j]


@inlined
def _times(damping, value):
    """Return the product, 0 without damping: 0 times an infinite state would be NaN."""
    return damping * value if damping != _ZERO else _ZERO


@inlined
def _evaluate(blas, phi, field, drive, no_bias, at, f, F):
    """Write the field's values at ``at`` (rows, N) to ``F``, and those of phi to ``f``."""
    width, neurons = field.W_1.shape
    for row in range(at.shape[0]):
        f[row] = drive[row]
    matmul(blas, at, field.W_1, f, width, neurons, True, True)
    for row in range(at.shape[0]):
        activate(phi, f[row], no_bias, f[row], False)
    _values(blas, field, at, f, F)


@inlined
def _values(blas, field, at, f, F):
    """Write the field's values, given those of phi."""
    damping = field.numbers[6]
    neurons = at.shape[1]
    if field.W_2.size > 0:
        for row in range(at.shape[0]):
            for j in range(neurons):
                F[row, j] = field.b_2[j] - _times(damping, at[row, j])
        matmul(blas, f, field.W_2, F, neurons, f.shape[1], True, True)
    else:
        for row in range(at.shape[0]):
            for j in range(neurons):
                F[row, j] = field.scale[j] * f[row, j] - _times(damping, at[row, j])


@inlined
def flow_forward(blas, phi, field, steps, tape, t, low, high, drive, delta, no_bias, h, F, after):
    """Cover one gap of the slice.

    Args:
        blas: a :class:`~tauflow.kernels.blas.Blas`.
        phi: the activation.
        field, steps, tape: see :mod:`tauflow.kernels.flow_arrays`.
        t: step of the tape.
        low, high: slice of the batch.
        drive: (rows, H).
        delta: (rows,), length of a sub-step.
        no_bias: (H,), zeros.
        h: (rows, N).
        F: (stages, B, N), memory.
        after: receives the state, (rows, N); may be ``h``.
    """
    stages = steps.b.size
    for row in range(h.shape[0]):
        after[row] = h[row]
    for k in range(steps.substeps):
        for i in range(stages):
            n = k * stages + i
            at, f = tape.at[t, n, low:high], tape.f[t, n, low:high]
            for row in range(h.shape[0]):
                at[row] = after[row]
                for j in range(i):
                    if steps.a[i, j] != _ZERO:
                        _add_scaled(at[row], delta[row] * steps.a[i, j], F[j, low + row])
            _evaluate(blas, phi, field, drive, no_bias, at, f, F[i, low:high])
        for row in range(h.shape[0]):
            for i in range(stages):
                if steps.b[i] != _ZERO:
                    _add_scaled(after[row], delta[row] * steps.b[i], F[i, low + row])
        _clip(after, f4(steps.clip))


@inlined
def _clip(h, limit):
    if limit == np.inf:
        return
    for row in range(h.shape[0]):
        for j in range(h.shape[1]):
            if h[row, j] > limit:  # not with min() and max(): NaN stays NaN
                h[row, j] = limit
            elif h[row, j] < -limit:
                h[row, j] = -limit


@inlined
def _stop_at_clip(blas, field, steps, tape, t, k, low, high, delta, valid, end, F, carry):
    """Set the gradient after sub-step ``k`` to 0 where the state was clipped there.

    Args:
        blas, field, steps, tape, t, low, high, delta, valid, F, carry: as for
            :func:`flow_backward`.
        k: the sub-step.
        end: (rows, N), memory.
    """
    limit = f4(steps.clip)
    first = k * steps.b.size
    for row in range(carry.shape[0]):
        end[row] = tape.at[t, first, low + row]
    for i in range(steps.b.size):
        _values(blas, field, tape.at[t, first + i, low:high], tape.f[t, first + i, low:high], F)
        for row in range(carry.shape[0]):
            _add_scaled(end[row], delta[row] * steps.b[i], F[row])
    for row in range(carry.shape[0]):
        for j in range(carry.shape[1]):
            if valid[row] and (end[row, j] > limit or end[row, j] < -limit):
                carry[row, j] = _ZERO


@inlined(math=FAST_SUMS)
def _dot(left, right):
    total = _ZERO
    for j in range(left.size):
        total += left[j] * right[j]
    return total


@inlined
def _scale_gradient(total, part, pull):
    for j in range(total.size):
        total[j] += part[j] * pull[j]


@inlined
def _pull_back_values(field, delta, valid, f, F, e, to_z, to_F, to_scale, to_delta):
    """Turn ``e`` into the gradient of a stage's values, and take it through scale and gap."""
    for row in range(e.shape[0]):
        if not valid[row]:
            e[row] = _ZERO
        if to_delta.size > 0:
            to_delta[row] += _dot(e[row], F[row])
        for j in range(e.shape[1]):
            e[row, j] *= delta[row]
        if field.W_2.size > 0:
            to_F[row] = e[row]
        else:
            _scale_gradient(to_scale, f[row], e[row])
            for j in range(e.shape[1]):
                to_z[row, j] = field.scale[j] * e[row, j]


@inlined
def _pull_back_stage(
    blas, phi, field, delta, valid, at, f, e, F, to_z, to_F, to_scale, to_delta, carry
):
    """Take ``e``, the gradient of a stage's values over delta, back to the stage's state.

    ``e`` becomes the gradient of the state; ``carry`` gets it added.
    """
    damping, neurons, width = field.numbers[6], at.shape[1], f.shape[1]
    if to_delta.size > 0:
        _values(blas, field, at, f, F)
    _pull_back_values(field, delta, valid, f, F, e, to_z, to_F, to_scale, to_delta)
    if field.W_2.size > 0:
        matmul(blas, e, field.W_2, to_z, width, neurons, False, False)
    for row in range(at.shape[0]):
        times_slope(phi, to_z[row], f[row], f[row])
        for j in range(neurons):
            e[row, j] = -_times(damping, e[row, j])
    matmul(blas, to_z, field.W_1, e, neurons, width, False, True)
    for row in range(at.shape[0]):
        _add_scaled(carry[row], f4(1.0), e[row])


@inlined
def flow_backward(
    blas, phi, field, steps, tape, deltas, t, low, high, delta, valid, e, F, to_scale, to_delta,
    carry,
):  # fmt: skip
    """Take ``carry``, the gradient after one gap of the slice, back to that before it.

    Args:
        blas, phi, field, steps, tape, t, low, high, delta: as for :func:`flow_forward`.
        deltas: see :mod:`tauflow.kernels.flow_arrays`.
        valid: (rows,) bool; the others keep their gradient and give none.
        e: (stages, B, N), memory.
        F: (rows, N), memory.
        to_scale: (N,), added to.
        to_delta: (rows,), added to; empty if not wanted.
        carry: (rows, N).
    """
    stages = steps.b.size
    sums = np.zeros(to_scale.size, f4)
    for k in range(steps.substeps - 1, -1, -1):
        if steps.clip < np.inf:
            _stop_at_clip(
                blas, field, steps, tape, t, k, low, high, delta, valid, e[0, low:high], F, carry
            )
        for i in range(stages):
            for row in range(carry.shape[0]):
                e[i, low + row] = _ZERO
                _add_scaled(e[i, low + row], steps.b[i], carry[row])
        for i in range(stages - 1, -1, -1):
            n = k * stages + i
            own = e[i, low:high]
            at, f, to_z = tape.at[t, n, low:high], tape.f[t, n, low:high], deltas.z[t, n, low:high]
            to_F = deltas.F[t, n, low:high] if field.W_2.size > 0 else own
            _pull_back_stage(
                blas, phi, field, delta, valid, at, f, own, F, to_z, to_F, sums, to_delta, carry
            )
            for j in range(i):
                if steps.a[i, j] != _ZERO:
                    for row in range(carry.shape[0]):
                        _add_scaled(e[j, low + row], steps.a[i, j], own[row])
    for j in range(to_scale.size):
        to_scale[j] += sums[j]


@kernel
def flow_sequence_forward(
    index, low, high, blas, field, steps, tape, drive, delta, mask, F, states, outputs
):
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas, field, steps, tape: see :mod:`tauflow.kernels.flow_arrays`.
        drive: (T, B, H).
        delta: (T, B), length of a sub-step.
        mask: (T, B), or (0, 0) for none.
        F: (stages, B, N), memory.
        states: (B, N), the initial ones; receives the last.
        outputs: (T, B, N).
    """
    threads = set_blas_threads(blas, 1)
    phi, no_bias = read_phi(field.numbers), np.zeros(field.W_1.shape[0], f4)
    h = states[low:high]
    for t in range(drive.shape[0]):
        kept = t % tape.at.shape[0]
        after = outputs[t, low:high]
        flow_forward(
            blas, phi, field, steps, tape, kept, low, high, drive[t, low:high],
            delta[t, low:high], no_bias, h, F, after,
        )  # fmt: skip
        for row in range(high - low):
            if mask.size > 0 and not mask[t, low + row]:
                after[row] = h[row]
            h[row] = after[row]
    set_blas_threads(blas, threads)


@kernel
def flow_sequence_backward(
    index, low, high, blas, field, steps, tape, deltas, delta, mask, pulls, carry, e, F
):
    """Run the slice back through all steps.

    Args:
        index: of the slice, and of its row in ``deltas.scale``.
        low, high: slice of the batch.
        blas, field, steps, tape, deltas: see :mod:`tauflow.kernels.flow_arrays`.
        delta, mask: as for :func:`flow_sequence_forward`.
        pulls: (T, B, N), gradient of the outputs.
        carry: (B, N), gradient of the last states; becomes that of the first.
        e: (stages, B, N), memory.
        F: (B, N), memory.
    """
    threads = set_blas_threads(blas, 1)
    phi = read_phi(field.numbers)
    own, valid = carry[low:high], np.ones(high - low, np.bool_)
    to_delta = np.zeros(high - low if deltas.delta.size > 0 else 0, f4)
    for t in range(delta.shape[0] - 1, -1, -1):
        for row in range(high - low):
            _add_scaled(own[row], f4(1.0), pulls[t, low + row])
            if mask.size > 0:
                valid[row] = mask[t, low + row]
        to_delta[:] = _ZERO
        flow_backward(
            blas, phi, field, steps, tape, deltas, t, low, high, delta[t, low:high], valid, e,
            F[low:high], deltas.scale[index], to_delta, own,
        )  # fmt: skip
        for row in range(to_delta.size):
            deltas.delta[low + row, t] = to_delta[row]
    set_blas_threads(blas, threads)
