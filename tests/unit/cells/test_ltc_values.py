"""LTC cells against loops over synapses, an adaptive ODE solver and the released PyTorch code."""

import numpy as np
import pytest
import torch
from cell_references import (
    conductance_and_drive,
    ltc_field,
    ltc_parameters,
    ltc_step,
    neuronal_ltc_step,
)
from scipy.integrate import solve_ivp
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from tauflow.cells import LTC_VARIANTS, LTCCell, NeuronalLTCCell
from tauflow.errors import ArgumentError
from tauflow.wirings import NCP, FullyConnected, RandomSparse

D, B = 3, 4
NCP_WIRING = NCP(
    4,
    3,
    2,
    sensory_fanout=2,
    inter_fanout=2,
    recurrent_command_synapses=3,
    motor_fanin=2,
)
WIRINGS = {
    "dense": 5,
    "no-self": FullyConnected(4, 2, self_connections=False),
    "random": RandomSparse(6, 2, sparsity=0.6),
    "ncp": NCP_WIRING,
}


def perturbed(cell: torch.nn.Module) -> torch.nn.Module:
    """Move every parameter off the special values of its initialisation, in double precision."""
    cell = cell.double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in cell.parameters():
            p += 0.1 * torch.rand(p.shape, generator=generator, dtype=p.dtype)
    return cell


def example(states: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, D, generator=generator, dtype=torch.float64)
    h = torch.rand(B, states, generator=generator, dtype=torch.float64) - 0.3
    dt = torch.tensor([[0.01], [0.3], [1.0], [2.5]], dtype=torch.float64)
    return x, h, dt


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("solver", ["fused", "euler", "midpoint", "heun", "rk4"])
@pytest.mark.parametrize("constraint", ["softplus", "softplus-raw", "clip"])
def test_ltc_step(wiring, solver, constraint):
    cell = LTCCell(D, WIRINGS[wiring], solver=solver, constraint=constraint, substeps=3)
    perturbed(cell)
    x, h, dt = example(cell.state_size)
    expected = [ltc_step(cell, x[b].numpy(), h[b].numpy(), dt[b].item()) for b in range(B)]
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("solver", ["fused", "euler", "rk4"])
@pytest.mark.parametrize(("time_scale", "dt_offset"), [(6.0, 0.0), (1.0, 1.0), (0.5, 1e-3)])
def test_time_scale_applies_before_the_offset(solver, time_scale, dt_offset):
    cell = LTCCell(D, 4, solver=solver, time_scale=time_scale, dt_offset=dt_offset, substeps=40)
    perturbed(cell)
    x, h, dt = example(4)
    expected = [
        ltc_step(cell, x[b].numpy(), h[b].numpy(), time_scale * dt[b].item() + dt_offset)
        for b in range(B)
    ]
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("variant", "ratio", "substeps"),
    [
        ("ltc-2021", lambda C, dt: C, 6),
        ("ncps", lambda C, dt: C * 6 / dt, 6),
        ("cfc-torch", lambda C, dt: C * 6 / (dt + 1), 6),
        ("cfc-tf", lambda C, dt: C * 3 / (dt + 1e-3), 3),
    ],
)
def test_variants_step_as_the_released_code(variant, ratio, substeps):
    """The released codes differ in what stands for C / d in the fused update."""
    torch.manual_seed(3)
    cell = LTCCell(D, 5, **LTC_VARIANTS[variant]).double()
    x, h, dt = example(5)
    dt = torch.full_like(dt, 1.0) if variant == "ltc-2021" else dt
    p, synapses = ltc_parameters(cell), cell.wiring.build(D)
    epsilon = 0.0 if variant == "ltc-2021" else 1e-8
    expected = []
    for b in range(B):
        v, C_d = h[b].numpy(), ratio(p["C"], dt[b].item())
        for _ in range(substeps):
            G, J = conductance_and_drive(
                p, synapses.recurrent.numpy(), synapses.sensory.numpy(), x[b].numpy(), v
            )
            v = (C_d * v + p["g_l"] * p["V_l"] + J) / (C_d + p["g_l"] + G + epsilon)
        expected.append(v)
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("variant", "mapped"),
    [("ltc-2021", False), ("ncps", True), ("cfc-torch", False), ("cfc-tf", True)],
)
def test_variants_map_their_output_as_the_released_code(variant, mapped):
    cell = LTCCell(D, 5, **LTC_VARIANTS[variant])
    assert {"a_out", "b_out"} & set(dict(cell.named_parameters())) == (
        {"a_out", "b_out"} if mapped else set()
    )


@pytest.mark.parametrize("constraint", ["clip", "softplus-raw"])
def test_ltc_equals_ncps(constraint):
    """ncps takes a gap per batch only correctly when it is one number."""
    ncps = pytest.importorskip("ncps.torch")
    wirings = pytest.importorskip("ncps.wirings")
    theirs = ncps.LTC(
        D,
        wirings.FullyConnected(5, 2),
        implicit_param_constraints=constraint == "softplus-raw",
        return_sequences=False,
    ).double()
    ours = LTCCell(D, FullyConnected(5, 2), constraint=constraint).double()
    names = {
        "w": "w", "mu": "mu", "sigma": "sigma", "E": "erev",
        "w_x": "sensory_w", "mu_x": "sensory_mu", "sigma_x": "sensory_sigma",
        "E_x": "sensory_erev", "g_l": "gleak", "V_l": "vleak", "C": "cm",
        "a_in": "input_w", "b_in": "input_b", "a_out": "output_w", "b_out": "output_b",
    }  # fmt: skip
    with torch.no_grad():
        for name, other in names.items():
            value = dict(theirs.rnn_cell.named_parameters())[other]
            assert getattr(ours, name).shape == value.shape
            getattr(ours, name).copy_(value)
    x, h, _ = example(5)
    v = ours.step(x, h, torch.full((B, 1), 0.7, dtype=torch.float64))
    y, after = theirs.rnn_cell(x, h, elapsed_time=0.7)
    torch.testing.assert_close(v, after, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.readout(v), y, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.E_x, theirs.rnn_cell.sensory_erev)


@pytest.mark.parametrize(
    ("solver", "order"), [("fused", 1), ("euler", 1), ("midpoint", 2), ("heun", 2), ("rk4", 4)]
)
def test_ltc_flow_converges_to_the_ode_at_the_order_of_its_solver(solver, order):
    cell = perturbed(LTCCell(D, NCP_WIRING, solver=solver, epsilon=0.0))
    synapses = cell.wiring.build(D)
    x, h, _ = example(cell.state_size)
    field = ltc_field(
        ltc_parameters(cell), synapses.recurrent.numpy(), synapses.sensory.numpy(), x[0].numpy()
    )
    exact = solve_ivp(
        lambda _, v: field(v), (0.0, 1.0), h[0].numpy(), rtol=1e-12, atol=1e-13, method="DOP853"
    ).y[:, -1]
    errors = []
    for substeps in (16, 32):
        cell = cell.replace(substeps=substeps)
        v = cell.step(x[:1], h[:1], torch.ones(1, 1, dtype=torch.float64))[0].detach()
        errors.append(np.abs(v.numpy() - exact).max())
    assert errors[1] < 0.03
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("solver", ["fused", "euler", "rk4"])
@pytest.mark.parametrize(("name", "phi"), [("tanh", np.tanh), ("sigmoid", expit)])
@pytest.mark.parametrize("scale", [False, True])
def test_neuronal_ltc_step(solver, name, phi, scale):
    cell = perturbed(NeuronalLTCCell(D, 5, solver=solver, activation=name, substeps=4, scale=scale))
    x, h, dt = example(5)
    expected = [
        neuronal_ltc_step(cell, phi, x[b].numpy(), h[b].numpy(), dt[b].item()) for b in range(B)
    ]
    np.testing.assert_allclose(cell.step(x, h, dt).detach(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("mapping", "slope", "offset"), [("none", 1, 0), ("linear", 2, 0), ("affine", 2, -0.5)]
)
def test_input_and_output_mappings(mapping, slope, offset):
    torch.manual_seed(0)
    cell = LTCCell(D, FullyConnected(5, 2), input_mapping=mapping, output_mapping=mapping).double()
    plain = LTCCell(D, FullyConnected(5, 2), input_mapping="none", output_mapping="none").double()
    with torch.no_grad():
        for map_slope in (cell.a_in, cell.a_out):
            if map_slope is not None:
                map_slope.fill_(slope)
        for map_offset in (cell.b_in, cell.b_out):
            if map_offset is not None:
                map_offset.fill_(offset)
    plain.load_state_dict({k: v for k, v in cell.state_dict().items() if k in plain.state_dict()})
    x, h, dt = example(5)
    v = cell.step(x, h, dt)
    torch.testing.assert_close(v, plain.step(x * slope + offset, h, dt))
    torch.testing.assert_close(cell.readout(v), v[:, :2] * slope + offset)
    assert cell.output_size == 2


def test_project_clips_to_the_ranges_of_the_released_code():
    cell = LTCCell(D, 4, constraint="clip")
    with torch.no_grad():
        for p in cell.parameters():
            p.copy_(torch.linspace(-2000, 2000, p.numel()).view_as(p))
    before = {name: p.clone() for name, p in cell.named_parameters()}
    cell.project_()
    limits = {"w": (1e-5, 1e3), "w_x": (1e-5, 1e3), "g_l": (1e-5, 1e3), "C": (1e-6, 1e3)}
    for name, p in cell.named_parameters():
        expected = before[name].clamp(*limits[name]) if name in limits else before[name]
        torch.testing.assert_close(p.detach(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("constraint", ["clip", "relu"])
def test_what_is_projected_cannot_be_computed(constraint):
    """By a parametrization: the projection would change its result, which the next call forgets."""
    cell = LTCCell(D, 4, constraint=constraint)
    for name in ("w", "w_x", "g_l", "C"):
        with pytest.raises(ArgumentError, match=rf"'{constraint}' keeps {name} in its range"):
            register_parametrization(cell, name, nn.Softplus())
        assert isinstance(getattr(cell, name), nn.Parameter)
    register_parametrization(cell, "mu", nn.Softplus())
    cell.mu.sum().backward()
    with torch.no_grad():
        cell.w.fill_(-5.0)
    cell.w.grad = torch.zeros_like(cell.w)
    torch.optim.SGD(cell.parameters(), 0.1).step()
    low = torch.tensor(1e-5 if constraint == "clip" else 0.0)
    assert torch.equal(cell.w.detach(), low.expand(4, 4))
    register_parametrization(LTCCell(D, 4), "w", nn.Softplus())


def test_project_leaves_a_softplus_cell_alone():
    cell = LTCCell(D, 4)
    with torch.no_grad():
        cell.w.fill_(-5.0)
    cell.project_()
    assert (cell.w == -5.0).all()


def test_absent_synapses_do_not_conduct():
    """Neither value nor gradient depends on the stored parameters of an absent synapse."""
    cell = perturbed(LTCCell(D, NCP_WIRING))
    synapses = cell.wiring.build(D)
    x, h, dt = example(cell.state_size)
    (cell.step(x, h, dt) ** 2).sum().backward()
    absent, absent_x = synapses.recurrent == 0, synapses.sensory == 0
    for name in ("w", "mu", "sigma", "E"):
        assert not getattr(cell, name).grad[absent].any()
        assert not getattr(cell, f"{name}_x").grad[absent_x].any()
        assert getattr(cell, name).grad[~absent].all()
        assert getattr(cell, f"{name}_x").grad[~absent_x].all()
