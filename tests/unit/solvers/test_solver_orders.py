"""Solvers against flows with known solutions, and the checks of their tables."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.solvers import SOLVERS, TABLEAUS, integrate, integrate_semilinear

A = torch.tensor([[-0.5, 1.0, 0.2], [-1.0, -0.3, 0.1], [0.0, 0.4, -0.8]], dtype=torch.float64)
GAPS = torch.tensor([[0.0], [0.5], [2.0], [3.0]], dtype=torch.float64)
ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}


def start(rows: int = 4) -> Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_every_table_has_its_order_named_here():
    assert {name: table.order for name, table in TABLEAUS.items()} == ORDERS
    assert set(SOLVERS) == {"fused", "exponential", *ORDERS}


@pytest.mark.parametrize("name", ORDERS)
def test_measured_order_on_a_linear_system(name):
    """Each row has its own time step; the solution is the matrix exponential."""
    h = start()
    exact = torch.stack([torch.linalg.matrix_exp(g * A) @ r for g, r in zip(GAPS, h, strict=True)])
    errors = []
    for substeps in (32, 64):
        tableau = TABLEAUS[name]
        got = integrate(lambda v: v @ A.T, h, GAPS, tableau=tableau, substeps=substeps)
        assert torch.equal(got[0], h[0])
        errors.append((got - exact).abs().max().item())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(ORDERS[name], abs=0.15)


@pytest.mark.parametrize("name", ORDERS)
def test_measured_order_on_a_nonlinear_flow(name):
    """A linear flow cannot tell some tables of one order apart; h' = -h^2 can."""
    h, gap = torch.tensor([[1.0], [0.5]]).double(), torch.tensor([[1.0], [2.0]]).double()
    exact = h / (1 + h * gap)
    errors = [
        (integrate(lambda v: -v * v, h, gap, tableau=TABLEAUS[name], substeps=n) - exact)
        .abs()
        .max()
        .item()
        for n in (16, 32)
    ]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(ORDERS[name], abs=0.3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_semilinear_order_with_a_capacity(solver):
    """With constant terms the solution is u/g + (h - u/g) exp(-g dt / C)."""
    input_current = torch.tensor([0.5, -1.0, 2.0]).double()
    decay = torch.tensor([1.0, 0.5, 2.0]).double()
    capacity = torch.tensor([0.5, 1.0, 2.0]).double()
    h, gap = start(), GAPS
    exact = input_current / decay + (h - input_current / decay) * torch.exp(-decay * gap / capacity)
    errors = []
    for substeps in (64, 128):
        got = integrate_semilinear(
            lambda v: (input_current.expand_as(v), decay.expand_as(v)),
            h,
            gap,
            solver=solver,
            substeps=substeps,
            capacity=capacity,
        )
        torch.testing.assert_close(got[0], h[0], rtol=1e-14, atol=1e-14)
        errors.append((got - exact).abs().max().item())
    if solver == "exponential":
        assert max(errors) < 1e-13  # exact where nothing depends on the state
        return
    assert math.log2(errors[0] / errors[1]) == pytest.approx(ORDERS.get(solver, 1), abs=0.2)


def test_exponential_step_has_order_one():
    """On v' = sin(v) - (1 + v^2) v, against many Runge-Kutta steps."""

    def terms(v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(v), 1 + v * v

    def solved(solver: str, substeps: int) -> Tensor:
        return integrate_semilinear(terms, start(), GAPS, solver=solver, substeps=substeps)

    exact = solved("rk4", 2000)
    errors = [(solved("exponential", n) - exact).abs().max().item() for n in (64, 128)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("decay", [0.0, 1e-9, -0.5, 3.0])
def test_exponential_step_where_nothing_decays(decay):
    h = start().requires_grad_()
    g = torch.tensor(decay, dtype=torch.float64, requires_grad=True)
    u = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def step(h: Tensor, g: Tensor, u: Tensor) -> Tensor:
        terms = (u.expand_as(h), g.expand_as(h))
        return integrate_semilinear(lambda v: terms, h, GAPS, solver="exponential", substeps=2)

    flow = h + u * GAPS if not decay else u / g + (h - u / g) * torch.exp(-g * GAPS)
    torch.testing.assert_close(step(h, g, u), flow, rtol=1e-6, atol=1e-7)
    assert torch.autograd.gradcheck(step, (h, g, u))


@pytest.mark.parametrize("solver", ["fused", "exponential"])
def test_bounded_for_any_step(solver):
    h = start()
    got = integrate_semilinear(
        lambda v: (torch.ones_like(v), 2 * torch.ones_like(v)),
        h,
        torch.full((4, 1), 1e12, dtype=torch.float64),
        solver=solver,
        substeps=1,
    )
    torch.testing.assert_close(got, torch.full_like(h, 0.5))


@pytest.mark.parametrize("solver", SOLVERS)
def test_terms_are_evaluated_once_per_stage(solver):
    calls = []

    def terms(v: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(v)
        return torch.zeros_like(v), torch.ones_like(v)

    integrate_semilinear(terms, start(), GAPS, solver=solver, substeps=5)
    stages = {"fused": 1, "exponential": 1, "euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}
    assert len(calls) == 5 * stages[solver]


def test_a_table_refuses_weights_that_do_not_sum_to_one():
    with pytest.raises(ArgumentError, match=r"heun: b sums to 0\.75, expected 1"):
        replace(TABLEAUS["heun"], b=(0.5, 0.25))


def test_a_table_refuses_rows_of_the_wrong_length():
    with pytest.raises(ArgumentError, match="row i of a must hold i weights"):
        replace(TABLEAUS["heun"], a=((), (0.5, 0.5)))


def test_an_unknown_solver_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'euler'"):
        TABLEAUS["eulr"]


@pytest.mark.parametrize("name", ORDERS)
def test_a_decay_dies_out_within_the_interval_of_stability_and_grows_beyond(name):
    table = TABLEAUS[name]

    def factor(gap: float) -> Tensor:
        unit = torch.ones(1, 1, dtype=torch.float64)
        return integrate(lambda h: -h, unit, unit * gap, tableau=table, substeps=1).abs()

    assert all(factor(share / 1000 * table.interval) < 1 for share in range(1, 1000))
    assert all(factor(share / 1000 * table.interval) > 1 for share in range(1001, 2000))
