"""Memories beside a flow, against NumPy from the equations, and what they become in the limit."""

import math

import numpy as np
import pytest
import torch
from cell_references import Array, arrays, explicit_step
from scipy.special import expit
from test_initialisation import glorot, orthogonal, uniform
from torch import nn

from tauflow.cells import MODELS, BidirectionalRNNCell, ODELSTMCell
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B = 3, 5, 2
GAPS = torch.tensor([[0.4, 1.3, 0.0, 0.05, 2.2], [1.0, 0.2, 3.1, 0.7, 0.0]], dtype=torch.float64)
T = GAPS.shape[1]


def perturbed(cell: AbstractCell) -> AbstractCell:
    """Move every parameter off its initial value, some of which are 0 or 1."""
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p += 0.3 * torch.randn_like(p)
    return cell


def flow(field, h: Array, dt: float, solver: str, substeps: int) -> Array:
    for _ in range(substeps):
        h = explicit_step(field, h, dt / substeps, solver)
    return h


def lstm(pre: Array, c: Array, forget_bias: float) -> tuple[Array, Array]:
    i, f, g, o = np.split(pre, 4)
    c = expit(f + forget_bias) * c + expit(i) * np.tanh(g)
    return np.tanh(c) * expit(o), c


def ode_lstm_sample(cell: AbstractCell, x: Array, gaps: Array) -> Array:
    p, h, c, outputs = arrays(cell), np.zeros(N), np.zeros(N), []
    for x_t, dt in zip(x, gaps, strict=True):
        pre = p["W_x"] @ x_t + p["W_h"] @ h + p["b"] + p.get("b_h", 0.0)
        u, c = lstm(pre, c, cell.forget_bias)
        if cell.form == "tensorflow":
            projection = p["flow.W_x"] @ u + p["flow.b"]

            def field(v: Array, projection: Array = projection) -> Array:
                return p["flow.s"] * np.tanh(projection + p["flow.W_h"] @ v) - v

            h = flow(field, h, dt, cell.solver, cell.substeps)
        else:

            def field(v: Array) -> Array:
                return p["W_2"] @ np.tanh(p["W_1"] @ v + p["b_1"]) + p["b_2"]

            h = flow(field, u, dt, cell.solver, cell.substeps)
        outputs.append(h)
    return np.stack(outputs)


def bidirectional_sample(cell: AbstractCell, x: Array, gaps: Array) -> Array:
    p, outputs = arrays(cell), []
    h, q, c = np.zeros((3, N))
    for x_t, dt in zip(x, gaps, strict=True):
        to_lstm, to_flow = np.concatenate([x_t, q, [dt]]), np.concatenate([x_t, h])
        pre = p["lstm.W_x"] @ to_lstm + p["lstm.W_h"] @ h + p["lstm.b"]
        projection = p["ct_rnn.W_x"] @ to_flow + p["ct_rnn.b"]

        def field(v: Array, projection: Array = projection) -> Array:
            rate = p["ct_rnn.s"] * np.tanh(projection + p["ct_rnn.W_h"] @ v)
            return rate - cell.ct_rnn.damping * v

        h, c = lstm(pre, c, cell.lstm.forget_bias)
        q = flow(field, q, dt, cell.ct_rnn.solver, cell.ct_rnn.substeps)
        outputs.append(h + q)
    return np.stack(outputs)


SAMPLES = {ODELSTMCell: ode_lstm_sample, BidirectionalRNNCell: bidirectional_sample}
VALUES = [
    ("ode-lstm", {}),
    ("ode-lstm", {"solver": "heun", "substeps": 2, "forget_bias": 1.0}),
    ("ode-lstm-torch", {}),
    ("ode-lstm-torch", {"solver": "midpoint", "substeps": 1, "forget_bias": 0.5}),
    ("bidirectional-rnn", {}),
    ("bidirectional-rnn", {"solver": "rk4", "substeps": 2, "damping": 0.0, "forget_bias": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), VALUES)
def test_values_follow_the_equations(name, options):
    cell = perturbed(MODELS[name].build(D, N, **options))
    x = torch.randn(B, T, D, dtype=torch.float64)
    y, _ = RNN(cell)(x, dt=GAPS)
    sample = SAMPLES[type(cell)]
    expected = np.stack([sample(cell, x[b].numpy(), GAPS[b].numpy()) for b in range(B)])
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "solver", "substeps", "forget_bias"),
    [("ode-lstm", "euler", 4, 3.0), ("ode-lstm-torch", "rk4", 3, 0.0)],
)
def test_ode_lstm_defaults_are_those_of_the_released_code(name, solver, substeps, forget_bias):
    cell = MODELS[name].build(D, N)
    assert (cell.solver, cell.substeps, cell.forget_bias) == (solver, substeps, forget_bias)


def test_without_a_vector_field_the_torch_form_is_torchs_lstm():
    cell, twin = perturbed(ODELSTMCell(D, N, form="torch")), nn.LSTMCell(D, N).double()
    with torch.no_grad():
        cell.W_2.zero_()
        cell.b_2.zero_()
        for theirs, ours in (("weight_ih", "W_x"), ("weight_hh", "W_h"), ("bias_ih", "b")):
            getattr(twin, theirs).copy_(getattr(cell, ours))
        twin.bias_hh.copy_(cell.b_h)
    x, h = torch.randn(B, D).double(), torch.randn(B, 2 * N).double()
    expected = torch.cat(twin(x, tuple(h.chunk(2, -1))), -1)
    torch.testing.assert_close(cell.step(x, h, GAPS[:, :1]), expected)


def test_a_gap_of_zero_leaves_the_output_state_of_the_tensorflow_form_alone():
    cell = perturbed(ODELSTMCell(D, N))
    x, h = torch.randn(B, D).double(), torch.randn(B, 2 * N).double()
    after = cell.step(x, h, torch.zeros(B, 1).double())
    assert torch.equal(after[:, :N], h[:, :N])
    assert not torch.isclose(after[:, N:], h[:, N:]).any()


@pytest.mark.parametrize("form", ["tensorflow", "torch"])
def test_without_recurrent_gate_weights_the_memory_does_not_see_time(form):
    cell = perturbed(ODELSTMCell(D, N, form=form))
    nn.init.zeros_(cell.W_h)
    x = torch.randn(B, T, D).double()
    (y, h), (y_slow, h_slow) = RNN(cell)(x, dt=GAPS), RNN(cell)(x, dt=3 * GAPS)
    assert torch.equal(h[:, N:], h_slow[:, N:])
    assert not torch.allclose(y, y_slow)


def test_bidirectional_rnn_has_the_settings_of_the_released_code():
    cell = BidirectionalRNNCell(D, N)
    assert (cell.ct_rnn.solver, cell.ct_rnn.substeps, cell.ct_rnn.damping) == ("euler", 4, 1.0)
    assert (cell.lstm.forget_bias, cell.lstm.append_dt, cell.lstm.init) == (1.0, True, "keras")


def test_bidirectional_rnn_is_its_two_parts_stepped_on_each_others_states():
    cell = perturbed(BidirectionalRNNCell(D, N))
    x, state = torch.randn(B, D).double(), torch.randn(B, 3 * N).double()
    h, q, c = state.split(N, -1)
    after = cell.split_state(cell.step(x, state, GAPS[:, :1]))
    h_after, c_after = cell.lstm.step(
        torch.cat([x, q], -1), torch.cat([h, c], -1), GAPS[:, :1]
    ).split(N, -1)
    torch.testing.assert_close(after["h"], h_after)
    torch.testing.assert_close(after["c"], c_after)
    q_after = cell.ct_rnn.step(torch.cat([x, h], -1), q, GAPS[:, :1])
    torch.testing.assert_close(after["q"], q_after)


COUNTS = [
    (BidirectionalRNNCell, {}, lambda D, N: 5 * D * N + 10 * N * N + 10 * N),
    (ODELSTMCell, {}, lambda D, N: 4 * D * N + 6 * N * N + 6 * N),
    (ODELSTMCell, {"form": "torch"}, lambda D, N: 4 * D * N + 6 * N * N + 10 * N),
]


@pytest.mark.parametrize(("cell", "options", "formula"), COUNTS)
@pytest.mark.parametrize(("D", "N"), [(1, 1), (3, 5), (17, 64)])
def test_parameter_counts(cell, options, formula, D, N):
    assert sum(p.numel() for p in cell(D, N, **options).parameters()) == formula(D, N)


def test_bidirectional_rnn_draws():
    cell = BidirectionalRNNCell(20, 60)
    for part in (cell.lstm, cell.ct_rnn):
        glorot(part.W_x)
        orthogonal(part.W_h)
        assert not part.b.any()
    assert (cell.ct_rnn.s == 1).all()


def test_ode_lstm_draws():
    cell = ODELSTMCell(20, 60)
    for weight in (cell.W_x, cell.flow.W_x):
        glorot(weight)
    for weight in (cell.W_h, cell.flow.W_h):
        orthogonal(weight)
    assert not cell.b.any()
    assert not cell.flow.b.any()
    assert (cell.flow.s == 1).all()
    for parameter in ODELSTMCell(20, 60, form="torch").parameters():
        uniform(parameter, -1 / math.sqrt(60), 1 / math.sqrt(60))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"form": "keras"}, UnknownNameError, "form='keras' is unknown.*tensorflow, torch"),
        ({"solver": "rk5"}, UnknownNameError, r"solver='rk5' is unknown\. Did you mean 'rk4'"),
        ({"substeps": 0}, ArgumentError, "substeps must be at least 1, got 0"),
        ({"forget_bias": float("nan")}, ArgumentError, "forget_bias must be a finite number"),
    ],
)
def test_ode_lstm_refuses(options, error, match):
    with pytest.raises(error, match=match):
        ODELSTMCell(D, N, **options)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"solver": "rk5"}, UnknownNameError, r"solver='rk5' is unknown\. Did you mean 'rk4'"),
        ({"substeps": 0}, ArgumentError, "substeps must be at least 1, got 0"),
        ({"damping": -1.0}, ArgumentError, "damping must be a number of 0 or more"),
        ({"forget_bias": float("inf")}, ArgumentError, "forget_bias must be a finite number"),
    ],
)
def test_bidirectional_rnn_refuses(options, error, match):
    with pytest.raises(error, match=match):
        BidirectionalRNNCell(D, N, **options)
