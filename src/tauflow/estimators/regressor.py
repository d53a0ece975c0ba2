"""Numbers of a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array

from tauflow.data.scaler import StandardScaler
from tauflow.errors import ShapeError
from tauflow.tabular.cell_values import Floats, check_no_datetimes
from tauflow.tabular.sequences import Sequences
from tauflow.training.defaults import DEFAULT_MODELS

from .base import AbstractSequenceEstimator
from .input_kwargs import InputKwargs, with_input_kwargs
from .intervals import AbstractIntervalEstimator, as_answer
from .training import AUTO, LearningTask

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _LearnedTargets:
    """Types of what ``fit`` learns."""

    target_shape_: tuple[int, ...]
    target_standard_: StandardScaler


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceRegressor(RegressorMixin, AbstractIntervalEstimator, _LearnedTargets):  # type: ignore[misc]
    """Predict one or several numbers of a sequence of irregular samples.

    Targets are scaled to mean 0 and standard deviation 1 by the training split, and predictions
    scaled back.

    Args:
        {shared}
    """

    model: str | Sequence[str] = DEFAULT_MODELS  # type: ignore[assignment]  # others take one
    ensemble: int | str = AUTO

    _is_ensemble: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @with_input_kwargs
    def predict(
        self,
        X: Any,
        *,
        interval: float | None = None,
        return_std: bool = False,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Return one answer per sequence; of a data frame in the order of their first rows.

        Args:
            X: as for :meth:`fit`.
            interval: such as 0.9: returns ``(answers, low, high)``, ends of intervals that hold
                that share of the targets; of an estimator with ``intervals``.
            return_std: returns ``(answers, std)``, or one array more than with ``interval``: the
                standard deviation over the networks of an ensemble.
            {given}
        """
        rows = self._read_new(X, kwargs)
        return as_answer(self._answer(rows, interval, return_std))

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        check_no_datetimes("y", y.dtype)
        targets: Floats = check_array(
            y, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y"
        )
        if targets.ndim > 2:
            raise ShapeError(f"y has shape {targets.shape}, expected (B,) or (B, O).")
        shape = targets.shape[1:]
        if reset:
            self.target_shape_ = shape
        elif shape != self.target_shape_:
            raise ShapeError(
                f"y has shape {targets.shape}, and the estimator was fitted to targets of shape "
                f"(B{''.join(f', {size}' for size in self.target_shape_)})."
            )
        return targets.reshape(len(targets), -1)

    def _make_task(self, rows: Sequences) -> LearningTask:
        assert rows.y is not None
        return LearningTask("regress", rows.y.shape[1], "mse", "mse")

    def _fit_target_scaler(self, rows: Sequences) -> None:
        assert rows.y is not None
        self.target_standard_ = StandardScaler.fit(rows.y.T, rows.counts).replace_zero_scale()

    def _scale_targets(self, targets: NDArray[Any]) -> NDArray[Any]:
        return self.target_standard_.transform(targets)

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        values = self.target_standard_.inverse_transform(outputs)
        return values.reshape(len(values), *self.target_shape_)

    def _decode_spread(self, spread: NDArray[Any]) -> NDArray[Any]:
        scaled: NDArray[Any] = spread * self.target_standard_.scale
        return scaled.reshape(len(scaled), *self.target_shape_)

    def _compute_score(self, true: Any, predicted: NDArray[Any], weight: Any) -> float:
        return float(r2_score(true, predicted, sample_weight=weight))

    score = AbstractSequenceEstimator.score
