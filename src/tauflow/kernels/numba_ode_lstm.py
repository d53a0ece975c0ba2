"""ODE-LSTM over sequences: compiled loops.

A step is the four gates and the memory, as beside a closed-form core, then the flow of
:mod:`numba_flow`: from the old state with u as its input, or from u without one.
"""

import numpy as np

from .numba_blas import matmul, set_blas_threads
from .numba_cfc import add
from .numba_flow import flow_backward, flow_forward, read_phi
from .numba_math import f4, inlined, kernel
from .numba_mixed import memory_backward, memory_forward

_ZERO = f4(0.0)


@inlined
def _fill_rows(target, row):
    for b in range(target.shape[0]):
        target[b] = row


@inlined
def _copy_rows(target, source):
    for b in range(target.shape[0]):
        target[b] = source[b]


@kernel
def ode_lstm_forward(
    index, low, high, blas, field, steps, tape, lstm, gates, u, drive, delta, mask, F, c, states,
    outputs,
):  # fmt: skip
    """Run the slice through all steps.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        blas, field, steps, tape: see :mod:`tauflow.kernels.flow_arrays`.
        lstm: a :class:`~tauflow.kernels.flow_arrays.LSTMWeights`.
        gates: (T, B, 4 N), the products with the input beforehand, i, f, g, o after.
        u: (T, B, N), receives what the output gate lets through.
        drive: (B, H), memory for the flow's input.
        delta: (T, B), length of a sub-step.
        mask: (T, B), or (0, 0) for none.
        F: (stages, B, N), memory.
        c: (T + 1, B, N), the memory, its initial value first; receives the others.
        states: (B, N), the initial ones; receives the last.
        outputs: (T, B, N), receives the states.
    """
    threads = set_blas_threads(blas, 1)
    phi, no_bias = read_phi(field.numbers), np.zeros(field.W_1.shape[0], f4)
    n, h = states.shape[1], states[low:high]
    _fill_rows(drive[low:high], lstm.drive_bias)
    for t in range(outputs.shape[0]):
        matmul(blas, h, lstm.recurrent, gates[t, low:high], 4 * n, n, True, True)
        for b in range(low, high):
            memory_forward(gates[t, b], lstm.bias, c[t, b], c[t + 1, b], u[t, b])
        shown, after = u[t, low:high], outputs[t, low:high]
        if lstm.drive.size > 0:
            _fill_rows(drive[low:high], lstm.drive_bias)
            matmul(blas, shown, lstm.drive, drive[low:high], n, n, True, True)
        start = h if lstm.drive.size > 0 else shown
        flow_forward(
            blas, phi, field, steps, tape, t % tape.at.shape[0], low, high, drive[low:high],
            delta[t, low:high], no_bias, start, F, after,
        )  # fmt: skip
        for b in range(low, high):
            if mask.size > 0 and not mask[t, b]:
                outputs[t, b] = states[b]
                c[t + 1, b] = c[t, b]
            states[b] = outputs[t, b]
    set_blas_threads(blas, threads)


@inlined
def _sum_evaluations(z, low, high, total):
    """Add up a step's gradients of the arguments of phi, which all saw the same input."""
    for row in range(high - low):
        total[row] = _ZERO
    for n in range(z.shape[0]):
        for row in range(high - low):
            part = z[n, low + row]
            for j in range(part.size):
                total[row, j] += part[j]


@inlined
def _pass_by(own, start, valid, driven):
    """Keep the gradient that reaches the state before: that of the flow's start, or none."""
    for row in range(own.shape[0]):
        if valid[row]:
            for j in range(own.shape[1]):
                own[row, j] = start[row, j] if driven else _ZERO


@inlined
def _pull_back_memory(gates, before, after, to_u, c_carry, to_gates, low, valid):
    for row in range(valid.size):
        b = low + row
        if valid[row]:
            memory_backward(gates[b], before[b], after[b], to_u[row], c_carry[b], to_gates[b])
        else:
            to_gates[b] = _ZERO


@kernel
def ode_lstm_backward(
    index, low, high, blas, field, steps, tape, deltas, lstm, gates, c, to_gates, to_drive, to_u,
    delta, mask, pulls, carry, c_carry, e, F,
):  # fmt: skip
    """Run the slice back through all steps.

    Args:
        index: of the slice, and of its row in ``deltas.scale``.
        low, high: slice of the batch.
        blas, field, steps, tape, deltas: see :mod:`tauflow.kernels.flow_arrays`.
        lstm, gates, c, delta, mask: as for :func:`ode_lstm_forward`.
        to_gates: (T, B, 4 N), receives the gradients of the gates' products.
        to_drive: (T, B, H), receives those of the flow's input.
        to_u: (B, N), memory.
        pulls: (T, B, N), gradient of the outputs.
        carry, c_carry: (B, N), gradients of the last states; become those of the first.
        e: (stages, B, N), memory.
        F: (B, N), memory.
    """
    threads = set_blas_threads(blas, 1)
    phi, n = read_phi(field.numbers), carry.shape[1]
    own, shown = carry[low:high], to_u[low:high]
    valid = np.ones(high - low, np.bool_)
    to_delta = np.zeros(high - low if deltas.delta.size > 0 else 0, f4)
    driven = lstm.drive.size > 0
    for t in range(pulls.shape[0] - 1, -1, -1):
        for row in range(high - low):
            add(own[row], pulls[t, low + row])
            if mask.size > 0:
                valid[row] = mask[t, low + row]
        to_delta[:] = _ZERO
        _copy_rows(shown, own)
        flow_backward(
            blas, phi, field, steps, tape, deltas, t, low, high, delta[t, low:high], valid, e,
            F[low:high], deltas.scale[index], to_delta, shown,
        )  # fmt: skip
        for row in range(to_delta.size):
            deltas.delta[low + row, t] = to_delta[row]
        _sum_evaluations(deltas.z[t], low, high, to_drive[t, low:high])
        _pass_by(own, shown, valid, driven)
        if driven:
            rows, width = lstm.drive.shape
            matmul(blas, to_drive[t, low:high], lstm.drive, shown, width, rows, False, False)
        _pull_back_memory(gates[t], c[t], c[t + 1], shown, c_carry, to_gates[t], low, valid)
        matmul(blas, to_gates[t, low:high], lstm.recurrent, own, n, 4 * n, False, True)
    set_blas_threads(blas, threads)
