"""Flows over whole sequences, compiled.

A memory in front makes a step the four gates and the memory, then the flow: from the old state with
u, what the memory shows, as its input, or from u without one.

One thread takes a slice of the batch through all steps; products are done by the BLAS inside
torch. Gradients of the weights are left to one product over the whole sequence, after the loop.
Arrays are explained in :mod:`tauflow.kernels.flow`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import add, copy, copy_rows, memory_backward, memory_forward
from tauflow.kernels.engine.activations import Phi
from tauflow.kernels.flow import Flow, Place, Rows

from .numba_stages import cover, uncover, uncover_fused

_ZERO = f4(0.0)


@inlined
def _flow(blas, field):
    n = field.numbers
    return Flow(blas, Phi(int(n[0]), n[1], n[2], n[3], n[4], n[5]), field)


@kernel
def flow_forward(index, low, high, blas, field, tape, memory, run):
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        field, tape, memory, run: see :mod:`tauflow.kernels.flow`; ``run`` is a ``Sequence``.
    """
    threads = set_blas_threads(blas, 1)
    flow, rows, states = _flow(blas, field), high - low, run.states
    width, n = field.W_1.shape
    no_bias, F = np.zeros(width, f4), np.empty((field.b.size, rows, n), f4)
    drive, delta = np.empty((rows, width), f4), np.empty(rows, f4)
    for t in range(run.out.shape[1]):
        before = states[t % states.shape[0], low:high]
        after = states[(t + 1) % states.shape[0], low:high]
        for row in range(rows):
            delta[row] = run.delta[low + row, t]
            copy(before[row], after[row])
        if memory.recurrent.size > 0:
            _remember(blas, memory, Place(t, low, high), before, drive, after)
        else:
            for row in range(rows):
                copy(run.drive[low + row, t], drive[row])
        cover(
            flow, tape, Place(t % tape.at.shape[0], low, high), drive, delta, no_bias, F, after
        )  # fmt: skip
        for row in range(rows):
            b = low + row
            if run.mask.shape[1] > 0 and not run.mask[b, t]:
                copy(before[row], after[row])
                if memory.recurrent.size > 0:
                    copy(memory.c[t, b], memory.c[t + 1, b])
            copy(after[row], run.out[b, t])
    set_blas_threads(blas, threads)


@inlined
def _remember(blas, memory, place, h, drive, start):
    """Advance the memory, and let the flow see it.

    Args:
        blas: addresses of products.
        memory: the memory.
        place: step and slice.
        h: (rows, N), the state before the step.
        drive: (rows, H), receives the flow's input.
        start: (rows, N), receives where the flow starts, if not at the state before.
    """
    t, low, high = place
    n, shown = h.shape[1], memory.u[t, low:high]
    matmul(blas, h, memory.recurrent, memory.gates[t, low:high], 4 * n, n, True, True)
    no_bias = np.zeros(4 * n, f4)
    for b in range(low, high):
        memory_forward(memory.gates[t, b], no_bias, memory.c[t, b], memory.c[t + 1, b],
                       memory.u[t, b])  # fmt: skip
    for row in range(high - low):
        copy(memory.drive_bias, drive[row])
    if memory.drive.size > 0:
        width = memory.drive.shape[0]
        matmul(blas, shown, memory.drive, drive, width, n, True, True)
    else:
        copy_rows(high - low, shown, start)


@inlined
def _sum_evaluations(z, low, high, total):
    """Add up a step's gradients of the arguments of phi, which all saw the same input."""
    for row in range(high - low):
        total[row] = _ZERO
    for n in range(z.shape[0]):
        for row in range(high - low):
            add(total[row], z[n, low + row])


@inlined
def _forget(blas, memory, deltas, place, valid, shown, carry):
    """Take a step's gradients back through the memory.

    Args:
        blas: addresses of products.
        memory: the memory.
        deltas: those of the flow's input are set, those of the gates are written.
        place: step and slice.
        valid: (rows,) bool.
        shown: (rows, N), gradient of where the flow starts; becomes that of what the memory shows.
        carry: (rows, N), gradient of the state after the step; becomes that before it.
    """
    t, low, high = place
    n, driven = carry.shape[1], memory.drive.size > 0
    for row in range(high - low):
        if valid[row]:  # the others go on as they are
            for j in range(n):
                carry[row, j] = shown[row, j] if driven else _ZERO
    if driven:
        width = memory.drive.shape[0]
        matmul(blas, deltas.drive[t, low:high], memory.drive, shown, n, width, False, False)
    for row in range(high - low):
        b, delta = low + row, deltas.gates[t, low + row]
        delta[:] = _ZERO
        if valid[row]:
            before, after = memory.c[t, b], memory.c[t + 1, b]
            memory_backward(memory.gates[t, b], before, after, shown[row], deltas.c[b], delta)
    matmul(blas, deltas.gates[t, low:high], memory.recurrent, carry, n, 4 * n, False, True)


@inlined
def _arrive(run, place, rows, carry):
    """Add the gradient of a step's results, and look at its gaps and its mask."""
    for row in range(place.high - place.low):
        b = place.low + row
        rows.delta[row] = run.delta[b, place.t]
        if run.out.size > 0:
            add(carry[row], run.out[b, place.t])
        if run.mask.shape[1] > 0:
            rows.valid[row] = run.mask[b, place.t]


@kernel
def flow_backward(index, low, high, blas, field, tape, memory, run, deltas):
    """Run the slice back through all steps.

    Args:
        index: of the slice, and of its row in ``deltas.neurons``.
        low, high: slice of the batch.
        blas, field, tape, memory, run: as for :func:`flow_forward`.
        deltas: written.
    """
    threads = set_blas_threads(blas, 1)
    flow, count, n = _flow(blas, field), high - low, deltas.h.shape[1]
    e, F, shown = (np.empty((field.b.size, count, n), f4), np.empty((count, n), f4),
                   np.empty((count, n), f4))  # fmt: skip
    own, valid, delta = deltas.h[low:high], np.ones(count, np.bool_), np.empty(count, f4)
    to_delta = np.zeros(count if deltas.delta.size > 0 else 0, f4)
    sums = np.zeros((2, n), f4)
    rows, total = Rows(delta, valid, to_delta, sums), deltas.neurons[index]
    for t in range(run.delta.shape[1] - 1, -1, -1):
        place = Place(t, low, high)
        _arrive(run, place, rows, own)
        to_delta[:], sums[:] = _ZERO, _ZERO
        carry = own
        if memory.recurrent.size > 0:
            copy_rows(count, own, shown)
            carry = shown
        if field.leak.size > 0:
            after = run.states[t + 1, low:high]
            uncover_fused(flow, tape, deltas, place, rows, after, carry)
        else:
            uncover(flow, tape, deltas, place, rows, e, F, carry)
        for row in range(to_delta.size):
            deltas.delta[low + row, t] = to_delta[row]
        for i in range(2):  # sums of sums round less than one long sum
            add(total[i], sums[i])
        _sum_evaluations(deltas.z[t], low, high, deltas.drive[t, low:high])
        if memory.recurrent.size > 0:
            _forget(blas, memory, deltas, place, valid, shown, own)
    set_blas_threads(blas, threads)
