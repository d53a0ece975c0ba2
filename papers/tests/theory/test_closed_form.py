"""Closed forms of trained LTCs, against the equations in NumPy and the ODE itself."""

import numpy as np
import pytest
import torch

import tauflow
from tauflow.cells import LTCCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.theory import CLOSED_FORMS, closed_form

D, B, T = 2, 2, 12


def ltc(recurrent=True, seed=0, **options):
    torch.manual_seed(seed)
    cell = LTCCell(D, tauflow.AutoNCP(7, 2), **options).double().requires_grad_(False)
    if not recurrent:
        cell.synapses.zero_()
    return cell


def sequences(constant=False, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(B, T, D, generator=generator, dtype=torch.float64) * 2
    dt = torch.rand(B, T, generator=generator, dtype=torch.float64) + 0.1
    h = torch.randn(B, 7, generator=generator, dtype=torch.float64)
    return (x[:, :1].expand(B, T, D) if constant else x), dt, h


def by_hand(cell, x, states, dt, h, form):
    """Algorithm 1 and its released variant, synapse by synapse."""
    softplus = torch.nn.functional.softplus
    w = torch.cat([softplus(cell.w_x), softplus(cell.w)]).numpy()
    mu, sigma, E = (
        torch.cat([getattr(cell, f"{n}_x"), getattr(cell, n)]).numpy() for n in ("mu", "sigma", "E")
    )
    mask = torch.cat([cell.synapses_x, cell.synapses]).numpy()
    g_l, C = softplus(cell.g_l).numpy(), softplus(cell.C).numpy()
    u = (x * cell.a_in + cell.b_in).numpy()
    out = np.zeros((B, T, 7))
    for b, k, i in np.ndindex(B, T, 7):
        time = float(dt[b, : k + 1].sum())
        pre = np.concatenate([u[b, k], states[b, k].numpy()])
        for j in np.flatnonzero(mask[:, i]):
            q = 1 / (1 + np.exp(-sigma[j, i] * (pre[j] - mu[j, i])))
            c = float(h[b, i]) - E[j, i]
            if form == "paper":
                out[b, k, i] += c * np.exp(-time * (g_l[i] / C[i] + q)) * (1 - q) + E[j, i]
            else:
                rate = (g_l[i] + w[j, i] * q) / C[i]
                out[b, k, i] += c * np.exp(-time * rate) * (1 - q) ** w[j, i] + E[j, i]
    return out


@pytest.mark.parametrize("form", ["paper", "released"])
def test_published_forms_are_their_formulas(form):
    cell = ltc()
    x, dt, h = sequences()
    trace = closed_form(cell, x, h, form=form, dt=dt)
    expected = by_hand(cell, x, trace.solved, dt, h, form)
    np.testing.assert_allclose(trace.closed.numpy(), expected, rtol=1e-10)
    torch.testing.assert_close(trace.t, dt.cumsum(1))


@pytest.mark.parametrize("form", ["exponential", "corrected"])
@pytest.mark.parametrize("presynaptic", ["recorded", "own"])
def test_corrected_forms_are_exact_while_signals_are_constant(form, presynaptic):
    cell = ltc(recurrent=False, solver="rk4")
    x, dt, h = sequences(constant=True)
    trace = closed_form(cell, x, h, form=form, presynaptic=presynaptic, dt=dt, substeps=60)
    assert trace.largest_error < 1e-6
    coarse = closed_form(cell, x, h, form=form, presynaptic=presynaptic, dt=dt, substeps=1)
    assert coarse.largest_error > 1e-4  # what is left is the solver's error


def test_published_forms_miss_the_start_and_the_corrected_ones_do_not():
    cell = ltc()
    x, _, h = sequences()
    for form in CLOSED_FORMS:
        trace = closed_form(cell, x[:, :1], h, form=form, dt=1e-9)
        distance = float((trace.closed[:, 0] - h).abs().max())
        assert distance < 1e-6 if form in ("exponential", "corrected") else distance > 0.1


def test_the_exponential_form_by_itself_converges_to_the_ode():
    """Frozen conductances are of first order: half the time steps, half the error."""
    cell = ltc(solver="rk4")
    x, _, h = sequences(constant=True)
    errors = []
    for pieces in (40, 80, 160):
        held = x[:, :1].expand(B, pieces, D)
        trace = closed_form(cell, held, h, presynaptic="own", pieces=1, dt=2.0 / pieces, substeps=4)
        errors.append(trace.largest_error)
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.15)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.15)


def test_pieces_are_gaps_split_up():
    cell = ltc()
    x, dt, h = sequences()
    unsplit = closed_form(cell, x, h, presynaptic="own", pieces=3, dt=dt)
    split = closed_form(
        cell,
        x.repeat_interleave(3, dim=1),
        h,
        presynaptic="own",
        pieces=1,
        dt=dt.repeat_interleave(3, dim=1) / 3,
    )
    torch.testing.assert_close(unsplit.closed, split.closed[:, 2::3])
    default = closed_form(cell, x, h, presynaptic="own", dt=dt)
    six = closed_form(cell, x, h, presynaptic="own", pieces=6, dt=dt)
    assert torch.equal(default.closed, six.closed)


def test_recorded_signals_within_a_gap_are_linear():
    cell = ltc()
    x, _, h = sequences()
    exact = closed_form(cell, x, h, dt=0.01, pieces=1, substeps=50)
    assert exact.largest_error < 1e-4  # second order in the time step, where "own" is of first
    own_signals = closed_form(cell, x, h, dt=0.01, pieces=1, substeps=50, presynaptic="own")
    assert own_signals.largest_error > 3 * exact.largest_error


def test_errors_are_those_of_the_traces():
    cell = ltc()
    x, dt, h = sequences()
    trace = closed_form(tauflow.SequenceModel(tauflow.RNN(cell), 3).double(), x, h, dt=dt)
    assert trace.outputs == 2
    difference = (trace.closed - trace.solved).numpy()
    np.testing.assert_allclose(trace.squared_error, (difference**2).mean(axis=(0, 1)))
    assert trace.output_error == pytest.approx((difference[..., :2] ** 2).mean())
    assert trace.largest_error == np.abs(difference).max()
    states = tauflow.RNN(cell)(x, h, dt=dt)[1]
    torch.testing.assert_close(trace.solved[:, -1], states)
    assert cell.substeps == 6  # untouched by substeps=


def test_single_sequences_and_times_work():
    cell = ltc()
    x, dt, _ = sequences()
    alone = closed_form(cell, x[0], t=dt[0].cumsum(0) - dt[0, 0])
    assert alone.closed.shape == (1, T, 7)


def test_other_cells_and_names_are_refused():
    x, _, _ = sequences()
    with pytest.raises(ArgumentError, match="only LTCCell has synapses to translate, got CfCCell"):
        closed_form(tauflow.CfC(D, 3).double(), x)
    with pytest.raises(UnknownNameError, match="form='euler' is unknown"):
        closed_form(ltc(), x, form="euler")
    with pytest.raises(UnknownNameError, match="presynaptic='self' is unknown"):
        closed_form(ltc(), x, presynaptic="self")
