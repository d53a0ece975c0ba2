r"""The LTC and the LRC over whole sequences, compiled: one loop forwards and one back.

Drive D and conductance G are sums over synapses, plus what leak and input contribute. What a cell
makes of them in an evaluation, a sub-step or a stage of one, is in :mod:`.numba_substeps` and
:mod:`.numba_lrc_substeps`. The synapses' sigmoids are computed again for the backward pass.

Four sequences are advanced together, so that a synapse's weights are loaded once for all four.
Arrays are explained in :mod:`tauflow.kernels.ltc`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.jit import EXACT_DIVISION, f4, inline, kernel
from tauflow.kernels.cpu.math import (
    add,
    add_and_reset,
    add_rows,
    copy,
    copy_rows,
    mark_valid_rows,
)
from tauflow.kernels.cpu.values import view

from .numba_lrc_substeps import lrc_evaluation, lrc_evaluation_backward, matmul_add_four
from .numba_substeps import ltc_evaluation, ltc_evaluation_backward
from .numba_synapses import (
    arrange_conductances,
    arrange_conductances_backward,
    arrange_weights,
    conductance_factors,
    pack_synapses,
    store_weight_gradients,
    synaptic_currents,
    synaptic_currents_backward,
    weight_factors,
    weighted_currents_backward,
)

_ZERO = f4(0.0)
# Gradients of weights are sums of sums of sums, which round less than one long sum.
_TERMS_PER_SUM, _SUMS_PER_SUM = 24, 32


@inline(force=True, math=EXACT_DIVISION)
def _get_lengths(rows, gaps, substeps, delta):
    """Write the lengths of sub-steps."""
    for row in range(rows):
        delta[row] = gaps[row] / f4(substeps)


@inline(force=True)
def run_forward(evaluate, low, high, samples, synapses, method, h, out, last, saved):
    """Run sequences ``low`` to ``high``.

    Args:
        evaluate: takes an evaluation; see :func:`.numba_substeps.ltc_evaluation`.
        low, high: slice of the batch.
        samples, method, saved: see :mod:`tauflow.kernels.ltc`.
        synapses: sensory and recurrent ones, packed.
        h: (B, N), potentials before the first step.
        out: (B, T, N), receives those after each step.
        last: (B, N), receives those after the last one; may be ``h``.
    """
    u, leak, (_, T, N), D = samples.u, method.leak, out.shape, samples.sources
    sensory, recurrent = synapses
    stages, valid = max(1, method.stages), np.empty(4, np.bool_)
    memory = np.zeros(4 * (7 + stages) * N + 4 * D + 4, f4)
    blocks, rest = view(memory, 0, (7 + stages, 4, N)), 4 * (7 + stages) * N
    v, drive, conductance = blocks[0], blocks[1], blocks[2]
    input_drive, input_conductance = blocks[3], blocks[4]
    work = blocks[5], blocks[6, 0], blocks[6, 1], blocks[7:]
    u_t, delta = view(memory, rest, (4, D)), view(memory, rest + 4 * D, 4)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, h[first:], v)
        for t in range(T):
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, u[first:, t], u_t)
                for row in range(rows):
                    copy(leak[0], input_drive[row])
                    copy(leak[method.conductance], input_conductance[row])
                synaptic_currents(rows, u_t, sensory, input_drive, input_conductance)
                _get_lengths(rows, samples.dt[first:, t], method.substeps, delta)
                for e in range(method.substeps * max(1, method.stages)):
                    copy_rows(rows, input_drive, drive)
                    copy_rows(rows, input_conductance, conductance)
                    block, sums = (first, rows, t, e), (drive, conductance)
                    evaluate(method, samples, recurrent, saved, block, valid, delta, v, sums, work)
            elif saved.shape[1] > 0:  # and multiplied by gradients of 0
                saved[0, first : first + rows, t] = _ZERO
            copy_rows(rows, v, out[first:, t])
        copy_rows(rows, v, last[first:])
    memory[0] = _ZERO  # so that it is kept until here


@kernel(is_launched=True)
def ltc_forward(index, low, high, samples, synapses, method, h, out, last, saved):
    """Run a slice of sequences of an LTC; see :func:`run_forward`."""
    memory_x, x = pack_synapses(arrange_conductances, synapses[0])
    memory, packed = pack_synapses(arrange_conductances, synapses[1])
    run_forward(ltc_evaluation, low, high, samples, (x, packed), method, h, out, last, saved)
    memory_x[0], memory[0] = _ZERO, _ZERO  # so that they are kept until here


@kernel(is_launched=True)
def lrc_forward(index, low, high, samples, synapses, method, h, out, last, saved):
    """Run a slice of sequences of an LRC; see :func:`run_forward`."""
    memory_x, x = pack_synapses(arrange_weights, synapses[0])
    memory, packed = pack_synapses(arrange_weights, synapses[1])
    run_forward(lrc_evaluation, low, high, samples, (x, packed), method, h, out, last, saved)
    memory_x[0], memory[0] = _ZERO, _ZERO  # so that they are kept until here


@inline(force=True)
def _load_potentials(saved, first, rows, t, e, at):
    """Read the potentials of an evaluation."""
    for row in range(rows):
        for j in range(at.shape[1]):
            at[row, j] = saved[0, first + row, t, e, j]


@inline(force=True)
def _add_and_copy(total, part, at, after):
    """Add the gradients of a block to those of the input; ``at`` is what the next one ends at."""
    for row in range(4):
        for j in range(total.shape[1]):
            total[row, j] += part[row, j]
            after[row, j] = at[row, j]


@inline(force=True)
def _add_and_reset_all(totals, parts):
    """Add the partial sums for sensory and recurrent synapses and neurons, and begin the next."""
    add_and_reset(totals[0], parts[0])
    add_and_reset(totals[1], parts[1])
    add_and_reset(totals[2], parts[2])


@inline(force=True)
def _view_sums(memory, offset, sensory, recurrent, N):
    """Return memory for gradients of sensory and recurrent synapses and of neurons."""
    K_x, K = sensory.weights.shape[1], recurrent.weights.shape[1]
    of_x, of_h = view(memory, offset, (4, K_x)), view(memory, offset + 4 * K_x, (4, K))
    return of_x, of_h, view(memory, offset + 4 * (K_x + K), (3, N))


@inline(force=True)
def _write_input_gradients(samples, first, rows, t, grad_u_t, gradients):
    """Keep the gradients of a step's inputs; those of q are summed over the sub-steps."""
    copy_rows(rows, grad_u_t[:, : samples.sources], gradients.u[first:, t, : samples.sources])
    for row in range(rows if gradients.q.size > 0 else 0):
        grad_potentials = gradients.u[first + row, t, samples.sources :]
        grad_potentials[:] = _ZERO
        for e in range(gradients.q.shape[2]):
            add(grad_potentials, gradients.q[first + row, t, e])


@inline(force=True)
def _add_to_neurons(rows, method, grad_neuron, grad_drive, grad_conductance):
    """Add the gradients of what input and leak send to those of the leak."""
    for row in range(rows):
        if method.conductance > 0:
            add(grad_neuron[0], grad_drive[row])
            add(grad_neuron[method.conductance], grad_conductance[row])
        else:
            for j in range(grad_drive.shape[1]):
                grad_neuron[0, j] += grad_conductance[row, j] + grad_drive[row, j]


@inline(force=True)
def _end_evaluation(method, first, rows, t, e, grad_v, work, gradients):
    """Add to the gradient of a sub-step's start what comes of its stages, or of an elastance."""
    if method.stages > 0 and e % method.stages == 0:
        for i in range(method.stages):
            add_rows(rows, grad_v, work[2][i])
    if gradients.q.size > 0:
        matmul_add_four(work[0], method.W, grad_v)
        copy_rows(rows, work[0], gradients.q[first:, t, e])


@inline(force=True)
def _run_backward(
    step, currents, low, high, samples, synapses, method, saved, grad_outputs, gradients
):
    """Run sequences ``low`` to ``high`` backwards.

    Args:
        step: takes gradients back through an evaluation; see :mod:`.numba_substeps`.
        currents: takes them back through synapses.
        low, high, samples, method, kept, grad_outputs: as for the kernels.
        synapses: sensory and recurrent ones, packed.
        gradients: likewise, those of the slice's synapses and neurons.
    """
    u, (_, T, N), stages, D = samples.u, grad_outputs.out.shape, method.stages, samples.sources
    sensory, recurrent = synapses
    slice_totals = gradients.sensory, gradients.recurrent, gradients.neurons
    size = 4 * (sensory.weights.shape[1] + recurrent.weights.shape[1]) + 3 * N
    count = max(1, stages)
    memory = np.zeros(2 * size + 4 * (9 + count) * N + 8 * D + 4, f4)
    total = _view_sums(memory, 0, sensory, recurrent, N)
    step_sums = _view_sums(memory, size, sensory, recurrent, N)
    evaluations = method.substeps * max(1, stages)
    steps_per_sum = max(1, _TERMS_PER_SUM // evaluations)
    blocks, rest = view(memory, 2 * size, (9 + count, 4, N)), 2 * size + 4 * (9 + count) * N
    grad_v, at, after = blocks[0], blocks[1], blocks[2]
    grad_drive, grad_conductance = blocks[3], blocks[4]
    grad_input_drive, grad_input_conductance = blocks[5], blocks[6]
    work = blocks[7], blocks[8, 0], blocks[9:]
    inputs, delta = view(memory, rest, (2, 4, D)), view(memory, rest + 8 * D, 4)
    u_t, grad_u_t = inputs[0], inputs[1]
    valid, is_masked = np.empty(4, np.bool_), samples.mask.shape[1] > 0
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, gradients.h[first:], grad_v)
        for t in range(T - 1, -1, -1):
            if grad_outputs.grad_out.size > 0:
                add_rows(rows, grad_v, grad_outputs.grad_out[first:, t])
            grad_input_drive[:], grad_input_conductance[:], grad_u_t[:] = _ZERO, _ZERO, _ZERO
            gradients.dt[first : first + rows, t] = _ZERO
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, grad_outputs.out[first:, t], after)
                _get_lengths(rows, samples.dt[first:, t], method.substeps, delta)
                for e in range(evaluations - 1, -1, -1):
                    grad_at = grad_v if stages == 0 else work[2][e % stages]
                    _load_potentials(saved, first, rows, t, e, at)
                    if rows < 4 or is_masked:
                        grad_drive[:], grad_conductance[:] = _ZERO, _ZERO
                    block, sums = (
                        (first, rows, t, e),
                        (grad_v, grad_drive, grad_conductance, step_sums[2]),
                    )
                    step(method, saved, block, valid, delta, (at, after), sums, work, gradients)
                    _add_and_copy(grad_input_drive, grad_drive, at, after)
                    _add_and_copy(grad_input_conductance, grad_conductance, at, after)
                    currents(
                        rows, at, recurrent, grad_drive, grad_conductance, grad_at, step_sums[1]
                    )
                    _end_evaluation(method, first, rows, t, e, grad_v, work, gradients)
                copy_rows(rows, u[first:, t], u_t)
                currents(
                    rows,
                    u_t,
                    sensory,
                    grad_input_drive,
                    grad_input_conductance,
                    grad_u_t,
                    step_sums[0],
                )
                _add_to_neurons(
                    rows, method, step_sums[2], grad_input_drive, grad_input_conductance
                )
            elif gradients.q.size > 0:
                gradients.q[first : first + rows, t] = _ZERO
            _write_input_gradients(samples, first, rows, t, grad_u_t, gradients)
            if t % steps_per_sum == 0:
                _add_and_reset_all(total, step_sums)
            if t % _SUMS_PER_SUM == 0:
                _add_and_reset_all(slice_totals, total)
        copy_rows(rows, grad_v, gradients.h[first:])
    memory[0] = _ZERO  # so that it is kept until here


@inline(force=True)
def _get_slice_gradients(gradients, index, sensory, recurrent):
    """Return the gradients of a slice, with those of its packed synapses."""
    of_x, of_h = np.zeros_like(sensory.weights), np.zeros_like(recurrent.weights)
    h, u, dt, q = gradients.h, gradients.u, gradients.dt, gradients.q
    return layout.SynapseGradients(h, u, dt, of_x, of_h, gradients.neurons[index], q)


@kernel(is_launched=True)
def ltc_backward(index, low, high, samples, synapses, method, saved, grad_outputs, gradients):
    """Run a slice of sequences of an LTC backwards, adding to the slice's own gradients.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        samples, method, kept, grad_outputs, gradients: see :mod:`tauflow.kernels.ltc`.
        synapses: sensory and recurrent ones, in the order of the backward pass.
    """
    memory_x, x = pack_synapses(arrange_conductances_backward, synapses[0])
    memory, h = pack_synapses(arrange_conductances_backward, synapses[1])
    slice_gradients = _get_slice_gradients(gradients, index, x, h)
    _run_backward(
        ltc_evaluation_backward, synaptic_currents_backward,
        low, high, samples, (x, h), method, saved, grad_outputs, slice_gradients,
    )  # fmt: skip
    of_x, of_h = gradients.sensory[index], gradients.recurrent[index]
    store_weight_gradients(conductance_factors, slice_gradients.sensory, synapses[0], of_x)
    store_weight_gradients(conductance_factors, slice_gradients.recurrent, synapses[1], of_h)
    memory_x[0], memory[0] = _ZERO, _ZERO


@kernel(is_launched=True)
def lrc_backward(index, low, high, samples, synapses, method, saved, grad_outputs, gradients):
    """Run a slice of sequences of an LRC backwards; see :func:`ltc_backward`."""
    memory_x, x = pack_synapses(arrange_weights, synapses[0])
    memory, h = pack_synapses(arrange_weights, synapses[1])
    slice_gradients = _get_slice_gradients(gradients, index, x, h)
    _run_backward(
        lrc_evaluation_backward, weighted_currents_backward,
        low, high, samples, (x, h), method, saved, grad_outputs, slice_gradients,
    )  # fmt: skip
    store_weight_gradients(
        weight_factors, slice_gradients.sensory, synapses[0], gradients.sensory[index]
    )
    store_weight_gradients(
        weight_factors, slice_gradients.recurrent, synapses[1], gradients.recurrent[index]
    )
    memory_x[0], memory[0] = _ZERO, _ZERO
