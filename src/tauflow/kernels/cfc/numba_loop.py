"""Closed-form cells over sequences: compiled loops.

One thread takes a slice of the batch through all steps. A step is a chain of matrix products by
:mod:`tauflow.kernels.cpu.matmul`, with one pass over the activations between two of them. Beside a
memory, its four gates come first. What the core's first layer reads at every step, its source, is
[x; h]; beside a memory [x; u] in the form ``state``, and [u; h] in the form ``input``. Gradients of
the weights are left to one product over the whole sequence, after the loop.
"""

# mypy: ignore-errors

import numpy as np

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
from tauflow.kernels.cpu.values import view
from tauflow.kernels.engine.activations import ActivationCode

from .config import PURE, CfCCode, CfCSaved, CfCWeights
from .numba_pointwise import cfc_gate_backward, cfc_gate_forward, dt_gradients


@inline
def unpack_code(packed_code):
    """Return the :class:`.config.CfCCode` of which ``pack_code`` made an array."""
    n = packed_code
    outer = ActivationCode(int(n[1]), n[2], n[3], n[4], n[5], n[6])
    phi = ActivationCode(int(n[8]), n[9], n[10], n[11], n[12], n[13])
    return CfCCode(int(n[0]), outer, int(n[7]), phi, n[14], n[15] != 0)


@inline(force=True)  # arrays cost, even those that a function leaves alone
def _core_forward(code, weights, saved, t, low, high, source, dt, after):
    """Write the state after one step of the slice.

    Args:
        code: of the core.
        weights, saved: of :mod:`.config`; matrices are transposed.
        t: the step.
        low, high: slice of the batch.
        source: what the first layer reads, (rows, R).
        dt: (B, T).
        after: receives the state, (rows, N).
    """
    z = saved.first[t % saved.first.shape[0], low:high]
    matmul(source, weights.first, z, False)
    heads = saved.heads[t % saved.heads.shape[0], low:high]
    if code.layers > 0:
        _activate_layer(code.outer, saved.slopes, 0, t, low, z, weights.first_bias)
        for layer in range(code.layers - 1):
            deeper = saved.deep[layer, t % saved.deep.shape[1], low:high]
            matmul(z, weights.deep[layer], deeper, False)
            z = deeper
            bias = weights.deep_bias[layer]
            _activate_layer(code.outer, saved.slopes, layer + 1, t, low, z, bias)
        matmul(z, weights.heads, heads, False)
    cfc_gate_forward(code, weights, heads, dt[low:high, t], after)


@inline
def _activate_layer(phi, slopes, layer, t, low, z, bias):
    """Add the bias and apply the backbone's activation to the slice's rows."""
    keep = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, t, low + row] if keep else bias
        activate(phi, z[row], bias, slope, keep)


@inline(force=True)
def _core_backward(code, weights, saved, deltas, t, low, high, sequence, parameters, biases):
    """Write the gradients of one step's products; return those of the first layer's, (rows, F).

    Args:
        code, weights, saved, t, low, high: as for :func:`_core_forward`; matrices as they are.
        deltas: a ``CfCGradients``.
        sequence: see :mod:`.config`.
        parameters: gradients of rate and amplitude for this slice.
        biases: those of the biases of heads and first layer, (K N,) and (F,).
    """
    heads = deltas.heads[t, low:high]
    values, dt, gradient = saved.heads[t, low:high], sequence.dt[low:high, t], deltas.h[low:high]
    valid = sequence.valid[low:high, t]
    if deltas.dt.size > 0:
        dt_gradients(code, weights, values, dt, valid, gradient, deltas.dt[low:high, t])
    cfc_gate_backward(code, weights, values, dt, valid, gradient, heads, parameters)
    _sum_rows(heads, biases[0])
    delta = heads
    if code.layers > 0:
        top = code.layers - 1
        delta = deltas.deep[top - 1, t, low:high] if top > 0 else deltas.first[t, low:high]
        matmul(heads, weights.heads, delta, False)
        for layer in range(top, -1, -1):
            z = saved.deep[layer - 1, t, low:high] if layer > 0 else saved.first[t, low:high]
            _activation_backward(code.outer, saved.slopes, layer, t, low, delta, z)
            if layer > 0:
                below = (
                    deltas.deep[layer - 2, t, low:high] if layer > 1 else deltas.first[t, low:high]
                )
                matmul(delta, weights.deep[layer - 1], below, False)
                delta = below
        _sum_rows(delta, biases[1])
    return delta


@inline
def _sum_rows(rows, total):
    for row in range(rows.shape[0]):
        add(total, rows[row])


@inline
def _activation_backward(phi, slopes, layer, t, low, delta, z):
    has_slopes = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, t, low + row] if has_slopes else z[row]
        multiply_by_slope(phi, delta[row], z[row], slope)


@kernel
def cfc_forward(index, low, high, packed_code, weights, saved, sequence, start, last):
    """Run the slice through all steps.

    Args:
        index: number of the slice.
        low, high: slice of the batch.
        packed_code: of the form, by ``pack_code``.
        weights, saved, sequence: see :mod:`.config`.
        start: (B, S), the states before, with those of a memory.
        last: (B, S), receives the last ones.
    """
    code, kind, N = unpack_code(packed_code), int(packed_code[16]), sequence.out.shape[2]
    x, steps, rows = sequence.x, sequence.out.shape[1], saved.rows
    workspace = np.empty(_count_workspace(code, kind, weights, high, N), f4)
    states = view(workspace, 0, (2, high - low, N))
    saved = _replace_empty_saved(code, kind, weights, saved, high, N, workspace)
    weights = _transpose_weights(weights)
    c, count = saved.c, saved.c.shape[0]
    for b in range(low, high):
        copy(start[b, :N], states[0, b - low])
        if kind > 0:
            copy(start[b, N:], c[0, b])
    for t in range(steps):
        before, after = states[t % 2], states[(t + 1) % 2]
        source = saved.source[t % saved.source.shape[0], low:high]
        if kind > 0:
            _lstm_forward(weights, saved, t, low, high, x, before, source, kind == 2)
        _write_source(kind, x[low:high, t], before, source)
        if rows.size > 0:
            _write_source(0, x[low:high, t], before, rows[t, low:high])
        _core_forward(code, weights, saved, t, low, high, source, sequence.dt, after)
        _finish_step(sequence, c, t, low, high, before, after)
    for b in range(low, high):
        copy(states[steps % 2, b - low], last[b, :N])
        if kind > 0:
            copy(c[steps % count, b], last[b, N:])
    workspace[0] = f4(0.0)  # so that it is kept until here


@inline(force=True)
def _finish_step(sequence, c, t, low, high, before, after):
    """Write the states, (rows, N); masked sequences keep theirs, and what a memory holds."""
    count = c.shape[0]
    for b in range(low, high):
        if sequence.valid.size > 0 and not sequence.valid[b, t]:
            copy(before[b - low], after[b - low])
            if count > 0:
                copy(c[t % count, b], c[(t + 1) % count, b])
        copy(after[b - low], sequence.out[b, t])


@inline
def _count_workspace(code, kind, weights, rows, N):
    """Return how much memory the states and one step take; see :func:`_replace_empty_saved`."""
    width = N if code.mode == PURE else 4 * N
    units, R = max(weights.first.shape[0], width), weights.first.shape[1]
    return rows * (2 * N + (code.layers + 1) * units + width + R + (6 * N if kind > 0 else 0)) + 1


@inline
def _replace_empty_saved(code, kind, weights, saved, rows, N, workspace):
    """Return saved tensors, or memory for one step in the place of an empty one.

    Args:
        code: of the core.
        kind: 0 without a memory.
        weights, saved: of the run.
        rows: before which the slice ends.
        N: neurons.
        workspace: memory, whose beginning holds the states.
    """
    if saved.source.size > 0:
        return saved
    width = N if code.mode == PURE else 4 * N
    units = weights.first.shape[0] if code.layers > 0 else width
    at, R = 2 * rows * N, weights.first.shape[1]
    first, at = view(workspace, at, (1, rows, units)), at + rows * units
    heads = first
    if code.layers > 0:
        heads, at = view(workspace, at, (1, rows, width)), at + rows * width
    deeper = max(code.layers - 1, 0)
    deep, at = view(workspace, at, (deeper, 1, rows, units)), at + deeper * rows * units
    gates, c = saved.gates, saved.c
    if kind > 0:
        gates, at = view(workspace, at, (1, rows, 4 * N)), at + 4 * rows * N
        c, at = view(workspace, at, (2, rows, N)), at + 2 * rows * N
    source = view(workspace, at, (1, rows, R))
    return CfCSaved(source, saved.rows, gates, c, first, deep, saved.slopes, heads)


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
        transpose(weights.input),
        transpose(weights.recurrent),
        weights.gates_bias,
    )


@inline(force=True)
def _lstm_forward(weights, saved, t, low, high, x, h, source, reads_state):
    """Advance the memory, and write its part of what the core's first layer reads.

    Args:
        weights, saved, t, low, high: as for :func:`_core_forward`.
        x: (B, T, I).
        h: (rows, N), the state before the step.
        source: (rows, R), whose part u is written.
        reads_state: whether that comes first, before the state, or behind the input.
    """
    n, count, first = h.shape[1], saved.c.shape[0], 0 if reads_state else x.shape[2]
    gates = saved.gates[t % saved.gates.shape[0], low:high]
    c_before, c_after = saved.c[t % count], saved.c[(t + 1) % count]
    matmul(x[low:high, t], weights.input, gates, False)
    matmul(h, weights.recurrent, gates, True)
    for b in range(high - low):
        u = source[b, first : first + n]
        lstm_cell_forward(gates[b], weights.gates_bias, c_before[low + b], c_after[low + b], u)


@kernel
def cfc_backward(index, low, high, packed_code, weights, saved, sequence, gradients):
    """Run the slice back through all steps.

    Args:
        index: number of the slice, and of its row in the sums of the gradients.
        low, high: slice of the batch.
        packed_code, weights, saved, sequence: as for :func:`cfc_forward`.
        gradients: see :mod:`.config`.
    """
    code, carry, total = unpack_code(packed_code), gradients.h, gradients.sums[index]
    pure, bias = weights.rate.size, weights.first_bias.size
    pure_sums, total_biases = (total[:pure], total[pure : 2 * pure]), total[2 * pure :]
    # of a step, for sums of sums round less than one long sum
    step_biases = np.zeros(total_biases.size, f4)
    biases = step_biases[bias:], step_biases[:bias]
    kind, N, masked = int(packed_code[16]), carry.shape[1], sequence.valid.size > 0
    grad_x, R = sequence.x, weights.first.shape[1]
    inputs = 0 if kind == 2 else R - N  # columns of the source that are the input
    skipped = inputs if grad_x.size == 0 else 0
    first = weights.first[:, skipped:]
    grad_of_masked = np.empty((high - low if masked else 0, N), f4)
    workspace = np.empty((high - low) * (R - skipped) + 1, f4)
    source = view(workspace, 0, (high - low, R - skipped))
    for t in range(sequence.dt.shape[1] - 1, -1, -1):
        for b in range(low, high):
            if sequence.out.size > 0:
                add(carry[b], sequence.out[b, t])
            if masked:
                copy(carry[b], grad_of_masked[b - low])
        delta = _core_backward(
            code, weights, saved, gradients, t, low, high, sequence, pure_sums, biases
        )
        matmul(delta, first, source, False)
        for j in range(step_biases.size):
            total_biases[j] += step_biases[j]
            step_biases[j] = f4(0.0)
        _split_source(kind, source, carry[low:high], grad_x[low:high], t)
        if kind > 0:
            _lstm_backward(weights, saved, gradients, t, low, high, sequence, source, kind == 2)
        if masked:  # a masked step passes its gradient on untouched
            for b in range(low, high):
                if not sequence.valid[b, t]:
                    copy(grad_of_masked[b - low], carry[b])
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


@inline(force=True)
def _lstm_backward(weights, saved, gradients, t, low, high, sequence, grad_source, reads_state):
    """Take a step's gradients back through the memory.

    Args:
        weights, saved, gradients, t, low, high, sequence: as for :func:`_core_backward`.
        grad_source: (rows, R'), gradient of what the core's first layer read.
        reads_state: whether u comes first in it, before the state, or last.
    """
    carry, n = gradients.h, gradients.h.shape[1]
    gates, delta, before, after = saved.gates[t], gradients.gates[t], saved.c[t], saved.c[t + 1]
    first = 0 if reads_state else grad_source.shape[1] - n
    for b in range(low, high):
        if sequence.valid.size > 0 and not sequence.valid[b, t]:
            delta[b] = f4(0.0)
        else:
            grad_u = grad_source[b - low, first : first + n]
            lstm_cell_backward(gates[b], before[b], after[b], grad_u, gradients.c[b], delta[b])
    matmul(delta[low:high], weights.recurrent, carry[low:high], reads_state)
    if sequence.x.size > 0:
        matmul(delta[low:high], weights.input, sequence.x[low:high, t], not reads_state)
