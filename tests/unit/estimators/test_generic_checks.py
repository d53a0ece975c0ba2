"""What scikit-learn asks of every estimator, on sequences of one step."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tauflow.estimators import SequenceClassifier, SequenceRegressor

SMALL = {
    **{"model": "gru", "hidden_size": 8, "backend": "reference"},
    # Full batches in double precision: a weight of 3 then is three rows to the last digits.
    **{"epochs": 10, "lr": 0.1, "batch_size": 1000, "dtype": "float64"},
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([SequenceClassifier(**SMALL), SequenceRegressor(**SMALL)])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
