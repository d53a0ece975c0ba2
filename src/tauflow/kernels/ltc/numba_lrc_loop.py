r"""The LRC over whole sequences, compiled.

With the elastance :math:`\epsilon` and :math:`\lambda = \epsilon\, gap / substeps`, a sub-step and
its gradient are

.. math::
    r = \sigma(f), \quad a = \tanh(u), \quad h' = h + \lambda (e a - r h)

    \bar a = \lambda e \bar h', \quad \bar r = -\lambda h \bar h', \quad
    \bar\lambda = (e a - r h)\, \bar h', \quad \bar h = (1 - \lambda r)\, \bar h' + \ldots

or, with the linear state at the new time, :math:`h' = (h + \lambda e a) / m` with
:math:`m = 1 + \lambda r`, the same with :math:`\bar h' / m` in place of :math:`\bar h'`, h' in
place of h in what multiplies it, and :math:`\bar h = \bar h' / m`. The two sums over synapses, f
and u, and their gradients are those of :mod:`.numba_synapses`, where they are called conductance
and drive. Of every sub-step h, r, a and q are kept; the synapses' sigmoids are computed again.

Four sequences are advanced together, as in :mod:`.numba_loop`.
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import EXACT_DIVISION, f4, inline, kernel
from tauflow.kernels.cpu.math import add_rows, copy, copy_rows, mark_valid_rows, sigmoid, tanh

from .numba_loop import (
    SUMS_PER_SUM,
    TERMS_PER_SUM,
    add_and_copy,
    add_and_reset_all,
    load_potentials,
)
from .numba_synapses import synaptic_currents, weighted_currents_backward

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inline(force=True)
def _matmul_add_four(z, W, total):
    """Add ``z @ W`` to ``total`` for four rows, (4, N)."""
    N = total.shape[1]
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    total0, total1, total2, total3 = total[0], total[1], total[2], total[3]
    for i in range(N):
        first = np.uintp(i * N)
        z0_i, z1_i, z2_i, z3_i = z0[i], z1[i], z2[i], z3[i]
        for j in range(N):
            w = W[first + np.uintp(j)]
            total0[j] += z0_i * w
            total1[j] += z1_i * w
            total2[j] += z2_i * w
            total3[j] += z3_i * w


@inline(force=True)
def _elastance_lengths(q, s, delta, has_elastance, length):
    """Write the elastance times the length of a sub-step."""
    if not has_elastance:
        for j in range(length.shape[0]):
            length[j] = delta
    elif s.shape[0] == 0:
        for j in range(length.shape[0]):
            length[j] = delta * sigmoid(q[j])
    else:
        for j in range(length.shape[0]):
            length[j] = delta * (sigmoid(q[j] + s[j]) - sigmoid(q[j] - s[j]))


@inline(force=True, math=EXACT_DIVISION)
def _lrc_step(h, f, u, e, length, implicit, after):
    """Write the next state; f and u become r and a."""
    for j in range(h.shape[0]):
        f[j] = sigmoid(f[j])
        u[j] = tanh(u[j])
        if implicit:
            after[j] = (h[j] + length[j] * (e[j] * u[j])) / (_ONE + length[j] * f[j])
        else:
            after[j] = h[j] + length[j] * (e[j] * u[j] - f[j] * h[j])


@kernel
def lrc_forward(  # noqa: C901 - an inner loop, which calls would slow
    index, low, high, samples, sensory, recurrent, method, h, out, evaluations
):
    """Run sequences ``low`` to ``high``.

    Args:
        index: of the slice; forwards there is nothing to accumulate.
        low, high: slice of the batch.
        samples, sensory, recurrent: see :mod:`tauflow.kernels.ltc`.
        method: a ``Saturation``.
        h: (B, N), states before the first step.
        out: (B, T, N), receives those after each step.
        evaluations: (4, B, T, E, N), receives h, r, a and q; (3, ...) without an elastance, and
            with 0 in place of B if nothing is kept.
    """
    u, deltas, substeps = samples.u, samples.delta, method.substeps
    N, T, keeps, liquid = (
        h.shape[1],
        u.shape[1],
        evaluations.shape[1] > 0,
        method.drive.shape[0] > 0,
    )
    g, e = method.neurons[0], method.neurons[1]
    v, q = np.zeros((4, N), f4), np.zeros((4, N), f4)
    input_f, input_u = np.empty((4, N), f4), np.empty((4, N), f4)
    grad_f, grad_u = np.empty((4, N), f4), np.empty((4, N), f4)
    length, after = np.empty(N, f4), np.empty(N, f4)
    valid, u_t = np.empty(4, np.bool_), np.empty((4, u.shape[2]), f4)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, h[first:], v)
        for t in range(T):
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, u[first:, t], u_t)
                for row in range(rows):
                    copy(g, input_f[row])
                    copy(g, input_u[row])
                synaptic_currents(rows, u_t, sensory, input_u, input_f)
                for sub in range(substeps):
                    copy_rows(rows, input_f, grad_f)
                    copy_rows(rows, input_u, grad_u)
                    synaptic_currents(rows, v, recurrent, grad_u, grad_f)
                    if liquid:
                        copy_rows(rows, method.drive[first:, t], q)
                        _matmul_add_four(v, method.W, q)
                    if keeps:
                        copy_rows(rows, v, evaluations[0, first:, t, sub])
                    if keeps and liquid:
                        copy_rows(rows, q, evaluations[3, first:, t, sub])
                    for row in range(rows):
                        delta = deltas[first + row, t]
                        _elastance_lengths(q[row], method.s, delta, liquid, length)
                        _lrc_step(
                            v[row], grad_f[row], grad_u[row], e, length, method.implicit, after
                        )
                        if valid[row]:
                            copy(after, v[row])
                    if keeps:
                        copy_rows(rows, grad_f, evaluations[1, first:, t, sub])
                        copy_rows(rows, grad_u, evaluations[2, first:, t, sub])
            elif keeps:  # and multiplied by gradients of 0
                evaluations[0, first : first + rows, t] = _ZERO
            copy_rows(rows, v, out[first:, t])


@inline(force=True, math=EXACT_DIVISION)
def _lrc_step_backward(row, method, has_elastance, delta, gradients):
    """Take the gradient after a sub-step back, apart from synapses and the elastance's matrix.

    Args:
        row: h, r, a, q and h' of the row, (N,) each.
        method: a ``Saturation``.
        has_elastance: whether there is an elastance.
        delta: length of the sub-step.
        gradients: of h', which becomes the direct part of that of h; of f, u and q, written; and
            (3, N) of g, e and s, of which the last two are added to.

    Returns:
        The gradient of the sub-step's length.
    """
    (h, r, a, q, after), (grad_h, grad_f, grad_u, grad_q, grad_neuron), s = row, gradients, method.s
    e, total, symmetric = method.neurons[1], _ZERO, s.shape[0] > 0
    for j in range(h.shape[0]):
        elastance, slope, shift = _ONE, _ZERO, _ZERO
        if symmetric:
            over, under = sigmoid(q[j] + s[j]), sigmoid(q[j] - s[j])
            elastance = over - under
            left, right = over - over * over, under - under * under
            slope, shift = left - right, left + right
        elif has_elastance:
            elastance = sigmoid(q[j])
            slope = elastance - elastance * elastance
        length = delta * elastance
        grad_next, kept, at = grad_h[j], _ONE - length * r[j], h[j]
        if method.implicit:
            grad_next /= _ONE + length * r[j]
            kept, at = _ONE, after[j]
        grad_a = length * grad_next
        grad_length = grad_next * (e[j] * a[j] - r[j] * at)
        grad_f[j] = -grad_a * at * (r[j] - r[j] * r[j])
        grad_u[j] = grad_a * e[j] * (_ONE - a[j] * a[j])
        grad_neuron[1, j] += grad_a * a[j]
        total += grad_length * elastance
        grad_q[j] = grad_length * delta * slope
        if symmetric:
            grad_neuron[2, j] += grad_length * delta * shift
        grad_h[j] = grad_next * kept
    return total


@inline(force=True)
def _add_to_neurons(rows, grad_neuron, grad_f, grad_u):
    for row in range(rows):
        for j in range(grad_f.shape[1]):
            grad_neuron[0, j] += grad_f[row, j] + grad_u[row, j]


@kernel
def lrc_backward(  # noqa: C901 - as above
    index, low, high, samples, sensory, recurrent, method, evaluations, grad_outputs, gradients
):
    """Run sequences ``low`` to ``high`` backwards, adding to the slice's own gradients.

    Args:
        index: of the slice.
        low, high: slice of the batch.
        samples, grad_outputs: see :mod:`tauflow.kernels.ltc`.
        sensory, recurrent: in the order of the backward pass.
        method: a ``Saturation``.
        evaluations: as :func:`lrc_forward` wrote it.
        gradients: ``LRCGradients``.
    """
    u, substeps, N, T = samples.u, method.substeps, evaluations.shape[4], evaluations.shape[2]
    liquid, D, masked = method.drive.shape[0] > 0, u.shape[2], samples.mask.shape[1] > 0
    share = _ONE / f4(substeps)
    last = evaluations.shape[0] - 1  # of q, or of what is there in its place and is not looked at
    grad_weights_x, grad_weights = gradients.sensory[index], gradients.recurrent[index]
    grad_own_x, grad_own = np.zeros_like(grad_weights_x), np.zeros_like(grad_weights)
    grad_sums_x, grad_sums = np.zeros_like(grad_weights_x), np.zeros_like(grad_weights)
    grad_neuron, grad_sums_neuron = np.zeros((3, N), f4), np.zeros((3, N), f4)
    steps_per_sum = max(1, TERMS_PER_SUM // substeps)
    grad_v, at, after = np.zeros((4, N), f4), np.empty((4, N), f4), np.empty((4, N), f4)
    grad_f, grad_u = np.zeros((4, N), f4), np.zeros((4, N), f4)
    grad_q = np.zeros((4, N), f4)
    grad_input_f, grad_input_u = np.empty((4, N), f4), np.empty((4, N), f4)
    u_t, grad_u_t, valid = np.empty((4, D), f4), np.empty((4, D), f4), np.empty(4, np.bool_)
    for first in range(low, high, 4):
        rows = min(4, high - first)
        copy_rows(rows, gradients.h[first:], grad_v)
        for t in range(T - 1, -1, -1):
            if grad_outputs.grad_out.size > 0:
                add_rows(rows, grad_v, grad_outputs.grad_out[first:, t])
            grad_input_f[:], grad_input_u[:], grad_u_t[:] = _ZERO, _ZERO, _ZERO
            gradients.delta[first : first + rows, t] = _ZERO
            if mark_valid_rows(samples.mask, first, rows, t, valid):
                copy_rows(rows, grad_outputs.out[first:, t], after)
                for sub in range(substeps - 1, -1, -1):
                    load_potentials(evaluations, first, rows, t, sub, at)
                    if rows < 4 or masked:
                        grad_f[:], grad_u[:], grad_q[:] = _ZERO, _ZERO, _ZERO
                    for row in range(rows):
                        if valid[row]:
                            n = first + row
                            own = (
                                at[row],
                                evaluations[1, n, t, sub],
                                evaluations[2, n, t, sub],
                                evaluations[last, n, t, sub],
                                after[row],
                            )
                            own_gradients = (
                                grad_v[row],
                                grad_f[row],
                                grad_u[row],
                                grad_q[row],
                                grad_neuron,
                            )
                            grad_length = _lrc_step_backward(
                                own, method, liquid, samples.delta[n, t], own_gradients
                            )
                            gradients.delta[n, t] += grad_length * share
                    add_and_copy(grad_input_f, grad_f, at, after)
                    add_and_copy(grad_input_u, grad_u, at, after)
                    weighted_currents_backward(
                        rows, at, recurrent, grad_u, grad_f, grad_v, grad_own
                    )
                    if liquid:
                        _matmul_add_four(grad_q, method.W, grad_v)
                        copy_rows(rows, grad_q, gradients.q[first:, t, sub])
                copy_rows(rows, u[first:, t], u_t)
                weighted_currents_backward(
                    rows, u_t, sensory, grad_input_u, grad_input_f, grad_u_t, grad_own_x
                )
                _add_to_neurons(rows, grad_neuron, grad_input_f, grad_input_u)
            elif liquid:
                gradients.q[first : first + rows, t] = _ZERO
            copy_rows(rows, grad_u_t, gradients.u[first:, t])
            if t % steps_per_sum == 0:
                add_and_reset_all(
                    (grad_sums_x, grad_sums, grad_sums_neuron), (grad_own_x, grad_own, grad_neuron)
                )
            if t % SUMS_PER_SUM == 0:
                whole = grad_weights_x, grad_weights, gradients.neurons[index]
                add_and_reset_all(whole, (grad_sums_x, grad_sums, grad_sums_neuron))
        copy_rows(rows, grad_v, gradients.h[first:])
