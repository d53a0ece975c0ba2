"""Closed-form cells over sequences: compiled loops.

One thread takes a slice of the batch through all steps. A step is a chain of matrix products by
:mod:`tauflow.kernels.cpu.matmul`, with one pass over the activations between two of them. Beside a
memory, its four gates come first. What the core's first layer reads at every step, its source, is
[x; h]; beside a memory [x; u] in the form ``state``, and [u; h] in the form ``input``. Gradients of
the weights are left to one product over the whole sequence, after the loop.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

import numpy as np
from numba import carray

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import (
    activate,
    add,
    copy,
    lstm_cell_backward,
    lstm_cell_forward,
    multiply_by_slope,
)
from tauflow.kernels.cpu.matmul import matmul, transpose, transpose_each
from tauflow.kernels.cpu.values import to_pointer
from tauflow.kernels.engine.activations import ActivationCode

from .config import PURE, CfCActivations, CfCCode, CfCLSTMArrays, CfCWeights
from .numba_pointwise import cfc_gate_backward, cfc_gate_forward, dt_gradients


class CoreArrays(NamedTuple):
    """A core: its code, and arrays of :mod:`.config`; forward, its matrices are transposed."""

    code: Any
    weights: Any
    activations: Any


class StepSlice(NamedTuple):
    """A step of a slice of the batch, from ``low`` to before ``high``."""

    t: Any
    low: Any
    high: Any


@inline
def unpack_code(packed_code):
    """Return the :class:`.config.CfCCode` of which ``pack_code`` made an array."""
    n = packed_code
    outer = ActivationCode(int(n[1]), n[2], n[3], n[4], n[5], n[6])
    phi = ActivationCode(int(n[8]), n[9], n[10], n[11], n[12], n[13])
    return CfCCode(int(n[0]), outer, int(n[7]), phi, n[14], n[15] != 0)


@inline
def _core_forward(core, place, source, dt, after):
    """Write the state after one step of the slice.

    Args:
        core: the core.
        place: step and slice.
        source: what the first layer reads, (rows, R).
        dt: (B, T).
        after: receives the state, (rows, N).
    """
    code, weights, tape = core
    t, low, high = place
    z = tape.first[t % tape.first.shape[0], low:high]
    matmul(source, weights.first, z, False)
    heads = tape.heads[t % tape.heads.shape[0], low:high]
    if code.layers > 0:
        _activate_layer(code.outer, tape.slopes, 0, place, z, weights.first_bias)
        for layer in range(code.layers - 1):
            deeper = tape.deep[layer, t % tape.deep.shape[1], low:high]
            matmul(z, weights.deep[layer], deeper, False)
            z = deeper
            bias = weights.deep_bias[layer]
            _activate_layer(code.outer, tape.slopes, layer + 1, place, z, bias)
        matmul(z, weights.heads, heads, False)
    cfc_gate_forward(code, weights, heads, dt[low:high, t], after)


@inline
def _activate_layer(phi, slopes, layer, place, z, bias):
    """Add the bias and apply the backbone's activation to the slice's rows."""
    keep = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, place.t, place.low + row] if keep else bias
        activate(phi, z[row], bias, slope, keep)


@inline
def _core_backward(
    core, first, deltas, place, sequence, grad_carry, grad_parameters, grad_biases, grad_source
):
    """Write the gradients of one step's products and of what its first layer read.

    Args:
        core, place: as for :func:`_core_forward`.
        first: the columns of the first layer whose inputs have gradients, (F, R').
        deltas, sequence, grad_carry: see :mod:`.config`.
        grad_parameters: gradients of rate and amplitude for this slice.
        grad_biases: those of the biases of heads and first layer, (K N,) and (F,).
        grad_source: receives the gradient of these inputs, (rows, R').
    """
    code, weights, tape = core
    t, low, high = place
    heads = deltas.heads[t, low:high]
    values, dt, gradient = tape.heads[t, low:high], sequence.dt[low:high, t], grad_carry.h[low:high]
    valid = sequence.valid[low:high, t]
    if grad_carry.dt.size > 0:
        dt_gradients(code, weights, values, dt, valid, gradient, grad_carry.dt[low:high, t])
    cfc_gate_backward(code, weights, values, dt, valid, gradient, heads, grad_parameters)
    _sum_rows(heads, grad_biases[0])
    delta = heads
    if code.layers > 0:
        top = code.layers - 1
        delta = deltas.deep[top - 1, t, low:high] if top > 0 else deltas.first[t, low:high]
        matmul(heads, weights.heads, delta, False)
        for layer in range(top, -1, -1):
            z = tape.deep[layer - 1, t, low:high] if layer > 0 else tape.first[t, low:high]
            _activation_backward(code.outer, tape.slopes, layer, place, delta, z)
            if layer > 0:
                below = (
                    deltas.deep[layer - 2, t, low:high] if layer > 1 else deltas.first[t, low:high]
                )
                matmul(delta, weights.deep[layer - 1], below, False)
                delta = below
        _sum_rows(delta, grad_biases[1])
    matmul(delta, first, grad_source, False)


@inline
def _sum_rows(rows, total):
    for row in range(rows.shape[0]):
        add(total, rows[row])


@inline
def _activation_backward(phi, slopes, layer, place, delta, z):
    kept = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, place.t, place.low + row] if kept else z[row]
        multiply_by_slope(phi, delta[row], z[row], slope)


@kernel
def cfc_forward(index, low, high, packed_code, weights, activations, memory, sequence):
    """Run the slice through all steps.

    Args:
        index: number of the slice.
        low, high: slice of the batch.
        packed_code: of the form, by ``pack_code``.
        weights, activations, memory, sequence: see :mod:`.config`.
    """
    code, kind, N = unpack_code(packed_code), int(packed_code[16]), sequence.out.shape[2]
    x, start, steps = sequence.x, sequence.start, sequence.out.shape[1]
    workspace = np.empty(_count_workspace(code, kind, weights, high, N), f4)
    states = _view(workspace, 0, (2, high - low, N))
    activations, memory, tape = _split_workspace(
        code, kind, weights, activations, memory, sequence.source, high, N, workspace
    )
    core = CoreArrays(code, _transpose_weights(weights), activations)
    gate_weights = transpose(memory.input), transpose(memory.recurrent)
    for b in range(low, high):
        copy(start[b, :N], states[0, b - low])
        if kind > 0:
            copy(start[b, N:], memory.c[0, b])
    for t in range(steps):
        place, before, after = StepSlice(t, low, high), states[t % 2], states[(t + 1) % 2]
        source = tape[t % tape.shape[0], low:high]
        if kind > 0:
            _lstm_forward(memory, gate_weights, place, x, before, source, kind == 2)
        _write_source(kind, x[low:high, t], before, source)
        if sequence.rows.size > 0:
            _write_source(0, x[low:high, t], before, sequence.rows[t, low:high])
        _core_forward(core, place, source, sequence.dt, after)
        if sequence.valid.size > 0:
            _keep_masked(sequence.valid, memory.c, place, before, after)
        for b in range(low, high):
            copy(after[b - low], sequence.out[b, t])
    for b in range(low, high):
        copy(states[steps % 2, b - low], sequence.last[b, :N])
        if kind > 0:
            copy(memory.c[steps % memory.c.shape[0], b], sequence.last[b, N:])
    workspace[0] = f4(0.0)  # so that it is kept until here


@inline
def _view(workspace, offset, shape):
    """Return a part of memory as an array that does not count who holds it, which takes time."""
    return carray(to_pointer(workspace.ctypes.data + 4 * offset), shape, f4)


@inline
def _count_workspace(code, kind, weights, rows, N):
    """Return how much memory the states and one step take; see :func:`_split_workspace`."""
    width = N if code.mode == PURE else 4 * N
    units, R = max(weights.first.shape[0], width), weights.first.shape[1]
    return rows * (2 * N + (code.layers + 1) * units + width + R + (6 * N if kind > 0 else 0)) + 1


@inline
def _split_workspace(code, kind, weights, activations, memory, source, rows, N, workspace):
    """Return memory for one step in the place of a tape that is empty.

    Args:
        code: of the core.
        kind: 0 without a memory.
        weights, activations, memory: of the run.
        source: (T, B, R), or empty.
        rows: before which the slice ends.
        N: neurons.
        workspace: memory, whose beginning holds the states.

    Returns:
        Activations, memory and source.
    """
    if source.size > 0:
        return activations, memory, source
    width = N if code.mode == PURE else 4 * N
    units = weights.first.shape[0] if code.layers > 0 else width
    at, R = 2 * rows * N, weights.first.shape[1]
    first, at = _view(workspace, at, (1, rows, units)), at + rows * units
    heads = first
    if code.layers > 0:
        heads, at = _view(workspace, at, (1, rows, width)), at + rows * width
    deeper = max(code.layers - 1, 0)
    deep, at = _view(workspace, at, (deeper, 1, rows, units)), at + deeper * rows * units
    own = CfCActivations(first, deep, activations.slopes, heads)
    gates, c = memory.gates, memory.c
    if kind > 0:
        gates, at = _view(workspace, at, (1, rows, 4 * N)), at + 4 * rows * N
        c, at = _view(workspace, at, (2, rows, N)), at + 2 * rows * N
    lstm = CfCLSTMArrays(memory.input, memory.recurrent, memory.bias, gates, c)
    return own, lstm, _view(workspace, at, (1, rows, R))


@inline
def _write_source(kind, x, h, source):
    """Write what the core's first layer reads, (rows, R), but for what a memory gives.

    Args:
        kind: 0 for [x; h], 1 for [x; u], 2 for [u; h].
        x: (rows, I).
        h: (rows, N).
        source: written.
    """
    inputs, before = x.shape[1], source.shape[1] - h.shape[1]
    for b in range(source.shape[0]):
        if kind < 2:
            copy(x[b], source[b, :inputs])
        if kind != 1:
            copy(h[b], source[b, before:])


@inline
def _keep_masked(valid, memory, place, before, after):
    """Keep the states, (rows, N), of masked sequences, and what a memory holds, if there is one."""
    t, low, high = place
    for b in range(low, high):
        if not valid[b, t]:
            copy(before[b - low], after[b - low])
            if memory.size > 0:
                count = memory.shape[0]
                copy(memory[t % count, b], memory[(t + 1) % count, b])


@inline
def _transpose_weights(weights):
    """Return the weights with each matrix as products with rows from the left read it."""
    return CfCWeights(
        transpose(weights.first),
        weights.first_bias,
        transpose_each(weights.deep),
        weights.deep_bias,
        transpose(weights.heads),
        weights.heads_bias,
        weights.rate,
        weights.amplitude,
    )


@inline
def _lstm_forward(memory, weights, place, x, h, source, reads_state):
    """Advance the memory, and write its part of what the core's first layer reads.

    Args:
        memory, place: of the run.
        weights: of the memory, transposed: (I, 4 N) and (N, 4 N).
        x: (B, T, I).
        h: (rows, N), the state before the step.
        source: (rows, R), whose part u is written.
        reads_state: whether that comes first, before the state, or behind the input.
    """
    t, low, high = place
    n, count, first = h.shape[1], memory.c.shape[0], 0 if reads_state else x.shape[2]
    gates = memory.gates[t % memory.gates.shape[0], low:high]
    c_before, c_after = memory.c[t % count], memory.c[(t + 1) % count]
    matmul(x[low:high, t], weights[0], gates, False)
    matmul(h, weights[1], gates, True)
    for b in range(high - low):
        u = source[b, first : first + n]
        lstm_cell_forward(gates[b], memory.bias, c_before[low + b], c_after[low + b], u)


@kernel
def cfc_backward(
    index,
    low,
    high,
    packed_code,
    weights,
    memory,
    sequence,
    activations_and_grads,
    grad_carry,
):
    """Run the slice back through all steps.

    Args:
        index: number of the slice, and of its row in the sums of ``grad_carry``.
        low, high: slice of the batch.
        packed_code, weights, memory, sequence: as for :func:`cfc_forward`.
        activations_and_grads: the tape, and the deltas, which are written.
        grad_carry: see :mod:`.config`.
    """
    tape, deltas = activations_and_grads
    core, carry = CoreArrays(unpack_code(packed_code), weights, tape), grad_carry.h
    pure, bias, total = weights.rate.size, weights.first_bias.size, grad_carry.sums[index]
    total[:] = f4(0.0)
    own, total_biases = (total[:pure], total[pure : 2 * pure]), total[2 * pure :]
    # of a step, for sums of sums round less than one long sum
    step_biases = np.zeros(total_biases.size, f4)
    biases = step_biases[bias:], step_biases[:bias]
    kind, N, masked = int(packed_code[16]), carry.shape[1], sequence.valid.size > 0
    grad_x, R = sequence.x, weights.first.shape[1]
    inputs = 0 if kind == 2 else R - N  # columns of the source that are the input
    skipped = inputs if grad_x.size == 0 else 0
    first = weights.first[:, skipped:]
    kept = np.empty((high - low if masked else 0, N), f4)
    workspace = np.empty((high - low) * (R - skipped) + 1, f4)
    grad_source = _view(workspace, 0, (high - low, R - skipped))
    for t in range(sequence.dt.shape[1] - 1, -1, -1):
        place = StepSlice(t, low, high)
        for b in range(low, high):
            if sequence.out.size > 0:
                add(carry[b], sequence.out[b, t])
            if masked:
                copy(carry[b], kept[b - low])
        _core_backward(core, first, deltas, place, sequence, grad_carry, own, biases, grad_source)
        for j in range(step_biases.size):
            total_biases[j] += step_biases[j]
            step_biases[j] = f4(0.0)
        _split_source(kind, grad_source, carry[low:high], grad_x[low:high], t)
        if kind > 0:
            _lstm_backward(memory, deltas, place, sequence, grad_carry, grad_source, kind == 2)
        if masked:  # a masked step passes its gradient on untouched
            for b in range(low, high):
                if not sequence.valid[b, t]:
                    copy(kept[b - low], carry[b])
    workspace[0] = f4(0.0)  # so that it is kept until here


@inline
def _split_source(kind, grad_source, carry, grad_x, t):
    """Hand the gradient of what the core's first layer read, (rows, R'), on to state and input."""
    first = grad_source.shape[1] - carry.shape[1]
    for b in range(carry.shape[0]):
        row = grad_source[b]
        if kind != 1:
            copy(row[first:], carry[b])
        if grad_x.size > 0 and kind != 2:
            copy(row[:first], grad_x[b, t])


@inline
def _lstm_backward(memory, deltas, place, sequence, grad_carry, grad_source, reads_state):
    """Take a step's gradients back through the memory.

    Args:
        memory, place: as for :func:`_lstm_forward`.
        deltas, sequence, grad_carry: see :mod:`.config`.
        grad_source: (rows, R'), gradient of what the core's first layer read.
        reads_state: whether u comes first in it, before the state, or last.
    """
    t, low, high = place
    carry, n = grad_carry.h, grad_carry.h.shape[1]
    gates, delta, before, after = memory.gates[t], deltas.gates[t], memory.c[t], memory.c[t + 1]
    first = 0 if reads_state else grad_source.shape[1] - n
    for b in range(low, high):
        if sequence.valid.size > 0 and not sequence.valid[b, t]:
            delta[b] = f4(0.0)
        else:
            grad_u = grad_source[b - low, first : first + n]
            lstm_cell_backward(gates[b], before[b], after[b], grad_u, grad_carry.c[b], delta[b])
    matmul(delta[low:high], memory.recurrent, carry[low:high], reads_state)
    if sequence.x.size > 0:
        matmul(delta[low:high], memory.input, sequence.x[low:high, t], not reads_state)
