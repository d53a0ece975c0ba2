r"""One sub-step of each solver of the LTC, and its gradients.

With :math:`\delta = dt / substeps`, one sub-step of the fused solver and its gradient are

.. math::
    v' = n / m, \quad n = C v + \delta D, \quad m = C + \delta G

    \bar n = \bar v' / m, \quad \bar m = -\bar n v', \quad
    \bar C = \bar n v + \bar m, \quad \bar D = \delta \bar n, \quad \bar G = \delta \bar m, \quad
    \bar v = C \bar n + \ldots, \quad \bar\delta = \sum (D - G v') \bar v' / m

where drive D and conductance G are sums over synapses plus what leak and input contribute. For the
backward pass v and 1 / m of every sub-step are kept, and the synapses' sigmoids computed again. If
time steps want a gradient, ``(D - G v') / m`` is kept too: v and v' do not tell it where a time
step is zero.

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
time step if they are wanted.

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
"""

# mypy: ignore-errors

from tauflow.kernels.cpu.jit import EXACT_DIVISION, f4, inline
from tauflow.kernels.cpu.math import (
    add_scaled,
    copy,
    copy_rows,
    dot,
    relaxation_factors,
)

from .numba_synapses import synaptic_currents

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inline(force=True, math=EXACT_DIVISION)  # without a time step, C v / C is v
def fused_step(v, drive, conductance, delta, C, after, reciprocal):
    """Write the next potentials and 1 / m."""
    for j in range(v.shape[0]):
        m = C[j] + delta * conductance[j]
        after[j] = (C[j] * v[j] + delta * drive[j]) / m
        reciprocal[j] = _ONE / m


@inline(force=True)
def fused_dt_slope(after, drive, conductance, reciprocal, slope):
    """Write the derivative of the next potentials by the length of the sub-step."""
    for j in range(after.shape[0]):
        slope[j] = (drive[j] - conductance[j] * after[j]) * reciprocal[j]


@inline(force=True, math=EXACT_DIVISION)
def exponential_step(v, drive, conductance, delta, C, after, saved_conductance):
    """Write the next potentials of the exponential solver, and keep the conductances."""
    for j in range(v.shape[0]):
        share = delta / C[j]
        e, phi, _ = relaxation_factors(share * conductance[j])
        after[j] = e * v[j] + share * drive[j] * phi
        saved_conductance[j] = conductance[j]


@inline(force=True)
def exponential_dt_slope(v, drive, conductance, delta, C, slope):
    """Write how the next potentials of the exponential solver react to the time step."""
    for j in range(v.shape[0]):
        share = delta / C[j]
        e, phi, bend = relaxation_factors(share * conductance[j])
        sent = drive[j] * phi
        slope[j] = (sent + conductance[j] * (share * sent * bend - e * v[j])) / C[j]


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


@inline(force=True)
def ltc_evaluation(  # noqa: C901 - of both kinds of solvers, which calls would slow
    method, samples, recurrent, saved, block, valid, delta, v, sums, work
):
    """Sum synapses up once, and advance potentials, if a sub-step ends here.

    Args:
        method, samples, saved: see :mod:`tauflow.kernels.ltc`.
        recurrent: packed synapses.
        block: the first of four sequences, how many there are, step and evaluation.
        valid: which rows take the step.
        delta: (4,), lengths of the sub-step.
        v: (4, N), advanced.
        sums: drive and conductance, (4, N), of input and leak.
        work: memory: a block (4, N), two rows (N,), and slopes of the stages (stages, 4, N).
    """
    (first, rows, t, e), (drive, conductance), (at, after, reciprocal, k) = block, sums, work
    a, b, C, stages = method.a, method.b, method.C, method.stages
    keeps, keeps_slopes = saved.shape[1] > 0, saved.shape[1] > 0 and saved.shape[0] > 2
    fused, exact = stages == 0, stages == 0 and a.size > 0
    here, i = v if fused else at, 0 if fused else e % stages
    if not fused:
        _start_stage(a, i, delta, rows, v, k, at)
    synaptic_currents(rows, here, recurrent, drive, conductance)
    if keeps:
        copy_rows(rows, here, saved[0, first:, t, e])
    for row in range(rows if fused else 0):
        D, G, gap = drive[row], conductance[row], delta[row]
        if exact:
            exponential_step(v[row], D, G, gap, C, after, reciprocal)
        else:
            fused_step(v[row], D, G, gap, C, after, reciprocal)
        if keeps:
            copy(reciprocal, saved[1, first + row, t, e])
        if keeps_slopes and exact:
            exponential_dt_slope(v[row], D, G, gap, C, saved[2, first + row, t, e])
        elif keeps_slopes:
            fused_dt_slope(after, D, G, reciprocal, saved[2, first + row, t, e])
        if valid[row]:
            copy(after, v[row])
    if not fused:
        _stage_slopes(C, rows, at, drive, conductance, k[i])
        if keeps:
            copy_rows(rows, conductance, saved[1, first:, t, e])
            copy_rows(rows, k[i], saved[2, first:, t, e])
        if i == stages - 1:
            _finish_substep(rows, valid, delta, b, k, v, after)


@inline(force=True)
def ltc_evaluation_backward(method, saved, block, valid, delta, potentials, sums, work, gradients):
    """Take gradients back through one evaluation, apart from synapses.

    Args:
        method, kept, block, valid, delta: as for :func:`ltc_evaluation`.
        potentials: before and after, (4, N) each; of a stage only the first.
        sums: gradients, (4, N): of v, which becomes the direct part of that before, and of drive
            and conductance, written; and those of the neurons, (3, N), added to.
        work: memory: a block and a row, and gradients of the stages, (stages, 4, N).
        gradients: see :mod:`tauflow.kernels.ltc`.
    """
    (first, rows, t, e), (grad_v, grad_drive, grad_conductance, grad_neuron) = block, sums
    (at, after), (_, scratch, grad_at), grad_C = potentials, work, grad_neuron[2]
    if method.stages > 0:
        grad_at[e % method.stages] = _ZERO
    for row in range(rows):
        if valid[row]:
            place = first + row, t, e
            lines = at[row], after[row], grad_v[row], grad_drive[row], grad_conductance[row], grad_C
            if method.stages == 0:
                grad_delta = _step_backward(method, saved, place, delta[row], lines)
            else:
                grad_delta = _stage_backward(
                    method, saved, place, delta[row], lines, grad_at, row, scratch
                )
            gradients.dt[first + row, t] += grad_delta


@inline(force=True)
def _step_backward(method, saved, index, delta, lines):
    """Take the gradient after a fused or exponential sub-step back.

    Args:
        method, saved: see :mod:`tauflow.kernels.ltc`.
        index: sequence, step and sub-step.
        delta: length of the sub-step.
        lines: of the sequence what :func:`ltc_evaluation_backward` has in blocks.

    Returns:
        The gradient of the sub-step's length, 0 if it is not wanted.
    """
    (n, t, e), (v, after, grad_v, grad_drive, grad_conductance, grad_C) = index, lines
    C = method.C
    grad_delta = dot(grad_v, saved[2, n, t, e]) if saved.shape[0] > 2 else _ZERO
    if method.a.size > 0:
        gradients_of_sums = grad_v, grad_drive, grad_conductance, grad_C
        _exponential_step_backward(v, saved[1, n, t, e], after, delta, C, gradients_of_sums)
        return grad_delta
    for j in range(C.shape[0]):  # without slices, of which numba counts every one
        grad_n = grad_v[j] * saved[1, n, t, e, j]
        grad_m = -grad_n * after[j]
        grad_C[j] += grad_n * v[j] + grad_m
        grad_drive[j] = delta * grad_n
        grad_conductance[j] = delta * grad_m
        grad_v[j] = grad_n * C[j]
    return grad_delta


@inline(force=True)
def _exponential_step_backward(v, conductance, after, delta, C, gradients):
    """Take the gradient after an exponential sub-step back; the last four as for its caller."""
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
def _stage_backward(method, saved, index, delta, lines, grad_at, row, e):
    """Take the gradients of a step's end and of later stages back to a stage.

    Args:
        method, kept, index, delta, lines: as for :func:`_step_backward`; the stage's part of the
            gradient of v goes to ``grad_at``.
        grad_at: (stages, 4, N), gradients of the stages' potentials.
        row: of the block.
        e: (N,), memory.

    Returns:
        The gradient of the sub-step's length.
    """
    (n, t, number), (_, _, grad_v, grad_drive, grad_conductance, grad_C) = index, lines
    at, conductance, slope = saved[0, n, t, number], saved[1, n, t, number], saved[2, n, t, number]
    i, C = number % method.stages, method.C
    _stage_gradient(grad_v, method.a, method.b, i, grad_at, row, e)
    for j in range(e.shape[0]):
        g = delta * e[j] / C[j]
        grad_drive[j] = g
        grad_conductance[j] = -g * at[j]
        grad_C[j] -= g * slope[j]
        grad_at[i, row, j] = -g * conductance[j]
    return dot(e, slope)
