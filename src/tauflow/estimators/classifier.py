"""One class per sequence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from tauflow.errors import DataError
from tauflow.recorded import python_number

from .base import AbstractSequenceEstimator
from .given import taking_times
from .rows import Floats
from .targets import Task, refuse_missing_classes, refuse_mixed_classes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .given import Given


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceClassifier(ClassifierMixin, AbstractSequenceEstimator):  # type: ignore[misc]
    """Tell sequences of irregular samples apart.

    Args:
        class_weight: what an error on each class counts: ``"balanced"``, as much as all others of
            its class together; a mapping of classes to numbers; ``None``: all the same.
        {shared}
    """

    class_weight: Mapping[Any, float] | str | None = None

    _stratified: ClassVar[bool] = True

    def _encoded(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        y = column_or_1d(y, warn=True)
        refuse_missing_classes(y)
        assert_all_finite(y, input_name="y")
        refuse_mixed_classes(y)
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                only = python_number(self.classes_[0])
                raise DataError(f"y holds one class only, {only!r}: nothing to tell apart.")
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise DataError(
                f"y holds the class {python_number(y[unknown][0])!r}, which the estimator was not "
                f"fitted to. Its classes: {', '.join(map(str, self.classes_))}."
            )
        return np.searchsorted(self.classes_, y)

    def _task(self, targets: NDArray[Any], weight: Floats | None) -> Task:
        weights = None
        if self.class_weight is not None:
            weights = self._class_weights(targets, weight)
        size = len(self.classes_)
        return Task("classify", size, "cross_entropy", "accuracy", "cross_entropy", weights)

    def _class_weights(self, targets: NDArray[Any], weight: Floats | None) -> tuple[float, ...]:
        """Return what an error on each class counts; 1 of a class that there is none of."""
        if self.class_weight == "balanced":
            totals = np.bincount(targets, weight, len(self.classes_))
            there = totals > 0
            balanced = totals.sum() / (there.sum() * np.where(there, totals, 1.0))
            return tuple(np.where(there, balanced, 1.0).tolist())
        found = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        return tuple(found.tolist())

    def _answers(self, outputs: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self.classes_[outputs.argmax(-1)]
        return found

    @taking_times
    def predict_proba(self, X: Any, **given: "Unpack[Given]") -> NDArray[Any]:
        """Return the probability of each class, (B, K), in the order of ``classes_``.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        found: NDArray[Any] = softmax(self._outputs(X, given), axis=-1)
        return found

    @taking_times
    def decision_function(self, X: Any, **given: "Unpack[Given]") -> NDArray[Any]:
        """Return the logits, (B, K); of two classes the difference, (B,), positive for the second.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        outputs = self._outputs(X, given)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def _score(self, true: NDArray[Any], found: NDArray[Any], weight: Any) -> float:
        return float(accuracy_score(true, found, sample_weight=weight))

    score = AbstractSequenceEstimator.score
