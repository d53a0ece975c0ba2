"""The ODE-RNN of the Latent ODE paper against NumPy, and its flow against the exact one."""

import numpy as np
import pytest
import torch
from cell_references import explicit_step
from irregular import B, D, N, parameter_count, randomised, reference, run, sequence
from scipy.special import expit

from tauflow.cells import RubanovaODERNNCell
from tauflow.errors import ArgumentError, UnknownNameError

SIZES = {"ode_units": 5, "gru_units": 3}


def model(layers, solver, substeps, G=SIZES["gru_units"]):
    def outputs(p, xs, gaps, observed):
        def f(y):
            for k in range(layers + 2):
                y = p[f"flow.{2 * k}.weight"] @ y + p[f"flow.{2 * k}.bias"]
                y = np.tanh(y) if k < layers + 1 else y
            return y

        def mlp(block, V, b, ys, xm):
            rows = slice(block * G, (block + 1) * G)
            W = np.concatenate([p["W_ur"], p["W_n"]])[rows]
            return V @ np.tanh(W @ ys + p["W_x"][rows] @ xm + p["b"][rows]) + b

        y, s, states = np.zeros(N), np.zeros(N), []
        for x, dt, m in zip(xs, gaps, observed, strict=True):
            for _ in range(substeps):
                y = explicit_step(f, y, dt / substeps, solver)
            if m.any():
                xm = np.concatenate([np.where(m, x, 0), m])
                u = expit(mlp(0, p["V_u"], p["b_u"], np.append(y, s), xm))
                r = expit(mlp(1, p["V_r"], p["b_r"], np.append(y, s), xm))
                n, nu = np.split(mlp(2, p["V_n"], p["b_n"], np.append(r * y, r * s), xm), 2)
                y, s = (1 - u) * n + u * y, np.abs((1 - u) * np.abs(nu) + u * s)
            states.append(np.append(y, s))
        return states

    return outputs


@pytest.mark.parametrize(
    ("layers", "solver", "substeps"), [(1, "euler", 4), (0, "euler", 1), (2, "rk4", 2)]
)
def test_values(layers, solver, substeps):
    cell = RubanovaODERNNCell(D, N, **SIZES, ode_layers=layers, solver=solver, substeps=substeps)
    randomised(cell)
    x, dt, observed = sequence()
    expected = reference(cell, model(layers, solver, substeps), x, dt, observed)
    with torch.no_grad():
        y, h = run(cell, x, dt, observed)
    np.testing.assert_allclose(y.numpy(), expected[..., :N], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(h.numpy(), expected[:, -1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("D", "N", "U", "L", "G"), [(1, 1, 1, 0, 1), (7, 32, 9, 1, 4)])
def test_parameter_counts(D, N, U, L, G):
    cell = RubanovaODERNNCell(D, N, ode_units=U, ode_layers=L, gru_units=G)
    flow = 2 * N * U + U + N + L * (U * U + U)
    assert parameter_count(cell) == flow + 3 * G * (2 * N + 2 * D + 1) + 4 * (N * G + N)


def linear_flow(substeps, solver="euler"):
    """Return a cell whose flow is all but linear, and the matrix of that flow."""
    cell = RubanovaODERNNCell(D, N, ode_layers=0, ode_units=N, solver=solver, substeps=substeps)
    cell = randomised(cell, scale=0.3)
    small = 1e-5  # where tanh is the identity
    with torch.no_grad():
        cell.flow[0].weight.mul_(small)
        cell.flow[2].weight.div_(small)
        for layer in (cell.flow[0], cell.flow[2]):
            layer.bias.zero_()
    return cell, cell.flow[2].weight @ cell.flow[0].weight


def test_a_step_without_observations_follows_the_flow():
    cell, A = linear_flow(substeps=16, solver="rk4")
    h, nothing = torch.randn(B, 2 * N).double(), torch.zeros(B, D, dtype=torch.bool)
    dt = torch.tensor([[0.0], [0.7], [3.0]]).double()
    x = torch.full((B, D), torch.nan).double()
    after = cell.step(x, h, dt, nothing)
    exact = torch.einsum("bij,bj->bi", torch.matrix_exp(A * dt[:, :, None]), h[:, :N])
    torch.testing.assert_close(after[:, :N], exact, rtol=1e-6, atol=1e-6)
    assert torch.equal(after[:, N:], h[:, N:])
    assert torch.equal(after[0], h[0])


def test_the_spread_is_never_negative():
    cell, (x, dt, observed) = randomised(RubanovaODERNNCell(D, N), scale=2.0), sequence()
    h = -torch.rand(B, 2 * N).double()
    for k in (1, 2):
        observed[:, k] = True
        h = cell.step(x[:, k], h, dt[:, k], observed[:, k])
        assert (h[:, N:] >= 0).all()


def test_draws():
    cell = RubanovaODERNNCell(20, 30)
    for name, p in cell.named_parameters():
        if p.ndim == 1:
            assert not p.any(), name
        else:
            assert p.mean().item() == pytest.approx(0, abs=0.5 / p.numel() ** 0.5), name
            assert p.std().item() == pytest.approx(0.1, rel=4 / p.numel() ** 0.5), name


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"ode_units": 0}, ArgumentError, "ode_units must be at least 1, got 0"),
        ({"ode_layers": -1}, ArgumentError, "ode_layers must be at least 0, got -1"),
        ({"gru_units": 0}, ArgumentError, "gru_units must be at least 1, got 0"),
        ({"substeps": 0}, ArgumentError, "substeps must be at least 1, got 0"),
        ({"solver": "eular"}, UnknownNameError, "solver='eular' is unknown.*'euler'"),
    ],
)
def test_wrong_options(options, error, match):
    with pytest.raises(error, match=match):
        RubanovaODERNNCell(D, N, **options)
