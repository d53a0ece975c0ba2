"""MATLAB-like variable steps against SciPy and closed solutions."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from tauflow_papers.theory.variable_step import ODE23, ODE45, solve_variable_step

PAIRS = [ODE45, ODE23]
MATRIX = torch.tensor([[-0.3, 2.0, 0.0], [-2.0, -0.3, 0.5], [0.1, 0.0, -1.0]], dtype=torch.float64)
START = torch.tensor([[1.0, 0.0, -0.5], [0.2, -3.0, 2.0]], dtype=torch.float64)


def linear(rows):
    return lambda t, y: y @ MATRIX.T


def shared(field):
    return lambda rows: field


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_tables_meet_their_order_conditions(pair):
    c, b = np.array(pair.c), np.array([*pair.a[-1], 0.0])
    np.testing.assert_allclose([sum(row) for row in pair.a], c, atol=1e-14)
    assert abs(sum(pair.error)) < 1e-15
    for power in range(1, pair.order + 1):
        assert b @ c ** (power - 1) == pytest.approx(1 / power, abs=1e-14)
    lower = b - np.array(pair.error)  # the embedded method is one order lower
    for power in range(1, pair.order):
        assert lower @ c ** (power - 1) == pytest.approx(1 / power, abs=1e-14)
    dense = np.array(pair.dense)
    np.testing.assert_allclose(dense.sum(axis=1), b, atol=1e-14)
    for share in (0.25, 0.6):
        weights = dense @ share ** np.arange(1, dense.shape[1] + 1)
        for power in range(1, dense.shape[1] + 1):
            exact = share**power / power
            assert weights @ c ** (power - 1) == pytest.approx(exact, abs=1e-14)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_every_point_lies_on_the_solution_of_a_linear_ode(pair):
    path = solve_variable_step(linear, START, 4.0, pair=pair, rtol=1e-8, atol=1e-10)
    assert path.converged.all()
    for row in range(2):
        t, y = path.t[row].numpy(), path.y[row].numpy()
        assert len(t) == 1 + path.refine * int(path.accepted[row])
        assert t[0] == 0
        assert t[-1] == 4.0
        exact = np.stack([expm(MATRIX.numpy() * at) @ START[row].numpy() for at in t])
        np.testing.assert_allclose(y, exact, atol=2e-6)


@pytest.mark.parametrize(("rtol", "atol"), [(1e-2, 1e-4), (1e-5, 1e-8)])
@pytest.mark.parametrize(("pair", "method"), [(ODE45, "RK45"), (ODE23, "RK23")])
def test_it_works_as_hard_as_scipy_and_is_as_accurate(pair, method, rtol, atol):
    """The same pairs with another safety factor (0.8 instead of 0.9) and another norm."""
    span = 6.0
    theirs = solve_ivp(
        lambda t, y: MATRIX.numpy() @ y,
        (0, span),
        START[0].numpy(),
        method=method,
        rtol=rtol,
        atol=atol,
        max_step=span / 10,
    )
    ours = solve_variable_step(linear, START[:1], span, pair=pair, rtol=rtol, atol=atol)
    steps = len(theirs.t) - 1
    assert 0.8 * steps <= int(ours.accepted[0]) <= 1.6 * steps + 3
    exact = expm(MATRIX.numpy() * span) @ START[0].numpy()
    their_error = np.abs(theirs.y[:, -1] - exact).max()
    our_error = np.abs(ours.y[0][-1].numpy() - exact).max()
    assert our_error <= 2 * their_error + atol


def test_the_longest_step_is_a_tenth_of_the_span():
    path = solve_variable_step(shared(lambda t, y: torch.zeros_like(y)), START, 5.0)
    assert path.accepted.tolist() == [10, 10]
    torch.testing.assert_close(path.t[0][:5], torch.tensor([0, 1, 2, 3, 4]).double() / 8)
    few = solve_variable_step(
        shared(lambda t, y: torch.zeros_like(y)), START, 5.0, max_step=2.5, refine=1
    )
    assert few.t[0].tolist() == [0, 2.5, 5.0]


def test_first_steps_follow_the_fastest_component():
    """From rest at dy/dt = 1: h = 0.8 rtol^(1/5) atol / rtol, then five times as long each."""
    rtol, atol = 1e-2, 1e-4
    path = solve_variable_step(
        shared(lambda t, y: torch.ones_like(y)), START[:1] * 0, 6.0, rtol=rtol, atol=atol, refine=1
    )
    first = 0.8 * rtol**0.2 * atol / rtol
    expected = [0.0, *np.cumsum([first * 5**i for i in range(4)])]
    np.testing.assert_allclose(path.t[0][:5].numpy(), expected, rtol=1e-12)
    assert float(path.t[0].diff().max()) == pytest.approx(0.6)


def test_rejected_steps_shrink_and_are_counted():
    def jump(t, y):
        return torch.where(t < 0.55, 0.0, 40.0)[:, None] * torch.cos(30 * t)[:, None] + 0 * y

    path = solve_variable_step(shared(jump), START[:1] * 0, 1.0, rtol=1e-6, atol=1e-9)
    assert int(path.rejected[0]) > 3
    exact = 40 / 30 * (np.sin(30.0) - np.sin(30 * 0.55))
    assert float(path.y[0][-1, 0]) == pytest.approx(exact, abs=1e-4)


def test_rows_go_their_own_ways():
    rates = torch.tensor([1.0, 30.0, 400.0], dtype=torch.float64)

    def field_for(rows):
        return lambda t, y: -rates[rows, None] * y + torch.sin(t)[:, None]

    start = torch.ones(3, 2, dtype=torch.float64)
    together = solve_variable_step(field_for, start, 3.0)
    assert together.accepted[0] < together.accepted[1] < together.accepted[2]
    for row in range(3):
        alone = solve_variable_step(
            lambda rows, row=row: field_for(rows + row), start[row : row + 1], 3.0
        )
        torch.testing.assert_close(alone.t[0], together.t[row], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.y[0], together.y[row], rtol=0, atol=1e-12)


def test_rows_that_cannot_go_on_are_marked_and_hold_up_nobody():
    start = torch.tensor([[0.1], [1.0]], dtype=torch.float64)  # 1 / (1/y0 - t): the second at t = 1
    path = solve_variable_step(shared(lambda t, y: y * y), start, 2.0, max_steps=5000)
    assert path.converged.tolist() == [True, False]
    assert float(path.y[0][-1]) == pytest.approx(1 / (10 - 2.0), rel=1e-3)
    assert float(path.t[1][-1]) == pytest.approx(1.0, abs=1e-3)
    stopped = solve_variable_step(shared(lambda t, y: -1e4 * y), start, 2.0, max_steps=20)
    assert not stopped.converged.any()
    assert (stopped.accepted + stopped.rejected).tolist() == [20, 20]
