"""``model="auto"`` of estimators: the chosen ensemble answers, is kept, and is told about."""

import numpy as np
import pytest
import torch

from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor, automatic
from tauflow.runs.portfolio import BOOSTING

SMALL = {"hidden_size": 4, "epochs": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def few_networks(monkeypatch):
    monkeypatch.setattr(automatic, "NETWORKS", ("gru", "gru-d"))


@pytest.fixture
def sequences():
    """Return sequences of two features, some values missing, and what sums them up."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6, 2))
    level = rng.normal(size=120)
    X[:, :, 0] += level[:, None]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, level


def test_a_classifier_answers_by_the_chosen_ensemble_and_keeps_it(sequences, tmp_path):
    X, level = sequences
    y = np.where(level > 0, "up", "down")
    state = torch.get_rng_state()
    classifier = SequenceClassifier(model="auto", **SMALL).fit(X[:90], y[:90])
    assert torch.equal(torch.get_rng_state(), state)
    assert {trial.name for trial in classifier.trials_} == {"gru", "gru-d", BOOSTING}
    assert sum(trial.share for trial in classifier.trials_) == pytest.approx(1)
    assert all(trial.test is None for trial in classifier.trials_)
    assert any("of the best single model" in note for note in classifier.notes_)
    assert classifier.score(X[90:], y[90:]) > 0.75
    assert classifier.notes_[0].startswith("Chosen by cross_entropy on 5 folds: ")
    assert len(classifier.module_.members) % 5 == 0  # each model was trained on five folds
    held = SequenceClassifier(model="auto", validation_fraction=0.2, **SMALL).fit(X[:90], y[:90])
    assert held.notes_[0].startswith("Chosen by validation cross_entropy: ")
    again = SequenceClassifier(model="auto", **SMALL).fit(X[:90], y[:90])
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    classifier.save(tmp_path / "auto.safetensors")
    loaded = SequenceClassifier.load(tmp_path / "auto.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), rtol=1e-6)
    assert loaded.trials_ == classifier.trials_


def test_another_fit_keeps_nothing_of_what_was_tried(sequences):
    X, level = sequences
    classifier = SequenceClassifier(model="gru", ensemble=1, **SMALL)
    classifier.trials_, classifier.notes_ = (), ("Chosen by cross_entropy.",)
    classifier.fit(X[:40], level[:40] > 0)
    assert not hasattr(classifier, "trials_")
    assert not hasattr(classifier, "notes_")


def test_a_regressor_takes_missing_values_that_training_did_not_have(sequences):
    X, level = sequences
    complete = np.nan_to_num(X)
    model = SequenceRegressor(model="auto", **SMALL).fit(complete[:90], 10 + 5 * level[:90])
    assert model.score(complete[90:], 10 + 5 * level[90:]) > 0.3
    assert np.isfinite(model.predict(X[90:])).all()
    assert model.result_.epochs == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"num_layers": 2}}, "several models, which options="),
        ({"ensemble": 2}, "several models, which ensemble=2"),
        ({"class_weight": "balanced"}, "which class_weight='balanced' does not go with"),
        ({"validation_fraction": 0}, "chooses models on validation data, which are missing"),
        ({"time_limit": 1e-3}, "is too short"),
    ],
)
def test_what_a_portfolio_cannot_take_is_refused(sequences, options, message):
    X, level = sequences
    with pytest.raises(ArgumentError, match=message):
        SequenceClassifier(model="auto", **{**SMALL, **options}).fit(X, level > 0)


def test_a_time_limit_is_for_a_portfolio(sequences):
    with pytest.raises(ArgumentError, match="time_limit goes with model='auto'"):
        SequenceClassifier(model="gru", time_limit=3.0).fit(sequences[0], sequences[1] > 0)


def test_other_estimators_name_a_model(sequences):
    with pytest.raises(ArgumentError, match="model='auto' is for one class, or numbers"):
        SequenceForecaster(model="auto").fit(np.nan_to_num(sequences[0]))
