"""LRC, STC and LrcSSM against their equations, neuron by neuron and synapse by synapse."""

import math

import numpy as np
import pytest
import torch

import tauflow
from tauflow.cells import LRCCell, LrcSSMCell
from tauflow.errors import UnknownNameError

D, N, B = 2, 3, 4


def random_cell(kind, seed=0, **options):
    """A cell with every parameter away from its draw, so that none can be forgotten."""
    torch.manual_seed(seed)
    cell = kind(D, N, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    x, h = torch.randn(B, D).double(), torch.randn(B, N).double()
    return cell, x, h, torch.rand(B, 1).double() + 0.2


def numbers(cell):
    return {name: p.detach().numpy() for name, p in cell.named_parameters()}


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def softplus(z):
    return math.log1p(math.exp(z))


def lrc_by_hand(cell, x, h, dt):
    """One row, one sub-step: the sums over synapses written out."""
    p, new = numbers(cell), np.empty(N)
    for i in range(N):
        f = u = softplus(p["g"][i])
        q = p["b"][i] if "b" in p else 0.0
        for source, sigma, mu, w, k, gate in (
            (x, "sigma_x", "mu_x", "w_x", "k_x", "W_x"),
            (h, "sigma", "mu", "w", "k", "W_h"),
        ):
            for j, z in enumerate(source):
                active = sigmoid(p[sigma][j, i] * (z - p[mu][j, i]))
                f += softplus(p[w][j, i]) * active
                u += p[k][j, i] * active
                q += p[gate][i, j] * z if gate in p else 0.0
        elastance = {"none": 1.0, "asymmetric": sigmoid(q)}.get(cell.elastance)
        if elastance is None:
            s = softplus(p["s"][i])
            elastance = sigmoid(q + s) - sigmoid(q - s)
        delta, aim = dt * elastance, p["e"][i] * math.tanh(u)
        if cell.solver == "explicit":
            new[i] = h[i] + delta * (aim - sigmoid(f) * h[i])
        else:
            new[i] = (h[i] + delta * aim) / (1 + delta * sigmoid(f))
    return new


@pytest.mark.parametrize("solver", ["explicit", "hybrid"])
@pytest.mark.parametrize("elastance", ["asymmetric", "symmetric", "none"])
@pytest.mark.parametrize("substeps", [1, 3])
def test_a_step_is_the_equation_written_out(elastance, solver, substeps):
    cell, x, h, dt = random_cell(LRCCell, elastance=elastance, solver=solver, substeps=substeps)
    got = cell.step(x, h, dt).detach().numpy()
    for row in range(B):
        expected = h[row].numpy()
        for _ in range(substeps):
            expected = lrc_by_hand(cell, x[row].numpy(), expected, dt[row].item() / substeps)
        np.testing.assert_allclose(got[row], expected, rtol=1e-12, atol=1e-14)


def test_a_symmetric_elastance_opened_wide_is_the_stc():
    liquid, x, h, dt = random_cell(LRCCell, elastance="symmetric")
    stc = tauflow.build("stc", D, N).double()
    stc.cell.load_state_dict(
        {k: v for k, v in liquid.state_dict().items() if k in numbers(stc.cell)}
    )
    with torch.no_grad():
        liquid.s.fill_(1e3)
    torch.testing.assert_close(liquid.step(x, h, dt), stc.cell.step(x, h, dt))


def test_the_hybrid_step_is_bounded_where_the_explicit_one_is_not():
    explicit, x, h, dt = random_cell(LRCCell, elastance="none")
    hybrid = random_cell(LRCCell, elastance="none", solver="hybrid")[0]
    hybrid.load_state_dict(explicit.state_dict())
    target = 2 * hybrid.e.detach().abs()  # the rate is at least a half, as g and w are positive
    assert (hybrid.step(x, h, 1e9 * dt).abs() <= torch.maximum(target, h.abs())).all()
    assert (explicit.step(x, h, 1e9 * dt).abs() > 1e6).all()
    assert math.isinf(hybrid.max_stable_dt())
    assert explicit.max_stable_dt() == 2.0


def lrc_ssm_by_hand(cell, x, h, dt):
    p, new = numbers(cell), np.empty(N)
    for i in range(N):
        own_gate = sigmoid(p["a"][i] * h[i] + p["c"][i])
        seen = sigmoid(sum(p["W"][i, j] * x[j] for j in range(D)) + p["d"][i])
        f = p["g_x"][i] * own_gate + p["g_u"][i] * seen + p["g"][i]
        z = p["k_x"][i] * own_gate + p["k_u"][i] * seen + p["g"][i]
        epsilon = p["w"][i] * h[i] + sum(p["W_eps"][i, j] * x[j] for j in range(D)) + p["v"][i]
        velocity = -sigmoid(f) * sigmoid(epsilon) * h[i]
        velocity += math.tanh(z) * sigmoid(epsilon) * p["e"][i]
        new[i] = h[i] + dt * velocity
    return new


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_diagonal_step_is_the_equation_written_out(substeps):
    cell, x, h, dt = random_cell(LrcSSMCell, substeps=substeps)
    got = cell.step(x, h, dt).detach().numpy()
    for row in range(B):
        expected = h[row].numpy()
        for _ in range(substeps):
            expected = lrc_ssm_by_hand(cell, x[row].numpy(), expected, dt[row].item() / substeps)
        np.testing.assert_allclose(got[row], expected, rtol=1e-12, atol=1e-14)


def test_the_jacobian_of_a_diagonal_step_is_diagonal():
    cell, x, h, dt = random_cell(LrcSSMCell)
    jacobian = torch.func.jacrev(lambda h: cell.step(x[:1], h, dt[:1])[0])(h[:1])[:, 0]
    assert (jacobian != 0).equal(torch.eye(N, dtype=torch.bool))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (LRCCell, {}),
        (LRCCell, {"elastance": "symmetric"}),
        (LRCCell, {"elastance": "none"}),
        (LrcSSMCell, {}),
    ],
)
def test_the_gate_is_the_factor_on_the_velocity(kind, options):
    """The velocity over the gate is linear in e, with the same slope whatever opens the gate."""
    cell, x, h, _ = random_cell(kind, **options)
    gate = cell.update_gate(x, h)
    assert (gate > 0).all()
    assert (gate <= 1).all()
    velocity = cell.step(x, h, torch.ones(B, 1).double()) - h
    shut = {name: p for name, p in cell.named_parameters() if name in ("b", "v")}
    if not shut:
        assert (gate == 1).all()
        return
    with torch.no_grad():
        for parameter in shut.values():
            parameter += 1.5
    other = cell.step(x, h, torch.ones(B, 1).double()) - h
    torch.testing.assert_close(other / velocity, cell.update_gate(x, h) / gate)


def test_parameters_are_as_many_as_said():
    def count(cell):
        return sum(p.numel() for p in cell.parameters())

    synapses = 4 * N * (D + N) + 2 * N
    assert count(LRCCell(D, N, elastance="none")) == synapses
    assert count(LRCCell(D, N)) == synapses + N * (D + N + 1)
    assert count(LRCCell(D, N, elastance="symmetric")) == synapses + N * (D + N + 2)
    assert count(LrcSSMCell(D, N)) == 2 * N * D + 11 * N


@pytest.mark.parametrize("option", ["elastance", "solver"])
def test_wrong_options_are_refused(option):
    with pytest.raises(UnknownNameError, match=f"{option}='liquid'"):
        LRCCell(D, N, **{option: "liquid"})
