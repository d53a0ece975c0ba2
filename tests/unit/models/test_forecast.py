import numpy as np
import pytest
import torch

import tauflow
from tauflow.batch import SequenceBatch
from tauflow.cells.registry import MODELS
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError, DataError, OptionError, ShapeError
from tauflow.models import ForecastModel
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training import Recipe
from tauflow.training.evaluation_loop import evaluate

AT = torch.tensor([3.0, 0.5, 1.2])


def forecaster(name="cfc", features=3, targets=(0, 2), **options):
    torch.manual_seed(0)
    takes_mask = tauflow.build(name, features, 4, return_sequences=False).uses_observed
    rnn = tauflow.build(name, features * (1 if takes_mask else 2), 8, return_sequences=False)
    return ForecastModel(rnn, targets, horizon=5.0, **options).eval()


def sequences():
    """Return four sequences of up to seven samples with missing values."""
    torch.manual_seed(1)
    mask = torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None]
    x, dt = torch.randn(4, 7, 3), torch.rand(4, 7)
    return x, {"dt": dt, "mask": mask, "observed": (torch.rand(4, 7, 3) < 0.6) & mask[..., None]}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_every_cell_answers_each_query_by_itself(name):
    model, (x, rest) = forecaster(name), sequences()
    together = model.forecast(x, AT, **rest)
    one_by_one = torch.cat([model.forecast(x, AT[k : k + 1], **rest) for k in range(3)], 1)
    torch.testing.assert_close(together, one_by_one, rtol=1e-5, atol=1e-6)
    backwards = model.forecast(x, AT.flip(0), **rest).flip(1)
    torch.testing.assert_close(together, backwards, rtol=1e-5, atol=1e-6)
    for row, length in enumerate([7, 3, 1, 5]):
        options = {k: rest[k][row : row + 1, :length] for k in ("dt", "observed")}
        alone = model.forecast(x[row : row + 1, :length], AT, **options)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["cfc", "gru-d", "lstm"])
@torch.no_grad()
def test_nothing_that_is_not_observed_counts(name):
    model, (x, rest) = forecaster(name), sequences()
    expected = model.forecast(x, AT, **rest)
    noise = torch.where(rest["observed"], x, torch.full_like(x, torch.nan))
    torch.testing.assert_close(model.forecast(noise, AT, **rest), expected, rtol=0, atol=0)
    # The same with the values of later rows in the batch, as training has them.
    rows = torch.cat([x, torch.randn(4, 3, 3)], 1)
    flags = torch.cat([torch.zeros(4, 7), torch.ones(4, 3)], 1)[..., None]
    tail = torch.zeros(4, 3, 4, dtype=torch.bool)
    seen_answers, _ = model(
        torch.cat([rows, flags], -1),
        dt=torch.cat([rest["dt"], AT.diff(prepend=AT[:1] * 0).expand(4, -1)], 1),
        mask=torch.cat([rest["mask"], torch.ones(4, 3, dtype=torch.bool)], 1),
        observed=torch.cat([torch.cat([rest["observed"], rest["mask"][..., None]], -1), tail], 1),
    )
    torch.testing.assert_close(seen_answers[:, 7:], expected, rtol=1e-5, atol=1e-6)
    assert not seen_answers[:, :7].any()


@torch.no_grad()
def test_answer_is_one_step_from_the_last_state():
    model = forecaster("gru-d", width=5).double()
    x, rest = sequences()
    x, rest["dt"] = x.double(), rest["dt"].double()
    x = torch.where(rest["observed"], x, 0.0)
    answers = model.forecast(x, AT.double(), **rest)
    for row, length in enumerate([7, 3, 1, 5]):
        h, last, clock = model.rnn.initial_state(1), np.zeros(3), 0.0
        age = [None] * 3
        for k in range(length):
            gap = rest["dt"][row, k : k + 1]
            seen = rest["observed"][row, k : k + 1]
            _, h = model.rnn.step(x[row, k : k + 1], h, gap, observed=seen)
            clock += gap.item()
            for n in np.flatnonzero(seen[0].numpy()):
                last[n], age[n] = x[row, k, n].item(), clock
        for place, lead in enumerate(AT.tolist()):
            y, _ = model.rnn.step(
                torch.zeros(1, 3).double(),
                h,
                torch.tensor([lead]).double(),
                observed=torch.zeros(1, 3, dtype=torch.bool),
            )
            ages = [0.0 if seen_at is None else np.log1p(clock + lead - seen_at) for seen_at in age]
            phase = np.pi * lead / 5 * np.arange(1, 5)
            times = [lead / 5, np.log1p(lead), *np.sin(phase), *np.cos(phase)]
            read = np.concatenate(
                [y[0].numpy(), last, [seen_at is not None for seen_at in age], ages, times]
            )
            weights = {k: v.numpy() for k, v in model.head.state_dict().items()}
            hidden = np.maximum(weights["hidden.weight"] @ read + weights["hidden.bias"], 0)
            out = weights["readout.weight"] @ hidden + weights["readout.bias"]
            gate = 1 / (1 + np.exp(-out[2:]))
            expected = gate * last[[0, 2]] + (1 - gate) * out[:2]
            np.testing.assert_allclose(answers[row, place].numpy(), expected, rtol=1e-6)


@torch.no_grad()
def test_features_known_in_advance_change_their_own_answer_alone():
    model, (x, rest) = forecaster(), sequences()
    known = torch.full((4, 3, 3), torch.nan)
    plain = model.forecast(x, AT, **rest)
    torch.testing.assert_close(model.forecast(x, AT, known=known, **rest), plain)
    known[:, 1, 1] = 2.0
    forecast = model.forecast(x, AT, known=known, **rest)
    torch.testing.assert_close(forecast[:, [0, 2]], plain[:, [0, 2]])
    assert (forecast[:, 1] - plain[:, 1]).abs().amax(-1).min() > 1e-3


def lines(count, seed):
    """Return lines that are sampled at random times, noisily, and where they are asked for."""
    rng = np.random.default_rng(seed)
    samples, queries = 6, 4
    level, slope = rng.normal(size=(2, count, 1))
    dt = rng.uniform(0.2, 1.0, (count, samples + queries))
    t = dt.cumsum(1)
    y = level + slope * t / 4 + 0.01 * rng.normal(size=t.shape)
    is_query = np.broadcast_to(np.arange(samples + queries) >= samples, t.shape)
    x = np.stack([np.where(is_query, 0.0, y), is_query], -1)
    return SequenceBatch(
        torch.from_numpy(x).float(),
        torch.from_numpy(y[..., None]).float(),
        dt=torch.from_numpy(dt).float(),
        y_mask=torch.from_numpy(is_query.copy()),
    )


@pytest.mark.thorough
def test_lines_are_continued_far_better_than_by_their_last_value():
    card = DatasetCard(
        **dict.fromkeys(("name", "title", "time_unit", "source", "licence", "split"), "lines"),
        task="regress",
        input_size=2,
        target_size=1,
        sizes=(600, 0, 200),
        loss="mse",
        metric="mse",
        query_targets=(0,),
        query_horizon=4.0,
    )
    torch.manual_seed(0)
    model = build_model(ModelSpec("gru", 16), card)
    assert isinstance(model, ForecastModel)
    recipe = Recipe(epochs=25, lr=0.01, batch_size=64, schedule="one_cycle", select="last")
    test = lines(200, 1)
    tauflow.train(model, train=lines(600, 0), recipe=recipe, progress=False)
    last = test.x[:, 5, :1, None] - test.y[:, 6:]
    assert evaluate(model, test, metric="mse") < 0.1 * last.square().mean()


def test_quantiles_are_learned_around_the_forecast():
    model, batch = forecaster("gru", 1, (0,), spread="quantile"), lines(8, 0)
    rest = {"dt": batch.dt, "mask": None, "observed": None}
    quantiles = model.quantiles(batch.x, **rest)
    assert quantiles.shape == (8, 10, 1, len(model.quantile_levels))
    assert (quantiles[:, 6:].diff(dim=-1) > 0).all()
    with pytest.raises(ArgumentError, match="learned no quantiles"):
        forecaster().quantiles(torch.zeros(1, 2, 4))


def mixture(name="cfc", **options):
    """Return a forecaster of features 0 and 2 of 3 that mixes simple forecasts, with one phase."""
    torch.manual_seed(0)
    takes_mask = tauflow.build(name, 4, 4, return_sequences=False).uses_observed
    rnn = tauflow.build(name, 4 if takes_mask else 7, 8, return_sequences=False)
    options = {"periods": [2.0, 3.5], "gap": 0.8, "phases": 1, **options}
    return ForecastModel(rnn, (0, 2), horizon=5.0, **options).eval()


def forecast_simply(t, v, at, lead_time, periods, gap):
    """Return the simple forecasts of one target from its samples, by their definitions."""
    if not len(v):
        return [0.0] * (2 + 2 * len(periods))

    def interpolate(distance):
        weight = np.exp(-2 * (distance / (gap / 2)) ** 2 + 2 * np.min((distance / (gap / 2)) ** 2))
        return weight @ v / weight.sum()

    features = [v[-1], v.mean()]
    for period in periods:
        lag = period * max(1, np.ceil(lead_time / period - 1e-4))
        phase = (t - at) / period
        features += [interpolate(t - at + lag), interpolate((phase - np.round(phase)) * period)]
    return features


@pytest.mark.parametrize("name", ["cfc", "gru-d"])
def test_simple_forecasts_are_those_of_their_definitions(name, monkeypatch):
    model, (x, rest) = mixture(name).double(), sequences()
    seen = []
    monkeypatch.setattr(
        model.head,
        "forward",
        lambda *read: seen.append(read[5]) or (read[0], read[5][..., 0]),
    )
    x = torch.cat([x, torch.rand(4, 7, 1)], -1).double()
    known = torch.full((4, 3, 4), torch.nan, dtype=torch.float64)
    known[..., 3] = 0.5
    model.forecast(x, AT, known=known, **rest)
    simple = seen[0].view(4, 3, 2, 6).numpy()
    for row, length in enumerate([7, 3, 1, 5]):
        clock = rest["dt"][row, :length].double().cumsum(0).numpy()
        for place, feature in enumerate((0, 2)):
            there = rest["observed"][row, :length, feature].numpy()
            v = x[row, :length, feature].numpy()[there]
            level = v.sum() / (len(v) + 1)
            unit = np.sqrt((((v - level) ** 2).sum() + 1) / (len(v) + 1))
            for q, at in enumerate(AT.tolist()):
                args = clock[there], (v - level) / unit, clock[-1] + at, at
                expected = forecast_simply(*args, [2.0, 3.5], 0.8)
                np.testing.assert_allclose(simple[row, q, place], expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_mixture_answers_each_query_by_itself_and_moves_with_its_window():
    model, (x, rest) = mixture(spread="quantile"), sequences()
    x, known = torch.cat([x, torch.rand(4, 7, 1)], -1), torch.rand(4, 3, 4)
    known[..., :3] = torch.nan
    together = model.forecast(x, AT, known=known, **rest)
    for q in range(3):
        alone = model.forecast(x, AT[q : q + 1], known=known[:, q : q + 1], **rest)
        torch.testing.assert_close(together[:, q : q + 1], alone, rtol=1e-5, atol=1e-6)
    # A window far outside of training: forecasts lie near it, and intervals are no narrower.
    gaps, rows = torch.ones(1, 9), torch.zeros(1, 9, 5)
    rows[:, 5:, -1] = 1
    widths = []
    for level in (0.0, 10.0, 1000.0):
        rows[:, :5, :3] = level
        quantiles = model.quantiles(rows, dt=gaps)[:, 5:]
        assert (quantiles.diff(dim=-1) > 0).all()
        assert (quantiles[..., 4] - level).abs().max() < max(level, 4)
        widths.append((quantiles[..., -1] - quantiles[..., 0]).min())
    assert widths[0] < widths[1] < widths[2]


def test_periods_and_phases_are_checked():
    with pytest.raises(ArgumentError, match="expected numbers above 0"):
        mixture(periods=[0.0])
    with pytest.raises(ArgumentError, match="gap"):
        mixture(gap=0.0)
    with pytest.raises(ShapeError, match=r"expected \(B, T, 5\)"):
        mixture()(torch.zeros(2, 3, 4))


def test_a_file_holds_the_model(tmp_path):
    model, (x, rest) = forecaster(), sequences()
    tauflow.save(model, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors").eval()
    torch.testing.assert_close(loaded.forecast(x, AT, **rest), model.forecast(x, AT, **rest))


def test_wrong_arguments_are_refused():
    model, x = forecaster(), torch.zeros(2, 3, 4)
    with pytest.raises(ArgumentError, match=r"return_sequences=False"):
        ForecastModel(tauflow.GRU(4, 3), [0])
    with pytest.raises(ArgumentError, match="expected numbers of the 2 features"):
        ForecastModel(tauflow.GRU(4, 3, return_sequences=False), [2])
    with pytest.raises(ArgumentError, match="has 3 inputs, expected 2 for each feature"):
        ForecastModel(tauflow.GRU(3, 3, return_sequences=False), [0])
    with pytest.raises(ShapeError, match=r"expected \(B, T, 4\)"):
        model(torch.zeros(2, 3, 3))
    x[:, 1, -1] = 1
    with pytest.raises(DataError, match="a sample follows a query"):
        model(x)
    with pytest.raises(ArgumentError, match="times must be finite and 0 or more"):
        model.forecast(x[..., :3], torch.tensor([-1.0]))


def test_only_cells_that_go_forwards_answer_queries():
    card = DatasetCard(
        **dict.fromkeys(("name", "title", "time_unit", "source", "licence", "split"), "any"),
        **{"task": "regress", "input_size": 4, "target_size": 1, "sizes": (1, 0, 1)},
        **{"loss": "mse", "metric": "mse", "query_targets": (0,)},
    )
    for spec in (ModelSpec("transformer", 8), ModelSpec("gru", 8, options={"bidirectional": True})):
        with pytest.raises(ArgumentError, match="a step of a cell from its last state"):
            build_model(spec, card)
    with pytest.raises(OptionError, match="their own head"):
        build_model(ModelSpec("gru", 8, head_init="keras"), card)
