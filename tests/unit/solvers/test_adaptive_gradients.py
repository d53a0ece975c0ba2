"""Gradients of adaptive solves through their steps."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tauflow.errors import SolverError
from tauflow.solvers import integrate_adaptive, integrate_path

pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")

A = torch.tensor([[-0.5, 1.0, 0.2], [-1.0, -0.3, 0.1], [0.0, 0.4, -0.8]], dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def pulled(leaves: list[Tensor], **options: object) -> Tensor:
    h, gaps, weight, drive = leaves
    end, _ = integrate_adaptive(
        lambda v: torch.tanh(v @ weight.T + drive) - 0.5 * v, h, gaps, **options
    )
    return (end * torch.linspace(-1, 2, end.numel()).view_as(end)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3"])
def test_gradients_are_finite_differences(method):
    """State, gaps (zero too), a shared weight, and a drive that each sample has for itself."""
    leaves = [normal(3, 2), column(0.0, 0.7, 1.5), normal(2, 2, seed=1), normal(3, 2, seed=2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    options = {"method": method, "rtol": 1e-9, "atol": 1e-9, "max_steps": 10_000}
    direct = torch.autograd.grad(pulled(leaves, **options), leaves)
    for index, grad in enumerate(direct):
        for place in np.ndindex(*grad.shape):
            nudged = [leaf.detach().clone() for leaf in leaves]
            if index == 1 and place == (0, 0):
                continue  # no gap below zero
            nudged[index][place] += 1e-4
            up = pulled(nudged, **options)
            nudged[index][place] -= 2e-4
            slope = (up - pulled(nudged, **options)) / 2e-4
            torch.testing.assert_close(grad[place], slope, rtol=1e-5, atol=1e-6)


def test_a_gap_of_zero_has_the_gradient_of_its_beginning():
    """At dt = 0 the end moves as the field says."""
    h, gap = normal(2, 3), torch.zeros(2, 1).double().requires_grad_()
    end, _ = integrate_adaptive(lambda v: v @ A.T, h, gap)
    assert torch.equal(end, h)
    (grad,) = torch.autograd.grad(end.sum(), gap)
    torch.testing.assert_close(grad, (h @ A.T).sum(-1, keepdim=True))


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
