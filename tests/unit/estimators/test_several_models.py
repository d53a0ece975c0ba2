"""Ensembles whose networks are of several models in turn."""

import numpy as np
import pytest
from irregular_samples import SMALL, sequences

from tauflow.errors import ArgumentError
from tauflow.estimators import (
    SequenceClassifier,
    SequenceForecaster,
    SequenceImputer,
    SequenceRegressor,
    SequenceSurvival,
)
from tauflow.training.defaults import DEFAULT_MODELS

WHOLE = {**SMALL, "validation_fraction": 0, "epochs": 3}
SEVERAL = ("gru-d", "cfc")


@pytest.mark.parametrize("impute", ["last", "mean"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_answer_is_the_mean_of_networks_fitted_alone(missing, impute):
    X, t, y, number = sequences(missing=missing)

    def classify(model, count):
        fitted = SequenceClassifier(**{**WHOLE, "ensemble": count}, model=model, impute=impute)
        return fitted.fit(X, y, t=t).predict_proba(X, t=t)

    def regress(model, count):
        fitted = SequenceRegressor(**{**WHOLE, "ensemble": count}, model=model, impute=impute)
        return fitted.fit(X, number, t=t).predict(X, t=t)

    for answer in (classify, regress):
        second = 2 * answer("cfc", 2) - answer("cfc", 1)  # of the next seed
        expected = (answer("gru-d", 1) + second) / 2
        np.testing.assert_allclose(answer(SEVERAL, 2), expected, rtol=0, atol=2e-6)


def test_a_single_network_is_of_the_first_model():
    X, t, y, _ = sequences(missing=0.3)
    model, same = (
        SequenceClassifier(**WHOLE, model=name).fit(X, y, t=t) for name in (SEVERAL, "gru-d")
    )
    np.testing.assert_array_equal(model.predict_proba(X, t=t), same.predict_proba(X, t=t))


def test_they_are_saved_and_go_on(tmp_path):
    X, t, y, _ = sequences(missing=0.3)
    settings = {**WHOLE, "ensemble": 3, "warm_start": True}
    fitted = SequenceClassifier(**settings, model=list(SEVERAL)).fit(X, y, t=t)
    fitted.save(tmp_path / "several.safetensors")
    loaded = SequenceClassifier.load(tmp_path / "several.safetensors")
    expected = fitted.predict_proba(X, t=t)
    np.testing.assert_array_equal(loaded.predict_proba(X, t=t), expected)
    again = fitted.set_params(lr=1e-9).fit(X, y, t=t)
    np.testing.assert_allclose(again.predict_proba(X, t=t), expected, rtol=0, atol=1e-6)


def test_intervals_are_means_of_those_of_the_networks():
    X, t, _, number = sequences(40, missing=0.3)
    settings = {**WHOLE, "ensemble": 2, "validation_fraction": 0.25, "intervals": "quantile"}
    fitted = SequenceRegressor(**settings, model=SEVERAL)
    middle, low, high = fitted.fit(X, number, t=t).predict(X, t=t, interval=0.8)
    assert (low <= middle).all()
    assert (middle <= high).all()


def test_they_are_the_default_of_classes_and_numbers():
    assert {"gru-d", "cfc-mmrnn"} == set(DEFAULT_MODELS)
    for kind in (SequenceClassifier, SequenceRegressor):
        assert kind().model == DEFAULT_MODELS


@pytest.mark.parametrize("kind", [SequenceForecaster, SequenceImputer, SequenceSurvival])
def test_others_take_one(kind):
    with pytest.raises(ArgumentError, match="takes the name of one model, got"):
        kind(**SMALL, model=SEVERAL).fit(
            np.zeros((3, 4, 1)), *[np.ones(3)] * (kind is SequenceSurvival)
        )


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ((), "a name or several"),
        (None, "a name or several"),
        (3, "a name or several"),
        ((1, "gru"), "a name or several"),
        (("gru", "auto"), "'auto' chooses"),
    ],
)
def test_what_is_no_model_is_refused(model, match):
    X, t, y, _ = sequences()
    with pytest.raises(ArgumentError, match=match):
        SequenceClassifier(**SMALL, model=model).fit(X, y, t=t)
