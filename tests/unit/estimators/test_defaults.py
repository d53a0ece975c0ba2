"""Estimators as they come: the recipe of runs, and how much is kept for validation."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from irregular_samples import sequences
from scipy.stats import norm

from tauflow.data import from_table
from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor
from tauflow.estimators.targets import split_validation
from tauflow.estimators.training import RECIPE_PARAMETERS, build_recipe
from tauflow.models.spec import ModelSpec
from tauflow.runs.job import DatasetSpec
from tauflow.runs.run_data import RunData
from tauflow.tabular.sequences import Sequences
from tauflow.training.defaults import DEFAULT_HIDDEN_SIZE, DEFAULT_RECIPE, adapt_recipe

FAST = {"hidden_size": 4, "epochs": 2, "backend": "reference", "random_state": 0}
FAST |= {"ensemble": 1}


def recipe(estimator, *, validated=True):
    settings = {name: getattr(estimator, name) for name in RECIPE_PARAMETERS}
    rows = Sequences(values=np.zeros((4, 1)), lengths=np.ones(4, np.int64), y=np.zeros((4, 1)))
    task = estimator._make_task(rows)
    return build_recipe(estimator.recipe, settings, task, has_validation=validated)


def test_estimators_and_runs_train_alike():
    classifier = SequenceClassifier()
    classifier.classes_ = np.array([0, 1])
    table = pd.DataFrame({"who": np.repeat(range(20), 2), "x": range(40)})
    for target, estimator in (("a", classifier), (1.5, SequenceRegressor())):
        y = [
            f"{who % 2}{target}" if estimator is classifier else who * target
            for who in table["who"]
        ]
        data = from_table(table.assign(y=y), id="who", target="y")
        job = RunData(data, DatasetSpec("", "table", {}), data).make_job(
            ModelSpec("cfc", 4), DEFAULT_RECIPE, 0
        )
        assert recipe(estimator) == job.recipe
        chosen_by = "cross_entropy" if estimator is classifier else None
        assert job.recipe == replace(DEFAULT_RECIPE, select_by=chosen_by)
        assert estimator.hidden_size == DEFAULT_HIDDEN_SIZE


@pytest.mark.parametrize("kind", [SequenceClassifier, SequenceRegressor, SequenceForecaster])
def test_without_validation_data_all_epochs_are_trained(kind):
    built_recipe = recipe(fitted_to_two(kind), validated=False)
    expected = replace(DEFAULT_RECIPE, select="last", patience=None)
    assert replace(built_recipe, class_weights=None) == expected


def fitted_to_two(kind):
    estimator = kind()
    estimator.classes_ = np.array([0, 1])
    estimator.target_features_ = np.array([0])
    return estimator


def test_a_field_that_is_given_takes_what_contradicts_it_away():
    assert adapt_recipe(DEFAULT_RECIPE, {"clip": "none"}).clip_norm is None
    last = adapt_recipe(DEFAULT_RECIPE, {"select": "last"})
    assert (last.patience, last.select_by) == (None, None)
    with pytest.raises(ArgumentError, match="patience waits for a better score"):
        adapt_recipe(DEFAULT_RECIPE, {"select": "last", "patience": 3})
    regressor = SequenceRegressor(recipe={"select": "last", "clip": "none"})
    assert (recipe(regressor).patience, recipe(regressor).clip) == (None, "none")


@pytest.mark.parametrize(("count", "held"), [(2, 0), (19, 0), (20, 3), (40, 6)])
def test_a_share_of_enough_sequences_is_kept(count, held):
    X, t, _, number = sequences(count)
    for fitted in (
        SequenceClassifier(**FAST).fit(X, np.arange(count) % 2, t=t),
        SequenceRegressor(**FAST).fit(X, number, t=t),
    ):
        trained, left = split_validation(count, "auto", np.random.RandomState(0), None)
        assert (len(trained), len(left)) == (count - held, held)
        assert np.array_equal(np.sort([*trained, *left]), np.arange(count))
        assert (fitted.result_.valid is not None) == bool(held)


@pytest.mark.parametrize(
    "y",
    [
        ["a"] * 29 + ["b"],  # one of a class
        [f"class {n % 10}" for n in range(30)],  # more classes than are held
    ],
)
def test_classes_that_cannot_be_spread_are_drawn(y):
    X, t, *_ = sequences(30)
    fitted = SequenceClassifier(**FAST).fit(X, y, t=t)
    assert fitted.result_.valid is not None
    assert set(fitted.classes_) == set(y)


def test_classes_are_spread_where_they_can_be():
    y = np.arange(40) % 10 == 0
    for seed in range(8):
        _, left = split_validation(40, "auto", np.random.RandomState(seed), y)
        assert len(left) == 6
        assert y[left].sum() == 1


def test_patience_ends_a_training_by_default():
    X, t, y, _ = sequences(60)
    y = np.random.default_rng(1).permutation(y)  # nothing to learn
    fitted = SequenceClassifier(hidden_size=4, lr=0.05, random_state=0, backend="reference")
    fitted.fit(X, y, t=t)
    assert len(fitted.result_.history) == fitted.result_.best_epoch + 10 < 100
    model = fitted.set_params(patience=None, epochs=15).fit(X, y, t=t)
    assert len(model.result_.history) == 15
    with pytest.raises(ArgumentError, match="must be 'auto' or a number, got 'some'"):
        SequenceClassifier(**FAST, validation_fraction="some").fit(X, y, t=t)


@pytest.mark.parametrize("window", [None, 8])
def test_of_a_few_long_series_the_late_rows_are_kept(window):
    rows = (80, 120, 1)
    random = np.random.default_rng(0)
    X = [random.normal(size=(n, 2)).cumsum(0) for n in rows]
    t = [random.exponential(1.0, n).cumsum() for n in rows]
    cuts = [68, 102, 1]
    auto = SequenceForecaster(**FAST, window=window).fit(X, t=t)
    early = [x[:cut] for x, cut in zip(X[:2], cuts, strict=False)]
    times = [times_of_id[:cut] for times_of_id, cut in zip(t[:2], cuts, strict=False)]
    late = [x[cut:] for x, cut in zip(X[:2], cuts, strict=False)]
    later = [times_of_id[cut:] for times_of_id, cut in zip(t[:2], cuts, strict=False)]
    settings = {**FAST, "window": window, "patience": 10, "validation_fraction": 0}
    two = SequenceForecaster(**settings)
    two.fit(early, t=times, validation={"X": late + X[2:], "t": later + t[2:]})
    losses = [[(row["train_loss"], row["valid"]) for row in f.result_.history] for f in (auto, two)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    short = SequenceForecaster(**FAST).fit(
        [x[:20] for x in X[:2]], t=[times_of_id[:20] for times_of_id in t[:2]]
    )
    assert short.result_.valid is None


def test_series_of_a_table_are_cut_too():
    table = pd.DataFrame({"who": np.repeat(["a", "b"], 100), "x": np.sin(np.arange(200))})
    fitted = SequenceForecaster(**FAST, window=10).fit(table, id="who")
    assert fitted.result_.valid is not None
    assert fitted.predict(table).shape == (2, 1, 1)


def test_all_sequences_are_trained_on_once_the_best_epoch_is_known():
    X, t, y, _ = sequences(40, missing=0.2)
    auto = SequenceClassifier(**{**FAST, "epochs": 30, "lr": 0.05}).fit(X, y, t=t)
    best = auto.result_.best_epoch
    assert auto.result_.valid is not None
    model = SequenceClassifier(**{**FAST, "epochs": best, "lr": 0.05}, validation_fraction=0)
    model.fit(X, y, t=t)
    np.testing.assert_array_equal(auto.predict_proba(X, t=t), model.predict_proba(X, t=t))
    part = SequenceClassifier(**{**FAST, "epochs": best, "lr": 0.05}, validation_fraction=0.15)
    assert not np.array_equal(
        part.fit(X, y, t=t).predict_proba(X, t=t), model.predict_proba(X, t=t)
    )


@pytest.mark.parametrize(
    "changes", [{"schedule": "cosine"}, {"curriculum": (2,), "curriculum_epochs": 1}]
)
def test_recipes_that_depend_on_their_length_train_once(changes):
    X, t, y, _ = sequences(40)
    model = SequenceClassifier(**FAST, recipe=changes)
    expected_model = SequenceClassifier(**FAST, recipe=changes, validation_fraction=0.15)
    expected = expected_model.fit(X, y, t=t).predict_proba(X, t=t)
    np.testing.assert_array_equal(model.fit(X, y, t=t).predict_proba(X, t=t), expected)


def test_inputs_of_a_classifier_level_off():
    X = np.concatenate([np.random.default_rng(0).normal(size=(60, 5, 1)), np.full((1, 5, 1), 1e3)])
    y = np.arange(61) % 2
    low, middle, high = np.quantile(X, [0.25, 0.5, 0.75], method="inverted_cdf")
    robust = (X - middle) / ((high - low) / (norm.ppf(0.75) - norm.ppf(0.25)))
    fitted = SequenceClassifier(**FAST, input_limit=2.0).fit(X, y)
    batch = fitted._to_batch(fitted._read_new(X, {}))
    expected = robust / np.sqrt(1 + (robust / 2) ** 2)
    np.testing.assert_allclose(batch.x, expected, atol=1e-3)
    assert abs(expected).max() < 2 < abs(robust).max()
    scaled = (X - X.mean()) / X.std()
    plain = SequenceClassifier(**FAST, input_limit=None).fit(X, y)
    np.testing.assert_allclose(plain._to_batch(plain._read_new(X, {})).x, scaled, rtol=1e-4)
    with pytest.raises(ArgumentError, match="input_limit must be"):
        SequenceClassifier(**FAST, input_limit=0).fit(X, y)
