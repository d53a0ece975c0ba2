"""RNN-Decay, exponential as defined and linear as released."""

import math

import numpy as np
import pytest
import torch
from cell_references import softplus
from irregular import D, N, parameter_count, randomised, reference, run, sequence
from test_initialisation import glorot, orthogonal, uniform

from tauflow.cells import ElmanCell, LinearDecayRNNCell, RNNDecayCell


def exponential(p, xs, gaps):
    h, ys = np.zeros(N), []
    for x, dt in zip(xs, gaps, strict=True):
        decayed = h * np.exp(-softplus(p["raw_tau"]) * dt)
        h = np.tanh(p["W_x"] @ x + p["W_h"] @ decayed + p["b"])
        ys.append(h)
    return ys


def linear(p, xs, gaps):
    h, ys = np.zeros(N), []
    for x, dt in zip(xs, gaps, strict=True):
        hidden = np.tanh(np.concatenate([p["W_x"], p["W_h"]], 1) @ np.append(x, h) + p["b_1"])
        h = p["W_2"] @ hidden + p["b_2"] - dt * p["tau"]
        ys.append(h)
    return ys


@pytest.mark.parametrize(
    ("cell_class", "model"), [(RNNDecayCell, exponential), (LinearDecayRNNCell, linear)]
)
def test_values(cell_class, model):
    cell, (x, dt, _) = randomised(cell_class(D, N)), sequence()
    with torch.no_grad():
        y, _ = run(cell, x, dt)
    np.testing.assert_allclose(y.numpy(), reference(cell, model, x, dt), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
def test_parameter_counts(D, N):
    assert parameter_count(RNNDecayCell(D, N)) == D * N + N * N + 2 * N
    assert parameter_count(LinearDecayRNNCell(D, N)) == N * (D + N) + N * N + 3 * N


def test_without_gaps_it_is_elmans_network():
    cell, (x, dt, _) = randomised(RNNDecayCell(D, N)), sequence()
    elman = ElmanCell(D, N).double()
    elman.load_state_dict({name: getattr(cell, name) for name in ("W_x", "W_h", "b")})
    torch.testing.assert_close(run(cell, x, 0 * dt), run(elman, x, 0 * dt))


def test_a_long_gap_forgets_and_the_rates_stay_positive():
    cell = randomised(RNNDecayCell(D, N), scale=5.0)
    assert (cell.raw_tau < 0).any()
    assert (cell.tau > 0).all()
    x, h = torch.randn(3, D).double(), torch.randn(3, N).double()
    long = torch.full((3, 1), 1e9).double()
    torch.testing.assert_close(cell.step(x, h, long), cell.step(x, 0 * h, long))


def test_the_released_drift_is_linear_in_the_gap():
    cell, (x, dt, _) = randomised(LinearDecayRNNCell(D, N)), sequence()
    h = torch.randn(3, N).double()
    moved = cell.step(x[:, 0], h, dt[:, 1]) - cell.step(x[:, 0], h, 0 * dt[:, 1])
    torch.testing.assert_close(moved, -dt[:, 1] * cell.tau)


def test_draws():
    decay, released = RNNDecayCell(20, 60), LinearDecayRNNCell(20, 60)
    glorot(decay.W_x)
    orthogonal(decay.W_h)
    torch.testing.assert_close(decay.tau, torch.full((60,), 0.1))
    glorot(torch.cat([released.W_x, released.W_h], 1))
    bound = math.sqrt(6 / 140)
    uniform(released.W_x, -bound, bound)
    glorot(released.W_2)
    assert (released.tau == 0.1).all()
    assert not any(b.any() for b in (decay.b, released.b_1, released.b_2))
