"""Long expressive memory, GRU and LSTM as flows: equations in NumPy, and how they relate."""

import numpy as np
import pytest
import torch
from scipy.special import expit

import tauflow
from tauflow.cells import MODELS, EulerGRUCell, EulerLSTMCell, GNODECell, LEMCell, LSTMCell
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, UnknownNameError

D, N, B, T = 3, 4, 2, 5


def randomised(cell: AbstractCell, seed: int = 0) -> AbstractCell:
    generator = torch.Generator().manual_seed(seed)
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p.normal_(0, 0.6, generator=generator)
    return cell


def blocks(cell: AbstractCell, count: int):
    """Return (W, U, b) of each of the packed blocks."""
    parts = [np.split(p.detach().numpy(), count) for p in (cell.W_h, cell.W_x, cell.b)]
    return list(zip(*parts, strict=True))


def lem_step(cell, h, x, alpha):
    first, second, of_z, of_y = blocks(cell, 4)
    y, z = h[:N], h[N:]

    def project(block, source):
        W, U, b = block
        return W @ source + U @ x + b

    a, b = alpha * expit(project(first, y)), alpha * expit(project(second, y))
    z_new = (1 - b) * z + b * np.tanh(project(of_z, y))
    source = z_new if cell.options["scheme"] == "forward-backward" else z
    return np.concatenate([(1 - a) * y + a * np.tanh(project(of_y, source)), z_new])


def gru_step(cell, h, x, alpha):
    (W_z, U_z, b_z), (W_r, U_r, b_r), (W_n, U_n, b_n) = blocks(cell, 3)
    z, r = expit(W_z @ h + U_z @ x + b_z), expit(W_r @ h + U_r @ x + b_r)
    return (1 - alpha * z) * h + alpha * z * np.tanh(W_n @ (h * r) + U_n @ x + b_n)


def lstm_step(cell, h, x, alpha):
    h, c = h[:N], h[N:]
    i, f, g, o = (W @ h + U @ x + b for W, U, b in blocks(cell, 4))
    c = c + alpha * ((expit(f) - 1) * c + expit(i) * np.tanh(g))
    return np.concatenate([h + alpha * (expit(o) * np.tanh(c) - h), c])


STEPS = {"lem": lem_step, "lem-forward": lem_step, "gru-euler": gru_step, "lstm-euler": lstm_step}


@pytest.mark.parametrize(("tau", "substeps"), [(1.0, 1), (0.6, 3)])
@pytest.mark.parametrize("name", STEPS)
def test_values_of_a_sequence(name, tau, substeps):
    options = {"tau": tau, "substeps": substeps, "initial_state": "affine"}
    cell = randomised(MODELS[name].build(D, N, **options))
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() * 1.5
    y, last = tauflow.RNN(cell)(x, dt=dt)
    for row in range(B):
        h = cell.start.V.detach().numpy() @ x[row, 0].numpy() + cell.start.a.detach().numpy()
        for step in range(T):
            for _ in range(substeps):
                h = STEPS[name](
                    cell, h, x[row, step].numpy(), dt[row, step].item() / tau / substeps
                )
            np.testing.assert_allclose(y[row, step].detach(), h[:N], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(last[row].detach(), h, rtol=1e-10, atol=1e-12)


def test_forward_lem_is_a_constrained_minimal_gated_unit():
    lem = randomised(LEMCell(D, N, scheme="forward", tau=1.3))
    unit = MODELS["mgru"].build(D, 2 * N, tau=1.3).double()
    W_1, W_2, W_z, W_y = lem.W_h.chunk(4)
    V_1, V_2, V_z, V_y = lem.W_x.chunk(4)
    b_1, b_2, b_z, b_y = lem.b.chunk(4)
    none = torch.zeros(N, N).double()
    with torch.no_grad():
        target = torch.cat([torch.cat([none, W_y], 1), torch.cat([W_z, none], 1)])
        gate = torch.cat([torch.cat([W_1, none], 1), torch.cat([W_2, none], 1)])
        unit.W_h.copy_(torch.cat([target, gate]))
        unit.W_x.copy_(torch.cat([V_y, V_z, V_1, V_2]))
        unit.b.copy_(torch.cat([b_y, b_z, b_1, b_2]))
    backward = LEMCell(D, N, tau=1.3).double()
    backward.load_state_dict(lem.state_dict())
    x, h, dt = (torch.randn(B, k).double() for k in (D, 2 * N, 1))
    expected = lem.step(x, h, dt.abs())
    torch.testing.assert_close(unit.step(x, h, dt.abs()), expected)
    assert not torch.allclose(backward.step(x, h, dt.abs()), expected)


def test_both_schemes_of_lem_follow_one_flow():
    x, h, dt = (torch.randn(B, k).double() for k in (D, 2 * N, 1))

    def difference(substeps: int) -> float:
        ends = []
        for scheme in ("forward", "forward-backward"):
            cell = randomised(LEMCell(D, N, scheme=scheme, substeps=substeps))
            ends.append(cell.step(x, h, dt.abs()))
        return (ends[0] - ends[1]).abs().max().item()

    assert difference(200) < 0.12 * difference(20) < 0.05


def test_lstm_at_a_gap_of_one_time_constant_is_the_lstm():
    lstm, flow = randomised(LSTMCell(D, N)), EulerLSTMCell(D, N, tau=2.5).double()
    flow.load_state_dict(lstm.state_dict())
    x, h, dt = torch.randn(B, D), torch.randn(B, 2 * N), torch.full((B, 1), 2.5)
    x, h, dt = x.double(), h.double(), dt.double()
    torch.testing.assert_close(flow.step(x, h, dt), lstm.step(x, h, dt), rtol=1e-14, atol=1e-14)
    assert not torch.allclose(flow.step(x, h, dt / 2), lstm.step(x, h, dt))


def test_gru_that_never_resets_is_a_minimal_gated_unit():
    gru, unit = randomised(EulerGRUCell(D, N, solver="rk4")), GNODECell(
        D, N, layers=1, final_activation="tanh", solver="rk4"
    ).double()  # fmt: skip
    order = torch.tensor([*range(2 * N, 3 * N), *range(N)])  # the target, then the gate
    with torch.no_grad():
        gru.W_h[N : 2 * N] = gru.W_x[N : 2 * N] = 0
        gru.b[N : 2 * N] = 1e3  # r = 1
        for name in ("W_h", "W_x", "b"):
            getattr(unit, name).copy_(getattr(gru, name)[order])
    x, h, dt = (torch.randn(B, k).double().abs() for k in (D, N, 1))
    torch.testing.assert_close(gru.step(x, h, dt), unit.step(x, h, dt))


@pytest.mark.parametrize("solver", ["heun", "rk4"])
def test_gru_solvers_agree_with_fine_euler_steps(solver):
    x, h, dt = (torch.randn(B, k).double().abs() for k in (D, N, 1))
    fine = randomised(EulerGRUCell(D, N, substeps=4000)).step(x, h, dt)
    other = randomised(EulerGRUCell(D, N, solver=solver, substeps=20)).step(x, h, dt)
    torch.testing.assert_close(other, fine, rtol=1e-3, atol=1e-3)
    coarse = randomised(EulerGRUCell(D, N)).step(x, h, dt)
    assert not torch.allclose(coarse, fine, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", STEPS)
def test_parameter_counts(name):
    count = {"gru-euler": 3}.get(name, 4)
    width = N if name == "gru-euler" else 2 * N
    for kind, start in (("zeros", 0), ("affine", width * (D + 1))):
        cell = MODELS[name].build(D, N, initial_state=kind)
        expected = count * (N * N + N + N * D) + start
        assert sum(p.numel() for p in cell.parameters()) == expected


def test_lem_emits_y():
    cell, h = LEMCell(D, N), torch.randn(B, 2 * N)
    assert torch.equal(cell.readout(h), cell.split_state(h)["y"])
    assert cell.state_parts == {"y": N, "z": N}


@pytest.mark.parametrize(
    ("cell", "options", "error", "match"),
    [
        (LEMCell, {"scheme": "backward"}, UnknownNameError, "scheme='backward' is unknown"),
        (LEMCell, {"init": "critical"}, UnknownNameError, "init='critical' is unknown.*torch"),
        (EulerGRUCell, {"init": "torch"}, UnknownNameError, "init='torch' is unknown.*kaiming"),
        (EulerGRUCell, {"solver": "fused"}, UnknownNameError, "solver='fused' is unknown"),
        (EulerLSTMCell, {"tau": -1.0}, ArgumentError, "tau must be a number"),
        (LEMCell, {"substeps": 0}, ArgumentError, "substeps must be at least 1"),
    ],
)
def test_refused_options(cell, options, error, match):
    with pytest.raises(error, match=match):
        cell(D, N, **options)
