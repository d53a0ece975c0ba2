"""Several targets of a sequence, of any kinds: values, classes, and classes with an order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, cohen_kappa_score, r2_score
from sklearn.utils.validation import check_is_fitted

from tauflow._internal.checks import check_one_of
from tauflow._internal.init_args import to_python_number
from tauflow._internal.sanitize import format_count
from tauflow._internal.targets import (
    CLASS,
    MULTIOUTPUT,
    ORDINAL,
    TARGET_KINDS,
    VALUE,
    TargetSpec,
    count_outputs,
    split_outputs,
)
from tauflow.batch import SequenceBatch
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.tabular.cell_values import check_no_datetimes
from tauflow.tabular.target_kinds import MAX_INTEGER_CLASSES
from tauflow.training.multioutput import make_multioutput_loss

from .arrays import find_missing, to_array
from .base import AbstractSequenceEstimator
from .input_kwargs import InputKwargs, with_input_kwargs
from .ragged import RaggedSequences
from .reading import is_table
from .training import AUTO, LearningTask

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _LearnedKinds:
    """Types of what ``fit`` learns."""

    target_names_: tuple[Any, ...]
    kinds_: tuple[str, ...]
    classes_: list[NDArray[Any] | None]
    target_standard_: StandardScaler
    _is_single: bool


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceMultiOutput(AbstractSequenceEstimator, _LearnedKinds):
    r"""Predict several targets of a sequence at once: values, classes, classes with an order.

    One network has outputs for all of them, and its loss is the mean over all known targets: the
    squared error of scaled values and the cross entropy of classes. y is (B, S), (B,) for one
    target, a data frame with a column for each, or a list of columns of X; a target that is missing
    (NaN, ``None``) is left out of the loss.

    Of two classes, such as several binary labels, the network has one logit; of more, one each. The
    model of classes with an order is that of cumulative logits, :math:`P(y \le k \mid x) =
    \sigma(\theta_k(x))` with thresholds :math:`\theta_0 = o_0`, :math:`\theta_k = \theta_{k-1} +
    \mathrm{softplus}(o_k)` of outputs :math:`o` (McCullagh 1980, "Regression Models for Ordinal
    Data"); where only :math:`o_0` depends on x, it is the proportional odds model.

    Args:
        kinds: what each target is, as a list, or a mapping of names of columns or of their numbers:
            ``"value"``, ``"class"``, ``"ordinal"`` for numbers that are ordered classes, or the
            classes in their order, such as ``["low", "medium", "high"]``. Others are classes if
            they hold text, booleans, or at most 20 different whole numbers, and else values.
        {shared}

    Attributes:
        target_names_: names of the targets, (S,), or their numbers.
        kinds_: what each target is, ``"value"``, ``"class"`` or ``"ordinal"``, (S,).
        classes_: the classes of each target, in their order; ``None`` for values.
    """

    ensemble: int | str = AUTO
    kinds: Mapping[Any, str | Sequence[Any]] | Sequence[str | Sequence[Any]] | None = None

    _network_params: ClassVar[tuple[str, ...]] = (
        *AbstractSequenceEstimator._network_params,
        "kinds",
    )
    _allows_missing_targets: ClassVar[bool] = True
    _is_ensemble: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    @with_input_kwargs
    def predict(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> NDArray[Any]:
        """Return the values and the most probable classes, (B, S), or (B,) if y was.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        return self._decode_outputs(self._predict_outputs(X, kwargs))

    @with_input_kwargs
    def predict_proba(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> Any:
        """Return the probabilities of the classes of each target, a list of (B, K).

        It holds ``None`` for values; of a single target, (B,), it is (B, K) itself.

        Args:
            X: as for :meth:`fit`.
            {given}
        """
        outputs = torch.from_numpy(self._predict_outputs(X, kwargs))
        found = [
            None if spec.kind == VALUE else spec.compute_log_probabilities(own).exp().numpy()
            for spec, own in zip(self._specs, split_outputs(self._specs, outputs), strict=True)
        ]
        return found[0] if self._is_single else found

    @with_input_kwargs
    def score(
        self, X: Any, y: Any, sample_weight: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> float:
        """Return the mean of the scores of the targets, see :meth:`score_targets`.

        Args:
            X: as for :meth:`fit`.
            y: true targets; those that are missing do not count.
            sample_weight: how much each sequence counts, as for :meth:`fit`.
            {given}
        """
        found = self.score_targets(X, y, sample_weight, **kwargs)
        return float(np.mean(list(found.values())))

    @with_input_kwargs
    def score_targets(
        self, X: Any, y: Any, sample_weight: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> dict[Any, float]:
        """Return the score of each target by its name, of those of which any is known.

        It is the R² of a value, the share of classes that are right, and of classes with an order
        Cohen's kappa with quadratic weights.

        Args:
            X: as for :meth:`fit`.
            y: true targets; those that are missing do not count.
            sample_weight: how much each sequence counts, as for :meth:`fit`.
            {given}
        """
        check_is_fitted(self)
        rows = self._read_data(X, y, kwargs, reset=False)
        assert rows.y is not None
        weight = self._check_weight(sample_weight, rows)
        true, predicted = self._encode_targets(rows.y, reset=False), self._run_network(rows)
        codes = np.stack(self._decode_columns(predicted), axis=1)
        found = {}
        for place, (name, kind) in enumerate(zip(self.target_names_, self.kinds_, strict=True)):
            known = ~np.isnan(true[:, place])
            if known.any():
                score = {VALUE: r2_score, CLASS: accuracy_score, ORDINAL: _kappa}[kind]
                some = None if weight is None else weight[known]
                pair = (true[known, place], codes[known, place])
                found[name] = float(score(*pair, sample_weight=some))
        if not found:
            raise DataError("y holds no known target, so that there is nothing to score.")
        return found

    # Reading.

    def _read_data(self, X: Any, y: Any, kwargs: InputKwargs, *, reset: bool) -> RaggedSequences:
        given, is_single = _list_targets(X, y)
        rows, found = self._read_with_targets(X, given, kwargs, reset=reset)
        if reset:
            self.target_names_, self._is_single = tuple(given), is_single
        elif len(found) != len(self.target_names_):
            raise ShapeError(
                f"y has {format_count(len(found), 'target')}, and the estimator was fitted to "
                f"{len(self.target_names_)}."
            )
        return replace(rows, y=np.stack([one.astype(object) for one in found], axis=1))

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        """Return values, and places of classes, (N, S), NaN where missing."""
        if reset:
            kinds = _resolve_kinds(self.kinds, self.target_names_)
            learned = [
                _learn_classes(name, column, kind)
                for name, column, kind in zip(self.target_names_, y.T, kinds, strict=True)
            ]
            self.kinds_ = tuple(kind for kind, _ in learned)
            self.classes_ = [classes for _, classes in learned]
        parts = zip(self.target_names_, y.T, self.classes_, strict=True)
        found = np.stack([_encode_column(*part) for part in parts], axis=1)
        if reset and (lacking := np.isnan(found).all(axis=1)).any():
            raise DataError(
                f"y[{int(np.argmax(lacking))}] holds no target at all. Remove that sequence from X "
                "and y."
            )
        return found

    # Training.

    @property
    def _specs(self) -> tuple[TargetSpec, ...]:
        classes = [() if one is None else tuple(map(str, one.tolist())) for one in self.classes_]
        of_all = zip(self.target_names_, self.kinds_, classes, strict=True)
        return tuple(TargetSpec(str(name), kind, own) for name, kind, own in of_all)

    def _make_task(self, rows: RaggedSequences) -> LearningTask:
        specs = self._specs
        loss = make_multioutput_loss(specs)
        return LearningTask(MULTIOUTPUT, count_outputs(specs), loss, loss, target_specs=specs)

    def _count_outputs(self) -> int:
        self.target_standard_.check(len(self.target_names_))
        for kind, classes in zip(self.kinds_, self.classes_, strict=True):
            check_one_of(TARGET_KINDS, kind=kind)
            if (classes is None) != (kind == VALUE) or (classes is not None and classes.ndim != 1):
                raise ValueError("values have no classes, and others have")
        return count_outputs(self._specs)

    def _fit_target_scaler(self, rows: RaggedSequences) -> None:
        assert rows.y is not None
        found = StandardScaler.fit(rows.y.T, rows.counts).replace_zero_scale()
        is_value = np.array(self.kinds_) == VALUE
        mean, scale = np.where(is_value, found.mean, 0.0), np.where(is_value, found.scale, 1.0)
        self.target_standard_ = StandardScaler(np.nan_to_num(mean), scale)

    def _make_batch(self, rows: RaggedSequences) -> SequenceBatch:
        assert rows.y is not None
        batch = self._to_batch(replace(rows, y=None))
        scaler = self.target_standard_
        y = torch.from_numpy((rows.y - scaler.mean) / scaler.scale).to(batch.x.dtype)
        return replace(batch, y=y.nan_to_num(0.0), y_mask=~y.isnan()[:, None])

    def _decode_columns(self, outputs: NDArray[Any]) -> list[NDArray[Any]]:
        """Return values, and places of classes, (N,), of each target."""
        found, scaler = [], self.target_standard_
        parts = split_outputs(self._specs, torch.from_numpy(outputs).double())
        for place, (spec, own) in enumerate(zip(self._specs, parts, strict=True)):
            if spec.kind == VALUE:
                found.append(own[:, 0].numpy() * scaler.scale[place] + scaler.mean[place])
            else:
                found.append(spec.compute_log_probabilities(own).argmax(-1).numpy())
        return found

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        columns = [
            column if classes is None else classes[column]
            for column, classes in zip(self._decode_columns(outputs), self.classes_, strict=True)
        ]
        if self._is_single:
            return columns[0]
        if len({column.dtype.kind in "biuf" for column in columns}) > 1:
            columns = [column.astype(object) for column in columns]
        return np.stack(columns, axis=1)


def _kappa(true: NDArray[Any], predicted: NDArray[Any], sample_weight: Any) -> float:
    if len(np.unique([true, predicted])) == 1:  # all alike and all right, where kappa is 0 / 0
        return 1.0
    how = {"weights": "quadratic", "sample_weight": sample_weight}
    return float(cohen_kappa_score(true.astype(int), predicted.astype(int), **how))


def _list_targets(X: Any, y: Any) -> tuple[dict[Any, Any], bool]:
    """Return the targets by name or number, and whether it is a single one without an axis."""
    if y is None or isinstance(y, str) or (hasattr(y, "iloc") and y.ndim == 1):
        return {y if isinstance(y, str) else "y": y}, True
    if isinstance(y, list | tuple) and y and is_table(X) and all(isinstance(n, str) for n in y):
        return {name: name for name in y}, False
    if hasattr(y, "columns"):
        return {name: y[name] for name in y.columns}, False
    values = to_array(y)
    if values.ndim not in (1, 2) or (values.ndim == 2 and not values.shape[1]):
        raise ShapeError(f"y has shape {values.shape}, expected (B,) or (B, S).")
    return ({"y": values}, True) if values.ndim == 1 else (dict(enumerate(values.T)), False)


def _resolve_kinds(kinds: Any, names: Sequence[Any]) -> list[Any]:
    """Return the kind that was given for each target, ``None`` where none was."""
    if kinds is None:
        return [None] * len(names)
    if isinstance(kinds, Mapping):
        for name in kinds:
            check_one_of(tuple(names), kinds=name)
        found = [kinds.get(name) for name in names]
    elif isinstance(kinds, str) or len(kinds) != len(names):
        raise ArgumentError(
            "kinds must be a mapping, or a list of one for each of "
            f"{format_count(len(names), 'target')}, got {kinds!r}."
        )
    else:
        found = list(kinds)
    for kind in found:
        if isinstance(kind, str):
            check_one_of(TARGET_KINDS, kind=kind)
    return found


def _learn_classes(name: Any, column: NDArray[Any], kind: Any) -> tuple[str, NDArray[Any] | None]:
    """Return the kind of a target, and its classes in their order, ``None`` of values."""
    known = [to_python_number(one) for one in column[~find_missing(column)].tolist()]
    if not known:
        raise DataError(f"target {name!r} is missing everywhere. Leave it out.")
    if kind is not None and not isinstance(kind, str):
        return ORDINAL, np.array(list(kind))
    texts = {isinstance(one, str) for one in known}
    if len(texts) > 1:
        raise DataError(f"target {name!r} holds text and numbers. Give classes of one type.")
    classes = np.unique(np.array(known))
    is_number = classes.dtype.kind in "iuf"
    if is_number and not np.isfinite(classes).all():
        raise DataError(f"target {name!r} is infinite somewhere. Correct it, or leave it empty.")
    if classes.dtype.kind == "f" and (classes == np.round(classes)).all():
        classes = classes.astype(np.int64)  # pandas has floating point where one is missing
    if kind is None:
        is_few = classes.dtype.kind in "iu" and len(classes) <= MAX_INTEGER_CLASSES
        kind = CLASS if is_few or not is_number else VALUE
    if kind == VALUE:
        return VALUE, None
    if len(classes) < 2:
        raise DataError(f"target {name!r} holds one class only, {known[0]!r}: nothing to tell.")
    if kind == ORDINAL and classes.dtype.kind not in "biuf":
        raise ArgumentError(
            f"target {name!r} holds text, whose order nothing says. Give its classes in their "
            f"order: kinds={{{name!r}: [{', '.join(map(repr, classes.tolist()))}]}}."
        )
    return kind, classes


def _encode_column(name: Any, column: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
    """Return values, or places of classes, (N,), NaN where missing."""
    missing = find_missing(column)
    found = np.full(len(column), np.nan)
    if classes is None:
        check_no_datetimes(f"target {name!r}", column.dtype)
        try:
            found[~missing] = column[~missing].astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"target {name!r} holds no number ({error}).") from error
        if np.isinf(found).any():
            raise DataError(f"target {name!r} is infinite at {int(np.argmax(np.isinf(found)))}.")
        return found
    places = {one: place for place, one in enumerate(classes.tolist())}
    known = column[~missing].tolist()
    unknown = [one for one in known if one not in places]
    if unknown:
        raise DataError(
            f"target {name!r} holds {to_python_number(unknown[0])!r}, which is none of its "
            f"classes: {', '.join(map(str, classes))}."
        )
    found[~missing] = [places[one] for one in known]
    return found
