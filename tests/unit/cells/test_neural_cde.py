"""The neural CDE against its spline and its equation, solved finely."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicHermiteSpline

import tauflow
from tauflow.cells import NeuralCDECell

D, N = 2, 3


def make_cell(**options):
    torch.manual_seed(0)
    return NeuralCDECell(D, N, units=5, layers=2, **options).double()


def solve(cell, x, t):
    """Return z at every sample, by another solver along SciPy's spline."""
    p = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    differences = np.diff(x, axis=0) / np.diff(t)[:, None]
    slopes = np.concatenate([differences[:1], differences])
    rate = CubicHermiteSpline(t, x, slopes).derivative()

    def velocity(time, z):
        for layer in (0, 2, 4):
            z = p[f"field.{layer}.weight"] @ z + p[f"field.{layer}.bias"]
            z = np.maximum(z, 0) if layer < 4 else np.tanh(z)
        return z.reshape(N, D + 1) @ np.concatenate([[1.0], rate(time)])

    states = [p["W_0"] @ x[0] + p["b_0"]]
    for begin, end in pairwise(t):
        # a quadratic between samples, whose ends belong to this piece
        times = begin + 1e-12, end - 1e-12
        states.append(solve_ivp(velocity, times, states[-1], rtol=1e-10, atol=1e-12).y[:, -1])
    return np.stack(states)


@pytest.mark.parametrize(("solver", "substeps"), [("rk4", 40), ("midpoint", 400)])
def test_states_follow_the_path_of_the_spline(solver, substeps):
    cell = make_cell(solver=solver, substeps=substeps)
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(6, D)), np.cumsum(rng.uniform(0.2, 1.5, 6))
    h, states = cell.initial_state(torch.zeros(1, D).double()), []
    dt = np.diff(t, prepend=t[0] - 3.0)
    for k in range(6):
        h = cell.step(torch.tensor(x[k : k + 1]), h, torch.tensor([[dt[k]]]))
        states.append(cell.readout(h)[0].detach().numpy())
    np.testing.assert_allclose(
        np.stack(states), solve(cell, x, t), rtol=1e-5, atol=1e-5
    )  # kinks of ReLU


def test_equal_times_take_the_jump_and_keep_the_slope():
    cell = make_cell(solver="rk4", substeps=50)
    x = torch.randn(3, 1, D, dtype=torch.float64)
    h = cell.initial_state(x[0])
    for k in range(2):
        h = cell.step(x[k], h, torch.ones(1, 1).double())
    slope = cell.split_state(h)["slope"]
    after = cell.step(x[2], h, torch.zeros(1, 1).double())
    assert torch.equal(cell.split_state(after)["slope"], slope)
    # along a straight jump and along any other path to the same end in no time
    z = cell.readout(h)
    field, n = cell.field, 4000
    for _ in range(n):
        matrix = torch.tanh(field(z)).view(1, N, D + 1)[..., 1:]
        z = z + (matrix @ (x[2] - x[1])[..., None] / n).squeeze(-1)
    torch.testing.assert_close(cell.readout(after), z, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", ["euler", "midpoint", "heun", "rk4", "dopri5"])
def test_a_jump_counts_once_with_every_solver(solver):
    """A constant field adds up the changes of the path: Z - z_0 = A (X - x_0), whatever it does."""
    if solver == "dopri5":
        pytest.importorskip("torchode")
    rnn = tauflow.NeuralCDE(D, N, units=5, solver=solver).double()
    with torch.no_grad():
        rnn.cell.field[-1].weight.zero_()
    A = torch.tanh(rnn.cell.field[-1].bias).view(N, D + 1)
    x = torch.randn(2, 5, D).double().cumsum(1)
    dt = torch.tensor([[0.0, 1.5, 0.0, 0.0, 0.0], [2.0, 0.5, 0.0, 0.0, 0.0]]).double()
    path = torch.cat([(dt.cumsum(1) - dt[:, :1])[..., None], x], -1)
    z_0 = x[:, :1] @ rnn.cell.W_0.T + rnn.cell.b_0
    expected = z_0 + (path - path[:, :1]) @ A.T
    torch.testing.assert_close(rnn(x, dt=dt)[0], expected)
    h, stepped = None, []
    for k in range(5):
        y, h = rnn.step(x[:, k], h, dt[:, k])
        stepped.append(y)
    torch.testing.assert_close(torch.stack(stepped, 1), expected)
    single, stream = rnn.float(), rnn.float().stream(2)  # traced and compiled
    x, dt = x.float(), dt.float()
    torch.testing.assert_close(single(x, dt=dt)[0], expected.float(), rtol=1e-5, atol=1e-5)
    streamed = [stream.step(x[:, k], dt[:, k]).clone() for k in range(5)]
    torch.testing.assert_close(torch.stack(streamed, 1), expected.float(), rtol=1e-5, atol=1e-5)


def test_an_adaptive_solver_agrees_with_a_fine_fixed_one():
    pytest.importorskip("torchode")
    fine = make_cell(solver="rk4", substeps=400)
    adaptive = fine.replace(solver="dopri5", rtol=1e-8, atol=1e-10)
    h = torch.cat([torch.randn(4, N + 2 * D), torch.full((4, 1), 2.0)], 1).double()
    x, dt = torch.randn(4, D).double(), torch.rand(4, 1).double() + 0.1
    torch.testing.assert_close(adaptive.step(x, h, dt), fine.step(x, h, dt), rtol=1e-6, atol=1e-6)


def test_a_sequence_starts_anew_from_its_first_sample():
    layer = tauflow.NeuralCDE(D, 4)
    x = torch.randn(2, 5, D)
    first, _ = layer(x[:, :1], dt=torch.full((2, 1, 1), 7.0))
    cell = layer.layers[0].cell if hasattr(layer, "layers") else layer.cell
    torch.testing.assert_close(first[:, 0], x[:, 0] @ cell.W_0.T + cell.b_0)
