"""Closed-form and mixed-memory cells against NumPy, the released PyTorch code and their limits."""

import numpy as np
import pytest
import torch
from cell_references import (
    arrays,
    cfc_step,
    lecun_tanh,
    lstm_memory,
    ltc_step,
    softplus,
    wired_cfc_step,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from torch import Tensor

from tauflow.cells import CfCCell, CfSCell, MixedMemoryCell, WiredCfCCell
from tauflow.wirings import NCP, FullyConnected, RandomSparse

D, N, B = 3, 5, 4
SHAPES = {"sensory_fanout": 2, "inter_fanout": 2, "recurrent_command_synapses": 3, "motor_fanin": 2}
WIRINGS = {
    "ncp": NCP(4, 3, 2, **SHAPES),
    "random": RandomSparse(6, 2, sparsity=0.6),
    "dense": FullyConnected(4),
}
PHIS = {"tanh": np.tanh, "lecun_tanh": lecun_tanh, "identity": lambda z: z}


def perturbed(cell: torch.nn.Module) -> torch.nn.Module:
    """Move every parameter off its initial value, some of which are 0, in double precision."""
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p += 0.2 * torch.randn_like(p)
    return cell


def example(states: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, D, generator=generator, dtype=torch.float64)
    h = torch.randn(B, states, generator=generator, dtype=torch.float64)
    return x, h, torch.tensor([[0.0], [0.3], [1.0], [20.0]], dtype=torch.float64)


def by_rows(step, *tensors: Tensor) -> np.ndarray:
    return np.stack([step(*(t[b].numpy() for t in tensors)) for b in range(B)])


GATED = [
    (mode, *options)
    for mode in ("default", "no_gate")
    for options in (("tanh", -1, True), ("lecun_tanh", 1, True), ("identity", -1, False))
]


@pytest.mark.parametrize(
    ("mode", "activation", "time_sign", "time_bias"), [*GATED, ("pure", "tanh", -1, True)]
)
@pytest.mark.parametrize("backbone_layers", [0, 1, 3])
def test_cfc_step(mode, backbone_layers, activation, time_sign, time_bias):
    cell = perturbed(
        CfCCell(
            D,
            N,
            mode=mode,
            backbone_layers=backbone_layers,
            backbone_units=7,
            activation=activation,
            time_sign=time_sign,
            time_bias=time_bias,
        )
    )
    x, h, dt = example(N)
    expected = by_rows(
        lambda x, h, dt: cfc_step(cell, PHIS[activation], lecun_tanh, x, h, dt), x, h, dt
    )
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "phi"),
    [
        ("silu", lambda z: z / (1 + np.exp(-z))),
        ("relu", lambda z: np.maximum(z, 0)),
        ("softplus", lambda z: np.log1p(np.exp(z))),
        ("tanh", np.tanh),
    ],
)
def test_backbone_activations(name, phi):
    cell = perturbed(CfCCell(D, N, backbone_units=6, backbone_activation=name))
    x, h, dt = example(N)
    expected = by_rows(lambda x, h, dt: cfc_step(cell, np.tanh, phi, x, h, dt), x, h, dt)
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mode", ["default", "no_gate", "pure"])
def test_cfc_equals_ncps(mode):
    ncps = pytest.importorskip("ncps.torch")
    theirs = ncps.CfCCell(D, N, mode=mode, backbone_units=6, backbone_layers=2).double()
    gate = {} if mode == "pure" else {"time_sign": 1}
    ours = CfCCell(D, N, mode=mode, backbone_units=6, backbone_layers=2, **gate).double()
    dense = [m for m in theirs.backbone if isinstance(m, torch.nn.Linear)]
    heads = [theirs.ff1]
    if mode != "pure":
        heads += [theirs.ff2, theirs.time_a, theirs.time_b]
    with torch.no_grad():
        for layer, other in zip(ours.backbone.layers, dense, strict=True):
            layer.load_state_dict(other.state_dict())
        ours.heads.weight.copy_(torch.cat([head.weight for head in heads]))
        ours.heads.bias.copy_(torch.cat([head.bias for head in heads]))
        if mode == "pure":
            ours.heads.w_tau.copy_(theirs.w_tau[0])
            ours.heads.A.copy_(theirs.A[0])
    x, h, dt = example(N)
    expected, _ = theirs(x, h, dt)
    torch.testing.assert_close(ours.step(x, h, dt), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize(
    ("mode", "time_sign", "time_bias"),
    [
        ("default", -1, True),
        ("default", 1, False),
        ("no_gate", -1, True),
        ("no_gate", 1, False),
        ("pure", -1, True),
    ],
)
def test_wired_cfc_step(wiring, mode, time_sign, time_bias):
    cell = perturbed(
        WiredCfCCell(D, WIRINGS[wiring], mode=mode, time_sign=time_sign, time_bias=time_bias)
    )
    x, h, dt = example(cell.state_size)
    expected = by_rows(lambda x, h, dt: wired_cfc_step(cell, np.tanh, x, h, dt), x, h, dt)
    actual = cell.step(x, h, dt)
    np.testing.assert_allclose(actual.detach(), expected, rtol=1e-12, atol=1e-13)
    if wiring == "ncp":
        assert cell.state_parts == {"inter": 4, "command": 3, "motor": 2}
        torch.testing.assert_close(cell.readout(actual), actual[:, 7:])
    else:
        torch.testing.assert_close(cell.readout(actual), actual[:, : cell.output_size])


CORE_STEPS = {
    "cfc": lambda core, x, h, dt: cfc_step(core, np.tanh, lecun_tanh, x, h, dt),
    "wired-cfc": lambda core, x, h, dt: wired_cfc_step(core, np.tanh, x, h, dt),
    "ltc": lambda core, x, h, dt: ltc_step(core, x, h, dt.item() if dt.item() else 1e-300),
}


@pytest.mark.parametrize("core", CORE_STEPS)
@pytest.mark.parametrize("form", ["input", "state"])
@pytest.mark.parametrize("forget_bias", [1.0, -0.5])
def test_mixed_memory_step(core, form, forget_bias):
    size = N if core == "cfc" else WIRINGS["ncp"]
    cell = perturbed(MixedMemoryCell(D, size, core=core, form=form, forget_bias=forget_bias))
    n, p = cell.hidden_size, arrays(cell)
    x, h, dt = example(2 * n)

    def step(x: np.ndarray, h: np.ndarray, dt: np.ndarray) -> np.ndarray:
        u, c = lstm_memory(p, forget_bias, x, h[:n], h[n:])
        inputs = (u, h[:n]) if form == "input" else (x, u)
        return np.concatenate([CORE_STEPS[core](cell.core, *inputs, dt), c])

    actual = cell.step(x, h, dt)
    np.testing.assert_allclose(actual.detach(), by_rows(step, x, h, dt), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(cell.readout(actual), cell.core.readout(actual[:, :n]))
    torch.testing.assert_close(cell.split_state(actual)["c"], actual[:, n:])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 100),
    mode=st.sampled_from(["default", "no_gate"]),
    time_sign=st.sampled_from([-1, 1]),
)
def test_after_a_long_gap_the_sign_of_the_time_head_picks_the_state_head(seed, mode, time_sign):
    torch.manual_seed(seed)
    cell = CfCCell(D, N, mode=mode, backbone_units=6, time_sign=time_sign).double()
    x, h, _ = example(N)
    z = cell.backbone(torch.cat([x, h], dim=-1))
    g, head_h, t_a, _ = (z @ cell.heads.weight.T + cell.heads.bias).chunk(4, dim=-1)
    opens = (time_sign * t_a > 0).double()
    first = torch.tanh(g) * (1 - opens) if mode == "default" else torch.tanh(g)
    long = torch.full((B, 1), 1e9, dtype=torch.float64)
    torch.testing.assert_close(cell.step(x, h, long), first + torch.tanh(head_h) * opens)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100), gap=st.floats(0, 1e6))
def test_no_gate_exceeds_default_by_the_gated_first_head(seed, gap):
    """no_gate - default = p phi(g), and with phi(h) = 0 the default is (1 - p) phi(g)."""
    torch.manual_seed(seed)
    default = CfCCell(D, N, backbone_units=6).double()
    no_gate = CfCCell(D, N, backbone_units=6, mode="no_gate").double()
    with torch.no_grad():
        default.heads.weight[N : 2 * N] = 0.0
    no_gate.load_state_dict(default.state_dict())
    x, h, _ = example(N)
    dt = torch.full((B, 1), gap, dtype=torch.float64)
    z = default.backbone(torch.cat([x, h], dim=-1))
    phi_g = torch.tanh(z @ default.heads.weight[:N].T)
    torch.testing.assert_close(no_gate.step(x, h, dt), phi_g)
    p = (no_gate.step(x, h, dt) - default.step(x, h, dt)) / phi_g
    assert (p >= -1e-9).all()
    assert (p <= 1 + 1e-9).all()


def test_pure_form_forgets_after_a_long_gap():
    cell = perturbed(CfCCell(D, N, mode="pure"))
    x, h, _ = example(N)
    after = cell.step(x, h, torch.full((B, 1), 1e9, dtype=torch.float64))
    torch.testing.assert_close(after, cell.heads.A.expand(B, N))


@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_pure_form_reads_the_size_of_w_tau_and_can_learn_it_from_zero(sign):
    cell = CfCCell(D, N, mode="pure").double()
    with torch.no_grad():
        cell.heads.w_tau.fill_(0.7 * sign)
    x, h, _ = example(N)
    dt = torch.ones(B, 1, dtype=torch.float64)
    r = cell.backbone(torch.cat([x, h], -1)) @ cell.heads.weight.T + cell.heads.bias
    expected = 1 - torch.exp(-(abs(0.7 * sign) + r.abs())) * r
    actual = cell.step(x, h, dt)
    torch.testing.assert_close(actual, expected)
    actual.sum().backward()
    slope = ((1 if sign >= 0 else -1) * torch.exp(-(abs(0.7 * sign) + r.abs())) * r).sum(0)
    torch.testing.assert_close(cell.heads.w_tau.grad, slope.detach())


def test_l2_parameters_are_the_kernels():
    cell = CfCCell(D, N, backbone_layers=2, backbone_units=4)
    names = {id(p): name for name, p in cell.named_parameters()}
    assert {names[id(p)] for p in cell.l2_parameters()} == {
        "backbone.layers.0.weight",
        "backbone.layers.1.weight",
        "heads.weight",
    }
    wired = WiredCfCCell(D, WIRINGS["ncp"])
    assert [tuple(p.shape) for p in wired.l2_parameters()] == [(16, 7), (12, 7), (8, 5)]


EQUATION_9_PHIS = {
    "sigmoid": expit,
    "relu": lambda z: np.maximum(z, 0),
    "softplus": softplus,
}


@pytest.mark.parametrize("activation", EQUATION_9_PHIS)
def test_equation_9(activation):
    cell, phi = perturbed(CfSCell(D, N, activation=activation)), EQUATION_9_PHIS[activation]
    p = arrays(cell)

    def f(x, h):
        return phi(p["W_x"] @ x + p["W_h"] @ h + p["b"])

    def step(x, h, dt):
        decay = np.exp(-(np.abs(p["w_tau"]) + f(x, h)) * dt)
        return p["B"] * decay * f(-x, -h) + p["A"]

    x, h, dt = example(N)
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), by_rows(step, x, h, dt), rtol=1e-12)


def test_equation_9_starts_where_the_rate_learns():
    cell = CfSCell(D, N).double()
    x, h, dt = example(N)
    cell.step(x, h, dt).square().sum().backward()
    assert not cell.w_tau.any()
    assert (cell.w_tau.grad != 0).all()
    assert torch.equal(cell.B, -cell.A)
    assert sum(q.numel() for q in cell.parameters()) == N * N + D * N + 4 * N
