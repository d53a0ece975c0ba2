"""CT-RNN, ODE-RNN, neural ODE and GRU-ODE: values, the exact flow, draws and errors."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays, explicit_step, softplus
from scipy.integrate import solve_ivp
from scipy.special import expit
from test_initialisation import glorot, orthogonal, uniform
from torch import Tensor

from tauflow.cells import MODELS, CTRNNCell, GRUODECell
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B = 3, 5, 2
GAPS = torch.tensor([[0.4, 1.3, 0.0, 0.05, 2.2], [1.0, 0.2, 3.1, 0.7, 0.0]], dtype=torch.float64)
T = GAPS.shape[1]
PHIS = {"tanh": np.tanh, "sigmoid": expit}


def perturbed(cell: AbstractCell) -> AbstractCell:
    """Move every parameter off its initial value, some of which are 0 or 1."""
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p += 0.3 * torch.randn_like(p)
    return cell


def ct_rnn_field(cell: AbstractCell, x: np.ndarray):
    p, phi = arrays(cell), PHIS[cell.options["activation"]]
    s = p.get("s", np.ones(N))
    kappa = 1 / softplus(p["raw_tau"]) if "raw_tau" in p else cell.damping
    return lambda h: s * phi(p["W_x"] @ x + p["W_h"] @ h + p["b"]) - kappa * h


def gru_ode_field(cell: AbstractCell, x: np.ndarray):
    p = arrays(cell)
    blocks = np.split(p["W_x"] @ x + p["b"], 3 if cell.form == "full" else 2)

    def field(h: np.ndarray) -> np.ndarray:
        gates = [
            expit(a + W @ h)
            for a, W in zip(blocks[:-1], np.split(p["W_h"], len(blocks) - 1), strict=True)
        ]
        r, z = gates if cell.form == "full" else (gates[0], gates[0])
        g = np.tanh(blocks[-1] + p["W_g"] @ (r * h))
        return (1 - z) * (g - h)

    return field


FIELDS = {CTRNNCell: ct_rnn_field, GRUODECell: gru_ode_field}


def reference(cell: AbstractCell, x: Tensor) -> np.ndarray:
    """Run the sequence sample by sample, sub-step by sub-step."""
    outputs = np.zeros((B, T, N))
    for b in range(B):
        h = np.zeros(N)
        for t in range(T):
            field = FIELDS[type(cell)](cell, x[b, t].numpy())
            fixed = cell.options.get("step_size")
            d = GAPS[b, t].item() / cell.flow_solver.substeps if fixed is None else fixed
            for _ in range(cell.flow_solver.substeps):
                h = explicit_step(field, h, d, cell.flow_solver.solver)
                if (clip := cell.options.get("clip")) is not None:
                    h = np.minimum(np.maximum(h, -clip), clip)
            outputs[b, t] = h
    return outputs


CT_RNN_VALUES = [
    ("ct-rnn", {}, "rk4", 3, 1.0, None),
    ("ct-rnn", {"solver": "heun", "damping": 0.3, "substeps": 2}, "heun", 2, 0.3, None),
    ("ct-rnn", {"solver": "midpoint", "activation": "sigmoid"}, "midpoint", 3, 1.0, None),
    ("ct-rnn", {"solver": "euler", "scale": False, "clip": 0.4}, "euler", 3, 1.0, None),
    ("ct-rnn", {"train_tau": True, "damping": 0.5}, "rk4", 3, 0.5, None),
    ("ct-rnn-ltc", {"train_tau": True}, "euler", 6, 1.0, 0.1),
    ("ode-rnn", {}, "rk4", 3, 0.0, None),
    ("ct-rnn-ltc", {}, "euler", 6, 1.0, 0.1),
    ("neural-ode", {}, "rk4", 6, 0.0, 0.1),
    ("neural-ode", {"clip": 0.4}, "rk4", 6, 0.0, 0.1),
]


GRU_ODE_VALUES = [
    ({}, "euler", 4),
    ({"form": "minimal"}, "euler", 4),
    ({"solver": "rk4", "substeps": 2}, "rk4", 2),
    ({"form": "minimal", "solver": "midpoint"}, "midpoint", 4),
]


@pytest.mark.parametrize(
    ("name", "options", "solver", "substeps", "damping", "step_size"), CT_RNN_VALUES
)
def test_ct_rnn_follows_the_equation(name, options, solver, substeps, damping, step_size):
    cell = perturbed(MODELS[name].build(D, N, **options))
    assert (cell.flow_solver.solver, cell.flow_solver.substeps, cell.damping) == (
        solver,
        substeps,
        damping,
    )
    assert cell.step_size == step_size
    assert cell.uses_dt == (step_size is None)
    assert cell.is_flow == (step_size is None and "clip" not in options)
    check_values(cell)


@pytest.mark.parametrize(("options", "solver", "substeps"), GRU_ODE_VALUES)
def test_gru_ode_follows_the_equation(options, solver, substeps):
    cell = perturbed(MODELS["gru-ode"].build(D, N, **options))
    assert (cell.flow_solver.solver, cell.flow_solver.substeps, cell.is_flow) == (
        solver,
        substeps,
        True,
    )
    check_values(cell)


def check_values(cell: AbstractCell) -> None:
    x = torch.randn(B, T, D, dtype=torch.float64)
    y, _ = RNN(cell)(x, dt=GAPS)
    np.testing.assert_allclose(y.detach().numpy(), reference(cell, x), rtol=1e-11, atol=1e-13)


FLOWS = {
    "ct-rnn": (CTRNNCell, {}),
    "ode-rnn": (CTRNNCell, {"damping": 0.0, "scale": False}),
    "gru-ode": (GRUODECell, {}),
    "gru-ode-minimal": (GRUODECell, {"form": "minimal"}),
}
ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4}


def example(cell: AbstractCell) -> tuple[Tensor, Tensor, Tensor]:
    x, h = torch.randn(B, D).double(), torch.rand(B, cell.state_size).double() - 0.5
    return x, h, torch.tensor([[0.8], [1.5]]).double()


@pytest.mark.parametrize("name", FLOWS)
def test_many_substeps_reach_the_exact_flow(name):
    cell_class, options = FLOWS[name]
    cell = perturbed(cell_class(D, N, **options, solver="rk4", substeps=200))
    x, h, gap = example(cell)
    actual = cell.step(x, h, gap).detach().numpy()
    for b in range(B):
        field = FIELDS[cell_class](cell, x[b].numpy())
        exact = solve_ivp(
            lambda _, v, field=field: field(v),
            (0, gap[b].item()),
            h[b].numpy(),
            method="DOP853",
            rtol=1e-12,
            atol=1e-13,
        )
        np.testing.assert_allclose(actual[b], exact.y[:, -1], rtol=0, atol=2e-9)


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("solver", ORDERS)
def test_two_half_gaps_approach_one_gap_at_the_order_of_the_solver(name, solver):
    cell_class, options = FLOWS[name]
    differences = []
    for substeps in (8, 16):
        torch.manual_seed(0)
        cell = perturbed(cell_class(D, N, **options, solver=solver, substeps=substeps))
        x, h, gap = example(cell)
        halves = cell.step(x, cell.step(x, h, gap / 2), gap / 2)
        differences.append((halves - cell.step(x, h, gap)).abs().max().item())
    assert math.log2(differences[0] / differences[1]) == pytest.approx(ORDERS[solver], abs=0.4)


def test_without_weights_the_state_decays_at_the_rate_of_the_damping():
    cell = CTRNNCell(D, N, damping=0.7, substeps=50).double()
    torch.nn.init.zeros_(cell.s)
    x, h, gap = example(cell)
    torch.testing.assert_close(cell.step(x, h, gap), h * torch.exp(-0.7 * gap))


@pytest.mark.parametrize("form", ["full", "minimal"])
def test_euler_steps_of_at_most_one_keep_gru_ode_bounded(form):
    """Each is a convex mix of h and tanh; the bound is sharp, so longer steps leave it."""
    cell = GRUODECell(D, N, form=form, substeps=2).double()
    torch.nn.init.normal_(cell.W_x, std=20)
    torch.nn.init.normal_(cell.W_g, std=20)
    x, h = 5 * torch.randn(64, D).double(), torch.rand(64, N).double() * 2 - 1
    gaps = torch.rand(64, 1).double() * 2
    assert cell.step(x, h, gaps).abs().max() <= 1
    assert cell.step(x, h, 4 * gaps).abs().max() > 1


@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (lambda D, N: CTRNNCell(D, N), lambda D, N: D * N + N * N + 2 * N),
        (lambda D, N: CTRNNCell(D, N, scale=False), lambda D, N: N * (D + N) + N),
        (lambda D, N: CTRNNCell(D, N, scale=False, train_tau=True), lambda D, N: N * (D + N + 2)),
        (lambda D, N: GRUODECell(D, N), lambda D, N: 3 * (N * (D + N) + N)),
        (lambda D, N: GRUODECell(D, N, form="minimal"), lambda D, N: 2 * (N * (D + N) + N)),
    ],
)
@pytest.mark.parametrize(("D", "N"), [(1, 1), (3, 5), (17, 64)])
def test_parameter_counts(make, formula, D, N):
    assert sum(p.numel() for p in make(D, N).parameters()) == formula(D, N)


@pytest.mark.parametrize("init", ["keras", "tf1"])
def test_ct_rnn_draws(init):
    cell = CTRNNCell(20, 60, init=init)
    assert not cell.b.any()
    assert (cell.s == 1).all()
    if init == "keras":
        glorot(cell.W_x)
        orthogonal(cell.W_h)
    else:
        bound = math.sqrt(6 / (20 + 60 + 60))
        uniform(cell.W_x, -bound, bound)
        uniform(cell.W_h, -bound, bound)


def test_trained_time_constants_start_from_that_of_the_damping():
    cell = CTRNNCell(D, N, damping=0.25, train_tau=True)
    torch.testing.assert_close(cell.tau, torch.full((N,), 4.0))
    assert cell.time_constant == 4.0
    assert CTRNNCell(D, N).tau is None


@pytest.mark.parametrize("form", ["full", "minimal"])
def test_gru_ode_draws(form):
    cell, full = GRUODECell(20, 60, form=form), form == "full"
    assert (cell.b[:60] == (1.0 if full else 0.05)).all()
    assert (cell.b[60:] == (0.0 if full else 0.05)).all()
    for weight in (*cell.W_x.split(60), *cell.W_h.split(60), cell.W_g):
        bound = math.sqrt(6 / (20 + 60 + 60 if full else sum(weight.shape)))
        uniform(weight, -bound, bound)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"substeps": 0}, "substeps must be at least 1, got 0"),
        ({"damping": 0.0, "train_tau": True}, "damping is 0. Pass a positive damping"),
        ({"damping": -1.0}, "damping must be a number of 0 or more"),
        ({"step_size": 0.0}, r"step_size must be a number of 1e-12 or more, got 0\.0"),
        ({"step_size": float("nan")}, "step_size must be a number"),
        ({"clip": -10.0}, "clip must be a number of 1e-12 or more"),
        pytest.param({"scale": 1.0}, "scale must be True or False"),
    ],
)
def test_ct_rnn_refuses_values_out_of_range(options, match):
    with pytest.raises(ArgumentError, match=match):
        CTRNNCell(D, N, **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"solver": "fused"}, r"solver='fused' is unknown.*Choose from: euler, midpoint, heun"),
        ({"init": "torch"}, r"init='torch' is unknown.*Choose from: keras, tf1"),
        ({"activation": "tahn"}, "unknown activation 'tahn'.*Did you mean 'tanh'"),
    ],
)
def test_ct_rnn_refuses_unknown_names(options, match):
    with pytest.raises(UnknownNameError, match=match):
        CTRNNCell(D, N, **options)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"form": "mini"}, UnknownNameError, "form='mini' is unknown.*Did you mean 'minimal'"),
        ({"solver": "fused"}, UnknownNameError, "solver='fused' is unknown"),
        ({"substeps": 0}, ArgumentError, "substeps must be at least 1, got 0"),
    ],
)
def test_gru_ode_refuses(options, error, match):
    with pytest.raises(error, match=match):
        GRUODECell(D, N, **options)
