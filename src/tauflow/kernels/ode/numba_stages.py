r"""One gap of a flow, compiled, and its adjoint: explicit Runge-Kutta steps, the fused solver.

With :math:`\delta = gap / substeps`, the stages of one explicit sub-step are

.. math::
    h_i = h + \delta \sum_{j < i} a_{ij} F_j, \qquad F_i = F(h_i), \qquad
    h' = h + \delta \sum_i b_i F_i

and with :math:`e_j = b_j \bar h' + \sum_{i > j} a_{ij} \bar h_i` their gradients

.. math::
    \bar F_j = \delta e_j, \qquad \bar\delta = \sum_j \langle e_j, F_j \rangle, \qquad
    \bar h_j = (\partial F / \partial h)^T \bar F_j, \qquad \bar h = \bar h' + \sum_j \bar h_j

Where the state is clipped after a sub-step, its gradient ends at what was cut off. The tape does
not hold the state before the cut: the loop back takes that sub-step again from what it holds.

One sub-step of the fused solver, with :math:`f = \varphi(W_1 h + \ldots)`, and its gradient are

.. math::
    h' = n / m, \quad n = h + \delta f A, \quad m = 1 + \delta (leak + f)

    \bar n = \bar h' / m, \quad \bar m = -\bar n h', \quad
    \bar f = \delta (\bar n A + \bar m), \quad \bar A = \delta \bar n f, \quad
    \overline{leak} = \delta \bar m, \quad \bar h = \bar n + W_1^T (\varphi' \bar f)
"""

# mypy: ignore-errors

import numpy as np

from tauflow.kernels.cpu.jit import EXACT_DIVISION, FAST_SUMS, f4, inline
from tauflow.kernels.cpu.math import activate, add_scaled, copy, copy_rows, dot, multiply_by_slope
from tauflow.kernels.cpu.matmul import matmul
from tauflow.kernels.ode import StageGradients

_ZERO = f4(0.0)
_ONE = f4(1.0)


@inline
def _damp(damping, value):
    """Return the product, 0 without damping: 0 times an infinite state would be NaN."""
    return damping * value if damping != _ZERO else _ZERO


@inline
def _evaluate_phi(phi, grad_phi, drive, no_bias, at, f):
    """Write the values of phi at ``at`` (rows, N) to ``f`` (rows, H)."""
    copy_rows(at.shape[0], drive, f)
    matmul(at, grad_phi, f, True)
    for row in range(at.shape[0]):
        activate(phi, f[row], no_bias, f[row], False)


@inline
def _evaluate_field(field, grad_field, at, f, F):
    """Write the field's values, given those of phi."""
    neurons = at.shape[1]
    damping, b_2, scale = field.numbers[6], field.b_2, field.scale
    if field.W_2.size > 0:
        for row in range(at.shape[0]):
            for j in range(neurons):
                F[row, j] = b_2[j] - _damp(damping, at[row, j])
        matmul(f, grad_field, F, True)
    else:
        for row in range(at.shape[0]):
            for j in range(neurons):
                F[row, j] = scale[j] * f[row, j] - _damp(damping, at[row, j])


@inline(math=EXACT_DIVISION)
def _fused_step(A, leak, delta, f, h):
    """Advance one row by the fused solver."""
    for j in range(h.shape[0]):
        h[j] = (h[j] + delta * (f[j] * A[j])) / (_ONE + delta * (leak[j] + f[j]))


@inline
def _clip(h, limit):
    if limit == np.inf:
        return
    for row in range(h.shape[0]):
        for j in range(h.shape[1]):
            if h[row, j] > limit:  # not with min() and max(): NaN stays NaN
                h[row, j] = limit
            elif h[row, j] < -limit:
                h[row, j] = -limit


@inline
def _start_stage(a, i, delta, h, F, at):
    """Write the states of stage ``i`` of a sub-step from ``h`` to ``at``."""
    for row in range(at.shape[0]):
        copy(h[row], at[row])
        for j in range(i):
            if a[i, j] != _ZERO:
                add_scaled(at[row], delta[row] * a[i, j], F[j, row])


@inline
def _finish_substep(b, clip, delta, F, h):
    """Take all stages of a sub-step together."""
    for row in range(h.shape[0]):
        for i in range(b.size):
            if b[i] != _ZERO:
                add_scaled(h[row], delta[row] * b[i], F[i, row])
    _clip(h, clip)


@inline
def integrate_forward(flow, activations, place, drive, delta, no_bias, F, h):
    """Cover one gap of the slice, from and to ``h``, (rows, N).

    Args:
        flow: the flow.
        activations: written.
        place: in the tape.
        drive: (rows, H).
        delta: (rows,).
        no_bias: (H,), zeros.
        F: (stages, rows, N), memory.
        h: the state.
    """
    t, low, high = place
    # once: every array of a nested tuple is counted where it is taken out
    phi, field, grad_phi, grad_field = flow
    fused = field.leak.size > 0
    a, b, A, leak, clip = field.a, field.b, field.scale, field.leak, field.numbers[7]
    stages = b.size
    for n in range(field.substeps * stages):
        i, at, f = n % stages, activations.at[t, n, low:high], activations.f[t, n, low:high]
        _start_stage(a, i, delta, h, F, at)
        _evaluate_phi(phi, grad_phi, drive, no_bias, at, f)
        if fused:
            for row in range(high - low):
                _fused_step(A, leak, delta[row], f[row], h[row])
        else:
            _evaluate_field(field, grad_field, at, f, F[i])
            if i == stages - 1:
                _finish_substep(b, clip, delta, F, h)


@inline
def _clip_backward(flow, activations, place, k, rows, end, F, carry):
    """Set the gradient after sub-step ``k`` to 0 where the state was clipped there.

    Args:
        flow, activations, place: as for :func:`integrate_forward`.
        k: the sub-step.
        rows: what the rows have.
        end, F: (rows, N), memory.
        carry: the gradient.
    """
    t, low, high = place
    field = flow.field
    limit, first = field.numbers[7], k * field.b.size
    for row in range(carry.shape[0]):
        copy(activations.at[t, first, low + row], end[row])
    for i in range(field.b.size):
        _evaluate_field(
            field,
            flow.grad_field,
            activations.at[t, first + i, low:high],
            activations.f[t, first + i, low:high],
            F,
        )
        for row in range(carry.shape[0]):
            add_scaled(end[row], rows.delta[row] * field.b[i], F[row])
    for row in range(carry.shape[0]):
        for j in range(carry.shape[1]):
            if rows.valid[row] and (end[row, j] > limit or end[row, j] < -limit):
                carry[row, j] = _ZERO


@inline
def _add_product(total, part, gradient):
    for j in range(total.size):
        total[j] += part[j] * gradient[j]


@inline
def _field_backward(field, rows, stage):
    """Turn ``e`` into the gradient of a stage's values, and take it through scale and gap."""
    e, f = stage.e, stage.f
    for row in range(e.shape[0]):
        if not rows.valid[row]:
            e[row] = _ZERO
        if rows.grad_delta.size > 0:
            rows.grad_delta[row] += dot(e[row], stage.F[row])
        for j in range(e.shape[1]):
            e[row, j] *= rows.delta[row]
        if field.W_2.size > 0:
            copy(e[row], stage.grad_F[row])
        else:
            _add_product(rows.neurons[0], f[row], e[row])
            for j in range(e.shape[1]):
                stage.grad_z[row, j] = field.scale[j] * e[row, j]


@inline
def _stage_backward(flow, rows, stage, carry):
    """Take ``e``, the gradient of a stage's values over delta, back to the stage's state.

    ``e`` becomes the gradient of the state; ``carry`` gets it added.
    """
    phi, field, _, grad_field = flow
    at, f, e = stage.at, stage.f, stage.e
    damping, neurons = field.numbers[6], at.shape[1]
    if rows.grad_delta.size > 0:
        _evaluate_field(field, grad_field, at, f, stage.F)
    _field_backward(field, rows, stage)
    if field.W_2.size > 0:
        matmul(e, field.W_2, stage.grad_z, False)
    for row in range(at.shape[0]):
        multiply_by_slope(phi, stage.grad_z[row], f[row], f[row])
        for j in range(neurons):
            e[row, j] = -_damp(damping, e[row, j])
    matmul(stage.grad_z, field.W_1, e, True)
    for row in range(at.shape[0]):
        add_scaled(carry[row], _ONE, e[row])


@inline
def integrate_backward(flow, activations, deltas, place, rows, e, F, carry):
    """Take ``carry``, the gradient after one gap of explicit steps, back to that before it.

    Args:
        flow, activations, place: as for :func:`integrate_forward`.
        deltas: see :mod:`tauflow.kernels.ode`.
        rows: what the rows have.
        e: (stages, rows, N), memory.
        F: (rows, N), memory.
        carry: (rows, N).
    """
    t, low, high = place
    field = flow.field
    stages = field.b.size
    for k in range(field.substeps - 1, -1, -1):
        if field.numbers[7] < np.inf:
            _clip_backward(flow, activations, place, k, rows, e[0], F, carry)
        for i in range(stages):
            for row in range(carry.shape[0]):
                e[i, row] = _ZERO
                add_scaled(e[i, row], field.b[i], carry[row])
        for i in range(stages - 1, -1, -1):
            n = k * stages + i
            own, grad_z = e[i], deltas.z[t, n, low:high]
            grad_F = deltas.F[t, n, low:high] if field.W_2.size > 0 else own
            stage = StageGradients(
                activations.at[t, n, low:high],
                activations.f[t, n, low:high],
                F,
                own,
                grad_z,
                grad_F,
            )
            _stage_backward(flow, rows, stage, carry)
            for j in range(i):
                if field.a[i, j] != _ZERO:
                    for row in range(carry.shape[0]):
                        add_scaled(e[j, row], field.a[i, j], own[row])


@inline(math=FAST_SUMS)
def _fused_step_backward(A, leak, delta, h, f, after, g, grad_z, neurons):
    """Turn ``g`` into its direct part before a fused sub-step; return the gradient of delta."""
    grad_A, grad_leak, grad_delta = neurons[0], neurons[1], _ZERO
    for j in range(h.shape[0]):
        grad_n = g[j] / (_ONE + delta * (leak[j] + f[j]))
        grad_m = -grad_n * after[j]
        grad_z[j] = delta * (grad_n * A[j] + grad_m)
        grad_A[j] += delta * (grad_n * f[j])
        grad_leak[j] += delta * grad_m
        g[j] = grad_n
        grad_delta += grad_n * (f[j] * A[j]) + grad_m * (leak[j] + f[j])
    return grad_delta


@inline
def integrate_fused_backward(flow, activations, deltas, place, rows, after, carry):
    """Do :func:`integrate_backward` for the fused solver, with the state ``after`` the step."""
    t, low, high = place
    phi, field = flow.phi, flow.field
    A, leak, delta, sums = field.scale, field.leak, rows.delta, rows.neurons
    for k in range(field.substeps - 1, -1, -1):
        z, at, f = (
            deltas.z[t, k, low:high],
            activations.at[t, k, low:high],
            activations.f[t, k, low:high],
        )
        end = after if k == field.substeps - 1 else activations.at[t, k + 1, low:high]
        for row in range(carry.shape[0]):
            z[row] = _ZERO
            if rows.valid[row]:
                grad_delta = _fused_step_backward(
                    A, leak, delta[row], at[row], f[row], end[row], carry[row], z[row], sums
                )
                if rows.grad_delta.size > 0:
                    rows.grad_delta[row] += grad_delta
                multiply_by_slope(phi, z[row], f[row], f[row])
        matmul(z, field.W_1, carry, True)
