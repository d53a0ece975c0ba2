"""Streams of events: likelihood and next event, against Poisson processes and the equations."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import cumulative_trapezoid, quad

import tauflow
from tauflow.errors import (
    ArgumentError,
    DataError,
    DtypeError,
    ShapeError,
    TimeError,
    UnknownNameError,
)
from tauflow.models import NeuralHawkes

F64 = torch.float64
K, N = 3, 5
LENGTHS = torch.tensor([4, 2, 0])
END = torch.tensor([6.0, 5.0, 3.0], dtype=F64)
TYPES = torch.tensor([[0, 2, 1, 1], [1, 1, -5, 99], [0, 0, 0, 0]])
T = torch.tensor(
    [[0.5, 1.0, 1.0, 4.0], [0.2, 3.0, math.nan, -1.0], [9.0, math.inf, 0.0, 0.0]], dtype=F64
)


def make_model(neurons=N):
    torch.manual_seed(0)
    model = NeuralHawkes(K, neurons).double()
    with torch.no_grad():
        model.weight.mul_(3)
        model.log_scale.copy_(torch.tensor([0.3, -1.0, 0.0]))
    return model


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class Reference:
    """The equations of Mei & Eisner 2017 in NumPy, for one stream."""

    def __init__(self, model, types, t):
        cell = model.rnn.cell
        W_x, W_h, b = (p.detach().numpy() for p in (cell.W_x, cell.W_h, cell.b))
        self.w = model.weight.detach().numpy()
        self.s = np.exp(model.log_scale.detach().numpy())
        self.t = np.array([0.0, *t])
        zero = np.zeros(N)
        state, self.states = (zero, zero, zero, zero), []
        for kind, now, before in zip([K, *types], self.t, [0.0, *self.t[:-1]], strict=True):
            C, C_bar, d, o = state
            c = C_bar + (C - C_bar) * np.exp(-d * (now - before))
            i, f, i_bar, f_bar, o, z, d = np.split(W_x[:, kind] + W_h @ (o * np.tanh(c)) + b, 7)
            z = np.tanh(z)
            state = (
                sigmoid(f) * c + sigmoid(i) * z,
                sigmoid(f_bar) * C_bar + sigmoid(i_bar) * z,
                np.logaddexp(0, d),
                sigmoid(o),
            )
            self.states.append(state)

    def intensity(self, time, events=None):
        """Intensities at a time, by default after all events before it."""
        events = int((self.t[1:] < time).sum()) if events is None else events
        C, C_bar, d, o = self.states[events]
        age = np.asarray(time)[..., None] - self.t[events]
        c = C_bar + (C - C_bar) * np.exp(-d * age)
        return self.s * np.log1p(np.exp((o * np.tanh(c)) @ self.w.T / self.s))


def references(model):
    for row, (length, end) in enumerate(zip(LENGTHS, END, strict=True)):
        types, t = TYPES[row, :length].tolist(), T[row, :length].tolist()
        yield row, types, t, float(end), Reference(model, types, t)


def test_the_likelihood_is_that_of_the_equations():
    model = make_model()
    likelihoods = model.log_likelihood(TYPES, T, END, lengths=LENGTHS).detach()
    for row, types, t, end, reference in references(model):
        expected = sum(
            math.log(reference.intensity(time, events)[kind])
            for events, (kind, time) in enumerate(zip(types, t, strict=True))
        )
        borders = [0.0, *t, end]
        for events, (start, stop) in enumerate(itertools.pairwise(borders)):
            grid = np.linspace(start, stop, 4001)
            expected -= np.trapezoid(reference.intensity(grid, events).sum(-1), grid)
        assert float(likelihoods[row]) == pytest.approx(expected, abs=1e-5)


def test_intensities_are_those_of_the_equations():
    model = make_model()
    at = torch.tensor([[5.9, 0.1, 0.5, 2.0], [0.0, 1.0, 3.0, 9.0], [0.0, 1.0, 2.0, 50.0]])
    intensities = model.intensity(TYPES, T, at.double(), lengths=LENGTHS).detach()
    for row, _, _, _, reference in references(model):
        for column, time in enumerate(at[row].tolist()):
            expected = reference.intensity(torch.tensor(time).double().item())
            np.testing.assert_allclose(intensities[row, column], expected, rtol=1e-6)


@pytest.mark.parametrize("now", [None, END])
def test_the_next_event_is_the_mean_of_its_density(now):
    model = make_model()
    forecast = model.predict_next(TYPES, T, lengths=LENGTHS, now=now)
    for row, types, t, end, reference in references(model):
        start = max([0.0, *t]) if now is None else end
        grid = np.linspace(start, start + 60, 60_001)
        rates = reference.intensity(grid, len(types))
        hazard = np.concatenate(
            [[0], np.cumsum((rates[1:] + rates[:-1]).sum(1) / 2 * np.diff(grid))]
        )
        survival = np.exp(-hazard)
        assert survival[-1] < 1e-9
        mean = start + np.trapezoid(survival, grid)
        assert float(forecast.time[row]) == pytest.approx(mean, abs=1e-5)
        shares = np.trapezoid(rates * survival[:, None], grid, axis=0)
        np.testing.assert_allclose(forecast.probabilities[row], shares, atol=1e-5)


@pytest.mark.parametrize("integral", ["quadrature", "monte-carlo"])
def test_constant_intensities_are_a_poisson_process(integral):
    model = make_model()
    rates = torch.tensor([0.7, 0.2, 1.5], dtype=F64)
    with torch.no_grad():
        model.weight.zero_()
        model.log_scale.copy_((rates / math.log(2)).log())
    likelihoods = model.log_likelihood(TYPES, T, END, lengths=LENGTHS, integral=integral, points=2)
    counts = torch.tensor([[1, 2, 1], [0, 2, 0], [0, 0, 0]], dtype=F64)
    torch.testing.assert_close(likelihoods, counts @ rates.log() - rates.sum() * END)
    after = model.predict_next(TYPES, T, lengths=LENGTHS, now=END)
    torch.testing.assert_close(after.time, END + 1 / rates.sum())
    torch.testing.assert_close(after.probabilities, (rates / rates.sum()).expand(3, K))


def test_monte_carlo_is_seeded_and_agrees_with_the_quadrature():
    model = make_model()

    def estimate(seed, points):
        return model.log_likelihood(
            TYPES,
            T,
            END,
            lengths=LENGTHS,
            integral="monte-carlo",
            points=points,
            generator=torch.Generator().manual_seed(seed),
        )

    exact = model.log_likelihood(TYPES, T, END, lengths=LENGTHS)
    assert torch.equal(estimate(0, 4), estimate(0, 4))
    assert not torch.equal(estimate(0, 4), estimate(1, 4))
    torch.testing.assert_close(estimate(0, 20_000), exact, rtol=0, atol=5e-3)


def test_gradients():
    model = make_model(neurons=2)
    names, values = zip(*model.named_parameters(), strict=True)

    def likelihood(*parameters):
        return torch.func.functional_call(
            Likelihood(model), {f"model.{n}": p for n, p in zip(names, parameters, strict=True)}, ()
        )

    assert torch.autograd.gradcheck(likelihood, [v.detach().requires_grad_() for v in values])


class Likelihood(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        return self.model.log_likelihood(TYPES[:2], T[:2], END[:2], lengths=LENGTHS[:2], points=3)


def test_a_batch_is_its_rows():
    model = make_model()
    likelihoods = model.log_likelihood(TYPES, T, END, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        types, t = TYPES[row : row + 1, :length], T[row : row + 1, :length]
        alone = model.log_likelihood(types, t, float(END[row]))
        torch.testing.assert_close(alone, likelihoods[row : row + 1])
        torch.testing.assert_close(
            model.predict_next(types, t).time[0],
            model.predict_next(TYPES, T, lengths=LENGTHS).time[row],
        )


def test_rates_far_below_and_above_one_are_finite():
    model = make_model().float()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[400.0], [-400.0], [0.0]]).expand(K, N))
    types, t = torch.tensor([[0, 1, 2, 1]]), torch.tensor([[0.1, 0.2, 5.0, 5.0]])
    likelihoods = model.log_likelihood(types, t, 6.0)
    likelihoods.sum().backward()
    assert likelihoods.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    after = model.predict_next(types, t)
    assert after.time >= 5
    assert float(after.probabilities.sum()) == pytest.approx(1)


MU, BETA, SPAN = np.array([0.3, 0.05]), 2.0, 15.0
ALPHA = np.array([[0.2, 1.2], [1.2, 0.1]])  # [k, j]: what an event of type j adds to the rate of k


def simulate_by_thinning(rng):
    """Return times and types of a Hawkes process with exponential kernels (Ogata 1981)."""
    times, types, now, excited = [], [], 0.0, np.zeros(2)
    while True:
        bound = (MU + excited).sum()
        wait = rng.exponential(1 / bound)
        now += wait
        if now > SPAN:
            return times, types
        excited = excited * np.exp(-BETA * wait)
        kind = int(np.searchsorted(np.cumsum(MU + excited), rng.uniform() * bound))
        if kind < 2:
            times.append(now)
            types.append(kind)
            excited = excited + ALPHA[:, kind]


def true_likelihood(times, types):
    likelihood, excited, last = -MU.sum() * SPAN, np.zeros(2), 0.0
    for now, kind in zip(times, types, strict=True):
        excited = excited * np.exp(-BETA * (now - last))
        likelihood += math.log((MU + excited)[kind])
        likelihood -= ALPHA[:, kind].sum() / BETA * (1 - math.exp(-BETA * (SPAN - now)))
        excited, last = excited + ALPHA[:, kind], now
    return likelihood


@pytest.mark.slow
def test_a_trained_model_is_nearer_to_a_hawkes_process_than_a_poisson_process_is():
    rng = np.random.default_rng(0)
    streams = [simulate_by_thinning(rng) for _ in range(120)]
    lengths = torch.tensor([len(times) for times, _ in streams])
    t, types = torch.zeros(2, 120, int(lengths.max()))
    types = types.long()
    for row, (times, kinds) in enumerate(streams):
        t[row, : len(times)] = torch.tensor(times)
        types[row, : len(times)] = torch.tensor(kinds)
    train, test = slice(0, 80), slice(80, 120)
    events = int(lengths[test].sum())
    counts = np.array([np.bincount(kinds, minlength=2) for _, kinds in streams])
    rates = counts[train].sum(0) / (80 * SPAN)
    poisson = (counts[test].sum(0) @ np.log(rates) - 40 * SPAN * rates.sum()) / events
    truth = sum(true_likelihood(*stream) for stream in streams[test]) / events

    torch.manual_seed(0)
    model = NeuralHawkes(2, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(12):
        for rows in torch.randperm(80).split(20):
            optimizer.zero_grad()
            fit = model.log_likelihood(types[rows], t[rows], SPAN, lengths=lengths[rows])
            (-fit.sum() / lengths[rows].sum()).backward()
            optimizer.step()
    with torch.no_grad():
        likelihoods = model.log_likelihood(types[test], t[test], SPAN, lengths=lengths[test])
    mean = float(likelihoods.sum()) / events
    assert truth > poisson + 0.3  # so that there is something to learn
    assert mean > poisson + 0.7 * (truth - poisson)
    assert mean < truth + 0.05


def test_it_is_saved_and_loaded(tmp_path):
    model = make_model()
    tauflow.save(model, tmp_path / "events.safetensors")
    loaded = tauflow.load(tmp_path / "events.safetensors")
    torch.testing.assert_close(
        loaded.log_likelihood(TYPES, T, END, lengths=LENGTHS),
        model.log_likelihood(TYPES, T, END, lengths=LENGTHS),
    )


def test_events_that_are_none_are_refused():
    model = make_model()
    types, t = TYPES[:1], T[:1]
    like = model.log_likelihood
    with pytest.raises(DataError, match="types has 3, but types are the integers from 0 to 2"):
        like(types + 1, t, 6.0)
    with pytest.raises(DtypeError, match=r"types must be integers, got torch\.float32"):
        like(types.float(), t, 6.0)
    with pytest.raises(DtypeError, match="t"):
        like(types, t.long(), 6.0)
    with pytest.raises(ShapeError, match=r"types has shape \(1, 3\)"):
        like(types[:, :3], t, 6.0)
    with pytest.raises(ShapeError, match=r"t has shape \(4,\)"):
        like(types[0], t[0], 6.0)
    with pytest.raises(ShapeError, match="integers from 0 to 4"):
        like(types, t, 6.0, lengths=torch.tensor([5]))
    with pytest.raises(ShapeError, match="end has shape"):
        like(types, t, torch.ones(2))
    for wrong in (t.flip(1), t - 1, t * math.nan):
        with pytest.raises(TimeError, match="must not decrease"):
            like(types, wrong, 6.0)
    with pytest.raises(TimeError, match="end must be finite, and no event may come after it"):
        like(types, t, 3.9)
    with pytest.raises(TimeError, match="now must be finite"):
        model.predict_next(types, t, now=3.9)
    with pytest.raises(TimeError, match="at has a time that is negative"):
        model.intensity(types, t, -t)
    with pytest.raises(ArgumentError, match="a quadrature draws nothing"):
        like(types, t, 6.0, generator=torch.Generator())
    with pytest.raises(UnknownNameError, match="monte-carlo"):
        like(types, t, 6.0, integral="simpson")
    with pytest.raises(ArgumentError, match="points"):
        like(types, t, 6.0, points=1)


def make_fast_model(decay, neurons=N):
    """Return a model whose memory decays at that rate, and whose intensities follow it steeply."""
    model = make_model(neurons)
    with torch.no_grad():
        model.weight.mul_(10)
        model.rnn.cell.b[6 * neurons :] = decay * torch.linspace(0.02, 1, neurons)
    return model


@pytest.mark.parametrize("decay", [0.1, 50.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_integral_sees_how_fast_the_memory_decays(decay, dtype):
    model = make_fast_model(decay)
    types, t, end = [0, 2, 1, 0], [1.0, 1.02, 1.05, 9.0], 10.0
    reference = Reference(model, types, t)
    expected = sum(
        math.log(reference.intensity(time, events)[kind])
        for events, (kind, time) in enumerate(zip(types, t, strict=True))
    )
    for events, (start, stop) in enumerate(itertools.pairwise([0.0, *t, end])):
        edges = start + (stop - start) * np.append(0.0, np.geomspace(1e-8, 1, 41))
        for low, high in itertools.pairwise(edges):
            rate = lambda time, events=events: reference.intensity(time, events).sum()  # noqa: E731
            expected -= quad(rate, low, high)[0]
    t = torch.tensor([t], dtype=dtype)
    likelihood = model.to(dtype).log_likelihood(torch.tensor([types]), t, end).detach()
    assert float(likelihood) == pytest.approx(expected, abs=1e-3, rel=1e-6)


def test_training_finds_no_gap_between_the_nodes():
    rng = np.random.default_rng(0)
    bursts = [np.sort(rng.uniform(0, 50, 3)[:, None] + rng.exponential(0.02, (3, 5)), None)]
    bursts += [np.sort((rng.uniform(0, 45, 3)[:, None] + [0, 0.01, 0.03, 0.05, 4]), None)]
    t = torch.tensor(np.stack(bursts), dtype=torch.float32)
    types = torch.zeros(2, 15, dtype=torch.long)
    torch.manual_seed(0)
    model = NeuralHawkes(1, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(40):
        optimizer.zero_grad()
        (-model.log_likelihood(types, t, 60.0).sum() / 30).backward()
        optimizer.step()
    with torch.no_grad():
        likelihoods = model.log_likelihood(types, t, 60.0)
        exact = model.double().log_likelihood(types, t.double(), 60.0, points=200)
    torch.testing.assert_close(likelihoods.double(), exact, rtol=0, atol=1e-3)


def test_the_next_event_after_a_pause_comes_at_once_then():
    """One neuron inhibits until its memory has decayed; then the rate rises a thousandfold."""
    model = make_model(1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-3e3], [0.0], [0.0]], dtype=F64))
        model.log_scale.copy_(torch.tensor([5.0, -40.0, -40.0]))
    state = torch.tensor([[1.0, -1e-1, 1.0, 1.0]], dtype=F64)
    with torch.no_grad():
        delay, shares = model._integrate_density(state, torch.zeros(1, dtype=F64))

    def rate(time):
        z = -3e3 * np.tanh(-0.1 + 1.1 * np.exp(-time)) / np.exp(5)
        return np.exp(5) * np.logaddexp(0, z)

    grid = np.linspace(0, 3, 600_001)
    survival = np.exp(-cumulative_trapezoid(rate(grid), grid, initial=0))
    assert float(delay) == pytest.approx(np.trapezoid(survival, grid), abs=1e-5)
    torch.testing.assert_close(shares, torch.tensor([[1.0, 0.0, 0.0]], dtype=F64))


def test_a_process_that_is_called_names_its_methods():
    with pytest.raises(ArgumentError, match=r"NeuralHawkes is not called .* log_likelihood"):
        NeuralHawkes(2, 4)(torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3))
