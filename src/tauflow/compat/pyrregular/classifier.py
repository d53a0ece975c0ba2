"""A sequence classifier for the irregular data sets of pyrregular."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from tauflow._internal.optional_deps import require_package
from tauflow.estimators import SequenceClassifier


@dataclass(eq=False)
class PyrregularClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """:class:`~tauflow.estimators.SequenceClassifier` on arrays of pyrregular, with their times.

    ::

        data = read_dataset("Garment.h5")
        y, split = data.irr.get_task_target_and_split()
        train, test = data[split != "test"], data[split == "test"]
        PyrregularClassifier().fit(train, y[split != "test"]).score(test, y[split == "test"])

    X is an array of series, signals and times (``xarray.DataArray``). Each series is read at its
    times, in seconds where these are dates; a signal that was not measured at one is missing.

    Args:
        estimator: what classifies, not fitted; by default ``SequenceClassifier()``.

    Raises:
        MissingExtraError: pyrregular is not installed, at the first call with data.
    """

    estimator: SequenceClassifier | None = None

    def fit(self, X: Any, y: Any) -> "PyrregularClassifier":
        """Fit the estimator to series, with one label each."""
        chosen = SequenceClassifier() if self.estimator is None else clone(self.estimator)
        values, times = read_series(X)
        self.estimator_ = chosen.fit(values, np.asarray(y), t=times)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each series, (N,)."""
        values, times = read_series(X)
        labels: NDArray[Any] = self.estimator_.predict(values, t=times)
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, (N, K)."""
        values, times = read_series(X)
        probabilities: NDArray[np.float64] = self.estimator_.predict_proba(values, t=times)
        return probabilities

    def score(self, X: Any, y: Any) -> float:
        """Return the share of series that get their label."""
        return float(np.mean(self.predict(X) == np.asarray(y)))


def read_series(X: Any) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return the values, (T_i, I), and times, (T_i,), of each series of an array of pyrregular."""
    require_package("pyrregular")
    import pyrregular.accessor  # noqa: F401  # gives arrays their attribute irr

    dense, times = X.irr.to_dense()
    # shorter series are padded with NaN, in their times too
    is_row = [np.isfinite(row[0]) for row in times]
    values = [row[:, there].T for row, there in zip(dense, is_row, strict=True)]
    return values, [row[0, there] for row, there in zip(times, is_row, strict=True)]
