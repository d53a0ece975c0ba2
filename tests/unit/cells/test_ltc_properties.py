"""Bounds and limits that the liquid time-constant cells obey for any input and gap."""

import pytest
import torch
from cell_references import conductance_and_drive, ltc_parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tauflow.cells import LTCCell, NeuronalLTCCell

D, N = 2, 4
GAPS = st.one_of(st.floats(1e-12, 1.0), st.floats(1.0, 1e6))
INPUTS = st.floats(-1e6, 1e6)
STATES = st.floats(-5.0, 5.0)


def row(values: list[float]) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def ltc(seed: int, **options: object) -> LTCCell:
    torch.manual_seed(seed)
    return LTCCell(D, N, epsilon=0.0, **options).double()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 50),
    x=st.lists(INPUTS, min_size=D, max_size=D),
    h=st.lists(STATES, min_size=N, max_size=N),
    dt=GAPS,
)
def test_fused_state_stays_between_itself_and_the_potentials(seed, x, h, dt):
    cell = ltc(seed)
    v = cell.step(row(x), row(h), row([dt]))[0]
    potentials = torch.cat([cell.V_l[None], cell.E, cell.E_x])
    low = torch.minimum(row(h)[0], potentials.min(0).values)
    high = torch.maximum(row(h)[0], potentials.max(0).values)
    assert (v >= low - 1e-9).all()
    assert (v <= high + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 50),
    x=st.lists(st.floats(-1e3, 1e3), min_size=D, max_size=D),
    h=st.lists(STATES, min_size=N, max_size=N),
    dt=GAPS,
)
def test_neuronal_state_stays_between_itself_zero_and_a(seed, x, h, dt):
    """Theorem 2 of the paper, which needs an activation with values in (0, 1)."""
    torch.manual_seed(seed)
    cell = NeuronalLTCCell(D, N, activation="sigmoid").double()
    after = cell.step(row(x), row(h), row([dt]))[0]
    ends = torch.stack([row(h)[0], torch.zeros(N, dtype=torch.float64), cell.A.detach()])
    assert (after >= ends.min(0).values - 1e-9).all()
    assert (after <= ends.max(0).values + 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 50),
    h=st.lists(STATES, min_size=N, max_size=N),
    solver=st.sampled_from(["fused", "euler", "midpoint", "heun", "rk4"]),
)
def test_a_gap_of_zero_keeps_the_state_exactly(seed, h, solver):
    for cell in (ltc(seed, solver=solver), NeuronalLTCCell(D, N, solver=solver).double()):
        after = cell.step(row([1.0, -2.0]), row(h), row([0.0]))
        torch.testing.assert_close(after, row(h), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dt", [1e3, 1e6])
def test_fused_state_without_recurrence_reaches_the_equilibrium(dt):
    """With w = 0 the conductances are fixed and v tends to (g_l V_l + J) / (g_l + G)."""
    cell = ltc(0, constraint="clip", substeps=1)
    with torch.no_grad():
        cell.w.zero_()
    x, h = row([0.4, -0.2]), row([3.0, -3.0, 0.5, 0.0])
    p, synapses = ltc_parameters(cell), cell.wiring.build(D)
    G, J = conductance_and_drive(
        p, synapses.recurrent.numpy(), synapses.sensory.numpy(), x[0].numpy(), h[0].numpy()
    )
    expected = torch.from_numpy((p["g_l"] * p["V_l"] + J) / (p["g_l"] + G))
    for _ in range(3):
        h = cell.step(x, h, row([dt]))
    torch.testing.assert_close(h[0], expected, rtol=1e-6, atol=1e-6)
    for _ in range(40):
        h = cell.step(x, h, row([10.0]))
    torch.testing.assert_close(h[0], expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 50),
    x=st.lists(INPUTS, min_size=D, max_size=D),
    h=st.lists(STATES, min_size=N, max_size=N),
)
def test_the_state_relaxes_within_the_bounds_of_the_system_time_constant(seed, x, h):
    """From two states that conduct alike, the distance decays at a rate within the bounds.

    With the recurrent synapses shut, two states differ only in the linear term, and one fused step
    of length d shrinks their distance by 1 / (1 + d / tau_sys).
    """
    cell = ltc(seed, constraint="clip", substeps=1)
    with torch.no_grad():
        cell.w.zero_()
    d = 0.1
    gap = row([d])
    shrink = (cell.step(row(x), row(h) + 1, gap) - cell.step(row(x), row(h), gap))[0]
    tau = d * shrink / (1 - shrink)
    low = cell.C / (cell.g_l + cell.w_x.sum(0))
    assert (tau >= low * (1 - 1e-6)).all()
    assert (tau <= cell.C / cell.g_l * (1 + 1e-6)).all()
