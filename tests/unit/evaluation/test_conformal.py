import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from sklearn.metrics import mean_pinball_loss

from tauflow import GRU, CfC, Predictor, Recipe, SequenceModel, load_predictor, train
from tauflow.batch import SequenceBatch
from tauflow.data import from_table
from tauflow.errors import ArgumentError, OptionError, ShiftWarning
from tauflow.estimators import SequenceForecaster
from tauflow.evaluation import Conformal
from tauflow.evaluation.conformal import fit_conformal
from tauflow.models.spread import QUANTILE_LEVELS

TRIALS = 4_000


@pytest.mark.sampled(4)
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("learned", [False, True])
def test_intervals_hold_as_many_targets_as_was_asked_for(level, learned):
    """Of exchangeable data in each trial, within the bounds of a binomial distribution."""
    rng = np.random.default_rng(0)
    count, held = 39, 0
    z = norm.ppf(QUANTILE_LEVELS)
    for _ in range(TRIALS):
        scale = rng.uniform(0.2, 3.0, (count + 1, 1))
        y = scale * rng.standard_t(3, (count + 1, 1))
        prediction = rng.normal(0, 0.5, (count + 1, 1))  # of a bad model
        quantiles = prediction[..., None] + 0.3 * scale[..., None] * z if learned else None
        levels = QUANTILE_LEVELS if learned else ()
        first = None if quantiles is None else quantiles[:count]
        conformal = Conformal.fit(prediction[:count], y[:count], first, levels)
        last = None if quantiles is None else quantiles[count:]
        low, high = conformal.interval(prediction[count:], level, last)
        held += bool(low[0, 0] <= y[count, 0] <= high[0, 0])
    exact = math.ceil((count + 1) * level) / (count + 1)  # without ties
    least, most = binom.ppf([1e-4, 1 - 1e-4], TRIALS, exact)
    assert least <= held <= most


def test_a_margin_is_the_order_statistic_counted_by_hand():
    y = np.arange(1.0, 10.0)[:, None]  # errors 1 to 9
    conformal = Conformal.fit(np.zeros((9, 1)), y)
    low, high = conformal.interval(np.zeros((1, 1)), 0.8)  # rank ceil(10 * 0.8) = 8
    assert (low.item(), high.item()) == (-8.0, 8.0)
    with pytest.raises(ArgumentError, match="at least 19 validation targets, and there were 9"):
        conformal.interval(np.zeros((1, 1)), 0.95)


def test_of_many_scores_the_next_larger_one_is_kept():
    rng = np.random.default_rng(0)
    y = rng.exponential(size=(5_003, 2))
    conformal = Conformal.fit(np.zeros_like(y), y)
    assert len(conformal.scores[0][0]) == 500
    for level in (0.1, 0.5, 0.9, 0.999):
        _, high = conformal.interval(np.zeros((1, 2)), level)
        rank = math.ceil(5_004 * level)
        exact, loose = np.sort(y, axis=0)[[rank - 1, min(rank + 10, 5_002)]]
        assert (high[0] >= exact).all()
        assert (high[0] <= loose).all()


def test_missing_targets_do_not_count_and_each_output_has_its_own_margin():
    y = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])
    conformal = Conformal.fit(np.zeros((3, 2)), y)
    assert conformal.counts == (3, 2)
    _, high = conformal.interval(np.zeros((1, 2)), 0.5)
    assert high.tolist() == [[2.0, 30.0]]
    without = Conformal.fit(np.zeros((3, 2)), np.where(np.arange(2) == 1, np.nan, y))
    with pytest.raises(ArgumentError, match="and there were 0"):
        without.interval(np.zeros((1, 2)), 0.5)


@pytest.mark.parametrize("level", [0, 1, 90, True, "0.9", math.nan])
def test_a_level_is_a_share(level):
    conformal = Conformal.fit(np.zeros((9, 1)), np.ones((9, 1)))
    with pytest.raises(ArgumentError, match="interval must be a share"):
        conformal.interval(np.zeros((1, 1)), level)


def test_a_level_may_be_a_number_of_numpy():
    conformal = Conformal.fit(np.zeros((99, 1)), np.arange(99.0)[:, None])
    expected = conformal.interval(np.zeros((1, 1)), 0.5)
    for dtype in (np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(conformal.interval(np.zeros((1, 1)), dtype(0.5)), expected)


@pytest.mark.parametrize("per_step", [False, True])
def test_the_loss_of_quantiles_is_scikit_learns(per_step):
    torch.manual_seed(0)
    batch = SequenceBatch(torch.randn(6, 4, 3), torch.randn(6, 4, 2))
    known = torch.rand(6, 4, 2) > 0.4
    if not per_step:
        batch, known = replace(batch, y=batch.y[:, 0]), known[:, :1]
    batch = replace(batch, y_mask=known, weight=None)
    model = SequenceModel(CfC(3, 4, return_sequences=per_step), 2, spread="quantile")
    quantiles = model.quantiles(batch.x).detach().numpy()
    there = known.numpy().reshape(quantiles.shape[:-1])
    expected = np.mean(
        [
            mean_pinball_loss(batch.y.numpy()[there], quantiles[there][:, n], alpha=level)
            for n, level in enumerate(QUANTILE_LEVELS)
        ]
    )
    loss = model.training_loss(batch, lambda y, of: y.sum() * 0, epoch=0)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_a_gaussian_is_its_negative_log_likelihood():
    torch.manual_seed(0)
    batch = SequenceBatch(torch.randn(6, 4, 3), torch.randn(6, 2), weight=torch.rand(6))
    model = SequenceModel(CfC(3, 4, return_sequences=False), 2, spread="gaussian")
    low, middle, high = (
        model.quantiles(batch.x).detach().numpy()[..., [1, 4, -2]].transpose(2, 0, 1)
    )
    scale = (high - low) / (norm.ppf(0.95) - norm.ppf(0.05))
    each = -norm.logpdf(batch.y.numpy(), middle, scale) - np.log(2 * np.pi) / 2
    loss = model.training_loss(batch, lambda y, of: y.sum() * 0, epoch=0)
    expected = np.average(each.mean(1), weights=batch.weight.numpy())
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def heteroscedastic(count, seed):
    """Return sequences whose first input says how far targets lie around the second one."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(0.2, 2.0, (count, 1, 2))).float()
    y = x[:, 0, 1:] + x[:, 0, :1] * torch.from_numpy(rng.standard_normal((count, 1))).float()
    return SequenceBatch(x, y)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("spread", ["quantile", "gaussian"])
def test_a_spread_is_learned(spread):
    torch.manual_seed(0)
    model = SequenceModel(CfC(2, 8, return_sequences=False), 1, spread=spread)
    data, new = heteroscedastic(1_500, 1), heteroscedastic(2_000, 2)
    recipe = Recipe(epochs=25, lr=0.02, batch_size=128, select="last")
    train(model, train=data, loss="mse", metric="mse", recipe=recipe, progress=False)
    quantiles = model.eval().quantiles(new.x).detach().numpy()[:, 0]
    assert (np.diff(quantiles, axis=1) > 0).all()  # no two cross
    true = (new.x[:, 0, 1:] + new.x[:, 0, :1] * torch.tensor(norm.ppf(QUANTILE_LEVELS))).numpy()
    assert np.abs(quantiles - true).mean() < 0.25
    share = (new.y.numpy() < quantiles).mean(0)
    np.testing.assert_allclose(share, QUANTILE_LEVELS, atol=0.05)
    conformal = fit_conformal(model, heteroscedastic(800, 3))
    low, high = conformal.interval(np.zeros((2_000, 1)), 0.9, quantiles[:, None])
    inside = (low <= new.y.numpy()) & (new.y.numpy() <= high)
    assert 0.86 < inside.mean() < 0.94
    narrow, wide = (new.x[:, 0, 0] < 0.7).numpy(), (new.x[:, 0, 0] > 1.5).numpy()
    assert (high - low)[wide].mean() > 2 * (high - low)[narrow].mean()
    for part in (narrow, wide):  # not only on average
        assert 0.8 < inside[part].mean() <= 0.99


def test_no_spread_without_a_head():
    model = SequenceModel(CfC(2, 8), 1)
    assert model.quantile_levels == ()
    with pytest.raises(ArgumentError, match="learned no quantiles"):
        model.quantiles(torch.zeros(1, 2, 2))
    from tauflow.data.card import DatasetCard
    from tauflow.models.spec import ModelSpec, build_model

    card = DatasetCard("a", "a", "classify", 2, 2, "", (1, 0, 0), "", "", "", "mse", "mse")
    with pytest.raises(OptionError, match="spread='quantile' is of targets that are values"):
        build_model(ModelSpec("cfc", 4, spread="quantile"), card)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("intervals", ["quantile", "gaussian", "conformal"])
@pytest.mark.parametrize("more", [{"horizon": 2}, {"max_lead_time": 2.0}])
def test_intervals_of_forecasts_hold_their_width_outside_the_range_of_the_training(intervals, more):
    """Two variables: only the interval of the one that is outside is widened."""
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6, (40, 1, 1)) + np.arange(20)[:, None] / 3 + np.array([0, 1])
    X = 120 + 30 * np.sin(phase) + rng.normal(0, 3, phase.shape)
    forecaster = SequenceForecaster(
        model="cfc", hidden_size=8, epochs=6, lr=0.01, intervals=intervals, random_state=0, **more
    ).fit(X)
    asked = {} if "horizon" in more else {"at": [0.5, 2.0]}
    point, low, high = forecaster.predict(X, interval=0.8, **asked)
    inside = (high - low).max(axis=0)
    assert ((low <= point) & (point <= high)).all()
    history = X[:1, :4].copy()
    for value in (190.0, 250.0, 1000.0, -400.0):
        history[..., 0] = value
        with pytest.warns(ShiftWarning, match=r"'0'.* standard deviations .*in 1 sequence: 0"):
            point, low, high = forecaster.predict(history, interval=0.8, **asked)
        assert ((low <= point) & (point <= high)).all()
        assert ((high - low)[0, :, 0] >= inside[:, 0] * (1 - 1e-6)).all()


@pytest.mark.parametrize("spread", ["quantile", "gaussian"])
def test_intervals_of_a_predictor_hold_their_width_outside_the_range(spread, tmp_path):
    rng = np.random.default_rng(0)
    a = 50 + 10 * np.sin(np.arange(600) / 5) + rng.normal(size=600)
    data = from_table(
        {"a": a}, features=["a"], task="next-step", window=12, horizon=3, split_by="time"
    )
    model = SequenceModel(GRU(1, 8, return_sequences=False), 3, spread=spread)
    train(model, train=data, recipe=Recipe(epochs=3, lr=0.01), progress=False)
    predictor = Predictor.from_data(model, data, intervals=True)
    predictor.save(tmp_path / "p.safetensors")
    predictor = load_predictor(tmp_path / "p.safetensors")
    widths = {}
    for value in (50.0, 100.0, 1000.0):
        far = (
            pytest.warns(ShiftWarning, match="standard deviations") if value > 50 else nullcontext()
        )
        with far:
            predictions = predictor.predict({"a": np.full(12, value)}, interval=0.8)
        steps = range(1, 4)
        assert all((predictions[f"a +{n} low"] <= predictions[f"a +{n}"]).all() for n in steps)
        assert all((predictions[f"a +{n}"] <= predictions[f"a +{n} high"]).all() for n in steps)
        widths[value] = min(
            (predictions[f"a +{n} high"] - predictions[f"a +{n} low"]).item() for n in steps
        )
    assert widths[100.0] >= widths[50.0]
    assert widths[1000.0] >= widths[50.0]
