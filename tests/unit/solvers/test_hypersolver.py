"""Hypersolvers against a pendulum solved finely, and the counts of Table 1 of the CfC paper."""

import math

import pytest
import torch
from torch import Tensor

from tauflow.errors import ArgumentError, SolverError
from tauflow.solvers import EULER, HEUN, MIDPOINT, RK4, Hypersolver, integrate


def pendulum(state: Tensor) -> Tensor:
    angle, speed = state.unbind(-1)
    return torch.stack([speed, -torch.sin(angle) - 0.1 * speed], dim=-1)


def draw_states(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1


def make_solver(tableau=EULER) -> Hypersolver:
    return Hypersolver(2, tableau=tableau, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("tableau", [EULER, MIDPOINT, HEUN, RK4], ids=lambda table: table.name)
def test_it_is_the_plain_method_before_training(tableau):
    h, dt = draw_states(5, 0), torch.full((5, 1), 0.7, dtype=torch.float64)
    got = make_solver(tableau).integrate(pendulum, h, dt, substeps=3)
    expected = integrate(pendulum, h, dt, tableau=tableau, substeps=3)
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("tableau", [EULER, HEUN], ids=lambda table: table.name)
def test_a_step_has_delta_times_the_error_of_the_plain_one(tableau):
    """On states that were not trained on, at the step that was and at a half of it."""
    solver = make_solver(tableau)
    delta = solver.fit(pendulum, draw_states(256, 1), 0.4, steps=400)
    assert 0 < delta < 0.2
    h = draw_states(64, 2)
    for step in (0.4, 0.2):
        dt = torch.full((64, 1), step, dtype=torch.float64)
        exact = integrate(pendulum, h, dt, tableau=RK4, substeps=64)
        plain = (integrate(pendulum, h, dt, tableau=tableau, substeps=1) - exact).norm()
        learned = (solver.integrate(pendulum, h, dt).detach() - exact).norm()
        assert learned < 0.2 * plain
        assert learned == pytest.approx(delta * float(plain), rel=2.0)


@pytest.mark.parametrize(("tableau", "stages"), [(EULER, 1), (MIDPOINT, 2), (HEUN, 2), (RK4, 4)])
def test_k_steps_of_order_p_evaluate_the_field_k_times_p(tableau, stages):
    """Up to order 4, as Table 1 of the CfC paper has it; with the network of a hypersolver, too."""
    calls = []

    def field(state: Tensor) -> Tensor:
        calls.append(len(state))
        return pendulum(state)

    h, dt = draw_states(3, 0), torch.ones(3, 1, dtype=torch.float64)
    solver = make_solver(tableau)
    corrections = []
    solver.g.register_forward_hook(lambda *_: corrections.append(1))
    for steps in (1, 5):
        calls.clear(), corrections.clear()
        integrate(field, h, dt, tableau=tableau, substeps=steps)
        assert len(calls) == steps * stages == steps * tableau.order
        calls.clear()
        solver.integrate(field, h, dt, substeps=steps)
        assert len(calls) == steps * stages
        assert len(corrections) == steps


def test_gaps_are_those_of_each_sample_and_gradients_reach_all():
    solver = make_solver()
    solver.fit(pendulum, draw_states(64, 1), 0.4, steps=20)
    h = draw_states(2, 3).requires_grad_()
    dt = torch.tensor([[0.0], [0.3]], dtype=torch.float64, requires_grad=True)
    end = solver.integrate(pendulum, h, dt, substeps=2)
    assert torch.equal(end[0], h[0])
    assert torch.autograd.gradcheck(
        lambda h, dt: solver.integrate(pendulum, h, dt, substeps=2), (h, dt)
    )


def test_there_is_nothing_to_learn_where_steps_are_exact():
    with pytest.raises(SolverError, match="nothing to learn"):
        make_solver().fit(torch.zeros_like, draw_states(4, 0), 0.5)
    speed = torch.tensor([0.1, 0.7], dtype=torch.float64)
    with pytest.raises(SolverError, match="nothing to learn"):
        make_solver().fit(lambda h: speed.expand_as(h), draw_states(4, 0), 0.5)
    with pytest.raises(SolverError, match=r"rounding of torch\.float32.*double precision"):
        make_solver().float().fit(pendulum, draw_states(4, 0).float(), 1e-3)
    assert make_solver().fit(pendulum, draw_states(4, 0), 1e-3, steps=1) > 0
    with pytest.raises(SolverError, match="steps from these states are not finite"):
        make_solver().fit(lambda h: h / 0 * 0, draw_states(4, 0), 0.5)
    with pytest.raises(ArgumentError, match="units"):
        Hypersolver(2, units=0)
    assert math.isfinite(make_solver().fit(pendulum, draw_states(4, 0), 0.5, steps=1))
