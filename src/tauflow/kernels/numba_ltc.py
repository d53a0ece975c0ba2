r"""The LTC's fused solver over whole sequences, compiled.

With :math:`\delta = gap / substeps`, one sub-step and its gradient are

.. math::
    v' = n / m, \quad n = C v + \delta D, \quad m = C + \delta G

    \bar n = \bar v' / m, \quad \bar m = -\bar n v', \quad
    \bar C = \bar n v + \bar m, \quad \bar D = \delta \bar n, \quad \bar G = \delta \bar m, \quad
    \bar v = C \bar n + \ldots, \quad \bar\delta = \sum (D - G v') \bar v' / m

where drive D and conductance G are sums over synapses plus what leak and input contribute. For the
backward pass v and 1 / m of every sub-step are kept, and the synapses' sigmoids computed again. If
gaps want a gradient, ``(D - G v') / m`` is kept too: v and v' do not tell it where a gap is zero.

Four sequences are advanced together, so that a synapse's weights are loaded once for all four.
"""

import numpy as np

from .numba_math import EXACT_DIVISION, FAST_SUMS, f4, inlined, kernel
from .numba_rows import add, add_rows, copy_rows, move, valid_rows
from .numba_synapses import conduct, pull_back

_ZERO = f4(0.0)
_ONE = f4(1.0)
# Gradients of weights are sums of sums of sums, which round less than one long sum.
_TERMS_PER_SUM, _SUMS_PER_SUM = 8, 32


@inlined(math=EXACT_DIVISION)  # without a gap, C v / C is v
def _advance(v, drive, conductance, delta, C, after, reciprocal):
    """Write the next potentials and 1 / m."""
    for j in range(v.shape[0]):
        m = C[j] + delta * conductance[j]
        after[j] = (C[j] * v[j] + delta * drive[j]) / m
        reciprocal[j] = _ONE / m


@inlined
def _gap_slope(after, drive, conductance, reciprocal, slope):
    for j in range(after.shape[0]):
        slope[j] = (drive[j] - conductance[j] * after[j]) * reciprocal[j]


@kernel
def ltc_forward(
    index,  # of the slice; forwards there is nothing to accumulate
    low,  # first sequence
    high,  # one past the last
    u,  # (B, T, D) mapped inputs
    h,  # (B, N)
    delta,  # (B, T)
    mask,  # (B, T), or (B, 0) for none
    weights_x,
    starts_x,  # the packed layout; arrays cost Python less to pass than a tuple of them
    counts_x,
    other_x,
    position_x,
    weights,
    starts,
    counts,
    other,
    position,
    leak,  # (2, N): g_l V_l and g_l + epsilon
    C,  # (N,)
    substeps,
    out,  # (B, T, N) potentials after each step
    kept,  # (2, B, T, substeps, N): v and 1 / m; or B = 0
    slopes,  # (B, T, substeps, N), or B = 0
):
    """Run sequences ``low`` to ``high``."""
    layout_x = starts_x, counts_x, other_x, position_x
    layout = starts, counts, other, position
    N, T = h.shape[1], u.shape[1]
    v, after, reciprocal = np.empty((4, N), f4), np.empty(N, f4), np.empty(N, f4)
    input_drive, input_conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    drive, conductance = np.empty((4, N), f4), np.empty((4, N), f4)
    valid = np.empty(4, np.bool_)
    u_t = np.empty((4, u.shape[2]), f4)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, h[first:], v)
        for t in range(T):
            if valid_rows(mask, first, rows, t, valid):
                copy_rows(rows, u[first:, t], u_t)
                for row in range(rows):
                    input_drive[row], input_conductance[row] = leak[0], leak[1]
                conduct(rows, u_t, weights_x, layout_x, input_drive, input_conductance)
                for k in range(substeps):
                    copy_rows(rows, input_drive, drive)
                    copy_rows(rows, input_conductance, conductance)
                    conduct(rows, v, weights, layout, drive, conductance)
                    for row in range(rows):
                        b, D, G = first + row, drive[row], conductance[row]
                        _advance(v[row], D, G, delta[b, t], C, after, reciprocal)
                        if kept.shape[1] > 0:
                            kept[0, b, t, k], kept[1, b, t, k] = v[row], reciprocal
                        if slopes.shape[0] > 0:
                            _gap_slope(after, D, G, reciprocal, slopes[b, t, k])
                        if valid[row]:
                            v[row] = after
            copy_rows(rows, v, out[first:, t])


@inlined(math=FAST_SUMS)
def _gap_gradient(g_v, slopes, b, t, k):
    """Return the gradient of a sub-step's length, 0 if it is not wanted."""
    total = _ZERO
    if slopes.shape[0] > 0:
        slope = slopes[b, t, k]
        for j in range(g_v.shape[0]):
            total += g_v[j] * slope[j]
    return total


@inlined
def _pull_back_step(g_v, v, after, reciprocal, delta, C, g_drive, g_conductance, g_C):
    """Turn ``g_v``, the gradient after a sub-step, into the direct part of that before it."""
    for j in range(v.shape[0]):
        g_n = g_v[j] * reciprocal[j]
        g_m = -g_n * after[j]
        g_C[j] += g_n * v[j] + g_m
        g_drive[j] = delta * g_n
        g_conductance[j] = delta * g_m
        g_v[j] = g_n * C[j]


@kernel
def ltc_backward(
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
    out,
    kept,
    slopes,
    g_out,  # (B, T, N)
    g_h,  # (B, N): gradient of the last state on entry, of the first on return
    g_u,  # (B, T, D)
    g_delta,  # (B, T)
    g_weights_x,  # (slices, 4, ...)
    g_weights,  # (slices, 4, ...)
    g_neurons,  # (slices, 3, N): g_l V_l, g_l + epsilon, C
):
    """Run sequences ``low`` to ``high`` backwards, adding to the slice's own gradients."""
    layout_x = starts_x, counts_x, other_x, position_x
    layout = starts, counts, other, position
    N, T, D = g_h.shape[1], u.shape[1], u.shape[2]
    g_own_x, g_own = np.zeros_like(weights_x), np.zeros_like(weights)
    g_sums_x, g_sums = np.zeros_like(weights_x), np.zeros_like(weights)
    g_neuron, g_sums_neuron = np.zeros((3, N), f4), np.zeros((3, N), f4)
    steps_per_sum = max(1, _TERMS_PER_SUM // substeps)
    g_v, v = np.empty((4, N), f4), np.empty((4, N), f4)
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
                for k in range(substeps - 1, -1, -1):
                    for row in range(rows):
                        b, here, g_D, g_G = first + row, g_v[row], g_drive[row], g_conductance[row]
                        v[row], g_D[:], g_G[:] = kept[0, b, t, k], _ZERO, _ZERO
                        if valid[row]:
                            after = out[b, t] if k == substeps - 1 else kept[0, b, t, k + 1]
                            g_delta[b, t] += _gap_gradient(here, slopes, b, t, k)
                            r, d = kept[1, b, t, k], delta[b, t]
                            _pull_back_step(here, v[row], after, r, d, C, g_D, g_G, g_neuron[2])
                    add_rows(rows, g_input_drive, g_drive)
                    add_rows(rows, g_input_conductance, g_conductance)
                    pull_back(rows, v, weights, layout, g_drive, g_conductance, g_v, g_own)
                copy_rows(rows, u[first:, t], u_t)
                g_input = g_input_drive, g_input_conductance
                pull_back(rows, u_t, weights_x, layout_x, *g_input, g_u_t, g_own_x)
                for row in range(rows):
                    add(g_neuron[0], g_input_drive[row])
                    add(g_neuron[1], g_input_conductance[row])
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
