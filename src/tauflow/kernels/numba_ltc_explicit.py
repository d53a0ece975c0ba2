r"""The LTC's explicit Runge-Kutta solvers over whole sequences, compiled.

With :math:`\delta = gap / substeps`, the stages of one sub-step are

.. math::
    v_i = v + \delta \sum_{j < i} a_{ij} k_j, \qquad k_i = (D_i - G_i v_i) / C, \qquad
    v' = v + \delta \sum_i b_i k_i

where drive :math:`D_i` and conductance :math:`G_i` are sums over synapses at :math:`v_i` plus what
leak and input contribute. With :math:`e_j = b_j \bar v' + \sum_{i > j} a_{ij} \bar v_i`, their
gradients are

.. math::
    \bar D_j = \delta e_j / C, \quad \bar G_j = -\bar D_j v_j, \quad \bar C = -\sum \bar D_j k_j,
    \quad \bar\delta = \sum \langle e_j, k_j \rangle, \quad \bar v_j = -G_j \bar D_j + \ldots,
    \quad \bar v = \bar v' + \sum_j \bar v_j

For the backward pass :math:`v_i`, :math:`G_i` and :math:`k_i` are kept, and the synapses' sigmoids
computed again. Layout of the work and of all arrays: see :mod:`.numba_ltc`.
"""

import numpy as np

from .numba_math import FAST_SUMS, f4, inlined, kernel
from .numba_rows import add, add_rows, copy_rows, move, valid_rows
from .numba_synapses import conduct, pull_back

_ZERO = f4(0.0)
# Gradients of weights are sums of sums of sums, which round less than one long sum.
_TERMS_PER_SUM, _SUMS_PER_SUM = 8, 32


@inlined
def _add_scaled(total, factor, part):
    for j in range(total.shape[0]):
        total[j] += factor * part[j]


@inlined
def _move_along(v, delta, weights, slopes, row, at):
    """Write v + delta times the weighted slopes; a weight of 0 does not look at its slope."""
    at[:] = v
    for j in range(weights.shape[0]):
        if weights[j] != _ZERO:
            _add_scaled(at, delta * weights[j], slopes[j, row])


@inlined
def _slope(at, drive, conductance, C, slope):
    for j in range(at.shape[0]):
        slope[j] = (drive[j] - conductance[j] * at[j]) / C[j]


@inlined
def _finish(rows, valid, delta, b, k, v, after):
    """Advance the potentials of the rows that take the step."""
    for row in range(rows):
        if valid[row]:
            _move_along(v[row], delta[row], b, k, row, after)
            v[row] = after


@kernel
def ltc_explicit_forward(
    index,  # of the slice; forwards there is nothing to accumulate
    low,  # first sequence
    high,  # one past the last
    u,  # (B, T, D) mapped inputs
    h,  # (B, N)
    delta,  # (B, T)
    mask,  # (B, T), or (B, 0) for none
    weights_x,
    starts_x,
    counts_x,
    other_x,
    position_x,
    weights,
    starts,
    counts,
    other,
    position,
    leak,  # (2, N): g_l V_l and g_l
    C,  # (N,)
    substeps,
    a,  # (stages, stages) weights of the earlier stages
    b,  # (stages,) weights in the step
    out,  # (B, T, N) potentials after each step
    kept,  # (2, B, T, substeps * stages, N): v_i and G_i; or B = 0
    slopes,  # (B, T, substeps * stages, N): k_i; or B = 0
):
    """Run sequences ``low`` to ``high``."""
    layout_x = starts_x, counts_x, other_x, position_x
    layout = starts, counts, other, position
    N, T, stages = h.shape[1], u.shape[1], b.shape[0]
    v, at, after = np.empty((4, N), f4), np.empty((4, N), f4), np.empty(N, f4)
    k = np.empty((stages, 4, N), f4)
    input_drive, input_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    drive, conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    valid, u_t = np.empty(4, np.bool_), np.empty((4, u.shape[2]), f4)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, h[first:], v)
        for t in range(T):
            if valid_rows(mask, first, rows, t, valid):
                copy_rows(rows, u[first:, t], u_t)
                for row in range(rows):
                    input_drive[row], input_conductance[row] = leak[0], leak[1]
                conduct(rows, u_t, weights_x, layout_x, input_drive, input_conductance)
                for step in range(substeps):
                    for i in range(stages):
                        for row in range(rows):
                            _move_along(v[row], delta[first + row, t], a[i, :i], k, row, at[row])
                        copy_rows(rows, input_drive, drive)
                        copy_rows(rows, input_conductance, conductance)
                        conduct(rows, at, weights, layout, drive, conductance)
                        for row in range(rows):
                            _slope(at[row], drive[row], conductance[row], C, k[i, row])
                        if kept.shape[1] > 0:
                            e = step * stages + i
                            copy_rows(rows, at, kept[0, first:, t, e])
                            copy_rows(rows, conductance, kept[1, first:, t, e])
                            copy_rows(rows, k[i], slopes[first:, t, e])
                    _finish(rows, valid, delta[first:, t], b, k, v, after)
            copy_rows(rows, v, out[first:, t])


@inlined
def _stage_pull(g_v, a, b, i, g_at, row, e):
    """Write the gradient of delta k_i, given those of the step's end and of later stages."""
    for j in range(g_v.shape[0]):
        e[j] = b[i] * g_v[j]
    for later in range(i + 1, b.shape[0]):
        if a[later, i] != _ZERO:
            _add_scaled(e, a[later, i], g_at[later, row])


@inlined(math=FAST_SUMS)
def _product(e, slope):
    total = _ZERO
    for j in range(e.shape[0]):
        total += e[j] * slope[j]
    return total


@inlined
def _pull_back_slope(e, delta, at, conductance, slope, C, g_drive, g_conductance, g_C, g_at):
    """Write the direct part of a stage's gradients."""
    for j in range(e.shape[0]):
        g = delta * e[j] / C[j]
        g_drive[j] = g
        g_conductance[j] = -g * at[j]
        g_C[j] -= g * slope[j]
        g_at[j] = -g * conductance[j]


@inlined
def _add_stages(rows, g_v, g_at):
    """Add the gradients of all stages to that of the step's start."""
    for i in range(g_at.shape[0]):
        add_rows(rows, g_v, g_at[i])


@inlined
def _add_to_leak(rows, g_neuron, g_drive, g_conductance):
    for row in range(rows):
        add(g_neuron[0], g_drive[row])
        add(g_neuron[1], g_conductance[row])


@kernel
def ltc_explicit_backward(
    index,  # of the slice
    low,
    high,
    u,
    delta,
    mask,
    weights_x,  # packed by source, if packed
    starts_x,
    counts_x,
    other_x,
    position_x,
    weights,
    starts,
    counts,
    other,
    position,
    C,
    substeps,
    a,
    b,
    out,  # not read: the fused solver's loop needs it
    kept,
    slopes,
    g_out,  # (B, T, N)
    g_h,  # (B, N): gradient of the last state on entry, of the first on return
    g_u,  # (B, T, D)
    g_delta,  # (B, T)
    g_weights_x,  # (slices, 4, ...)
    g_weights,  # (slices, 4, ...)
    g_neurons,  # (slices, 3, N): g_l V_l, g_l, C
):
    """Run sequences ``low`` to ``high`` backwards, adding to the slice's own gradients."""
    layout_x = starts_x, counts_x, other_x, position_x
    layout = starts, counts, other, position
    N, T, D, stages = g_h.shape[1], u.shape[1], u.shape[2], b.shape[0]
    g_own_x, g_own = np.zeros_like(weights_x), np.zeros_like(weights)
    g_sums_x, g_sums = np.zeros_like(weights_x), np.zeros_like(weights)
    g_neuron, g_sums_neuron = np.zeros((3, N), f4), np.zeros((3, N), f4)
    steps_per_sum = max(1, _TERMS_PER_SUM // (substeps * stages))
    g_v, at, e = np.empty((4, N), f4), np.empty((4, N), f4), np.empty(N, f4)
    g_at = np.empty((stages, 4, N), f4)
    g_drive, g_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    g_input_drive, g_input_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    u_t, g_u_t, valid = np.empty((4, D), f4), np.empty((4, D), f4), np.empty(4, np.bool_)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, g_h[first:], g_v)
        for t in range(T - 1, -1, -1):
            add_rows(rows, g_v, g_out[first:, t])
            g_input_drive[:], g_input_conductance[:], g_u_t[:] = _ZERO, _ZERO, _ZERO
            g_delta[first : first + rows, t] = _ZERO
            if valid_rows(mask, first, rows, t, valid):
                for step in range(substeps - 1, -1, -1):
                    for i in range(stages - 1, -1, -1):
                        number = step * stages + i
                        copy_rows(rows, kept[0, first:, t, number], at)
                        g_drive[:], g_conductance[:], g_at[i] = _ZERO, _ZERO, _ZERO
                        for row in range(rows):
                            n = first + row
                            G, k, d = kept[1, n, t, number], slopes[n, t, number], delta[n, t]
                            if valid[row]:
                                _stage_pull(g_v[row], a, b, i, g_at, row, e)
                                g_delta[n, t] += _product(e, k)
                                g_D, g_G, g_i = g_drive[row], g_conductance[row], g_at[i, row]
                                _pull_back_slope(e, d, at[row], G, k, C, g_D, g_G, g_neuron[2], g_i)
                        add_rows(rows, g_input_drive, g_drive)
                        add_rows(rows, g_input_conductance, g_conductance)
                        pull_back(rows, at, weights, layout, g_drive, g_conductance, g_at[i], g_own)
                    _add_stages(rows, g_v, g_at)
                copy_rows(rows, u[first:, t], u_t)
                g_input = g_input_drive, g_input_conductance
                pull_back(rows, u_t, weights_x, layout_x, *g_input, g_u_t, g_own_x)
                _add_to_leak(rows, g_neuron, g_input_drive, g_input_conductance)
            copy_rows(rows, g_u_t, g_u[first:, t])
            if t % steps_per_sum == 0:
                move(g_sums_x, g_own_x)
                move(g_sums, g_own)
                move(g_sums_neuron, g_neuron)
            if t % _SUMS_PER_SUM == 0:
                move(g_weights_x[index], g_sums_x)
                move(g_weights[index], g_sums)
                move(g_neurons[index], g_sums_neuron)
        copy_rows(rows, g_v, g_h[first:])
