"""Boosted trees as a module: scikit-learn's own predictions, and files."""

import numpy as np
import pandas
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import tauflow
from tauflow.data import from_table
from tauflow.data.summary_features import compute_summary_features
from tauflow.errors import ArgumentError
from tauflow.models.boosted_trees import join_trees
from tauflow.runs import boosting
from tauflow.runs.boosting import fit_boosted_trees
from tauflow.training.evaluation_loop import predict


def visits(classes=2, ids=150):
    rng = np.random.default_rng(0)
    levels = rng.normal(size=ids)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(ids), 5)})
    frame["t"] = rng.exponential(size=len(frame)).cumsum()
    frame["a"] = np.repeat(levels, 5) + 0.3 * rng.normal(size=len(frame))
    frame["b"] = rng.normal(size=len(frame))
    frame.loc[rng.random(len(frame)) < 0.2, "a"] = np.nan
    frame["class"] = np.repeat(np.digitize(levels, np.linspace(-0.5, 0.5, classes - 1)), 5).astype(
        str
    )
    frame["level"] = np.repeat(levels**2, 5)
    frame["other"] = frame["b"] * 2
    return frame


def fit_by_hand(data, kind):
    features = compute_summary_features(data.train).values
    varies = [len(np.unique(column[~np.isnan(column)])) > 1 for column in features.T]
    model = kind(random_state=0).fit(features[:, varies], data.train.y.reshape(len(features)))
    return model, compute_summary_features(data.test).values[:, varies]


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_are_those_of_sklearn(classes):
    data = from_table(visits(classes), id="id", time="t", target="class")
    model, features = fit_by_hand(data, HistGradientBoostingClassifier)
    probabilities = predict(fit_boosted_trees(data), data.test).double().softmax(-1)
    np.testing.assert_allclose(probabilities, model.predict_proba(features), rtol=1e-5, atol=1e-6)


def test_values_are_those_of_sklearn():
    data = from_table(visits(), id="id", time="t", target="level", features=["a", "b"])
    model, features = fit_by_hand(data, HistGradientBoostingRegressor)
    values = predict(fit_boosted_trees(data), data.test)[:, 0]
    np.testing.assert_allclose(values, model.predict(features), rtol=1e-4, atol=1e-5)


def test_each_step_is_answered_by_what_came_until_then():
    frame = visits()
    data = from_table(frame, id="id", time="t", target="other", features=["a", "b"])
    trees = fit_boosted_trees(data)
    predictions = predict(trees, data.test)
    assert predictions.shape == (*data.test.x.shape[:2], 1)
    short = predict(trees, data.test[:].trim_padding())[:, :2]
    x, dt = data.test.x.clone(), data.test.dt.clone()
    x[:, 2:], dt[:, 2:] = 99.0, 7.0
    changed, _ = trees(x, dt=dt, mask=data.test.mask, observed=data.test.observed)
    torch.testing.assert_close(changed[:, :2], short, rtol=0, atol=0)


def test_a_file_holds_the_trees(tmp_path):
    data = from_table(visits(3), id="id", time="t", target="class")
    trees = fit_boosted_trees(data)
    tauflow.save(trees, tmp_path / "trees.safetensors")
    loaded = tauflow.load(tmp_path / "trees.safetensors")
    assert torch.equal(predict(loaded, data.test), predict(trees, data.test))


def test_of_a_single_class_the_answer_is_that_class():
    frame = visits()
    data = from_table(frame, id="id", time="t", target="class")
    data.train.y.fill_(1)
    probabilities = predict(fit_boosted_trees(data), data.test).softmax(-1)
    torch.testing.assert_close(probabilities[:, 1], torch.ones(len(probabilities)))


def test_trees_that_sklearn_stores_otherwise_are_refused(monkeypatch):
    data = from_table(visits(), id="id", time="t", target="class")
    broken = boosting._list_trees

    def swap(fitted, outputs):
        return [
            (o, {**n, "left": n["right"], "right": n["left"]}) for o, n in broken(fitted, outputs)
        ]

    monkeypatch.setattr(boosting, "_list_trees", swap)
    with pytest.raises(ArgumentError, match="could not be converted"):
        fit_boosted_trees(data)


def leaf(value=1.0, **changes):
    nodes = {
        "feature": np.zeros(1, np.int64),
        "threshold": np.zeros(1),
        "missing_left": np.zeros(1, bool),
        "left": np.full(1, -1),
        "right": np.full(1, -1),
        "value": np.full(1, value),
    }
    return nodes | changes


def test_trees_of_a_leaf_are_a_constant():
    module = join_trees(
        2, [0.5, 0.0], [(0, leaf(1.0)), (1, leaf(2.0)), (1, leaf(3.0))], per_step=False
    )
    answers, _ = module(torch.randn(4, 3, 2))
    assert torch.equal(answers, torch.tensor([1.5, 5.0]).expand(4, 2))


@pytest.mark.parametrize(
    ("output", "nodes"),
    [(2, leaf()), (0, leaf(left=np.array([0]), right=np.array([0])))],
    ids=["output", "circle"],
)
def test_trees_that_cannot_be_are_refused(output, nodes):
    with pytest.raises(ArgumentError):
        join_trees(1, [0.0], [(output, nodes)], per_step=False)


@pytest.mark.parametrize("target", ["class", "level"])
def test_targets_count_what_their_ids_weigh(target):
    frame = visits(ids=200)
    frame["weight"] = 1.0 + 2 * (frame["id"] % 3 == 0)
    data = from_table(frame, id="id", time="t", target=target, features=["a", "b"], weight="weight")
    is_class = target == "class"
    kind = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    features = compute_summary_features(data.train).values
    varies = [len(np.unique(column[~np.isnan(column)])) > 1 for column in features.T]
    model = kind(random_state=0).fit(
        features[:, varies], data.train.y.flatten(), sample_weight=data.train.weight
    )
    test = compute_summary_features(data.test).values[:, varies]
    logits = predict(fit_boosted_trees(data), data.test).double()
    if is_class:
        np.testing.assert_allclose(logits.softmax(-1), model.predict_proba(test), atol=1e-5)
    else:
        np.testing.assert_allclose(logits[:, 0], model.predict(test), rtol=1e-4, atol=1e-5)
