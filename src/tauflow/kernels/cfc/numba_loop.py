"""Closed-form cells over sequences: compiled loops.

One thread takes a slice of the batch through all steps. A step is a chain of matrix products by
:mod:`tauflow.kernels.cpu.matmul`, with one pass over the activations between two of them. Beside a
memory, its four gates come first; what the core's first layer then reads at every step, its source,
is u in the form ``state``, whose core has the input beside it, and [u; v] in the form ``input``.
Gradients of the weights are left to one product over the whole sequence, after the loop.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

import numpy as np

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import (
    activate,
    add,
    add_and_reset,
    copy,
    lstm_cell_backward,
    lstm_cell_forward,
    multiply_by_slope,
)
from tauflow.kernels.cpu.matmul import matmul, transpose, transpose_each
from tauflow.kernels.engine.activations import ActivationCode

from .config import CfCCode, CfCWeights
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
def core_forward(core, place, source, accumulate, dt, after):
    """Write the state after one step of the slice.

    Args:
        core: the core.
        place: step and slice.
        source: what the first layer reads, (B, R).
        accumulate: whether ``tape.first`` holds the input's part of the product.
        dt: (B, T).
        after: receives the state, (B, N).
    """
    code, weights, tape = core
    t, low, high = place
    z = tape.first[t, low:high]
    matmul(source[low:high], weights.recurrent, z, accumulate)
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
    cfc_gate_forward(code, weights, heads, dt[low:high, t], after[low:high])


@inline
def _activate_layer(phi, slopes, layer, place, z, bias):
    """Add the bias and apply the backbone's activation to the slice's rows."""
    keep = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, place.t, place.low + row] if keep else bias
        activate(phi, z[row], bias, slope, keep)


@inline
def _core_backward(
    core, deltas, place, sequence, grad_carry, grad_parameters, grad_biases, grad_source
):
    """Write the gradients of one step's products and of what its first layer read.

    Args:
        core, place: as for :func:`core_forward`.
        deltas, sequence, grad_carry: see :mod:`.config`.
        grad_parameters: gradients of rate and amplitude for this slice.
        grad_biases: those of the biases of heads and first layer, (1, K N) and (1, F).
        grad_source: receives the gradient of the source, (B, R); may be that of the state itself.
    """
    code, weights, tape = core
    t, low, high = place
    heads = deltas.heads[t, low:high]
    values, dt, gradient = tape.heads[t, low:high], sequence.dt[low:high, t], grad_carry.h[low:high]
    valid = sequence.valid[low:high, t]
    if grad_carry.dt.size > 0:
        dt_gradients(code, weights, values, dt, valid, gradient, grad_carry.dt[low:high, t])
    cfc_gate_backward(code, weights, values, dt, valid, gradient, heads, grad_parameters)
    _sum_rows(heads, grad_biases[0][0])
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
        _sum_rows(delta, grad_biases[1][0])
    matmul(delta, weights.recurrent, grad_source[low:high], False)


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
    core = CoreArrays(unpack_code(packed_code), _transpose_weights(weights), activations)
    grad_gates, states = transpose(memory.recurrent), sequence.states
    remembers = memory.recurrent.size > 0
    for t in range(sequence.out.shape[1]):
        place = StepSlice(t, low, high)
        before, after = states[t % states.shape[0]], states[(t + 1) % states.shape[0]]
        source, accumulate = before, True
        if remembers:
            source = memory.source[t % memory.source.shape[0]]
            accumulate = source.shape[1] == before.shape[1]
            _lstm_forward(memory, grad_gates, place, before, source)
        core_forward(core, place, source, accumulate, sequence.dt, after)
        for b in range(low, high):
            if sequence.valid.size > 0 and not sequence.valid[b, t]:
                copy(before[b], after[b])
                if remembers:
                    c, places = memory.c, memory.c.shape[0]
                    copy(c[t % places, b], c[(t + 1) % places, b])
            copy(after[b], sequence.out[b, t])


@inline
def _transpose_weights(weights):
    """Return the weights with each matrix as products with rows from the left read it."""
    return CfCWeights(
        transpose(weights.recurrent),
        weights.first_bias,
        transpose_each(weights.deep),
        weights.deep_bias,
        transpose(weights.heads),
        weights.heads_bias,
        weights.rate,
        weights.amplitude,
    )


@inline
def _lstm_forward(memory, grad_gates, place, h, source):
    """Advance the memory, and write what the core's first layer reads.

    Args:
        memory, place: of the run.
        grad_gates: (N, 4 N), the memory's weights transposed.
        h: (B, N), the state before the step.
        source: (B, R), written.
    """
    t, low, high = place
    n, gates, count = h.shape[1], memory.gates[t], memory.c.shape[0]
    c_before, c_after = memory.c[t % count], memory.c[(t + 1) % count]
    matmul(h[low:high], grad_gates, gates[low:high], True)
    for b in range(low, high):
        lstm_cell_forward(gates[b], memory.bias, c_before[b], c_after[b], source[b, :n])
        if source.shape[1] > n:
            copy(h[b], source[b, n:])


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
    own, mine = (grad_carry.rate[index], grad_carry.amplitude[index]), slice(index, index + 1)
    # of a step, for sums of sums round less than one long sum
    biases = np.zeros_like(grad_carry.heads_bias[mine]), np.zeros_like(grad_carry.first_bias[mine])
    remembers, masked = memory.recurrent.size > 0, sequence.valid.size > 0
    kept = np.empty((high - low if masked else 0, carry.shape[1]), f4)
    shown = np.empty((high if remembers else 0, memory.source.shape[2]), f4)
    for t in range(sequence.dt.shape[1] - 1, -1, -1):
        place = StepSlice(t, low, high)
        for b in range(low, high):
            if sequence.out.size > 0:
                add(carry[b], sequence.out[b, t])
            if masked:
                copy(carry[b], kept[b - low])
        grad_source = shown if remembers else carry
        _core_backward(core, deltas, place, sequence, grad_carry, own, biases, grad_source)
        add_and_reset(grad_carry.heads_bias[mine], biases[0])
        add_and_reset(grad_carry.first_bias[mine], biases[1])
        if remembers:
            _lstm_backward(memory, deltas, place, sequence, grad_carry, shown)
        if masked:  # a masked step passes its gradient on untouched
            for b in range(low, high):
                if not sequence.valid[b, t]:
                    copy(kept[b - low], carry[b])


@inline
def _lstm_backward(memory, deltas, place, sequence, grad_carry, grad_source):
    """Take a step's gradients back through the memory.

    Args:
        memory, place: as for :func:`_lstm_forward`.
        deltas, sequence, grad_carry: see :mod:`.config`.
        grad_source: (B, R), gradient of what the core's first layer read.
    """
    t, low, high = place
    carry, n = grad_carry.h, grad_carry.h.shape[1]
    gates, delta, before, after = memory.gates[t], deltas.gates[t], memory.c[t], memory.c[t + 1]
    for b in range(low, high):
        if sequence.valid.size > 0 and not sequence.valid[b, t]:
            delta[b] = f4(0.0)
        else:
            lstm_cell_backward(
                gates[b], before[b], after[b], grad_source[b, :n], grad_carry.c[b], delta[b]
            )
        if grad_source.shape[1] > n:
            copy(grad_source[b, n:], carry[b])
    reads_state = grad_source.shape[1] > n
    matmul(delta[low:high], memory.recurrent, carry[low:high], reads_state)
