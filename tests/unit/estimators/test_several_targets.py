"""An estimator of several targets of different kinds, some of them missing."""

import numpy as np
import pandas as pd
import pytest

from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.estimators import SequenceClassifier, SequenceMultiOutput

SMALL = {"model": "gru", "hidden_size": 12, "epochs": 30, "lr": 0.02, "random_state": 0}
SMALL |= {"ensemble": 1}
ORDER = {"grade": ["low", "mid", "high"]}


def data(count=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 6, 2))
    level = X[:, :, 0].mean(1)
    y = pd.DataFrame(
        {
            "died": level > 0.2,
            "grade": np.array(["low", "mid", "high"])[np.digitize(level, [-0.2, 0.2])],
            "days": 3 * level + 10.0,
        }
    ).astype(object)
    y.loc[::5, "grade"] = None
    y.loc[1::4, "days"] = np.nan
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return SequenceMultiOutput(**SMALL, kinds=ORDER).fit(X[:100], y[:100].reset_index(drop=True))


def test_it_learns_targets_of_all_kinds_of_which_some_are_missing(fitted):
    X, y = data()
    assert fitted.kinds_ == ("class", "ordinal", "value")
    scores = fitted.score_targets(X[100:], y[100:].reset_index(drop=True))
    assert min(scores.values()) > 0.7, scores
    assert fitted.score(X[100:], y[100:].reset_index(drop=True)) == np.mean(list(scores.values()))


def test_predictions_are_of_the_classes_and_units_of_y(fitted):
    X, _ = data()
    found = fitted.predict(X[:5])
    assert found.shape == (5, 3)
    assert set(found[:, 1]) <= {"low", "mid", "high"}
    assert abs(found[:, 2].astype(float) - 10).max() < 5
    died, grade, days = fitted.predict_proba(X[:5])
    assert days is None
    for probability, size in ((died, 2), (grade, 3)):
        assert probability.shape == (5, size)
        np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-5)
    assert (fitted.classes_[1][grade.argmax(1)] == found[:, 1]).all()


def test_a_file_keeps_it(fitted, tmp_path):
    X, _ = data()
    fitted.save(tmp_path / "e.safetensors")
    again = SequenceMultiOutput.load(tmp_path / "e.safetensors")
    assert (again.predict(X) == fitted.predict(X)).all()


def test_binary_labels_of_an_array_are_several_classes():
    X, _ = data()
    labels = np.stack([X[:, :, 0].mean(1) > 0, X[:, :, 1].mean(1) > 0], axis=1).astype(int)
    found = SequenceMultiOutput(**SMALL).fit(X[:110], labels[:110])
    assert found.kinds_ == ("class", "class")
    assert found.module_.head.out_features == 2  # one logit each
    assert (found.predict(X[110:]) == labels[110:]).mean() > 0.85


def test_targets_are_columns_of_a_table_or_have_an_index_of_ids():
    X, y = data(40)
    table = pd.DataFrame(X.reshape(-1, 2), columns=["a", "b"])
    table["who"], table["at"] = np.repeat(np.arange(40) + 7, 6), np.tile(np.arange(6), 40)
    whole = table.join(y.set_axis(np.arange(40) + 7), on="who")
    how = {"id": "who", "time": "at"}
    options = {**SMALL, "epochs": 2, "kinds": ORDER}
    by_name = SequenceMultiOutput(**options).fit(whole, ["died", "grade", "days"], **how)
    shuffled = y.set_axis(pd.Index(np.arange(40) + 7, name="who")).sample(frac=1, random_state=0)
    by_id = SequenceMultiOutput(**options).fit(table, shuffled, **how)
    assert (by_name.predict(table) == by_id.predict(table)).all()
    assert by_name.target_names_ == ("died", "grade", "days")


@pytest.mark.parametrize(
    ("y", "kinds", "error", "message"),
    [
        (["a", "b"] * 5, {"y": "ordinal"}, ArgumentError, "whose order nothing says"),
        (["a", "b"] * 5, {"z": "class"}, Exception, "z"),
        ([[1, 2]] * 10, ["class"], ArgumentError, "one for each of 2 targets"),
        ([[1, 2]] * 10, None, DataError, "holds one class only"),
        ([[np.nan, 1.5]] * 9 + [[np.nan, np.nan]], None, DataError, "missing everywhere"),
        ([[1.0, 1.5], [2.0, 0.5]] * 4 + [[np.nan] * 2] * 2, None, DataError, r"y\[8\] holds no"),
        ([[0.5, np.inf]] * 10, ["value", "value"], DataError, "infinite"),
        (np.zeros((10, 2, 2)), None, ShapeError, r"expected \(B,\) or \(B, S\)"),
        (["a", "b"] * 5, {"y": ["a", "c"]}, DataError, "none of its classes: a, c"),
    ],
)
def test_what_cannot_be_learned_is_refused(y, kinds, error, message):
    if kinds and "y" in kinds:
        y = np.array(y)
    X = np.random.default_rng(0).normal(size=(10, 3, 1))
    with pytest.raises(error, match=message):
        SequenceMultiOutput(**SMALL, kinds=kinds).fit(X, np.array(y) if kinds is None else y)


def test_an_ensemble_averages_values_and_probabilities(tmp_path):
    X, y = data(60)
    options = {**SMALL, "epochs": 3, "kinds": ORDER, "validation_fraction": 0}
    found = SequenceMultiOutput(**{**options, "ensemble": 2}).fit(X, y)
    died, grade, _ = found.predict_proba(X)
    days = found.predict(X)[:, 2].astype(float)
    found.save(tmp_path / "e.safetensors")
    again = SequenceMultiOutput.load(tmp_path / "e.safetensors")
    np.testing.assert_allclose(again.predict_proba(X)[1], grade, rtol=1e-5)
    members, parts = found.module_.members, []
    for member in members:
        found.module_ = member
        parts.append((*found.predict_proba(X)[:2], found.predict(X)[:, 2].astype(float)))
    for one, several in zip((died, grade, days), zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(one, np.mean(several, axis=0), rtol=1e-4, atol=1e-6)


def test_other_targets_are_refused(fitted):
    X, y = data(30)
    with pytest.raises(ShapeError, match="2 targets, and the estimator was fitted to 3"):
        fitted.score(X, y[["died", "days"]])


def test_a_classifier_names_the_estimator_of_several_labels():
    X, _ = data(10)
    with pytest.raises(ShapeError, match=r"\(10, 2\).*take SequenceMultiOutput"):
        SequenceClassifier(**SMALL).fit(X, np.zeros((10, 2), int))
