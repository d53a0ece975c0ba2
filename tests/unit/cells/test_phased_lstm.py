"""Phased LSTM: the time gate of the paper and that of the ODE-LSTM code, against NumPy."""

import math

import numpy as np
import pytest
import torch
from cell_references import lstm_memory, softplus
from irregular import D, N, parameter_count, randomised, reference, run, sequence
from scipy.special import expit
from test_initialisation import glorot, orthogonal, uniform

import tauflow
from tauflow.cells import PhasedLSTMCell
from tauflow.errors import ArgumentError, UnknownNameError


def time_gate(phase, r, rise, alpha):
    if phase < r / 2:
        return rise(phase, r)
    return 2 - 2 * phase / r if phase < r else alpha * phase


def gated(p, x, h, c, k, forget_bias):
    h_new, c_new = lstm_memory(p, forget_bias, x, h, c)
    return k * h_new + (1 - k) * h, k * c_new + (1 - k) * c


def paper(p, xs, gaps):
    h, c, ys = np.zeros(N), np.zeros(N), []
    tau, r = np.exp(p["raw_tau"]), expit(p["raw_r"])
    for x, t in zip(xs, np.cumsum(gaps), strict=True):
        phase = np.mod(t - p["raw_s"], tau) / tau
        k = [time_gate(phase[n], r[n], lambda phase, r: 2 * phase / r, 0.001) for n in range(N)]
        h, c = gated(p, x, h, c, np.array(k), 1.0)
        ys.append(h)
    return ys


def released(p, xs, gaps):
    h, c, ys = np.zeros(N), np.zeros(N), []
    tau, s, r = (softplus(p[name][0]) for name in ("raw_tau", "raw_s", "raw_r"))
    for x, dt in zip(xs, gaps, strict=True):
        phase = np.mod(dt - s, tau) / tau
        h, c = gated(p, x, h, c, time_gate(phase, r, lambda phase, r: 2 * phase * r, 0.001), 1.0)
        ys.append(h)
    return ys


@pytest.mark.parametrize("model", [paper, released])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_values(model, seed):
    cell, (x, dt, _) = PhasedLSTMCell(D, N, form=model.__name__, ratio=0.5), sequence(seed)
    randomised(cell, seed)
    with torch.no_grad():
        y, _ = run(cell, x, dt)
    np.testing.assert_allclose(y.numpy(), reference(cell, model, x, dt), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
def test_parameter_counts(D, N):
    lstm = 4 * D * N + 4 * N * N + 4 * N
    assert parameter_count(PhasedLSTMCell(D, N)) == lstm + 3 * N
    assert parameter_count(PhasedLSTMCell(D, N, form="released")) == lstm + 3


def test_the_gate_opens_and_closes_once_a_cycle():
    cell = PhasedLSTMCell(D, 1, ratio=0.2).double()
    with torch.no_grad():
        cell.raw_tau.fill_(math.log(10))
        cell.raw_s.fill_(3)
    t = torch.tensor([[-7.0], [3.0], [3.5], [4.0], [4.5], [5.1], [8.0], [13.0], [14.0]]).double()
    t = t + 1e-9  # not on the edges, where rounding decides
    expected = [0, 0, 0.5, 1, 0.5, 0.00021, 0.0005, 0, 1]
    torch.testing.assert_close(
        cell.time_gate(t)[:, 0], torch.tensor(expected).double(), rtol=0, atol=1e-8
    )


def test_the_released_gate_rises_to_less_than_half():
    cell = PhasedLSTMCell(D, N, form="released").double()
    tau = r = math.log(2)
    phase = torch.tensor([[0.1], [0.3], [0.5], [0.9]]).double()
    expected = [2 * 0.1 * r, 2 * 0.3 * r, 2 - 2 * 0.5 / r, 0.0009]
    # tau = s, so that a gap of tau (1 + phase) has that phase
    k = cell.time_gate(tau * (1 + phase))[:, 0]
    torch.testing.assert_close(k, torch.tensor(expected).double())


def test_a_closed_gate_without_leak_keeps_the_memory():
    cell, (x, dt, _) = PhasedLSTMCell(D, N, leak=0.0).double(), sequence()
    with torch.no_grad():
        cell.raw_tau.fill_(math.log(1000))
        cell.raw_s.fill_(-100)  # a tenth into the cycle, open for a twentieth
    h = torch.randn(3, cell.state_size).double()
    h[:, 2 * N :] = 0
    after = cell.step(x[:, 0], h, dt[:, 0])
    assert torch.equal(after[:, : 2 * N], h[:, : 2 * N])
    assert torch.equal(cell.split_state(after)["t"].sum(-1, keepdim=True), dt[:, 0])


def twins(dtype=torch.float32):
    """Return a module and its copy in double precision."""
    module = tauflow.PhasedLSTM(2, 4).to(dtype)
    exact = tauflow.PhasedLSTM(2, 4).double()
    exact.load_state_dict(module.state_dict())
    return module, exact


def late(steps, dtype, start):
    """Return inputs, short gaps, and a state at a time far from the start."""
    x, h = torch.randn(1, steps, 2).to(dtype), torch.zeros(1, 12, dtype=dtype)
    h[:, 8] = start
    return x, torch.empty(1, steps).exponential_(2.0).to(dtype), h


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", [1e4, 2.5e4, 1e6])  # after 20,000 such gaps, 50,000 and more
def test_the_clock_does_not_drift_in_single_precision(start):
    module, exact = twins()
    x, dt, h = late(1000, torch.float32, start)
    with torch.no_grad():
        y, last = module(x, h, dt=dt)
        expected, end = exact(x.double(), h.double(), dt=dt.double())
    error = (y - expected).abs().max() / (expected.max() - expected.min())
    assert error < 1e-5
    t, exact_t = (rnn.split_state(s)[0]["t"] for rnn, s in ((module, last), (exact, end)))
    assert abs(t.double().sum() - exact_t.sum()) < 1e-6
    assert exact_t.sum().item() == pytest.approx(start + dt.double().sum().item(), rel=1e-12)


@pytest.mark.parametrize("start", [0.0, 1e4])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 2e-2), (torch.bfloat16, 1e-1)], ids=str
)
def test_the_clock_does_not_drift_in_half_precision(dtype, tolerance, start):
    module, exact = twins(dtype)
    x, dt, h = late(40, dtype, start)
    with torch.no_grad():
        y, last = module(x, h, dt=dt)
        expected, _ = exact(x.double(), h.double(), dt=dt.double())
    assert (y - expected).abs().max() / (expected.max() - expected.min()) < tolerance
    t = h.double()[0, 8] + dt.double().sum()
    assert abs(module.split_state(last)[0]["t"].double().sum() - t) < 1e-5 * max(1.0, t / 100)


def test_gradients_at_late_times_are_those_of_double_precision():
    results = []
    x, dt, h = late(50, torch.float32, 1e4)
    for module in twins():
        dtype = module.cell.W_x.dtype
        leaves = [v.to(dtype).requires_grad_() for v in (x, dt, h)]
        y, last = module(leaves[0], leaves[2], dt=leaves[1])
        pull = torch.linspace(-1, 1, y.numel()).view_as(y).to(dtype)
        total = (y * pull).sum() + last[:, 8:].sum()
        results.append(torch.autograd.grad(total, [*leaves, *module.parameters()]))
    for single, double in zip(*results, strict=True):
        assert double.abs().max() > 0
        error = (single - double).abs().max() / double.abs().max()
        assert error < 1e-4


def test_draws():
    cell = PhasedLSTMCell(20, 600, ratio=0.1)
    glorot(cell.W_x)
    orthogonal(cell.W_h)
    assert not cell.b.any()
    uniform(cell.tau.log(), 0, 3)
    uniform(cell.s / cell.tau, 0, 1)
    torch.testing.assert_close(cell.r, torch.full((600,), 0.1))
    released = PhasedLSTMCell(20, 60, form="released")
    for value in (released.tau, released.s, released.r):
        torch.testing.assert_close(value, torch.tensor([math.log(2)]))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"form": "pape"}, UnknownNameError, "form='pape' is unknown.*'paper'"),
        ({"leak": 2.0}, ArgumentError, "leak must be a number from 0 to 1, got 2"),
        ({"forget_bias": math.inf}, ArgumentError, "forget_bias must be a finite number"),
        ({"ratio": math.nan}, ArgumentError, "ratio must be a finite number"),
        ({"ratio": 0.0}, ArgumentError, "ratio must lie between 0 and 1, both excluded, got 0"),
        ({"ratio": 1.0}, ArgumentError, "ratio must lie between 0 and 1, both excluded, got 1"),
    ],
)
def test_wrong_options(options, error, match):
    with pytest.raises(error, match=match):
        PhasedLSTMCell(D, N, **options)
