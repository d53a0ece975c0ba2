"""What scikit-learn asks of every estimator, on sequences of one step."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tauflow.estimators import (
    SequenceClassifier,
    SequenceForecaster,
    SequenceImputer,
    SequenceRegressor,
    SequenceSurvival,
)

SMALL = {
    **{"model": "gru", "hidden_size": 8, "backend": "reference"},
    # Full batches in double precision: a weight of 3 then is three rows to the last digits.
    **{"epochs": 5, "lr": 0.2, "batch_size": 1000, "dtype": "float64"},
    **{"validation_fraction": 0, "recipe": {"ema": None}, "ensemble": 1},
}
ESTIMATORS = [
    SequenceClassifier(**SMALL),
    SequenceClassifier(**{**SMALL, "ensemble": 2}),
    SequenceRegressor(**SMALL),
    SequenceForecaster(**{**SMALL, "epochs": 1}, window=5),
    SequenceImputer(**SMALL),
    SequenceSurvival(**SMALL),
    SequenceSurvival(**SMALL, head="weibull"),
]


def unfit(estimator):
    """Return the checks that mean nothing for an estimator, with the reason."""
    if isinstance(estimator, SequenceForecaster):
        why = "the rows of an array of two axes are the steps of one series, whose order matters"
        return dict.fromkeys(
            ("check_methods_sample_order_invariance", "check_methods_subset_invariance"), why
        )
    return {}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=unfit)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
