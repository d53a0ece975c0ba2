"""Gradients of adaptive solves: through the steps, and by a solve backwards."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tauflow.errors import ArgumentError, SolverError
from tauflow.solvers import integrate_adaptive, integrate_path

pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")

A = torch.tensor([[-0.5, 1.0, 0.2], [-1.0, -0.3, 0.1], [0.0, 0.4, -0.8]], dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def pulled(leaves: list[Tensor], **options: object) -> Tensor:
    h, gaps, weight, offset = leaves
    end, _ = integrate_adaptive(
        lambda v: torch.tanh(v @ weight.T + offset) - 0.5 * v, h, gaps, **options
    )
    return (end * torch.linspace(-1, 2, end.numel()).view_as(end)).sum()


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3"])
def test_gradients_are_finite_differences_and_the_adjoint_agrees(method):
    """State, time steps (0 too), a shared weight, and a drive that each sample has for itself."""
    leaves = [normal(3, 2), column(0.0, 0.7, 1.5), normal(2, 2, seed=1), normal(3, 2, seed=2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    options = {"method": method, "rtol": 1e-9, "atol": 1e-9, "max_steps": 10_000}
    direct = torch.autograd.grad(pulled(leaves, **options), leaves)
    listed = {"adjoint": True, "parameters": leaves[2:]}
    backwards = torch.autograd.grad(pulled(leaves, **options, **listed), leaves)
    for index, (grad, other) in enumerate(zip(direct, backwards, strict=True)):
        torch.testing.assert_close(grad, other, rtol=1e-6, atol=1e-6)
        for place in np.ndindex(*grad.shape):
            nudged = [leaf.detach().clone() for leaf in leaves]
            if index == 1 and place == (0, 0):
                continue  # no time step below zero
            nudged[index][place] += 1e-4
            up = pulled(nudged, **options)
            nudged[index][place] -= 2e-4
            slope = (up - pulled(nudged, **options)) / 2e-4
            torch.testing.assert_close(grad[place], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("curved", [False, True])
def test_the_adjoint_s_gradients_may_be_differentiated(curved):
    """With a loss linear in the end too, whose gradient there is constant."""
    leaves = [normal(3, 2), column(0.0, 0.7, 1.5), normal(2, 2, seed=1), normal(3, 2, seed=2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    gradients = []
    for options in ({}, {"adjoint": True, "parameters": leaves[2:]}):
        loss = pulled(leaves, rtol=1e-9, atol=1e-9, max_steps=10_000, **options)
        loss = loss.square() if curved else loss
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        gradients.append([*first, *torch.autograd.grad(penalty, leaves)])
    for value, other in zip(*gradients, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-6, atol=1e-6)


def test_only_what_needs_a_gradient_is_differentiated_again():
    h, gap = normal(2, 3).requires_grad_(), column(1.0, 2.0)
    weight = A.clone()
    derivatives = []
    for options in ({}, {"adjoint": True, "parameters": (weight,)}):
        end, _ = integrate_adaptive(lambda v: torch.tanh(v @ weight.T), h, gap, **options)
        (slope,) = torch.autograd.grad(end.sum(), h, create_graph=True)
        (again,) = torch.autograd.grad(slope.square().sum(), h)
        derivatives.append(again)
    assert derivatives[0].any()
    torch.testing.assert_close(*derivatives)


def test_a_gap_of_zero_has_the_gradient_of_its_beginning():
    """At dt = 0 the end moves as the field says."""
    for adjoint in (False, True):
        h, gap = normal(2, 3), torch.zeros(2, 1).double().requires_grad_()
        end, _ = integrate_adaptive(lambda v: v @ A.T, h, gap, adjoint=adjoint)
        assert torch.equal(end, h)
        (grad,) = torch.autograd.grad(end.sum(), gap)
        torch.testing.assert_close(grad, (h @ A.T).sum(-1, keepdim=True))


def test_the_adjoint_does_not_mind_the_scale_of_the_loss():
    h, gap = normal(2, 3).requires_grad_(), column(1.0, 2.0)
    end, _ = integrate_adaptive(lambda v: v @ A.T, h, gap, adjoint=True)
    (grad,) = torch.autograd.grad(end.sum(), h, retain_graph=True)
    (small,) = torch.autograd.grad((1e-9 * end).sum(), h)
    torch.testing.assert_close(1e-9 * grad, small, rtol=1e-9, atol=0)


def test_the_adjoint_refuses_parameters_it_was_not_told_of():
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    offset = second(torch.ones(3))
    options = {"adjoint": True, "parameters": tuple(first.parameters())}
    h, gap = torch.zeros(2, 3), torch.ones(2, 1)
    with pytest.raises(ArgumentError, match=r"2 tensor\(s\).*not in parameters.*\(3, 3\)"):
        integrate_adaptive(lambda v: first(v) + offset, h, gap, **options)
    for listed in ((offset,), tuple(second.parameters())):  # a computed tensor, or what made it
        options["parameters"] = (*first.parameters(), *listed)
        end, _ = integrate_adaptive(lambda v: first(v) + offset, h, gap, **options)
        end.sum().backward(retain_graph=True)
    assert second.weight.grad.abs().sum() > 0


def through_a_drive(listed: str | None) -> list[Tensor]:
    """Return gradients where the field has a weight, and a drive that was computed from it."""
    weight, bias = normal(3, 6).requires_grad_(), normal(2, 3, seed=1).requires_grad_()
    left, right = weight.chunk(2, dim=1)
    offset = bias @ left
    leaves, parts = (weight, bias), (left, right)
    parameters = {"leaves": leaves, "twice": leaves * 2, "parts": (*parts, bias)}
    parameters |= {"both": (*leaves, offset), "nested": (*parts, offset), "some": (left, bias)}
    options = {} if listed is None else {"adjoint": True, "parameters": parameters[listed]}
    end, _ = integrate_adaptive(
        lambda v: torch.tanh(v @ right + offset),
        bias.detach(),
        column(0.5, 1.0),
        rtol=1e-7,
        **options,
    )
    return list(torch.autograd.grad(end.square().sum(), leaves))


@pytest.mark.parametrize("method", ["dopri5", "bosh3", "adaptive_heun"])
def test_a_path_moves_with_its_times_as_the_field_says(method):
    """At time 0 too, where a first state is copied, and where a row has no other time."""
    h = normal(2, 3)
    t = torch.tensor([[0.0, 0.3, 0.3, 1.2], [0.0, 0.0, 0.0, 0.0]]).double().requires_grad_()
    calls, pull = [], normal(2, 4, 3, seed=1)

    def field(v: Tensor) -> Tensor:
        calls.append(v)
        return torch.tanh(v @ A.T)

    options = {"method": method, "rtol": 1e-5, "atol": 1e-5, "max_steps": 10_000}
    path, statistics = integrate_path(field, h, t, **options)
    assert statistics.evaluations == len(calls)
    assert torch.equal(path[t == 0], h[[0, 1, 1, 1, 1]])
    (grad,) = torch.autograd.grad((path * pull).sum(), t)
    torch.testing.assert_close(grad, (field(path.detach()) * pull).sum(-1), rtol=1e-2, atol=1e-2)


def test_a_failed_solve_over_gaps_with_gradients_says_so():
    gap = column(2.0).requires_grad_()
    with pytest.raises(SolverError, match="in sample 0 at time"):
        integrate_adaptive(lambda v: v * v, torch.ones(1, 1).double(), gap)


@pytest.mark.parametrize("listed", ["leaves", "twice", "parts"])
def test_the_adjoint_counts_every_parameter_once(listed):
    for gradient, other in zip(through_a_drive(listed), through_a_drive(None), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("both", "another one that it was computed from.*Leave out the computed one"),
        ("nested", "another one that it was computed from.*Leave out the computed one"),
        ("some", r"1 tensor\(s\).*not in parameters.*\(3, 6\)"),
    ],
)
def test_the_adjoint_refuses_what_it_would_count_twice_or_miss(listed, message):
    """Half of a split says nothing of the other half."""
    with pytest.raises(ArgumentError, match=message):
        through_a_drive(listed)


def test_a_failed_backward_solve_says_so():
    rate = torch.ones(1, 1).double()
    h = normal(1, 3).requires_grad_()
    end, _ = integrate_adaptive(lambda v: rate * v, h, column(2.0), adjoint=True)
    rate.fill_(torch.inf)  # behind the solver's back
    with pytest.raises(SolverError, match=r"integrate_adaptive \(backward\): .* in sample 0"):
        end.sum().backward()
