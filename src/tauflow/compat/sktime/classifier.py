"""A sequence classifier for pipelines, grids and benchmarks of sktime."""

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from tauflow._internal.optional_deps import require_package
from tauflow.estimators import SequenceClassifier

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from sktime.classification.base import BaseClassifier as _Base
    except ModuleNotFoundError:  # building one says what to install
        _Base = object


class SktimeClassifier(_Base):  # type: ignore[misc]
    """:class:`~tauflow.estimators.SequenceClassifier` as a classifier of sktime.

    Series are evenly sampled and of equal length, as sktime's ``numpy3D`` are; NaN is a missing
    value. For irregular times use the estimator itself.

    Args:
        estimator: what classifies, not fitted; by default ``SequenceClassifier()``.

    Raises:
        MissingExtraError: sktime is not installed.
    """

    _tags = {  # noqa: RUF012  # as sktime has them
        "X_inner_mtype": "numpy3D",
        "y_inner_mtype": "numpy1D",
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:predict_proba": True,
    }

    def __init__(self, estimator: SequenceClassifier | None = None) -> None:
        require_package("sktime")
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "SktimeClassifier":
        chosen = SequenceClassifier() if self.estimator is None else clone(self.estimator)
        self.estimator_ = chosen.fit(X.transpose(0, 2, 1), y)
        return self

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict(X.transpose(0, 2, 1))

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(X.transpose(0, 2, 1))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Return parameters that sktime's own tests use."""
        return {
            "estimator": SequenceClassifier(hidden_size=4, epochs=1, ensemble=1, random_state=0)
        }
