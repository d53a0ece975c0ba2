"""A sequence classifier for pipelines and benchmarks of aeon."""

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from tauflow._internal.optional_deps import require_package
from tauflow.estimators import SequenceClassifier

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from aeon.classification.base import BaseClassifier as _Base
    except ModuleNotFoundError:  # building one says what to install
        _Base = object


class AeonClassifier(_Base):  # type: ignore[misc]
    """:class:`~tauflow.estimators.SequenceClassifier` as a classifier of aeon.

    Series are evenly sampled, (channels, time) each, of equal or unequal length; NaN is a missing
    value. For irregular times use the estimator itself.

    Args:
        estimator: what classifies, not fitted; by default ``SequenceClassifier()``.

    Raises:
        MissingExtraError: aeon is not installed.
    """

    _tags = {  # noqa: RUF012  # as aeon has them
        "X_inner_type": "np-list",
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "algorithm_type": "deeplearning",
    }

    def __init__(self, estimator: SequenceClassifier | None = None) -> None:
        require_package("aeon")
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "AeonClassifier":
        chosen = SequenceClassifier() if self.estimator is None else clone(self.estimator)
        self.estimator_ = chosen.fit([series.T for series in X], y)
        return self

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict([series.T for series in X])

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba([series.T for series in X])
