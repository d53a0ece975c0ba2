"""Cells whose flow is solved adaptively, against many fixed steps and row by row."""

from functools import cache

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, BackendError

D, N, B, T = 2, 5, 4, 3
CELLS = [
    ("ct-rnn", {}),
    ("ode-rnn", {}),
    ("ode-lstm", {}),
    ("ode-lstm", {"form": "torch"}),
    ("gnode", {"units": 7, "activation": "tanh"}),
    ("gru-euler", {}),
    ("gru-ode", {}),
]


def pair(name, options, **solving):
    torch.manual_seed(0)
    adaptive = tauflow.build(name, D, N, **options, **solving).double()
    fixed = tauflow.build(name, D, N, **options, solver="rk4", substeps=200).double()
    fixed.load_state_dict(adaptive.state_dict())
    return adaptive, fixed


def inputs():
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=random, dtype=torch.float64)
    dt = 3 * torch.rand(B, T, generator=random, dtype=torch.float64)
    dt[0, 2] = 0.0
    return x, dt


def values_and_gradients(rnn):
    x, dt = inputs()
    y, _ = rnn(x, dt=dt)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return y.detach(), torch.autograd.grad((y * weights).sum(), list(rnn.parameters()))


@cache
def by_fixed_steps(cell):
    name, options = CELLS[cell]
    return values_and_gradients(pair(name, options)[1])


@pytest.mark.sampled(30)
@pytest.mark.parametrize("cell", range(len(CELLS)), ids=[str(cell) for cell in CELLS])
@pytest.mark.parametrize("solver", ["dopri5", "tsit5", "bosh3"])
def test_tight_tolerances_equal_many_fixed_steps(cell, solver):
    name, options = CELLS[cell]
    adaptive, _ = pair(name, options, solver=solver, rtol=1e-8, atol=1e-10)
    (y, gradients), (expected, other) = values_and_gradients(adaptive), by_fixed_steps(cell)
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-7)
    for a, e in zip(gradients, other, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options"), CELLS)
def test_looser_tolerances_err_more(name, options):
    x, dt = inputs()
    errors = []
    for rtol in (1e-3, 1e-7):
        adaptive, fixed = pair(name, options, solver="dopri5", rtol=rtol, atol=rtol / 100)
        errors.append((adaptive(x, dt=dt)[0] - fixed(x, dt=dt)[0]).abs().max().item())
    assert errors[1] < 1e-5
    assert errors[0] > 10 * errors[1]
    assert errors[0] < 0.1


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "options"), CELLS)
def test_every_row_has_its_own_gap(name, options):
    adaptive, _ = pair(name, options, solver="dopri5")
    x, dt = inputs()
    y, h = adaptive(x, dt=dt)
    for row in range(B):
        y_row, h_row = adaptive(x[row : row + 1], dt=dt[row : row + 1])
        torch.testing.assert_close(y[row : row + 1], y_row, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(h[row : row + 1], h_row, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", [{}, {"train_tau": True, "scale": False}])
def test_gradients_by_the_adjoint_equal_those_through_many_fixed_steps(options):
    adaptive, fixed = pair("ct-rnn", options, solver="dopri5", rtol=1e-8, atol=1e-10, adjoint=True)
    (y, gradients), (expected, other) = values_and_gradients(adaptive), values_and_gradients(fixed)
    torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-7)
    for a, e in zip(gradients, other, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-6)


def test_the_adjoint_needs_adaptive_steps():
    with pytest.raises(ArgumentError, match=r"adjoint=True needs .*'rk4' takes fixed .*dopri5"):
        tauflow.CTRNN(D, N, adjoint=True)


def test_a_trace_says_why_it_does_not_serve():
    rnn = tauflow.CTRNN(D, N, solver="dopri5", backend="numba")
    with pytest.raises(BackendError, match=r"cannot be traced: .* as .* adaptive solvers do"):
        rnn(torch.randn(B, T, D))


def test_clipping_needs_fixed_steps():
    with pytest.raises(ArgumentError, match=r"clip acts between fixed solver steps"):
        tauflow.CTRNN(D, N, solver="dopri5", clip=1.0)


def test_steps_of_a_fixed_length_cover_the_same_time_with_every_solver():
    options = {"step_size": 0.1, "substeps": 6}
    fixed = tauflow.CTRNN(D, N, solver="rk4", **options)
    adaptive = tauflow.CTRNN(D, N, solver="dopri5", rtol=1e-6, atol=1e-8, **options)
    adaptive.load_state_dict(fixed.state_dict())
    x = torch.randn(B, T, D)
    torch.testing.assert_close(adaptive(x, dt=3.0), fixed(x), atol=1e-5, rtol=1e-5)
