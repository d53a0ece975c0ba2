"""The Lipschitz cell: values from its equation, spectra, contraction, draws, refusals."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays, explicit_step

from tauflow.cells import LipschitzRNNCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 7
OPTIONS = [
    {},
    {"beta": 0.3, "gamma": 0.2, "eps": 0.5, "alpha": 1.7, "init_std": 3.0},
    {"solver": "midpoint", "eps": 0.9, "alpha": 0.6, "init_std": 4.0},
    {"append_dt": True, "beta": 1.0, "gamma": 0.0},
]


def by_hand(cell, x, dt):
    """Run one sequence."""
    p, h, outputs = arrays(cell), np.zeros(N), []

    def constrained(M):
        skew = cell.beta * (M - M.T)
        return skew + (1 - cell.beta) * (M + M.T) - cell.gamma * np.eye(N)

    A, W = constrained(p["B"]), constrained(p["C"])
    for x_t, gap in zip(x, dt, strict=True):
        z = p["W_x"] @ (np.append(x_t, gap) if cell.append_dt else x_t) + p["b"]

        def field(h, z=z):
            return cell.alpha * A @ h + np.tanh(W @ h + z)

        h = explicit_step(field, h, cell.eps, cell.solver)
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_equal_the_equation(options):
    cell = LipschitzRNNCell(D, N, **options).double()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() * 3
    y, _ = RNN(cell)(x, dt=dt)
    for row in range(B):
        expected = by_hand(cell, x[row].numpy(), dt[row].numpy())
        np.testing.assert_allclose(y[row].detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert cell.uses_dt == cell.append_dt


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32)])
@pytest.mark.parametrize("append_dt", [False, True])
def test_parameter_count(D, N, append_dt):
    cell = LipschitzRNNCell(D, N, append_dt=append_dt)
    assert sum(p.numel() for p in cell.parameters()) == N * (D + append_dt) + N + 2 * N * N


@pytest.mark.parametrize("init_std", [1.0, 6.0])
def test_draws(init_std):
    cell = LipschitzRNNCell(20, 200, init_std=init_std)
    for p in (cell.B.detach(), cell.C.detach()):
        assert p.std().item() == pytest.approx(init_std / 200, rel=0.02)
        assert abs(p.mean().item()) < 0.05 * init_std / 200
        assert (p.abs() < init_std / 200).double().mean().item() == pytest.approx(0.683, abs=0.01)
    for p in (cell.W_x.detach(), cell.b.detach()):
        bound = 1 / math.sqrt(20)
        assert 0.98 * bound < p.abs().max() <= bound
        assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_beta_turns_from_symmetric_to_skew():
    M = torch.randn(N, N).double()
    for beta, imaginary, real in ((1.0, True, -0.3), (0.0, False, None)):
        cell = LipschitzRNNCell(D, N, beta=beta, gamma=0.3).double()
        spectrum = torch.linalg.eigvals(cell.constrain(M))
        assert (spectrum.imag.abs().max() > 0.1) == imaginary
        if real is not None:
            torch.testing.assert_close(spectrum.real, torch.full((N,), real).double())
    half = LipschitzRNNCell(D, N, beta=0.5, gamma=0.3).double()
    torch.testing.assert_close(half.constrain(M), M - 0.3 * torch.eye(N).double())


def test_a_linear_part_stronger_than_the_tanh_makes_states_forget():
    """With sym(A) < -|W|, two states under one input approach each other exponentially."""
    cell = LipschitzRNNCell(D, N, beta=0.9, gamma=2.0, eps=0.05).double()
    with torch.no_grad():
        cell.C.copy_(torch.eye(N) * 0.0)  # W = -gamma I, and |W| = gamma
        cell.B.copy_(-2.0 * torch.eye(N))  # sym(A) = -(0.1 * 4 + gamma) I
    x, start = torch.randn(1, 1, D).expand(2, 400, D).double(), torch.randn(2, N).double() * 5
    y, _ = RNN(cell)(x, start)
    distance = (y[0] - y[1]).norm(dim=-1)
    assert (distance[1:] <= distance[:-1] * (1 - 0.05 * 0.4) + 1e-15).all()
    assert distance[-1] < 1e-3 * distance[0]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"beta": 1.5}, ArgumentError, r"beta must be a number from 0 to 1, got 1\.5"),
        ({"gamma": -0.1}, ArgumentError, "gamma must be a number of 0 or more"),
        ({"eps": 0.0}, ArgumentError, "eps must be a number above 0"),
        ({"alpha": float("nan")}, ArgumentError, "alpha must be a finite number"),
        ({"init_std": 0.0}, ArgumentError, "init_std must be a number above 0"),
        ({"solver": "eulr"}, UnknownNameError, "Did you mean 'euler'"),
        ({"solver": "rk4"}, UnknownNameError, "Choose from: euler, midpoint"),
    ],
)
def test_refusals(options, error, match):
    with pytest.raises(error, match=match):
        LipschitzRNNCell(D, N, **options)
