"""Time constants and states stay within bounds for any input; which solvers keep them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tauflow
from tauflow.cells import LTCCell, NeuronalLTCCell
from tauflow.errors import ArgumentError
from tauflow.solvers import TABLEAUS, ButcherTableau
from tauflow_papers.theory import certify_ltc, ltc_bounds

D, N, T = 2, 4, 5
SEEDS = st.integers(0, 10_000)
SIZES = st.sampled_from([1e-3, 1.0, 1e3, 1e6])
EXPLICIT = ["euler", "heun", "rk4"]


def random_ltc(seed, slopes=1.0, **options):
    """A network as far from its first draw as training may bring it."""
    generator = torch.Generator().manual_seed(seed)
    cell = LTCCell(D, N, **options).double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = slopes if "sigma" in name else 1.0
            parameter.copy_(scale * 2 * noise)
    return cell


def random_neuronal(seed, **options):
    generator = torch.Generator().manual_seed(seed)
    cell = NeuronalLTCCell(D, N, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.normal_(0, 2, generator=generator)
        if cell.w is not None:
            cell.w.abs_()
    return cell


def inputs(seed, size):
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(3, T, D, generator=generator, dtype=torch.float64)
    h = torch.randn(3, N, generator=generator, dtype=torch.float64)
    return size * x, h


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, size=SIZES, dt=st.sampled_from([1e-3, 1.0, 1e3, 1e6]), eps=st.booleans())
def test_the_fused_solver_keeps_the_bounds_for_any_gap(seed, size, dt, eps):
    x, h = inputs(seed, size)
    for cell in (
        random_ltc(seed, epsilon=1e-2 if eps else 0.0),
        random_neuronal(seed, activation="sigmoid", scale=eps),
        random_neuronal(seed, activation="relu"),
    ):
        certificate = certify_ltc(cell, x, h, dt=dt)
        assert certificate.proven
        assert certificate.holds


@pytest.mark.parametrize("dt", [1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_the_exponential_solver_keeps_the_bounds_for_any_gap(seed, dt):
    for size in (1.0, 1e6):
        x, h = inputs(seed, size)
        for cell in (
            random_ltc(seed, solver="exponential"),
            random_neuronal(seed, activation="sigmoid", solver="exponential"),
            random_neuronal(seed, activation="relu", solver="exponential"),
        ):
            certificate = certify_ltc(cell, x, h, dt=dt)
            assert certificate.proven
            assert certificate.holds


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    size=SIZES,
    share=st.floats(0.05, 1.0),
    slopes=st.sampled_from([1.0, 1e4]),
    solver=st.sampled_from(EXPLICIT),
)
def test_explicit_solvers_keep_the_bounds_up_to_the_safe_gap(seed, size, share, slopes, solver):
    """Steep synapses switch between stages, which is the worst that can happen."""
    x, h = inputs(seed, size)
    for cell in (
        random_ltc(seed, slopes, solver=solver, time_scale=3.0),
        random_neuronal(seed, activation="sigmoid", solver=solver),
    ):
        gap = share * ltc_bounds(cell).safe_dt
        certificate = certify_ltc(cell, x, h, dt=gap)
        assert certificate.proven
        assert certificate.holds


@pytest.mark.parametrize("seed", range(8))
def test_the_safe_gap_itself_is_safe_in_single_precision(seed):
    torch.manual_seed(seed)
    cell = LTCCell(D, N, solver="euler")
    assert certify_ltc(cell, torch.randn(1, T, D), dt=ltc_bounds(cell).safe_dt).proven


def switching_cell(solver, w, g_l=0.5, V_l=1.0):
    """One neuron that leaks to V_l, and pulls itself to -1 while above 0.999; C = 1."""
    cell = LTCCell(1, 1, solver=solver, substeps=1, constraint="clip", input_mapping="none")
    cell = cell.double()
    with torch.no_grad():
        for name, value in {
            "w": w,
            "w_x": 0.0,
            "mu": 0.999,
            "sigma": 1e6,
            "E": -1.0,
            "E_x": V_l,
            "g_l": g_l,
            "V_l": V_l,
            "C": 1.0,
        }.items():
            getattr(cell, name).fill_(value)
    return cell


def overshoot(cell, dt):
    x, h = torch.zeros(1, 1, 1).double(), torch.ones(1, 1).double()
    return certify_ltc(cell, x, h, dt=dt)


@pytest.mark.parametrize("dt", [1.0, 0.1, 0.02])
def test_the_midpoint_rule_breaks_them_with_any_step(dt):
    cell = switching_cell("midpoint", 0.5)
    assert ltc_bounds(cell).safe_dt == 0.0
    broken = overshoot(cell, dt)
    assert not broken.proven
    assert not broken.holds
    # v' = 1 + d g_l (d/2) 2 w, by hand
    assert float(broken.state_margin[1]) == pytest.approx(-(dt**2) / 4)
    for solver in (*EXPLICIT, "fused"):
        assert overshoot(switching_cell(solver, 0.5), dt).holds


@pytest.mark.parametrize(
    ("solver", "g_l", "w", "V_l", "after"),
    [
        ("euler", 1.5, 0.0, -1.0, -2.0),  # 1 + 1.5 (-1 - 1)
        ("heun", 1.5, 0.5, 1.0, 1.25),  # slopes -1, then 1.5 as the synapse shuts
        ("rk4", 3.0, 0.0, -1.0, 1.75),  # -1 + 2 (1 - 3 + 9/2 - 27/6 + 81/24)
    ],
)
def test_longer_steps_than_the_safe_one_can_break_them(solver, g_l, w, V_l, after):
    cell = switching_cell(solver, w, g_l, V_l)
    assert ltc_bounds(cell).safe_dt == pytest.approx(1 / (g_l + w))
    broken = overshoot(cell, 1.0)
    assert float(broken.states[0, -1, 0]) == pytest.approx(after)
    assert not broken.proven
    assert not broken.holds


def test_bounds_are_the_formulas():
    cell = LTCCell(D, tauflow.AutoNCP(8, 2), epsilon=0.0, time_scale=2.0)
    bounds = ltc_bounds(tauflow.SequenceModel(tauflow.RNN(cell), 1))
    softplus = torch.nn.functional.softplus
    cell.requires_grad_(False)
    for i in range(8):
        w = sum(
            float(softplus(weight[j, i]))
            for weight, mask in ((cell.w_x, cell.synapses_x), (cell.w, cell.synapses))
            for j in range(len(mask))
            if mask[j, i]
        )
        potentials = [
            float(E[j, i])
            for E, mask in ((cell.E_x, cell.synapses_x), (cell.E, cell.synapses))
            for j in range(len(mask))
            if mask[j, i]
        ] + [float(cell.V_l[i])]
        g_l, C = float(softplus(cell.g_l[i])), float(softplus(cell.C[i]))
        assert float(bounds.tau_low[i]) == pytest.approx(C / (g_l + w) / 2, rel=1e-5)
        assert float(bounds.tau_high[i]) == pytest.approx(C / g_l / 2, rel=1e-5)
        assert float(bounds.state_low[i]) == pytest.approx(min(potentials))
        assert float(bounds.state_high[i]) == pytest.approx(max(potentials))
    assert math.isinf(bounds.safe_dt)
    neuronal = NeuronalLTCCell(D, 3, activation="sigmoid", solver="rk4", substeps=4, scale=True)
    w = torch.tensor([0.0, 0.5, 3.0])
    neuronal.w.data.copy_(w)
    ltc = ltc_bounds(neuronal)
    torch.testing.assert_close(ltc.tau_low, neuronal.tau / (1 + neuronal.tau * w))
    assert ltc.safe_dt == pytest.approx(4 * float(ltc.tau_low.min()))


def test_time_constants_are_measured_where_synapses_shut_and_open():
    cell = random_ltc(3)
    with torch.no_grad():
        cell.w_x.fill_(1.0)
        cell.w.fill_(-40.0)  # recurrent synapses conduct nothing
        cell.sigma_x.fill_(1.0)
    bounds = ltc_bounds(cell)
    for sign, expected in ((-1, bounds.tau_high), (1, bounds.tau_low)):
        with torch.no_grad():
            cell.a_in.fill_(1.0)
            cell.b_in.zero_()
        x = torch.full((1, 2, D), sign * 1e6, dtype=torch.float64)
        torch.testing.assert_close(certify_ltc(cell, x).tau[0, 1], expected)


def test_a_start_outside_the_potentials_counts_in():
    cell = random_ltc(1)
    x, _ = inputs(1, 1.0)
    start = torch.full((3, N), 90.0, dtype=torch.float64)
    certificate = certify_ltc(cell, x, start)
    assert certificate.holds
    assert float(certificate.state_margin[1].min()) == 0.0


def test_cells_without_such_bounds_are_refused():
    x = torch.zeros(1, 2, D)
    with pytest.raises(ArgumentError, match="activation that is never negative, got 'tanh'"):
        ltc_bounds(tauflow.NeuronalLTC(D, 3))
    negative = tauflow.NeuronalLTC(D, 3, activation="sigmoid", scale=True)
    negative.cell.w.data.fill_(-1.0)
    with pytest.raises(ArgumentError, match="scale w that is never negative"):
        ltc_bounds(negative)
    with pytest.raises(ArgumentError, match="those of LTCCell and NeuronalLTCCell, got CfCCell"):
        certify_ltc(tauflow.CfC(D, 3), x)
    with pytest.raises(ArgumentError, match="LTC has 2 cells, and one is looked at"):
        certify_ltc(tauflow.LTC(D, 3, num_layers=2), x)
    with pytest.raises(ArgumentError, match="expected a cell or a sequence module"):
        ltc_bounds(torch.nn.Linear(2, 2))


def test_no_gap_is_proven_safe_with_a_solver_of_ones_own(monkeypatch):
    monkeypatch.setattr(TABLEAUS, "_entries", dict(TABLEAUS))
    TABLEAUS.add("own", ButcherTableau("own", 1, ((),), (1.0,), 2.0, "own"))
    assert ltc_bounds(tauflow.LTC(D, 3, solver="own")).safe_dt == 0.0
