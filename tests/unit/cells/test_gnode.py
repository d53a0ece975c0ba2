"""The gated neural ODE and its relatives: equations in NumPy, special cases, published counts."""

import numpy as np
import pytest
import torch
from cell_references import softplus
from scipy.integrate import solve_ivp
from scipy.special import expit

import tauflow
from tauflow.cells import MODELS, ElmanCell, GNODECell
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, UnknownNameError

D, N, B, T = 3, 4, 2, 5
PHI = {"relu": lambda s: np.maximum(s, 0), "tanh": np.tanh, "identity": lambda s: s}


def randomised(cell: AbstractCell, seed: int = 0) -> AbstractCell:
    generator = torch.Generator().manual_seed(seed)
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p.normal_(0, 0.6, generator=generator)
    return cell


def dense(h, x, W_h, W_x, b, deeper, phi_a, final):
    s = W_h @ h + W_x @ x + b
    for W, bias in deeper:
        s = W @ phi_a(s) + bias
    return final(s)


def velocity(cell: GNODECell, h, x):
    """Return G (-h + F) / tau of one sample, from the weights of a cell."""
    w = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    options = cell.options
    phi_a = PHI[options["activation"] or "relu"]
    final = PHI[options["final_activation"]]
    of_F = slice(0, (options["units"] or 100) if options["layers"] > 1 else N)
    of_G = slice(of_F.stop, None)

    def layers(name, count):
        return [(w[f"W_{name}.{i}"], w[f"b_{name}.{i}"]) for i in range(count - 1)]

    F = dense(h, x, *(w[k][of_F] for k in ("W_h", "W_x", "b")), layers("F", options["layers"]),
              phi_a, final)  # fmt: skip
    G = 1.0
    if options["gate_layers"]:
        G = dense(h, x, *(w[k][of_G] for k in ("W_h", "W_x", "b")),
                  layers("G", options["gate_layers"]), phi_a, expit)  # fmt: skip
    tau = softplus(w["raw_tau"]) if options["train_tau"] else options["tau"]
    return G * (F - h) / tau


FORMS = {
    "gnode": ("gnode", {"units": 6}),
    "gnode-default-units": ("gnode", {"tau": 0.7}),
    "gnode-deep": (
        "gnode",
        {"layers": 3, "units": 6, "gate_layers": 2, "gate_units": 5, "activation": "tanh"},
    ),
    "gnode-flat-target": ("gnode", {"layers": 1, "gate_layers": 3, "gate_units": 7}),
    "gnode-tanh": ("gnode", {"units": 6, "final_activation": "tanh", "tau": 2.0}),
    "node": ("node", {"layers": 3, "units": 6}),
    "mgru": ("mgru", {"tau": 1.5}),
    "elman-euler": ("elman-euler", {}),
    "gnode-trained-tau": ("gnode", {"units": 6, "gate_layers": 2, "train_tau": True}),
    "node-trained-tau": ("node", {"units": 6, "train_tau": True}),
}


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_values_of_a_sequence(form, substeps):
    name, options = FORMS[form]
    cell = randomised(
        MODELS[name].build(D, N, substeps=substeps, initial_state="affine", **options)
    )
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() * 1.5
    y, last = tauflow.RNN(cell)(x, dt=dt)
    V, a = (p.detach().numpy() for p in (cell.start.V, cell.start.a))
    for row in range(B):
        h = V @ x[row, 0].numpy() + a
        for step in range(T):
            for _ in range(substeps):
                h = h + dt[row, step].item() / substeps * velocity(cell, h, x[row, step].numpy())
            np.testing.assert_allclose(y[row, step].detach(), h, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(last[row].detach(), h, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("solver", "tolerance"), [("rk4", 1e-7), ("heun", 1e-4), ("midpoint", 1e-4)]
)
def test_solvers_reach_the_flow(solver, tolerance):
    options = {"units": 6, "activation": "tanh", "tau": 0.8, "solver": solver, "substeps": 40}
    cell = randomised(GNODECell(D, N, **options))
    x, h, dt = torch.randn(B, D).double(), torch.randn(B, N).double(), torch.tensor([[0.5], [1.4]])
    after = cell.step(x, h, dt.double()).detach()
    for row in range(B):
        exact = solve_ivp(
            lambda _, h, row=row: velocity(cell, h, x[row].numpy()),
            (0, dt[row].item()), h[row].numpy(), method="DOP853", rtol=1e-12, atol=1e-12,
        ).y[:, -1]  # fmt: skip
        error = np.abs(after[row].numpy() - exact).max()
        assert error < tolerance
        assert np.abs(h[row].numpy() - exact).max() > 0.1


def test_a_gap_of_one_time_constant_without_gate_is_the_elman_network():
    elman = randomised(ElmanCell(D, N))
    flow = MODELS["elman-euler"].build(D, N, tau=0.25).double()
    flow.load_state_dict(elman.state_dict())
    x, h = torch.randn(B, D).double(), torch.randn(B, N).double()
    gap = torch.full((B, 1), 0.25).double()
    torch.testing.assert_close(flow.step(x, h, gap), elman.step(x, h, gap), rtol=1e-14, atol=1e-14)


def test_a_closed_gate_keeps_the_state_and_an_open_one_is_no_gate():
    cell = randomised(GNODECell(D, N, units=6))
    plain = GNODECell(D, N, units=6, gate_layers=0).double()
    x, h, dt = (torch.randn(B, k).double().abs() for k in (D, N, 1))
    with torch.no_grad():
        for small, large in zip(plain.parameters(), cell.parameters(), strict=True):
            small.copy_(large[: len(small)])
        for part in (cell.W_x, cell.W_h):
            part[6:] = 0
        cell.b[6:] = -1e3
        torch.testing.assert_close(cell.step(x, h, dt), h)
        cell.b[6:] = 1e3
        torch.testing.assert_close(cell.step(x, h, dt), plain.step(x, h, dt))
        cell.b[6:] = 0
        half = plain.step(x, h, dt / 2)
        torch.testing.assert_close(cell.step(x, h, dt), half)


# Kim et al. 2022, Tables 3, 5, 6, 7 and 8: features, classes, model, N, options, parameters.
CHARACTERS, WALKER, SPEECH = (4, 20), (18, 17), (21, 10)
PUBLISHED = [
    (CHARACTERS, "mgru", 100, {}, 23_520),
    (CHARACTERS, "mgru", 1000, {}, 2_035_020),
    (CHARACTERS, "gru-euler", 316, {}, 312_228),
    (CHARACTERS, "lstm-euler", 1000, {}, 4_050_020),
    (CHARACTERS, "lem-forward", 316, {}, 415_244),
    (CHARACTERS, "lem", 1000, {}, 4_050_020),
    (CHARACTERS, "node", 100, {"layers": 3, "units": 100}, 33_220),
    (CHARACTERS, "node", 32, {"layers": 3, "units": 100}, 17_852),
    (CHARACTERS, "gnode", 100, {"layers": 3, "units": 316}, 178_072),
    (CHARACTERS, "gnode", 100, {"layers": 3, "units": 1000}, 1_219_120),
    (WALKER, "mgru", 316, {}, 223_113),
    (WALKER, "gru-euler", 316, {}, 328_973),
    (WALKER, "lstm-euler", 100, {}, 53_117),
    (WALKER, "lem", 316, {}, 440_837),
    (WALKER, "node", 100, {"layers": 3, "units": 1000}, 1_223_717),
    (WALKER, "gnode", 32, {"layers": 3, "units": 1000}, 1_086_833),
    (WALKER, "gnode", 32, {"layers": 3, "units": 100}, 21_233),
    (SPEECH, "mgru", 100, {}, 27_610),
    (SPEECH, "gru-euler", 1000, {}, 3_098_010),
    (SPEECH, "lstm-euler", 316, {}, 444_306),
    (SPEECH, "lem", 100, {}, 54_210),
    (SPEECH, "node", 316, {"units": 2000}, 1_318_438),
    (SPEECH, "gnode", 100, {"units": 4000}, 903_510),
    (SPEECH, "gnode", 316, {"units": 1000}, 771_246),
    # the table says 1000 hidden units, of which the count would be 1 318 754
    (SPEECH, "gnode", 316, {"units": 2000, "gate_layers": 2, "gate_units": 1000}, 1_972_754),
    (SPEECH, "gru-euler", 316, {}, 330_546),
    (SPEECH, "gnode", 316, {"units": 2000}, 1_425_246),
    (SPEECH, "node", 100, {"units": 2000}, 447_310),
    (SPEECH, "node", 316, {"units": 1000}, 664_438),
]


@pytest.mark.parametrize(("task", "name", "neurons", "options", "published"), PUBLISHED)
def test_published_parameter_counts(task, name, neurons, options, published):
    features, outputs = task
    with torch.device("meta"):
        body = tauflow.build(name, features, neurons, initial_state="affine", **options)
        model = tauflow.SequenceModel(body, outputs)
    assert sum(p.numel() for p in model.parameters()) == published


@pytest.mark.parametrize(
    ("L", "H", "L_z", "H_z"), [(1, None, 0, None), (2, 7, 1, None), (4, 6, 3, 5), (1, None, 2, 9)]
)
def test_parameter_count_formula(L, H, L_z, H_z):
    def network(layers, H):
        if layers < 2:
            return layers * (N * N + N + D * N)
        return N * H + H + D * H + (layers - 2) * (H * H + H) + H * N + N

    cell = GNODECell(D, N, layers=L, units=H, gate_layers=L_z, gate_units=H_z)
    assert sum(p.numel() for p in cell.parameters()) == network(L, H) + network(L_z, H_z)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"gate_layers": -1}, "gate_layers must be at least 0"),
        ({"units": 0}, "units must be at least 1, got 0"),
        ({"layers": 1, "units": 8}, r"units=8 would do nothing with layers=1, .*Leave it out"),
        ({"gate_units": 8}, "gate_units=8 would do nothing with gate_layers=1"),
        ({"layers": 1, "activation": "tanh"}, "activation='tanh' would do nothing"),
        ({"tau": 0.0}, "tau must be a number of 1e-12 or more, got 0"),
        ({"substeps": 0}, "substeps must be at least 1"),
        (
            {"init": "critical", "activation": "gelu"},
            "init='critical' is known for .*relu.*kaiming",
        ),
    ],
)
def test_values_out_of_range(options, match):
    with pytest.raises(ArgumentError, match=match):
        GNODECell(D, N, **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"solver": "rk5"}, r"solver='rk5' is unknown\. Did you mean 'rk4'"),
        ({"final_activation": "tan"}, "Did you mean 'tanh'"),
        ({"initial_state": "zero"}, "Did you mean 'zeros'"),
        ({"init": "glorot"}, "Did you mean 'glorot_"),
    ],
)
def test_unknown_names(options, match):
    with pytest.raises(UnknownNameError, match=match):
        GNODECell(D, N, **options)


def test_kinetic_energy_of_the_docs_is_that_of_the_flow():
    """Of "Penalties on the path of the state" in docs/own-loop.md: the sum of dt |dh/dt|²."""
    rnn = tauflow.build("gnode", D, N, layers=2, units=7)
    cell = randomised(rnn.cell)
    x, dt = torch.randn(1, T, D).double(), torch.rand(1, T).double()
    states, _ = rnn(x, dt=dt)
    steps = states.diff(dim=1, prepend=torch.zeros_like(states[:, :1]))
    h, energy = np.zeros(N), 0.0
    for step in range(T):
        v = velocity(cell, h, x[0, step].numpy())
        h, energy = h + dt[0, step].item() * v, energy + dt[0, step].item() * (v @ v)
    assert (steps.square().sum(-1) / dt).sum().item() == pytest.approx(energy)
