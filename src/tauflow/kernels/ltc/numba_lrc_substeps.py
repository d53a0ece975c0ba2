r"""One sub-step of the LRC, and its gradients.

With the elastance :math:`\epsilon` and :math:`\lambda = \epsilon\, dt / substeps`, a sub-step and
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
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import EXACT_DIVISION, f4, inline
from tauflow.kernels.cpu.math import copy, copy_rows, sigmoid, tanh

from .numba_synapses import synaptic_currents

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inline(force=True)
def matmul_add_four(z, W, total):
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


@inline(force=True)
def lrc_evaluation(method, samples, recurrent, saved, block, valid, delta, v, sums, work):
    """Take a sub-step; arguments are those of :func:`.numba_substeps.ltc_evaluation`.

    ``saved`` receives h, r, a and, with an elastance, q; drive and conductance are u and f.
    """
    (first, rows, t, sub), (u, f), (q, after, length, _) = block, sums, work
    keeps, liquid, N = saved.shape[1] > 0, method.W.size > 0, v.shape[1]
    synaptic_currents(rows, v, recurrent, u, f)
    if liquid:
        copy_rows(rows, samples.u[first:, t, samples.u.shape[2] - N :], q)
        matmul_add_four(v, method.W, q)
    if keeps:
        copy_rows(rows, v, saved[0, first:, t, sub])
    if keeps and liquid:
        copy_rows(rows, q, saved[3, first:, t, sub])
    for row in range(rows):
        _elastance_lengths(q[row], method.s, delta[row], liquid, length)
        _lrc_step(v[row], f[row], u[row], method.leak[1], length, method.implicit, after)
        if valid[row]:
            copy(after, v[row])
    if keeps:
        copy_rows(rows, f, saved[1, first:, t, sub])
        copy_rows(rows, u, saved[2, first:, t, sub])


@inline(force=True, math=EXACT_DIVISION)
def _lrc_step_backward(row, method, has_elastance, delta, gradients):
    """Take the gradient after a sub-step back, apart from synapses and the elastance's matrix.

    Args:
        row: h, r, a, q and h' of the row, (N,) each.
        method: an ``LRCSolver``.
        has_elastance: whether there is an elastance.
        delta: length of the sub-step.
        gradients: of h', which becomes the direct part of that of h; of f, u and q, written; and
            (3, N) of g, e and s, of which the last two are added to.

    Returns:
        The gradient of the sub-step's length.
    """
    (h, r, a, q, after), (grad_h, grad_f, grad_u, grad_q, grad_neuron), s = row, gradients, method.s
    e, total, symmetric = method.leak[1], _ZERO, s.shape[0] > 0
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
        grad_next, decay, at = grad_h[j], _ONE - length * r[j], h[j]
        if method.implicit:
            grad_next /= _ONE + length * r[j]
            decay, at = _ONE, after[j]
        grad_a = length * grad_next
        grad_length = grad_next * (e[j] * a[j] - r[j] * at)
        grad_f[j] = -grad_a * at * (r[j] - r[j] * r[j])
        grad_u[j] = grad_a * e[j] * (_ONE - a[j] * a[j])
        grad_neuron[1, j] += grad_a * a[j]
        total += grad_length * elastance
        grad_q[j] = grad_length * delta * slope
        if symmetric:
            grad_neuron[2, j] += grad_length * delta * shift
        grad_h[j] = grad_next * decay
    return total


@inline(force=True)
def lrc_evaluation_backward(method, saved, block, valid, delta, potentials, sums, work, gradients):
    """Take gradients back through a sub-step, apart from synapses and the elastance's matrix.

    Arguments are those of :func:`.numba_substeps.ltc_evaluation_backward`; the block of ``work``
    receives the gradients of q.
    """
    (first, rows, t, sub), (grad_v, grad_u, grad_f, grad_neuron) = block, sums
    (at, after), (grad_q, _, _), liquid = potentials, work, method.W.size > 0
    last = saved.shape[0] - 1  # of q, or of what is there in its place and is not looked at
    share = _ONE / f4(method.substeps)
    for row in range(4):
        if row < rows and valid[row]:
            n = first + row
            r, a, q = saved[1, n, t, sub], saved[2, n, t, sub], saved[last, n, t, sub]
            row_values = at[row], r, a, q, after[row]
            row_gradients = grad_v[row], grad_f[row], grad_u[row], grad_q[row], grad_neuron
            grad_length = _lrc_step_backward(row_values, method, liquid, delta[row], row_gradients)
            gradients.dt[n, t] += grad_length * share
        else:
            grad_q[row] = _ZERO
