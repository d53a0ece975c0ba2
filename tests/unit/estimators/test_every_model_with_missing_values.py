"""NaN is a missing value for every model of the catalogs that reads features."""

import numpy as np
import pytest
from irregular_samples import SMALL

from tauflow.cells.registry import MODELS
from tauflow.estimators import SequenceClassifier
from tauflow.models import WHOLE_MODELS
from tauflow.models.registry import get_model_info


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in (*MODELS, *WHOLE_MODELS)
        if "features" in get_model_info(name).inputs
        and not {"queries", "inputs"} & get_model_info(name).outputs
    ],
)
def test_a_missing_value_is_neither_a_mean_nor_an_error(name):
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(4, 3, 2)), rng.exponential(size=(4, 3)).cumsum(1)
    X[1, 1, 0] = np.nan
    backend = "reference" if name in MODELS else "auto"
    settings = {**SMALL, "hidden_size": 8, "epochs": 1, "model": name, "dtype": "float64"}
    fitted = SequenceClassifier(**{**settings, "backend": backend}).fit(X, [0, 1, 0, 1], t=t)
    probabilities = fitted.predict_proba(X, t=t)
    assert np.isfinite(probabilities).all()
    filled = np.where(np.isnan(X), np.nanmean(X[..., 0]), X)
    changed = np.abs(fitted.predict_proba(filled, t=t) - probabilities).max(axis=1) > 0
    assert changed.tolist() == [False, True, False, False]
