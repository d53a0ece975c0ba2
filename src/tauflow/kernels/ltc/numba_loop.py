r"""The LTC over whole sequences, compiled: one loop for every solver.

With :math:`\delta = gap / substeps`, one sub-step of the fused solver and its gradient are

.. math::
    v' = n / m, \quad n = C v + \delta D, \quad m = C + \delta G

    \bar n = \bar v' / m, \quad \bar m = -\bar n v', \quad
    \bar C = \bar n v + \bar m, \quad \bar D = \delta \bar n, \quad \bar G = \delta \bar m, \quad
    \bar v = C \bar n + \ldots, \quad \bar\delta = \sum (D - G v') \bar v' / m

where drive D and conductance G are sums over synapses plus what leak and input contribute. For the
backward pass v and 1 / m of every sub-step are kept, and the synapses' sigmoids computed again. If
gaps want a gradient, ``(D - G v') / m`` is kept too: v and v' do not tell it where a gap is zero.

The exponential solver takes

.. math::
    v' = e^{-r} v + \frac{\delta}{C} D \varphi(r), \quad r = \frac{\delta}{C} G, \quad
    \varphi(r) = (1 - e^{-r}) / r

    \bar r = \bar v' (\frac{\delta}{C} D \varphi' - e^{-r} v), \quad
    \bar v = e^{-r} \bar v', \quad \bar D = \frac{\delta}{C} \varphi \bar v', \quad
    \bar G = \frac{\delta}{C} \bar r, \quad
    \bar\delta = \sum (D \varphi \bar v' + G \bar r) / C

and :math:`\bar C` is :math:`\bar\delta` with :math:`-\delta / C` for every neuron. Then v and G
are kept, of which :math:`\frac{\delta}{C} D \varphi = v' - e^{-r} v` follows, and the slopes of the
gap if they are wanted.

The stages of one explicit sub-step are

.. math::
    v_i = v + \delta \sum_{j < i} a_{ij} k_j, \qquad k_i = (D_i - G_i v_i) / C, \qquad
    v' = v + \delta \sum_i b_i k_i

With :math:`e_j = b_j \bar v' + \sum_{i > j} a_{ij} \bar v_i`, their gradients are

.. math::
    \bar D_j = \delta e_j / C, \quad \bar G_j = -\bar D_j v_j, \quad \bar C = -\sum \bar D_j k_j,
    \quad \bar\delta = \sum \langle e_j, k_j \rangle, \quad \bar v_j = -G_j \bar D_j + \ldots,
    \quad \bar v = \bar v' + \sum_j \bar v_j

Then :math:`v_i`, :math:`G_i` and :math:`k_i` are kept.

Four sequences are advanced together, so that a synapse's weights are loaded once for all four.
Arrays are explained in :mod:`tauflow.kernels.ltc`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import (
    add,
    add_and_reset,
    add_rows,
    add_scaled,
    copy,
    copy_rows,
    dot,
    mark_valid_rows,
    relaxation_factors,
)

from .numba_substeps import (
    _ZERO,
    exponential_dt_slope,
    exponential_step,
    fused_dt_slope,
    fused_step,
)
from .numba_synapses import synaptic_currents, synaptic_currents_backward

# Gradients of weights are sums of sums of sums, which round less than one long sum.
TERMS_PER_SUM, SUMS_PER_SUM = 24, 32


@inline(force=True)
def _axpy_stages(v, delta, weights, slopes, row, at):
    """Write v + delta times the weighted slopes; a weight of 0 does not look at its slope."""
    copy(v, at)
    for j in range(weights.shape[0]):
        if weights[j] != _ZERO:
            add_scaled(at, delta * weights[j], slopes[j, row])


@inline(force=True)
def _stage_slopes(C, rows, at, drive, conductance, k):
    """Write the slopes of a stage, (4, N)."""
    for row in range(rows):
        for j in range(C.shape[0]):
            k[row, j] = (drive[row, j] - conductance[row, j] * at[row, j]) / C[j]


@inline(force=True)
def _finish_substep(rows, valid, delta, b, k, v, after):
    """Advance the potentials of the rows that take the step."""
    for row in range(rows):
        if valid[row]:
            _axpy_stages(v[row], delta[row], b, k, row, after)
            copy(after, v[row])


@inline(force=True)
def _start_stage(a, i, delta, rows, v, k, at):
    """Write the potentials of a stage."""
    for row in range(rows):
        _axpy_stages(v[row], delta[row], a[i, :i], k, row, at[row])


@kernel
def ltc_forward(  # noqa: C901 - the inner loop of both kinds of solvers, which calls would slow
    index, low, high, samples, sensory, recurrent, method, h, out, activations
):
    """Run sequences ``low`` to ``high``.

    Args:
        index: of the slice; forwards there is nothing to accumulate.
        low, high: slice of the batch.
        samples, sensory, recurrent, method, activations: see :mod:`tauflow.kernels.ltc`.
        h: (B, N), potentials before the first step.
        out: (B, T, N), receives those after each step.
    """
    u, deltas, kept, slopes = samples.u, samples.delta, activations.evaluations, activations.slopes
    a, b, C, substeps = method.a, method.b, method.C, method.substeps
    N, T, stages, fused = h.shape[1], u.shape[1], max(1, b.size), b.size == 0
    exact = fused and a.size > 0
    v, at, after = np.empty((4, N), f4), np.empty((4, N), f4), np.empty(N, f4)
    k, own = np.empty((stages, 4, N), f4), np.empty(N, f4)
    input_drive, input_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    drive, conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    valid, u_t = np.empty(4, np.bool_), np.empty((4, u.shape[2]), f4)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, h[first:], v)
        for t in range(T):
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, u[first:, t], u_t)
                for row in range(rows):
                    copy(method.leak[0], input_drive[row])
                    copy(method.leak[1], input_conductance[row])
                synaptic_currents(rows, u_t, sensory, input_drive, input_conductance)
                delta = deltas[first:, t]
                for e in range(substeps * stages):
                    i = e % stages
                    here = v if fused else at
                    if not fused:
                        _start_stage(a, i, delta, rows, v, k, at)
                    copy_rows(rows, input_drive, drive)
                    copy_rows(rows, input_conductance, conductance)
                    synaptic_currents(rows, here, recurrent, drive, conductance)
                    if kept.shape[1] > 0:
                        copy_rows(rows, here, kept[0, first:, t, e])
                    for row in range(rows if fused else 0):
                        D, G, gap = drive[row], conductance[row], delta[row]
                        if exact:
                            exponential_step(v[row], D, G, gap, C, after, own)
                        else:
                            fused_step(v[row], D, G, gap, C, after, own)
                        if kept.shape[1] > 0:
                            copy(own, kept[1, first + row, t, e])
                        if slopes.shape[0] > 0 and exact:
                            exponential_dt_slope(v[row], D, G, gap, C, slopes[first + row, t, e])
                        elif slopes.shape[0] > 0:
                            fused_dt_slope(after, D, G, own, slopes[first + row, t, e])
                        if valid[row]:
                            copy(after, v[row])
                    if not fused:
                        _stage_slopes(C, rows, at, drive, conductance, k[i])
                        if kept.shape[1] > 0:
                            copy_rows(rows, conductance, kept[1, first:, t, e])
                            copy_rows(rows, k[i], slopes[first:, t, e])
                        if i == stages - 1:
                            _finish_substep(rows, valid, delta, b, k, v, after)
            copy_rows(rows, v, out[first:, t])


@inline(force=True)
def _step_backward(method, samples, activations, potentials, index, row, sums):
    """Take the gradient after a fused or exponential sub-step back, apart from synapses.

    Args:
        method, samples, tape: see :mod:`tauflow.kernels.ltc`.
        potentials: potentials before and after the sub-step, (4, N) each.
        index: sequence, step and sub-step.
        row: of the block.
        sums: gradients, (4, N): of v, which becomes the direct part of that before; of drive and
            conductance, written; and of C, (N,), added to.

    Returns:
        The gradient of the sub-step's length, 0 if it is not wanted.
    """
    (n, t, e), (v, after), (grad_v, grad_drive, grad_conductance, grad_C) = index, potentials, sums
    kept, delta, C = activations.evaluations, samples.delta[n, t], method.C
    grad_delta = (
        dot(grad_v[row], activations.slopes[n, t, e]) if activations.slopes.shape[0] > 0 else _ZERO
    )
    if method.a.size > 0:
        own = grad_v[row], grad_drive[row], grad_conductance[row], grad_C
        _exponential_step_backward(v[row], kept[1, n, t, e], after[row], delta, C, own)
        return grad_delta
    for j in range(C.shape[0]):  # without slices, of which numba counts every one
        grad_n = grad_v[row, j] * kept[1, n, t, e, j]
        grad_m = -grad_n * after[row, j]
        grad_C[j] += grad_n * v[row, j] + grad_m
        grad_drive[row, j] = delta * grad_n
        grad_conductance[row, j] = delta * grad_m
        grad_v[row, j] = grad_n * C[j]
    return grad_delta


@inline(force=True)
def _exponential_step_backward(v, conductance, after, delta, C, gradients):
    """Take the gradient after an exponential sub-step back; ``own`` as for its caller."""
    grad_v, grad_drive, grad_conductance, grad_C = gradients
    for j in range(v.shape[0]):
        share = delta / C[j]
        r = share * conductance[j]
        e, phi, bend = relaxation_factors(r)
        left = e * v[j]
        sent = after[j] - left
        grad_r = grad_v[j] * (sent * bend - left)
        grad_drive[j] = grad_v[j] * share * phi
        grad_conductance[j] = share * grad_r
        grad_C[j] -= (grad_v[j] * sent + r * grad_r) / C[j]
        grad_v[j] *= e


@inline(force=True)
def _stage_gradient(grad_v, a, b, i, grad_at, row, e):
    """Write the gradient of delta k_i, given those of the step's end and of later stages."""
    for j in range(grad_v.shape[0]):
        e[j] = b[i] * grad_v[j]
    for later in range(i + 1, b.shape[0]):
        if a[later, i] != _ZERO:
            add_scaled(e, a[later, i], grad_at[later, row])


@inline(force=True)
def _stage_backward(method, samples, activations, index, gradients, grad_at, row, e):
    """Take the gradients of a step's end and of later stages back to a stage, but for synapses.

    Args:
        method, samples, activations, index, gradients: as for :func:`_step_backward`; the stage's
            part of the gradient of v goes to ``grad_at``.
        grad_at: (stages, 4, N), gradients of the stages' potentials.
        row: of the block.
        e: (N,), memory.

    Returns:
        The gradient of the sub-step's length.
    """
    (n, t, number), (grad_v, grad_drive, grad_conductance, grad_C) = index, gradients
    at, conductance = (
        activations.evaluations[0, n, t, number],
        activations.evaluations[1, n, t, number],
    )
    slope, delta, C = activations.slopes[n, t, number], samples.delta[n, t], method.C
    i = number % method.b.size
    _stage_gradient(grad_v, method.a, method.b, i, grad_at, row, e)
    for j in range(e.shape[0]):
        g = delta * e[j] / C[j]
        grad_drive[j] = g
        grad_conductance[j] = -g * at[j]
        grad_C[j] -= g * slope[j]
        grad_at[i, row, j] = -g * conductance[j]
    return dot(e, slope)


@inline(force=True)
def _add_stages(rows, grad_v, grad_at):
    """Add the gradients of all stages to that of the step's start."""
    for i in range(grad_at.shape[0]):
        add_rows(rows, grad_v, grad_at[i])


@inline(force=True)
def load_potentials(evaluations, first, rows, t, e, at):
    """Read the potentials of an evaluation."""
    for row in range(rows):
        for j in range(at.shape[1]):
            at[row, j] = evaluations[0, first + row, t, e, j]


@inline(force=True)
def add_and_copy(total, part, at, after):
    """Add the gradients of a block to those of the input; ``at`` is what the next one ends at."""
    for row in range(4):
        for j in range(total.shape[1]):
            total[row, j] += part[row, j]
            after[row, j] = at[row, j]


@inline(force=True)
def _add_to_leak(rows, grad_neuron, grad_drive, grad_conductance):
    for row in range(rows):
        add(grad_neuron[0], grad_drive[row])
        add(grad_neuron[1], grad_conductance[row])


@inline(force=True)
def add_and_reset_all(totals, parts):
    """Add the partial sums for sensory and recurrent synapses and neurons, and begin the next."""
    add_and_reset(totals[0], parts[0])
    add_and_reset(totals[1], parts[1])
    add_and_reset(totals[2], parts[2])


@inline(force=True)
def _rows_backward(
    method, samples, activations, potentials, block, valid, sums, grad_at, grad_delta
):
    """Take the gradients of a block of sequences back through one evaluation."""
    (first, rows, t, e), (grad_v, grad_drive, grad_conductance, grad_C) = block, sums
    for row in range(rows):
        if valid[row]:
            place = first + row, t, e
            if method.b.size == 0:
                found = _step_backward(method, samples, activations, potentials, place, row, sums)
            else:
                own, work = (
                    (grad_v[row], grad_drive[row], grad_conductance[row], grad_C),
                    potentials[1][0],
                )
                found = _stage_backward(
                    method, samples, activations, place, own, grad_at, row, work
                )
            grad_delta[first + row, t] += found


@kernel
def ltc_backward(  # noqa: C901 - as above
    index, low, high, samples, sensory, recurrent, method, activations, grad_outputs, gradients
):
    """Run sequences ``low`` to ``high`` backwards, adding to the slice's own gradients.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        samples, method, activations, grad_outputs, gradients: see :mod:`tauflow.kernels.ltc`.
        sensory, recurrent: in the order of the backward pass.
    """
    u = samples.u
    grad_weights_x, grad_weights = gradients.sensory[index], gradients.recurrent[index]
    substeps, fused, stages = method.substeps, method.b.size == 0, max(1, method.b.size)
    N, T, D = method.C.shape[0], u.shape[1], u.shape[2]
    grad_own_x, grad_own = np.zeros_like(grad_weights_x), np.zeros_like(grad_weights)
    grad_sums_x, grad_sums = np.zeros_like(grad_weights_x), np.zeros_like(grad_weights)
    grad_neuron, grad_sums_neuron = np.zeros((3, N), f4), np.zeros((3, N), f4)
    steps_per_sum = max(1, TERMS_PER_SUM // (substeps * stages))
    grad_v, at, after = np.empty((4, N), f4), np.empty((4, N), f4), np.empty((4, N), f4)
    grad_at = np.empty((stages, 4, N), f4)
    grad_drive, grad_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    grad_input_drive, grad_input_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    u_t, grad_u_t, valid = np.empty((4, D), f4), np.empty((4, D), f4), np.empty(4, np.bool_)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, gradients.h[first:], grad_v)
        for t in range(T - 1, -1, -1):
            if grad_outputs.grad_out.size > 0:
                add_rows(rows, grad_v, grad_outputs.grad_out[first:, t])
            grad_input_drive[:], grad_input_conductance[:], grad_u_t[:] = _ZERO, _ZERO, _ZERO
            gradients.delta[first : first + rows, t] = _ZERO
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, grad_outputs.out[first:, t], after)
                for e in range(substeps * stages - 1, -1, -1):
                    i = e % stages
                    grad_i = grad_v if fused else grad_at[i]
                    load_potentials(activations.evaluations, first, rows, t, e, at)
                    if rows < 4 or samples.mask.shape[1] > 0:
                        grad_drive[:], grad_conductance[:] = _ZERO, _ZERO
                    if not fused:
                        grad_at[i] = _ZERO
                    block, sums = (
                        (first, rows, t, e),
                        (grad_v, grad_drive, grad_conductance, grad_neuron[2]),
                    )
                    _rows_backward(
                        method,
                        samples,
                        activations,
                        (at, after),
                        block,
                        valid,
                        sums,
                        grad_at,
                        gradients.delta,
                    )
                    add_and_copy(grad_input_drive, grad_drive, at, after)
                    add_and_copy(grad_input_conductance, grad_conductance, at, after)
                    synaptic_currents_backward(
                        rows, at, recurrent, grad_drive, grad_conductance, grad_i, grad_own
                    )
                    if i == 0 and not fused:
                        _add_stages(rows, grad_v, grad_at)
                copy_rows(rows, u[first:, t], u_t)
                synaptic_currents_backward(
                    rows,
                    u_t,
                    sensory,
                    grad_input_drive,
                    grad_input_conductance,
                    grad_u_t,
                    grad_own_x,
                )
                _add_to_leak(rows, grad_neuron, grad_input_drive, grad_input_conductance)
            copy_rows(rows, grad_u_t, gradients.u[first:, t])
            if t % steps_per_sum == 0:
                add_and_reset_all(
                    (grad_sums_x, grad_sums, grad_sums_neuron), (grad_own_x, grad_own, grad_neuron)
                )
            if t % SUMS_PER_SUM == 0:
                whole = grad_weights_x, grad_weights, gradients.neurons[index]
                add_and_reset_all(whole, (grad_sums_x, grad_sums, grad_sums_neuron))
        copy_rows(rows, grad_v, gradients.h[first:])
