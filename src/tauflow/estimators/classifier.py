"""One class per sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from tauflow._internal.init_args import to_python_number
from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.evaluation.calibration import calibrate
from tauflow.evaluation.outputs import collect_outputs, predict_spread
from tauflow.evaluation.thresholds import check_threshold, choose_threshold
from tauflow.tabular.cell_values import find_missing
from tauflow.tabular.sequences import Sequences
from tauflow.training.defaults import DEFAULT_MODELS

from .base import AbstractSequenceEstimator
from .input_kwargs import InputKwargs, with_input_kwargs
from .training import AUTO, LearningTask

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _LearnedClasses:
    """Types of what ``fit`` learns."""

    classes_: NDArray[Any]
    threshold_: float | None


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceClassifier(ClassifierMixin, AbstractSequenceEstimator, _LearnedClasses):  # type: ignore[misc]
    r"""Classify sequences of irregular samples.

    Args:
        class_weight: what an error on each class counts: ``"balanced"``, as much as all others of
            its class together; a mapping of classes to numbers; ``None``: all the same.
        calibrate: corrects the probabilities by the validation data: ``"temperature"``, which keeps
            their order, or ``"isotonic"``, see :func:`tauflow.evaluation.calibrate`.
        threshold: the probability from which on ``predict`` tells the second of two classes, by
            default a half: a number, or how it is chosen on the validation data, see
            :func:`tauflow.evaluation.choose_threshold`. Chosen, it is ``threshold_``. Where it is,
            or probabilities are calibrated, the network is not trained again on all data.
        input_limit: where inputs level off, so that values far from all others, as of laboratories,
            do not rule the network: z, scaled by median and quartiles to the standard deviation of
            a normal variable, becomes :math:`z / \sqrt{1 + (z / l)^2}` (Holzmüller et al. 2024,
            "Better by Default", Section 3). ``None``: never, and mean and standard deviation scale
            them.
        {shared}

    Attributes:
        classes_: the classes, (K,), sorted even where a dtype has another order: scikit-learn's
            scores take the columns of ``predict_proba`` in that order.
    """

    model: str | Sequence[str] = DEFAULT_MODELS  # type: ignore[assignment]  # others take one
    ensemble: int | str = AUTO
    class_weight: Mapping[Any, float] | str | None = None
    calibrate: str | None = None
    threshold: str | float | Mapping[str, float] | None = None
    input_limit: float | None = 3.0

    _network_params: ClassVar[tuple[str, ...]] = (
        *AbstractSequenceEstimator._network_params,
        "input_limit",
    )
    _is_stratified: ClassVar[bool] = True
    _is_ensemble: ClassVar[bool] = True

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        if y.ndim == 2 and y.shape[1] > 1:
            raise ShapeError(
                f"y has shape {y.shape}, expected (B,), one class per sequence. For several "
                "labels take sklearn.multioutput.MultiOutputClassifier(SequenceClassifier())."
            )
        y = column_or_1d(y, warn=True)
        absent = find_missing(y)
        if absent.any():
            place = int(np.argmax(absent))
            raise DataError(
                f"y[{place}] is {y[place]}, expected a class. Fill it in, or remove that sequence "
                "from X and y."
            )
        assert_all_finite(y, input_name="y")
        firsts = (
            {isinstance(value, str): value for value in y.tolist()} if y.dtype == object else {}
        )
        if len(firsts) > 1:
            raise DataError(
                f"y holds {firsts[True]!r} and {firsts[False]!r}, which is no text. Give classes "
                "of one type, such as y.astype(str)."
            )
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                only = to_python_number(self.classes_[0])
                raise DataError(f"y holds one class only, {only!r}: nothing to tell apart.")
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise DataError(
                f"y holds the class {to_python_number(y[unknown][0])!r}, which the estimator was "
                f"not fitted to. Its classes: {', '.join(map(str, self.classes_))}."
            )
        return np.searchsorted(self.classes_, y)

    def _make_task(self, rows: Sequences) -> LearningTask:
        weights = None
        if self.class_weight is not None:
            weights = self._compute_class_weights(rows)
        scores = ("cross_entropy", "accuracy", "cross_entropy")
        return LearningTask("classify", self._count_outputs(), *scores, weights)

    def _count_outputs(self) -> int:
        return len(self.classes_)

    def _compute_class_weights(self, rows: Sequences) -> tuple[float, ...]:
        """Return what an error on each class counts; 1 of a class without examples."""
        if self.class_weight == "balanced":
            assert rows.y is not None
            totals = np.bincount(rows.y, rows.weight, len(self.classes_))
            there = totals > 0
            balanced = totals.sum() / (there.sum() * np.where(there, totals, 1.0))
            return tuple(np.where(there, balanced, 1.0).tolist())
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        return tuple(weights.tolist())

    def _list_calibrations(self) -> list[str]:
        if self.threshold is not None:
            check_threshold(self.threshold)
            if len(self.classes_) != 2:
                raise ArgumentError(
                    f"threshold={self.threshold!r} decides between two classes, and y holds "
                    f"{len(self.classes_)}. Leave it out: the most likely class is predicted."
                )
        learned = {
            "calibrate": self.calibrate is not None,
            "threshold": not isinstance(self.threshold, Real | None),
        }
        return [name for name, is_learned in learned.items() if is_learned]

    def _calibrate(self, held: Sequences | None) -> None:
        self.threshold_ = float(self.threshold) if isinstance(self.threshold, Real) else None
        if held is None:
            return
        batch = self._make_batch(held)
        if self.calibrate is not None:
            self.module_ = calibrate(self.module_, batch, self.calibrate).eval()
        if self.threshold is not None:
            outputs = collect_outputs(self.module_, batch)
            probability = softmax(outputs.prediction.double().numpy(), axis=-1)[:, 1]
            self.threshold_ = choose_threshold(outputs.y.numpy() == 1, probability, self.threshold)

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        threshold = getattr(self, "threshold_", None)
        if threshold is None:
            chosen = outputs.argmax(-1)
        else:
            chosen = (softmax(outputs.astype(np.float64), axis=-1)[:, 1] >= threshold).astype(int)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    @with_input_kwargs
    def predict_proba(
        self, X: Any, *, return_std: bool = False, **kwargs: "Unpack[InputKwargs]"
    ) -> Any:
        """Return the probability of each class, (B, K), in the order of ``classes_``.

        Args:
            X: as for :meth:`fit`.
            return_std: whether to return the standard deviation over the networks of an ensemble,
                (B, K), too.
            {given}
        """
        rows = self._read_new(X, kwargs)
        probabilities: NDArray[Any] = softmax(self._run_network(rows), axis=-1)
        if not return_std:
            return probabilities
        return probabilities, self._run_on_batches(rows, partial(predict_spread, task="classify"))

    @with_input_kwargs
    def decision_function(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> NDArray[Any]:
        """Return the logits, (B, K); of two classes the difference, (B,), positive for the second.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        outputs = self._predict_outputs(X, kwargs)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def _compute_score(self, true: Any, predicted: NDArray[Any], weight: Any) -> float:
        return float(accuracy_score(true, predicted, sample_weight=weight))

    score = AbstractSequenceEstimator.score
