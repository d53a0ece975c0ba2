"""Closed-form cells over sequences: compiled loops.

One thread takes a slice of the batch through all steps. A step is a chain of matrix products, done
by the BLAS inside torch, with one pass over the activations between two of them. Beside a memory,
its four gates come first; what the core's first layer then reads at every step, its source, is u in
the form ``state``, whose core has the input beside it, and [u; v] in the form ``input``. Gradients
of the weights are left to one product over the whole sequence, after the loop.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

import numpy as np

from tauflow.kernels.cpu.jit import f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import (
    activate,
    add,
    copy,
    memory_backward,
    memory_forward,
    move,
    times_slope,
)
from tauflow.kernels.engine.activations import Phi

from .form import Code
from .numba_pointwise import gap_gradients, join, pull_apart


class Core(NamedTuple):
    """A core: addresses of products, its code, and arrays of :mod:`.form`."""

    blas: Any
    code: Any
    weights: Any
    tape: Any


class Place(NamedTuple):
    """A step of a slice of the batch, from ``low`` to before ``high``."""

    t: Any
    low: Any
    high: Any


@inlined
def read_code(numbers):
    """Return the :class:`Code` of which ``numbers_of`` made an array."""
    n = numbers
    outer = Phi(int(n[1]), n[2], n[3], n[4], n[5], n[6])
    phi = Phi(int(n[8]), n[9], n[10], n[11], n[12], n[13])
    return Code(int(n[0]), outer, int(n[7]), phi, n[14], n[15] != 0)


@inlined
def core_forward(core, place, source, accumulate, gaps, after):
    """Write the state after one step of the slice.

    Args:
        core: the core.
        place: step and slice.
        source: what the first layer reads, (B, R).
        accumulate: whether ``tape.first`` holds the input's part of the product.
        gaps: (B, T).
        after: receives the state, (B, N).
    """
    blas, code, weights, tape = core
    t, low, high = place
    z = tape.first[t, low:high]
    recurrent = weights.recurrent
    width, reads = recurrent.shape
    matmul(blas, source[low:high], recurrent, z, width, reads, True, accumulate)
    heads = tape.heads[t % tape.heads.shape[0], low:high]
    if code.layers > 0:
        _activate_layer(code.outer, tape.slopes, 0, place, z, weights.first_bias)
        for layer in range(code.layers - 1):
            deeper = tape.deep[layer, t % tape.deep.shape[1], low:high]
            matmul(blas, z, weights.deep[layer], deeper, width, width, True, False)
            z = deeper
            bias = weights.deep_bias[layer]
            _activate_layer(code.outer, tape.slopes, layer + 1, place, z, bias)
        matmul(blas, z, weights.heads, heads, weights.heads.shape[0], width, True, False)
    join(code, weights, heads, gaps[low:high, t], after[low:high])


@inlined
def _activate_layer(phi, slopes, layer, place, z, bias):
    """Add the bias and apply the backbone's activation to the slice's rows."""
    keep = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, place.t, place.low + row] if keep else bias
        activate(phi, z[row], bias, slope, keep)


@inlined
def _core_backward(core, deltas, place, run, carried, own, biases, to_source):
    """Write the gradients of one step's products and of what its first layer read.

    Args:
        core, place: as for :func:`core_forward`.
        deltas, run, carried: see :mod:`.form`.
        own: gradients of rate and amplitude for this slice.
        biases: those of the biases of heads and first layer, (1, K N) and (1, F).
        to_source: receives the gradient of the source, (B, R); may be that of the state itself.
    """
    blas, code, weights, tape = core
    t, low, high = place
    heads = deltas.heads[t, low:high]
    values, dt, gradient = tape.heads[t, low:high], run.dt[low:high, t], carried.h[low:high]
    valid = run.valid[low:high, t]
    if carried.gap.size > 0:
        gap_gradients(code, weights, values, dt, valid, gradient, carried.gap[low:high, t])
    pull_apart(code, weights, values, dt, valid, gradient, heads, own)
    _add_up(heads, biases[0][0])
    delta = heads
    if code.layers > 0:
        top = code.layers - 1
        delta = deltas.deep[top - 1, t, low:high] if top > 0 else deltas.first[t, low:high]
        rows, width = weights.heads.shape
        matmul(blas, heads, weights.heads, delta, width, rows, False, False)
        for layer in range(top, -1, -1):
            z = tape.deep[layer - 1, t, low:high] if layer > 0 else tape.first[t, low:high]
            _through_activation(code.outer, tape.slopes, layer, place, delta, z)
            if layer > 0:
                below = (
                    deltas.deep[layer - 2, t, low:high] if layer > 1 else deltas.first[t, low:high]
                )
                matmul(blas, delta, weights.deep[layer - 1], below, width, width, False, False)
                delta = below
        _add_up(delta, biases[1][0])
    inner, reads = weights.recurrent.shape
    matmul(blas, delta, weights.recurrent, to_source[low:high], reads, inner, False, False)


@inlined
def _add_up(rows, total):
    for row in range(rows.shape[0]):
        add(total, rows[row])


@inlined
def _through_activation(phi, slopes, layer, place, delta, z):
    kept = slopes.shape[0] > 0
    for row in range(z.shape[0]):
        slope = slopes[layer, place.t, place.low + row] if kept else z[row]
        times_slope(phi, delta[row], z[row], slope)


@kernel
def closed_forward(index, low, high, blas, numbers, weights, tape, memory, run):
    """Run the slice through all steps.

    Args:
        index: number of the slice.
        low, high: slice of the batch.
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        numbers: of the form, by ``numbers_of``.
        weights, tape, memory, run: see :mod:`.form`.
    """
    threads = set_blas_threads(blas, 1)
    core, states = Core(blas, read_code(numbers), weights, tape), run.states
    remembers = memory.recurrent.size > 0
    for t in range(run.out.shape[1]):
        place = Place(t, low, high)
        before, after = states[t % states.shape[0]], states[(t + 1) % states.shape[0]]
        source, accumulate = before, True
        if remembers:
            source = memory.source[t % memory.source.shape[0]]
            accumulate = source.shape[1] == before.shape[1]
            _remember(blas, memory, place, before, source)
        core_forward(core, place, source, accumulate, run.dt, after)
        for b in range(low, high):
            if run.valid.size > 0 and not run.valid[b, t]:
                copy(before[b], after[b])
                if remembers:
                    c, places = memory.c, memory.c.shape[0]
                    copy(c[t % places, b], c[(t + 1) % places, b])
            copy(after[b], run.out[b, t])
    set_blas_threads(blas, threads)


@inlined
def _remember(blas, memory, place, before, source):
    """Advance the memory, and write what the core's first layer reads."""
    t, low, high = place
    n, gates, count = before.shape[1], memory.gates[t], memory.c.shape[0]
    c_before, c_after = memory.c[t % count], memory.c[(t + 1) % count]
    matmul(blas, before[low:high], memory.recurrent, gates[low:high], 4 * n, n, True, True)
    for b in range(low, high):
        memory_forward(gates[b], memory.bias, c_before[b], c_after[b], source[b, :n])
        if source.shape[1] > n:
            copy(before[b], source[b, n:])


@kernel
def closed_backward(index, low, high, blas, numbers, weights, memory, run, tapes, carried):
    """Run the slice back through all steps.

    Args:
        index: number of the slice, and of its row in the sums of ``carried``.
        low, high: slice of the batch.
        blas, numbers, weights, memory, run: as for :func:`closed_forward`.
        tapes: the tape, and the deltas, which are written.
        carried: see :mod:`.form`.
    """
    threads = set_blas_threads(blas, 1)
    tape, deltas = tapes
    core, carry = Core(blas, read_code(numbers), weights, tape), carried.h
    own, mine = (carried.rate[index], carried.amplitude[index]), slice(index, index + 1)
    # of a step, for sums of sums round less than one long sum
    biases = np.zeros_like(carried.heads_bias[mine]), np.zeros_like(carried.first_bias[mine])
    remembers, masked = memory.recurrent.size > 0, run.valid.size > 0
    kept = np.empty((high - low if masked else 0, carry.shape[1]), f4)
    shown = np.empty((high if remembers else 0, memory.source.shape[2]), f4)
    for t in range(run.dt.shape[1] - 1, -1, -1):
        place = Place(t, low, high)
        for b in range(low, high):
            if run.out.size > 0:
                add(carry[b], run.out[b, t])
            if masked:
                copy(carry[b], kept[b - low])
        to_source = shown if remembers else carry
        _core_backward(core, deltas, place, run, carried, own, biases, to_source)
        move(carried.heads_bias[mine], biases[0])
        move(carried.first_bias[mine], biases[1])
        if remembers:
            _forget(blas, memory, deltas, place, run, carried, shown)
        if masked:  # a masked step passes its gradient on untouched
            for b in range(low, high):
                if not run.valid[b, t]:
                    copy(kept[b - low], carry[b])
    set_blas_threads(blas, threads)


@inlined
def _forget(blas, memory, deltas, place, run, carried, shown):
    """Take a step's gradients back through the memory.

    Args:
        blas, memory, place: as for :func:`_remember`.
        deltas, run, carried: see :mod:`.form`.
        shown: (B, R), gradient of what the core's first layer read.
    """
    t, low, high = place
    carry, n = carried.h, carried.h.shape[1]
    gates, delta, before, after = memory.gates[t], deltas.gates[t], memory.c[t], memory.c[t + 1]
    for b in range(low, high):
        if run.valid.size > 0 and not run.valid[b, t]:
            delta[b] = f4(0.0)
        else:
            memory_backward(gates[b], before[b], after[b], shown[b, :n], carried.c[b], delta[b])
        if shown.shape[1] > n:
            copy(shown[b, n:], carry[b])
    reads_state = shown.shape[1] > n
    matmul(
        blas, delta[low:high], memory.recurrent, carry[low:high], n, 4 * n, False, reads_state
    )  # fmt: skip
