"""Searches, pipelines, cross validation, clones and pickles of scikit-learn and joblib."""

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from irregular_samples import SMALL, sequences
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor


def table():
    X, t, y, _ = sequences(18)
    lengths = [len(x) for x in X]
    return pd.DataFrame(np.concatenate(X), columns=["a", "b"]).assign(
        who=np.repeat(np.arange(len(X)), lengths),
        at=np.concatenate(t),
        target=np.repeat(y, lengths),
    )


def test_a_grid_is_searched_over_a_table_with_its_ids_kept_together():
    frame = table()
    X, y = frame.drop(columns="target"), frame["target"]
    search = GridSearchCV(
        SequenceClassifier(**SMALL),
        {"hidden_size": [3, 5]},
        cv=StratifiedGroupKFold(2),
        error_score="raise",
    )
    search.fit(X, y, groups=frame["who"], id="who", time="at")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert best.hidden_size == search.best_params_["hidden_size"]
    assert search.predict(X).shape == (18,)
    assert search.score(X, y) == best.score(X, y)


def test_times_of_arrays_are_routed_by_metadata():
    X, t, y, _ = sequences(18)
    estimator = SequenceClassifier(**SMALL)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator.set_fit_request(t=True).set_score_request(t=True)
        scores = cross_val_score(estimator, X, y, params={"t": t}, cv=3, error_score="raise")
    folds = [slice(0, 6), slice(6, 12), slice(12, 18)]
    assert len(scores) == len(folds)
    assert all(0 <= score <= 1 for score in scores)
    with pytest.raises(ValueError, match=r"fitted to sequences with times, and these have none"):
        cross_val_score(estimator, X, y, params={"t": t}, cv=3, error_score="raise")


def test_a_pipeline_scales_the_columns_of_a_table_first():
    frame = table()
    X, y = frame.drop(columns="target"), frame["target"]
    scale = ColumnTransformer(
        [("scale", StandardScaler(), ["a", "b"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = Pipeline([("scale", scale), ("network", SequenceClassifier(**SMALL))])
    pipeline.fit(X, y, network__id="who", network__time="at")
    alone = SequenceClassifier(**SMALL).fit(X, y, id="who", time="at")
    np.testing.assert_allclose(pipeline.predict_proba(X), alone.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("kind", [SequenceClassifier, SequenceRegressor, SequenceForecaster])
def test_clones_are_unfitted_and_learn_the_same_and_pickles_are_fitted(kind, tmp_path):
    X, t, y, number = sequences(missing=0.1)
    estimator = kind(**SMALL, model="gru-d")
    fitted = estimator.fit(X, number if kind is SequenceRegressor else y, t=t)
    expected = fitted.predict(X, t=t)
    copy = clone(fitted)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "module_")
    again = copy.fit(X, number if kind is SequenceRegressor else y, t=t)
    np.testing.assert_array_equal(again.predict(X, t=t), expected)
    joblib.dump(fitted, tmp_path / "estimator.joblib")
    loaded = joblib.load(tmp_path / "estimator.joblib")
    np.testing.assert_array_equal(loaded.predict(X, t=t), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_was_fitted_on_a_gpu_answers_without_one(tmp_path):
    X, t, y, _ = sequences()
    fitted = SequenceClassifier(**{**SMALL, "backend": "auto"}, device="cuda").fit(X, y, t=t)
    joblib.dump(fitted, tmp_path / "estimator.joblib")
    assert next(fitted.module_.parameters()).is_cuda
    loaded = joblib.load(tmp_path / "estimator.joblib")
    assert not next(loaded.module_.parameters()).is_cuda
    expected = fitted.predict_proba(X, t=t)
    probabilities = loaded.set_params(device="cpu").predict_proba(X, t=t)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
