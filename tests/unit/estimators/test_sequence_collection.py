"""Collections of sequences in the tools of scikit-learn, against loops over folds by hand."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from irregular_samples import SMALL, padded, sequences
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedGroupKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
    train_test_split,
)

from tauflow.errors import ArgumentError, DataError, OptionError, ShapeError, UnknownNameError
from tauflow.estimators import (
    SequenceClassifier,
    SequenceCollection,
    SequenceForecaster,
    SequenceRegressor,
)

TABLE = {"id": "who", "time": "at"}


def table(count=30):
    """Return a table with ids in no order, a class of each row and a group of each row."""
    X, t, y, _ = sequences(count, missing=0.1)
    lengths = [len(x) for x in X]
    who = np.random.default_rng(1).permutation(count) + 100
    frame = pd.DataFrame(np.concatenate(X), columns=["a", "b"]).assign(
        who=np.repeat(who, lengths), at=np.concatenate(t)
    )
    return frame, pd.Series(np.repeat(y, lengths), name="state"), pd.Series(frame["who"] // 3)


def test_scores_by_name_and_predictions_are_those_of_a_loop_over_folds():
    frame, state, _ = table()
    X = SequenceCollection(frame, **TABLE)
    y, folds = X.per_sequence(state), StratifiedKFold(3)
    assert y.tolist() == state.groupby(frame["who"], sort=False).first().tolist()
    scores, probabilities = [], np.empty((len(y), 2))
    for train, test in folds.split(np.zeros(len(y)), y):
        rows = frame["who"].isin(X.ids[train])
        fitted = SequenceClassifier(**SMALL).fit(frame[rows], state[rows], **TABLE)
        probabilities[test] = fitted.predict_proba(frame[~rows])
        scores.append(roc_auc_score(y[test], probabilities[test, 1]))
    estimator = SequenceClassifier(**SMALL)
    fold_scores = cross_val_score(estimator, X, y, scoring="roc_auc", cv=folds, error_score="raise")
    np.testing.assert_allclose(fold_scores, scores, rtol=1e-12)
    fold_scores = cross_val_predict(estimator, X, y, cv=folds, method="predict_proba")
    np.testing.assert_allclose(fold_scores, probabilities, rtol=0, atol=1e-7)


def test_searches_calibration_thresholds_and_permutations_work_with_groups():
    frame, state, group = table()
    X = SequenceCollection(frame, **TABLE)
    y, groups, estimator = X.per_sequence(state), X.per_sequence(group), SequenceClassifier(**SMALL)
    search = GridSearchCV(
        estimator,
        {"hidden_size": [3, 5]},
        scoring="roc_auc",
        cv=StratifiedGroupKFold(2),
        error_score="raise",
    ).fit(X, y, groups=groups)
    for train, test in StratifiedGroupKFold(2).split(X, y, groups):
        assert not set(X.ids[train] // 3) & set(X.ids[test] // 3)
    best = SequenceClassifier(**{**SMALL, **search.best_params_}).fit(X, y)
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))
    np.testing.assert_array_equal(best.predict_proba(frame), best.predict_proba(X))
    for tool in (CalibratedClassifierCV, TunedThresholdClassifierCV):
        assert set(tool(estimator, cv=2).fit(X, y).predict(X)) <= {"up", "down"}
    score, permuted, _ = permutation_test_score(
        estimator, X, y, scoring="roc_auc", cv=2, n_permutations=3, random_state=0
    )
    assert np.isfinite([score, *permuted]).all()


def test_parts_are_those_of_an_array():
    frame, state, _ = table()
    X = SequenceCollection(frame, **TABLE)
    y, mask = X.per_sequence(state), np.arange(len(X)) % 3 == 0
    for places in (mask, np.flatnonzero(mask), slice(2, None, 5), [4, 1], 7, -1):
        part, expected = X[places], np.atleast_1d(X.ids[places])
        assert part.shape == (len(part),) == expected.shape
        np.testing.assert_array_equal(part.ids, expected)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).ids, expected)
    assert [len(item) for item in X] == [1] * len(X)
    fitted = SequenceClassifier(**SMALL).fit(X, y)
    answers = fitted.predict_proba(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(fitted.predict_proba(X[order]), answers[order], atol=1e-6)
    _, some, _, _ = train_test_split(X, y, random_state=0, stratify=y)
    assert fitted.predict(some).shape == some.shape
    assert repr(some) == f"SequenceCollection({len(some)} sequences of a, b)"


@pytest.mark.parametrize("kind", ["list", "padded", "frames", "long"])
def test_whatever_estimators_take_can_be_a_collection(kind):
    X, t, y, number = sequences(missing=0.2)
    data, options = X, {"t": t}
    if kind == "padded":
        (data, lengths), (times, _) = padded(X), padded(t)
        options = {"t": times, "lengths": lengths}
    if kind == "frames":
        data = [pd.DataFrame(x, columns=["a", "b"]) for x in X]
    if kind == "long":
        wide = pd.DataFrame(np.concatenate(X), columns=["a", "b"]).assign(
            who=np.repeat(np.arange(len(X)), [len(x) for x in X]), at=np.concatenate(t)
        )
        data = wide.melt(["who", "at"])
        options = {**TABLE, "long": ("variable", "value")}
    collection = SequenceCollection(data, **options)
    for estimator, target in (
        (SequenceClassifier(**SMALL, validation_fraction=0.2), y),
        (SequenceRegressor(**SMALL, model="gru-d"), number),
        (SequenceForecaster(**SMALL), None),
    ):
        expected = estimator.fit(data, target, **options).predict(data, **options)
        predictions = estimator.fit(collection, target).predict(collection)
        np.testing.assert_array_equal(predictions, expected)
        np.testing.assert_array_equal(estimator.predict(data, **options), expected)
    weight = number**2 + 0.1
    fitted = SequenceRegressor(**SMALL).fit(
        collection, number, weight, validation=(collection[:5], number[:5])
    )
    assert fitted.score(collection, number, weight) == fitted.score(data, number, weight, **options)


def test_features_are_matched_by_their_names():
    frame, state, _ = table()
    X = SequenceCollection(frame, **TABLE)
    fitted = SequenceClassifier(**SMALL).fit(X, X.per_sequence(state))
    turned = SequenceCollection(frame.assign(c=1.0)[["c", "b", "at", "a", "who"]], **TABLE)
    np.testing.assert_array_equal(fitted.predict_proba(turned), fitted.predict_proba(X))
    with pytest.raises(UnknownNameError, match="feature"):
        fitted.predict(SequenceCollection(frame.drop(columns="b"), **TABLE))
    arrays, _, y, _ = sequences(features=3)
    fitted.fit(SequenceCollection(arrays), y)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* expecting 3 features"):
        fitted.predict(SequenceCollection([x[:, :2] for x in arrays]))


def test_targets_in_another_order_are_an_error():
    frame, state, _ = table()
    X, estimator = SequenceCollection(frame, **TABLE), SequenceClassifier(**SMALL)
    sorted_y = state.groupby(frame["who"]).first()
    y = X.per_sequence(sorted_y)
    assert y.tolist() != sorted_y.tolist()
    assert y.tolist() == X.per_sequence(state).tolist()
    for targets, part in ((sorted_y, X), (sorted_y[:9], X[:9])):
        with pytest.raises(DataError, match=r"another order than the sequences of X.*per_sequence"):
            estimator.fit(part, targets)
    expected = estimator.fit(X, y).predict_proba(X)
    for targets in (
        pd.Series(y),
        pd.Series(y, index=X.ids),
        pd.Series(y, index=np.arange(30) - 50),
    ):
        np.testing.assert_array_equal(estimator.fit(X, targets).predict_proba(X), expected)
    with pytest.raises(ShapeError, match=r"y has .* entries, and X has 30 sequences"):
        estimator.fit(X, state)
    with pytest.raises(DataError, match="state has two values for one sequence"):
        X.per_sequence(pd.Series(np.arange(len(state)), name="state"))


def test_what_does_not_belong_to_a_collection_is_an_error():
    frame, state, _ = table()
    X, estimator = SequenceCollection(frame, **TABLE), SequenceClassifier(**SMALL)
    y = X.per_sequence(state)
    with pytest.raises(ArgumentError, match="id is for the sequences themselves: give it to Seq"):
        estimator.fit(X, y, id="who")
    with pytest.raises(ArgumentError, match="names a column, and X is no table"):
        estimator.fit(X, "state")
    with pytest.raises(ArgumentError, match="for a collection of all sequences of a table"):
        X[:5].per_sequence(state)
    leaking = SequenceCollection(frame.assign(died=1.0), **TABLE)
    with pytest.raises(DataError, match="values is called 'died', and so is a feature of X"):
        leaking.per_sequence(pd.Series(1.0, index=frame.index, name="died"))
    with pytest.raises(OptionError, match="SequenceCollection takes no argument 'tine'"):
        SequenceCollection(frame, id="who", tine="at")
    with pytest.raises(ArgumentError, match="for the estimators of tauflow, and cannot be made an"):
        LogisticRegression().fit(X, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_may_require_a_gradient(dtype):
    X = torch.randn(12, 4, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    t = torch.arange(4.0).expand(12, 4)
    y = X[:, :, 0].float().mean(1)
    expected = SequenceRegressor(**SMALL).fit(X.float().numpy(), y.numpy(), t=t.numpy())
    answers = expected.predict(X.float().numpy(), t=t.numpy())
    for x in (X, X.requires_grad_(), list(X.requires_grad_())):
        times = list(t.clone().requires_grad_()) if isinstance(x, list) else t
        model = SequenceRegressor(**SMALL).fit(x, y.clone().requires_grad_(), t=times)
        np.testing.assert_array_equal(model.predict(x, t=times), answers)
    model = SequenceRegressor(**SMALL, patience=1).fit(
        X, y, t=t, validation={"X": X, "y": y.requires_grad_(), "t": t}
    )
    assert np.isfinite(model.predict(X, t=t)).all()
