"""The coupled oscillatory cell: values from its equation, bounded states, draws, refusals."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays

from tauflow.cells import CoRNNCell
from tauflow.errors import ArgumentError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 7
OPTIONS = [
    {},
    {"step_size": 0.3, "gamma": 1.1, "eps": 0.4},
    {"append_dt": True, "gamma": 0.0, "eps": 0.0},
    {"implicit_damping": True, "step_size": 0.2},
]


def by_hand(cell, x, dt):
    """Run one sequence, oscillator by oscillator."""
    p, s, outputs = arrays(cell), cell.step_size, []
    y, z = np.zeros(N), np.zeros(N)
    for x_t, gap in zip(x, dt, strict=True):
        if cell.append_dt:
            x_t = np.append(x_t, gap)
        force = np.tanh(p["W_h"][:, :N] @ y + p["W_h"][:, N:] @ z + p["W_x"] @ x_t + p["b"])
        if cell.implicit_damping:
            z = (z + s * (force - cell.gamma * y)) / (1 + s * cell.eps)
        else:
            z = z + s * (force - cell.gamma * y - cell.eps * z)
        y = y + s * z
        outputs.append(y)
    return np.stack(outputs), np.concatenate([y, z])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_equal_the_equation(options):
    cell = CoRNNCell(D, N, **options).double()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() * 3
    y, h = RNN(cell)(x, dt=dt)
    for row in range(B):
        y_hand, h_hand = by_hand(cell, x[row].numpy(), dt[row].numpy())
        np.testing.assert_allclose(y[row].detach().numpy(), y_hand, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(h[row].detach().numpy(), h_hand, rtol=1e-10, atol=1e-12)
    assert cell.uses_dt == cell.append_dt


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32)])
@pytest.mark.parametrize("append_dt", [False, True])
def test_parameter_count(D, N, append_dt):
    cell = CoRNNCell(D, N, append_dt=append_dt)
    assert sum(p.numel() for p in cell.parameters()) == N * (D + append_dt + 2 * N) + N


def test_draws_are_those_of_linear_layers():
    cell = CoRNNCell(20, 300)
    for p, fan_in in ((cell.W_x, 20), (cell.b, 20), (cell.W_h, 600)):
        bound, values = 1 / math.sqrt(fan_in), p.detach()
        assert 0.98 * bound < values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert abs(values.mean().item()) < 0.1 * bound


@pytest.mark.parametrize("options", [{}, {"implicit_damping": True, "step_size": 0.1}], ids=str)
def test_states_keep_the_bound_of_a_forced_damped_oscillator(options):
    """The force is at most 1, so y cannot exceed the summed response to a unit push."""
    cell = CoRNNCell(D, N, **options).double()
    s, gamma, eps = cell.step_size, cell.gamma, cell.eps
    shrink = 1 / (1 + s * eps) if cell.implicit_damping else 1.0
    push = s * shrink
    z_row = shrink * np.array([-s * gamma, 1.0 if cell.implicit_damping else 1 - s * eps])
    flow = np.stack([np.array([1.0, 0.0]) + s * z_row, z_row])  # of (y, z) without a force
    response, bound = np.array([s * push, push]), 0.0
    for _ in range(3000):
        bound += abs(response[0])
        response = flow @ response
    with torch.no_grad():
        for p in cell.parameters():
            p.mul_(100)  # saturated forces, of either sign
    y, _ = RNN(cell)(10 * torch.randn(20, 500, D).double())
    assert y.abs().max() <= bound
    assert y.abs().max() > 0.3 * bound


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"step_size": 0.0}, r"step_size must be a number above 0, got 0\.0"),
        ({"step_size": float("inf")}, "step_size must be a number above 0, got inf"),
        ({"gamma": -1.0}, r"gamma must be a number of 0 or more, got -1\.0"),
        ({"eps": float("nan")}, "eps must be a number of 0 or more, got nan"),
        pytest.param({"append_dt": 1}, "append_dt must be True or False"),
        pytest.param({"implicit_damping": 1}, "implicit_damping must be True"),
    ],
)
def test_refusals(options, match):
    with pytest.raises(ArgumentError, match=match):
        CoRNNCell(D, N, **options)
