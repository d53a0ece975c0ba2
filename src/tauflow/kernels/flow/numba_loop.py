"""Flows over whole sequences, compiled.

A memory in front makes a step the four gates and the memory, then the flow: from the old state with
u, what the memory shows, as its input, or from u without one.

And states that decay by given factors before a gated unit reads them, which are no flow's field.

One thread takes a slice of the batch through all steps; products are done by the BLAS inside
torch. Gradients of the weights are left to one product over the whole sequence, after the loop.
Arrays are explained in :mod:`tauflow.kernels.flow`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import (
    add,
    copy,
    copy_rows,
    memory_backward,
    memory_forward,
    sigmoid,
    tanh,
)
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


@kernel
def decay_forward(index, low, high, blas, weights, tape, run):
    """Run the slice of states that decay and meet a gated unit through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas: addresses of products.
        weights: of the unit: whether z keeps the state, U_zr (2 N, N) and U_n (N, N).
        tape: a :class:`~tauflow.kernels.flow.Decay`, written.
        run: a ``Sequence``, whose drive holds the factors, (B, T, N); delta is not read.
    """
    threads = set_blas_threads(blas, 1)
    keeps, U_zr, U_n = weights
    states, n, rows = run.states, U_n.shape[0], high - low
    fresh = np.empty((rows, n), f4)
    for t in range(run.out.shape[1]):
        now = t % tape.faded.shape[0]
        faded, reset, gates = tape.faded[now, low:high], tape.reset[now, low:high], tape.gates[t]
        before = states[t % states.shape[0], low:high]
        after = states[(t + 1) % states.shape[0], low:high]
        for row in range(rows):
            factor = run.drive[low + row, t]
            for j in range(n):
                faded[row, j] = factor[j] * before[row, j]
        matmul(blas, faded, U_zr, gates[low:high], 2 * n, n, True, True)
        for row in range(rows):
            _reset(gates[low + row], faded[row], reset[row], fresh[row])
        matmul(blas, reset, U_n, fresh, n, n, True, True)
        for row in range(rows):
            b = low + row
            _let_in(keeps, gates[b], faded[row], fresh[row], after[row])
            if run.mask.shape[1] > 0 and not run.mask[b, t]:
                copy(before[row], after[row])
            copy(after[row], run.out[b, t])
    set_blas_threads(blas, threads)


@inlined
def _reset(gates, faded, reset, fresh):
    """Open the gates of one row: z and r; ``fresh`` gets the input's share of n."""
    n = faded.size
    z, r, new = gates[:n], gates[n : 2 * n], gates[2 * n :]
    for j in range(n):
        z[j] = sigmoid(z[j])
        r[j] = sigmoid(r[j])
        reset[j] = r[j] * faded[j]
        fresh[j] = new[j]


@inlined
def _let_in(keeps, gates, faded, fresh, after):
    """Write the state after the unit, and n to the gates."""
    size = faded.size
    z, new = gates[:size], gates[2 * size :]
    for j in range(size):
        value = tanh(fresh[j])
        share = z[j] if keeps else f4(1.0) - z[j]  # of the old state
        rest = f4(1.0) - z[j] if keeps else z[j]
        new[j] = value
        after[j] = share * faded[j] + rest * value


@kernel
def decay_backward(index, low, high, blas, weights, tape, run, deltas):
    """Run the slice back through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas, weights, tape, run: as for :func:`decay_forward`; ``run.out`` holds the incoming
            gradients, or nothing.
        deltas: of the gates' products (T, B, 3 N) and of the factors (B, T, N), written; and of
            the last state (B, N), which becomes that of the first.
    """
    threads = set_blas_threads(blas, 1)
    keeps, U_zr, U_n = weights
    to_gates, to_factors, to_h = deltas
    carry, n, rows = to_h[low:high], U_n.shape[0], high - low
    fresh, pulled = np.empty((rows, n), f4), np.empty((rows, n), f4)
    for t in range(run.drive.shape[1] - 1, -1, -1):
        faded, gates, delta = tape.faded[t, low:high], tape.gates[t], to_gates[t]
        for row in range(rows):
            b = low + row
            if run.out.size > 0:
                add(carry[row], run.out[b, t])
            if run.mask.shape[1] > 0 and not run.mask[b, t]:
                delta[b], fresh[row], to_factors[b, t] = _ZERO, _ZERO, _ZERO
            else:
                _pull_out(keeps, gates[b], faded[row], carry[row], delta[b], fresh[row])
        matmul(blas, fresh, U_n, pulled, n, n, False, False)
        for row in range(rows):
            _pull_reset(gates[low + row], faded[row], pulled[row], delta[low + row], carry[row])
        matmul(blas, delta[low:high], U_zr, carry, n, 2 * n, False, True)
        before = run.states[t, low:high]
        for row in range(rows):
            b = low + row
            if run.mask.shape[1] == 0 or run.mask[b, t]:
                factor, to_factor = run.drive[b, t], to_factors[b, t]
                for j in range(n):
                    to_factor[j] = carry[row, j] * before[row, j]
                    carry[row, j] *= factor[j]
    set_blas_threads(blas, threads)


@inlined
def _pull_out(keeps, gates, faded, carry, delta, fresh):
    """Turn ``carry`` into the direct part of the gradient of the faded state."""
    size = faded.size
    z, new, to_z, to_new = gates[:size], gates[2 * size :], delta[:size], delta[2 * size :]
    for j in range(size):
        share = z[j] if keeps else f4(1.0) - z[j]
        rest = f4(1.0) - z[j] if keeps else z[j]
        apart = faded[j] - new[j] if keeps else new[j] - faded[j]
        pull, slope = carry[j], z[j] - z[j] * z[j]
        to_z[j] = pull * apart * slope
        fresh[j] = pull * rest * (f4(1.0) - new[j] * new[j])
        to_new[j] = fresh[j]
        carry[j] = pull * share


@inlined
def _pull_reset(gates, faded, pulled, delta, carry):
    """Take the gradient of the reset state, ``pulled``, back to the gate r and the faded state."""
    size = faded.size
    r, to_r = gates[size : 2 * size], delta[size : 2 * size]
    for j in range(size):
        to_r[j] = pulled[j] * faded[j] * (r[j] - r[j] * r[j])
        carry[j] += pulled[j] * r[j]
