import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from sklearn.base import clone
from sklearn.metrics import brier_score_loss, recall_score

from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor
from tauflow.models import Ensemble

SMALL = {"model": "gru", "hidden_size": 6, "epochs": 6, "lr": 0.02, "random_state": 0}
SMALL |= {"ensemble": 1}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 4, 2))
SIGNAL = X[:, :, 0].sum(1)
NUMBERS = SIGNAL + RNG.normal(size=160)
CLASSES = np.where(RNG.random(160) < 1 / (1 + np.exp(1.5 - SIGNAL)), "ill", "well")


def test_an_ensemble_is_the_mean_of_its_networks(tmp_path):
    single = [SequenceRegressor(**{**SMALL, "random_state": 0}, validation_fraction=0)]
    several = clone(single[0]).set_params(ensemble=3).fit(X, NUMBERS)
    assert isinstance(several.module_, Ensemble)
    assert len(several.module_.members) == 3
    answers, spread = several.predict(X, return_std=True)
    scale = several.target_standard_
    each = []
    for member in several.module_.members:
        alone = clone(single[0]).fit(X, NUMBERS)
        first = alone.predict(X)
        alone.module_ = member
        each.append(alone.predict(X))
    # The seed of a single network, which trains alone.
    np.testing.assert_allclose(each[0], first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answers, np.mean(each, 0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(spread, np.std(each, 0), rtol=1e-3, atol=1e-6)
    assert scale.scale.shape == (1,)
    several.save(tmp_path / "e.safetensors")
    again = SequenceRegressor.load(tmp_path / "e.safetensors")
    np.testing.assert_array_equal(again.predict(X), answers)


def test_networks_of_an_ensemble_are_cross_validated():
    parts = []

    class Watch(SequenceClassifier):
        def _make_batch(self, rows):
            parts.append(rows.values[rows.starts, 0])
            return super()._make_batch(rows)

    options = {**SMALL, "ensemble": "auto", "epochs": 2}
    model = Watch(**options).fit(X, CLASSES)
    assert len(model.module_.members) == 5
    trained, held = parts[::2], parts[1::2]
    firsts = np.sort(np.concatenate(held))
    np.testing.assert_array_equal(firsts, np.sort(X[:, 0, 0]))  # all are held out once
    for part, other in zip(trained, held, strict=True):
        assert len(part) + len(other) == len(X)
        assert not np.isin(part, other).any()
    assert not hasattr(Watch(**options).fit(X[:30], CLASSES[:30]).module_, "members")
    going = Watch(**options, warm_start=True).fit(X, CLASSES)
    before = [next(member.parameters()).clone() for member in going.module_.members]
    going.fit(X[:30], CLASSES[:30])  # all go on, however few sequences there are now
    after = [next(member.parameters()) for member in going.module_.members]
    assert not any(map(torch.equal, before, after))
    assert not hasattr(SequenceForecaster(**options).fit(X).module_, "members")


def test_an_ensemble_goes_on_with_all_of_its_networks():
    model = SequenceClassifier(**{**SMALL, "ensemble": 2}, warm_start=True, calibrate="temperature")
    model.fit(X, CLASSES)
    before = [p.clone() for p in model.module_.parameters()]
    model.fit(X, CLASSES)
    assert len(model.module_.model.members) == 2
    assert any((a != b).any() for a, b in zip(before, model.module_.parameters(), strict=True))
    with pytest.raises(ArgumentError, match="ensemble was 2"):
        model.set_params(ensemble=3).fit(X, CLASSES)


@pytest.mark.parametrize("calibrate", ["temperature", "isotonic"])
def test_probabilities_are_calibrated_on_the_validation_data(calibrate, tmp_path):
    half = X[:80], CLASSES[:80]
    raw = SequenceClassifier(**{**SMALL, "epochs": 40}).fit(
        *half, validation=(X[80:], CLASSES[80:])
    )
    model = clone(raw).set_params(calibrate=calibrate, threshold={"sensitivity": 0.9})
    model.fit(*half, validation=(X[80:], CLASSES[80:]))
    truth = CLASSES[80:] == "well"
    before, after = (brier_score_loss(truth, m.predict_proba(X[80:])[:, 1]) for m in (raw, model))
    assert after <= before + 1e-6
    assert recall_score(truth, model.predict(X[80:]) == "well") >= 0.9
    is_above = model.predict_proba(X)[:, 1] >= model.threshold_
    assert (is_above == (model.predict(X) == "well")).mean() > 0.99
    model.save(tmp_path / "c.safetensors")
    again = SequenceClassifier.load(tmp_path / "c.safetensors")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X))


def test_a_threshold_that_is_a_number_needs_no_validation_data():
    always = SequenceClassifier(**SMALL, threshold=0.0, validation_fraction=0).fit(X, CLASSES)
    assert set(always.predict(X)) == {"well"}
    probability, spread = (
        SequenceClassifier(**{**SMALL, "ensemble": 2})
        .fit(X, CLASSES)
        .predict_proba(X, return_std=True)
    )
    assert probability.shape == spread.shape == (160, 2)
    np.testing.assert_allclose(spread[:, 0], spread[:, 1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("intervals", ["conformal", "quantile", "gaussian"])
def test_intervals_of_numbers(intervals, tmp_path):
    y = np.stack([NUMBERS, 100 * NUMBERS + 1_000], 1)
    model = SequenceRegressor(**{**SMALL, "ensemble": 2}, intervals=intervals)
    model.fit(X[:80], y[:80], validation=(X[80:], y[80:]))
    answers, low, high = model.predict(X[80:], interval=0.8)
    assert (low < answers).mean() > 0.9
    inside = (low <= y[80:]) & (y[80:] <= high)
    np.testing.assert_array_less(0.79, inside.mean(0))  # of the data that calibrated it
    np.testing.assert_array_less(inside.mean(0), 0.85)
    assert (high - low)[:, 1].mean() == pytest.approx(100 * (high - low)[:, 0].mean(), rel=0.5)
    model.save(tmp_path / "r.safetensors")
    again = SequenceRegressor.load(tmp_path / "r.safetensors")
    for values, other in zip(
        again.predict(X, interval=0.8), model.predict(X, interval=0.8), strict=True
    ):
        np.testing.assert_allclose(values, other)


def test_intervals_are_calibrated_again_on_later_data():
    model = SequenceRegressor(**SMALL, intervals="conformal").fit(X, NUMBERS)
    inside, later = [], NUMBERS + 5
    for _ in range(2):
        _, low, high = model.predict(X, interval=0.8)
        inside.append(((low < later) & (later < high)).mean())
        model.recalibrate(X, later)  # which the network knows nothing of
    assert inside[0] < 0.1
    assert 0.79 < inside[1] < 0.83
    with pytest.raises(ArgumentError, match="needs y"):
        model.recalibrate(X)
    with pytest.raises(ArgumentError, match="fitted with intervals="):
        SequenceRegressor(**SMALL).fit(X, NUMBERS).recalibrate(X, NUMBERS)


def test_intervals_of_forecasts_widen_with_the_horizon():
    noise = np.random.default_rng(1).normal(size=(60, 60, 1))
    walks = lfilter([1], [1, -0.8], noise, axis=1)[:, 20:]
    model = SequenceForecaster(
        **{**SMALL, "epochs": 8, "lr": 0.03}, horizon=3, intervals="conformal"
    ).fit(walks[:40])
    answers, low, high = model.predict(walks[:40], interval=0.9)
    assert answers.shape == low.shape == (40, 3, 1)
    width = (high - low)[0, :, 0]
    assert width[0] < width[1] < width[2]
    cut = walks[40:, :-3]
    _, low, high = model.predict(cut, interval=0.9)
    inside = (low <= walks[40:, -3:]) & (walks[40:, -3:] <= high)
    assert 0.8 < inside.mean() < 0.98


def test_what_cannot_be_told_is_refused():
    with pytest.raises(ArgumentError, match="intervals='conformal' is calibrated on validation"):
        SequenceRegressor(**SMALL, intervals="conformal", validation_fraction=0).fit(X, NUMBERS)
    with pytest.raises(UnknownNameError, match="conformal, quantile, gaussian"):
        SequenceRegressor(**SMALL, intervals="bootstrap").fit(X, NUMBERS)
    with pytest.raises(ArgumentError, match="needs an estimator that was fitted with intervals="):
        SequenceRegressor(**SMALL).fit(X, NUMBERS).predict(X, interval=0.9)
    with pytest.raises(ArgumentError, match="members of an ensemble"):
        SequenceRegressor(**SMALL).fit(X, NUMBERS).predict(X, return_std=True)
    with pytest.raises(ArgumentError, match="decides between two classes"):
        SequenceClassifier(**SMALL, threshold="f1").fit(X, np.arange(160) % 3)
    with pytest.raises(ArgumentError, match="ensemble must be at least 1"):
        SequenceRegressor(**{**SMALL, "ensemble": 0}).fit(X, NUMBERS)
