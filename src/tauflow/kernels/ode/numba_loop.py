"""Flows over whole sequences, compiled.

A memory in front makes a step the four gates and the memory, then the flow: from the old state with
u, what the memory shows, as its input, or from u without one.

And states that decay by given factors before a gated unit reads them, which are no flow's field.

One thread takes a slice of the batch through all steps. Gradients of the weights are left to one
product over the whole sequence, after the loop.
Arrays are explained in :mod:`tauflow.kernels.ode`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import (
    add,
    copy,
    copy_rows,
    lstm_cell_backward,
    lstm_cell_forward,
    sigmoid,
    tanh,
)
from tauflow.kernels.cpu.matmul import matmul, transpose
from tauflow.kernels.engine.activations import ActivationCode
from tauflow.kernels.ode import FlowContext, FlowRows, FlowStepSlice

from .numba_stages import integrate_backward, integrate_forward, integrate_fused_backward

_ZERO = f4(0.0)


@inline
def _make_context(field, grad_phi):
    n = field.numbers
    phi = ActivationCode(int(n[0]), n[1], n[2], n[3], n[4], n[5])
    return FlowContext(phi, field, grad_phi, transpose(field.W_2))


@kernel
def flow_forward(index, low, high, field, activations, memory, sequence):
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        field, activations, memory, sequence: see :mod:`tauflow.kernels.ode`; ``sequence`` is a
            ``Sequence``.
    """
    flow = _make_context(field, transpose(field.W_1))
    rows, states = high - low, sequence.states
    grad_gates, grad_drive = transpose(memory.recurrent), transpose(memory.drive)
    width, n = field.W_1.shape
    no_bias, F = np.zeros(width, f4), np.empty((field.b.size, rows, n), f4)
    drive, delta = np.empty((rows, width), f4), np.empty(rows, f4)
    for t in range(sequence.out.shape[1]):
        before = states[t % states.shape[0], low:high]
        after = states[(t + 1) % states.shape[0], low:high]
        for row in range(rows):
            delta[row] = sequence.delta[low + row, t]
            copy(before[row], after[row])
        if memory.recurrent.size > 0:
            _lstm_forward(
                memory, grad_gates, grad_drive, FlowStepSlice(t, low, high), before, drive, after
            )
        else:
            for row in range(rows):
                copy(sequence.drive[low + row, t], drive[row])
        place = FlowStepSlice(t % activations.at.shape[0], low, high)
        integrate_forward(flow, activations, place, drive, delta, no_bias, F, after)
        for row in range(rows):
            b = low + row
            if sequence.mask.shape[1] > 0 and not sequence.mask[b, t]:
                copy(before[row], after[row])
                if memory.recurrent.size > 0:
                    copy(memory.c[t, b], memory.c[t + 1, b])
            copy(after[row], sequence.out[b, t])


@inline
def _lstm_forward(memory, grad_gates, grad_drive, place, h, drive, start):
    """Advance the memory, and let the flow see it.

    Args:
        memory: the memory.
        grad_gates: (N, 4 N), its weights transposed.
        grad_drive: (N, H), those of the flow's input transposed.
        place: step and slice.
        h: (rows, N), the state before the step.
        drive: (rows, H), receives the flow's input.
        start: (rows, N), receives where the flow starts, if not at the state before.
    """
    t, low, high = place
    n, shown = h.shape[1], memory.u[t, low:high]
    matmul(h, grad_gates, memory.gates[t, low:high], True)
    no_bias = np.zeros(4 * n, f4)
    for b in range(low, high):
        lstm_cell_forward(memory.gates[t, b], no_bias, memory.c[t, b], memory.c[t + 1, b],
                       memory.u[t, b])  # fmt: skip
    for row in range(high - low):
        copy(memory.drive_bias, drive[row])
    if memory.drive.size > 0:
        matmul(shown, grad_drive, drive, True)
    else:
        copy_rows(high - low, shown, start)


@inline
def _sum_evaluations(z, low, high, total):
    """Add up a step's gradients of the arguments of phi, which all saw the same input."""
    for row in range(high - low):
        total[row] = _ZERO
    for n in range(z.shape[0]):
        for row in range(high - low):
            add(total[row], z[n, low + row])


@inline
def _lstm_backward(memory, deltas, place, valid, grad_start, carry):
    """Take a step's gradients back through the memory.

    Args:
        memory: the memory.
        deltas: those of the flow's input are set, those of the gates are written.
        place: step and slice.
        valid: (rows,) bool.
        grad_start: (rows, N), gradient of where the flow starts; becomes that of what the memory
            shows.
        carry: (rows, N), gradient of the state after the step; becomes that before it.
    """
    t, low, high = place
    n, driven = carry.shape[1], memory.drive.size > 0
    for row in range(high - low):
        if valid[row]:  # the others go on as they are
            for j in range(n):
                carry[row, j] = grad_start[row, j] if driven else _ZERO
    if driven:
        matmul(deltas.drive[t, low:high], memory.drive, grad_start, False)
    for row in range(high - low):
        b, delta = low + row, deltas.gates[t, low + row]
        delta[:] = _ZERO
        if valid[row]:
            before, after = memory.c[t, b], memory.c[t + 1, b]
            lstm_cell_backward(
                memory.gates[t, b], before, after, grad_start[row], deltas.c[b], delta
            )
    matmul(deltas.gates[t, low:high], memory.recurrent, carry, True)


@inline
def _add_output_gradient(sequence, place, rows, carry):
    """Add the gradient of a step's results, and look at its gaps and its mask."""
    for row in range(place.high - place.low):
        b = place.low + row
        rows.delta[row] = sequence.delta[b, place.t]
        if sequence.out.size > 0:
            add(carry[row], sequence.out[b, place.t])
        if sequence.mask.shape[1] > 0:
            rows.valid[row] = sequence.mask[b, place.t]


@kernel
def flow_backward(index, low, high, field, activations, memory, sequence, deltas):
    """Run the slice back through all steps.

    Args:
        index: of the slice, and of its row in ``deltas.neurons``.
        low, high: slice of the batch.
        field, activations, memory, sequence: as for :func:`flow_forward`.
        deltas: written.
    """
    flow, count, n = _make_context(field, field.W_1), high - low, deltas.h.shape[1]
    e, F, shown = (np.empty((field.b.size, count, n), f4), np.empty((count, n), f4),
                   np.empty((count, n), f4))  # fmt: skip
    own, valid, delta = deltas.h[low:high], np.ones(count, np.bool_), np.empty(count, f4)
    grad_delta = np.zeros(count if deltas.delta.size > 0 else 0, f4)
    sums = np.zeros((2, n), f4)
    rows, total = FlowRows(delta, valid, grad_delta, sums), deltas.neurons[index]
    for t in range(sequence.delta.shape[1] - 1, -1, -1):
        place = FlowStepSlice(t, low, high)
        _add_output_gradient(sequence, place, rows, own)
        grad_delta[:], sums[:] = _ZERO, _ZERO
        carry = own
        if memory.recurrent.size > 0:
            copy_rows(count, own, shown)
            carry = shown
        if field.leak.size > 0:
            after = sequence.states[t + 1, low:high]
            integrate_fused_backward(flow, activations, deltas, place, rows, after, carry)
        else:
            integrate_backward(flow, activations, deltas, place, rows, e, F, carry)
        for row in range(grad_delta.size):
            deltas.delta[low + row, t] = grad_delta[row]
        for i in range(2):  # sums of sums round less than one long sum
            add(total[i], sums[i])
        _sum_evaluations(deltas.z[t], low, high, deltas.drive[t, low:high])
        if memory.recurrent.size > 0:
            _lstm_backward(memory, deltas, place, valid, shown, own)


@kernel
def gru_d_forward(index, low, high, weights, activations, sequence):
    """Run the slice of states that decay and meet a gated unit through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        weights: of the unit: whether z keeps the state, U_zr (2 N, N) and U_n (N, N).
        activations: a :class:`~tauflow.kernels.ode.GRUDActivations`, written.
        sequence: a ``Sequence``, whose drive holds the factors, (B, T, N); delta is not read.
    """
    keeps, (U_zr, U_n) = weights[0], (transpose(weights[1]), transpose(weights[2]))
    states, n, rows = sequence.states, U_n.shape[0], high - low
    fresh = np.empty((rows, n), f4)
    for t in range(sequence.out.shape[1]):
        now = t % activations.decayed.shape[0]
        faded, reset, gates = (
            activations.decayed[now, low:high],
            activations.reset[now, low:high],
            activations.gates[t],
        )
        before = states[t % states.shape[0], low:high]
        after = states[(t + 1) % states.shape[0], low:high]
        for row in range(rows):
            factor = sequence.drive[low + row, t]
            for j in range(n):
                faded[row, j] = factor[j] * before[row, j]
        matmul(faded, U_zr, gates[low:high], True)
        for row in range(rows):
            _gru_d_gates(gates[low + row], faded[row], reset[row], fresh[row])
        matmul(reset, U_n, fresh, True)
        for row in range(rows):
            b = low + row
            _gru_d_update(keeps, gates[b], faded[row], fresh[row], after[row])
            if sequence.mask.shape[1] > 0 and not sequence.mask[b, t]:
                copy(before[row], after[row])
            copy(after[row], sequence.out[b, t])


@inline
def _gru_d_gates(gates, decayed, reset, candidate):
    """Open the gates of one row: z and r; ``fresh`` gets the input's share of n."""
    n = decayed.size
    z, r, new = gates[:n], gates[n : 2 * n], gates[2 * n :]
    for j in range(n):
        z[j] = sigmoid(z[j])
        r[j] = sigmoid(r[j])
        reset[j] = r[j] * decayed[j]
        candidate[j] = new[j]


@inline
def _gru_d_update(z_keeps_state, gates, decayed, candidate, after):
    """Write the state after the unit, and n to the gates."""
    size = decayed.size
    z, new = gates[:size], gates[2 * size :]
    for j in range(size):
        value = tanh(candidate[j])
        share = z[j] if z_keeps_state else f4(1.0) - z[j]  # of the old state
        rest = f4(1.0) - z[j] if z_keeps_state else z[j]
        new[j] = value
        after[j] = share * decayed[j] + rest * value


@kernel
def gru_d_backward(index, low, high, weights, activations, sequence, deltas):
    """Run the slice back through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        weights, activations, sequence: as for :func:`gru_d_forward`; ``run.out`` holds the
            incoming gradients, or nothing.
        deltas: of the gates' products (T, B, 3 N) and of the factors (B, T, N), written; and of
            the last state (B, N), which becomes that of the first.
    """
    keeps, U_zr, U_n = weights
    grad_gates, grad_factors, grad_h = deltas
    carry, n, rows = grad_h[low:high], U_n.shape[0], high - low
    fresh, grad_reset = np.empty((rows, n), f4), np.empty((rows, n), f4)
    for t in range(sequence.drive.shape[1] - 1, -1, -1):
        faded, gates, delta = activations.decayed[t, low:high], activations.gates[t], grad_gates[t]
        for row in range(rows):
            b = low + row
            if sequence.out.size > 0:
                add(carry[row], sequence.out[b, t])
            if sequence.mask.shape[1] > 0 and not sequence.mask[b, t]:
                delta[b], fresh[row], grad_factors[b, t] = _ZERO, _ZERO, _ZERO
            else:
                _gru_d_update_backward(
                    keeps, gates[b], faded[row], carry[row], delta[b], fresh[row]
                )
        matmul(fresh, U_n, grad_reset, False)
        for row in range(rows):
            _gru_d_reset_backward(
                gates[low + row], faded[row], grad_reset[row], delta[low + row], carry[row]
            )
        matmul(delta[low:high], U_zr, carry, True)
        before = sequence.states[t, low:high]
        for row in range(rows):
            b = low + row
            if sequence.mask.shape[1] == 0 or sequence.mask[b, t]:
                factor, grad_factor = sequence.drive[b, t], grad_factors[b, t]
                for j in range(n):
                    grad_factor[j] = carry[row, j] * before[row, j]
                    carry[row, j] *= factor[j]


@inline
def _gru_d_update_backward(z_keeps_state, gates, decayed, grad_state, delta, grad_candidate):
    """Turn ``carry`` into the direct part of the gradient of the faded state."""
    size = decayed.size
    z, new, grad_z, grad_new = gates[:size], gates[2 * size :], delta[:size], delta[2 * size :]
    for j in range(size):
        share = z[j] if z_keeps_state else f4(1.0) - z[j]
        rest = f4(1.0) - z[j] if z_keeps_state else z[j]
        apart = decayed[j] - new[j] if z_keeps_state else new[j] - decayed[j]
        grad, slope = grad_state[j], z[j] - z[j] * z[j]
        grad_z[j] = grad * apart * slope
        grad_candidate[j] = grad * rest * (f4(1.0) - new[j] * new[j])
        grad_new[j] = grad_candidate[j]
        grad_state[j] = grad * share


@inline
def _gru_d_reset_backward(gates, decayed, grad_reset, delta, grad_state):
    """Take the gradient of the reset state back to the gate r and the faded state."""
    size = decayed.size
    r, grad_r = gates[size : 2 * size], delta[size : 2 * size]
    for j in range(size):
        grad_r[j] = grad_reset[j] * decayed[j] * (r[j] - r[j] * r[j])
        grad_state[j] += grad_reset[j] * r[j]
