"""What losses and metrics share: compare predictions with targets, entry by entry, where valid."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow.batch import SequenceBatch, promote_to_float32
from tauflow.errors import ArgumentError, DataError, DtypeError

PredictionLoss = Callable[[Tensor, SequenceBatch], Tensor]
"""What makes one number of predictions, (B, T, O) or (B, O), and the targets of a batch."""


class NoValidEntriesError(DataError):
    """No entry of a batch is valid, which a part of a step may be like."""


@dataclass(frozen=True, eq=False)
class Entries:
    """Predictions and targets of a batch that count.

    A row is a step or, of a model that predicts once, a sequence; where ``y_mask`` marks values one
    by one, and unknown ones are not NaN, it is a single value.

    Args:
        prediction: (K, O).
        y: real targets, (K, O), and others, (K, ...).
        shape: (B, T) or (B,), what the rows were chosen of.
        valid: which of these, or of their single values, are rows; by default all.
    """

    prediction: Tensor
    y: Tensor
    shape: tuple[int, ...]
    valid: Tensor | None

    def expand(self, values: Tensor) -> Tensor:
        """Return what each row has, (K,), of what sequences have, (B,), or steps, (B, T)."""
        shape = self.shape if self.valid is None else self.valid.shape
        each = values.reshape(*values.shape, *(1,) * (len(shape) - values.ndim)).expand(shape)
        return each.flatten() if self.valid is None else each[self.valid]


def select_entries(
    name: str, prediction: Tensor, batch: SequenceBatch, *, mark_unknown: bool
) -> Entries:
    """Choose the predictions and targets of a batch that count.

    Args:
        name: who asks, for messages.
        prediction: (B, T, O) for one per step, (B, O) for one per sequence.
        batch: the targets: a step counts where ``y_mask``, else ``mask``, is true, and a sequence
            always, but for values that ``y_mask`` leaves out.
        mark_unknown: whether values that ``y_mask`` leaves out one by one become NaN; by default
            each of the others is a row.

    Raises:
        ArgumentError: ``y_mask`` marks steps, and there is one prediction per sequence.
    """
    shape, y = tuple(prediction.shape[:-1]), batch.y
    if len(shape) == 2:
        valid = batch.mask if batch.y_mask is None else batch.y_mask
    else:
        valid = batch.sequence_target_mask
        if batch.y_mask is not None and valid is None:
            raise ArgumentError(
                f"{name}: y_mask marks single steps, but the model predicts once per sequence. "
                "Drop y_mask, or return a prediction per step."
            )
    if mark_unknown and valid is not None and valid.ndim > len(shape):
        y = y if y.is_floating_point() else y.to(prediction.dtype)  # integers have no NaN
        y = y.masked_fill(~valid, torch.nan)
        valid = valid.any(-1) if len(shape) == 2 else None
    if valid is None:
        chosen, y = prediction.flatten(0, -2), y.flatten(0, len(shape) - 1)
    else:
        # Selecting first keeps whatever stands in the padding out of the gradients too.
        chosen, y = prediction[valid], y[valid]
        if valid.ndim > len(shape):
            chosen = chosen.unsqueeze(-1)
    return Entries(chosen, y, shape, valid)


@dataclass(frozen=True)
class Score:
    """A comparison of predictions with targets: a mean over entries, or a number of all at once.

    Args:
        name: what it is called.
        target: what targets are: ``"values"``, floating point, one per output; ``"classes"``,
            integers below the number of outputs; ``"binary"``, 0 to 1, for the logit
            of each label; ``"any"``, whatever ``whole`` can make something of.
        compare: maps predictions (K, O) and targets, values (K, O) or others (K,), to one number
            per entry, (K, O) or (K,).
        higher_is_better: whether a larger score is a better one.
        mean: the mean of ``compare`` in one operation, if there is a faster one than taking it.
        counts: maps the same to what each entry counts in the divisor of the mean, (K,); by
            default 1. Beside ``whole``, it says what that has divided by.
        whole: instead of ``compare``, maps predictions (N, O) and targets (N,) of all entries to
            the score, if it is no mean over entries, such as the area under a ROC curve. Values,
            and several labels, are (N, O), NaN where one of a row is not known. Of ``"any"``,
            targets are (N, ...) as they come, and those of single outputs (N, 1) as these, integers
            too, unless they are ``classes``.
        needs_both_classes: whether it means nothing where all targets are of one class, 0 or 1.
        supports_weights: whether ``whole`` takes what each entry counts as a third argument, (N,),
            or (R, N) for R scores at once; else data with weights of sequences raise an error.
        classes: of ``"any"``, whether targets that are integers are classes all the same: then such
            targets (B, T) are one per step, and none are several labels of a sequence.

    Raises:
        ArgumentError: both or neither of ``compare`` and ``whole`` are given.
    """

    name: str
    target: str
    compare: Callable[[Tensor, Tensor], Tensor] | None = None
    higher_is_better: bool = False
    mean: Callable[[Tensor, Tensor], Tensor] | None = None
    counts: Callable[[Tensor, Tensor], Tensor] | None = None
    whole: Callable[..., Tensor] | None = None
    needs_both_classes: bool = False
    supports_weights: bool = False
    classes: bool = False

    def __post_init__(self) -> None:
        if (self.compare is None) == (self.whole is None):
            raise ArgumentError(
                f"{self.name}: give either compare, for a mean over entries, or whole, for a "
                "number of all entries together."
            )

    def __call__(self, prediction: Tensor, batch: SequenceBatch) -> Tensor:
        """Return the score of the valid entries of a batch.

        Args:
            prediction: (B, T, O) for one per step, (B, O) for one per sequence.
            batch: the targets, and which of them count: where ``y_mask``, else ``mask``, is true.
                One prediction per sequence always counts, but for values that ``y_mask`` leaves
                out.

        Raises:
            ArgumentError: sequences have weights, and nothing says how it is to count them.
            DataError: no entry is valid.
            ShapeError: targets and predictions do not fit.
        """
        return self.compute_with_divisor(prediction, batch)[0]

    def compute_with_divisor(
        self, prediction: Tensor, batch: SequenceBatch
    ) -> tuple[Tensor, Tensor | int]:
        """Return the score, as a call does, and what the sum over the entries was divided by.

        The mean of the scores of several batches, each counted by its divisor, is the score of all
        their entries together, if it is a mean over entries at all.

        Returns:
            A scalar, and the number of entries that count, or the sum of what each of them counts.
        """
        entries, weight = self.select(prediction, batch)
        divisor = self.divisor(entries, weight)
        is_empty = entries.y.numel() == 0
        if is_empty or (self.whole is not None and self.counts is not None and not divisor):
            why = "y_mask, or mask, is false at every step" if is_empty else "all are ignored"
            raise NoValidEntriesError(
                f"{self.name}: no entry of this batch is valid: {why}. Leave out such sequences, "
                "or take larger batches."
            )
        if self.whole is not None:
            weights = () if weight is None else (weight,)
            return self.whole(entries.prediction, entries.y, *weights), divisor
        if weight is None and self.counts is None:
            if self.mean is not None:
                return self.mean(entries.prediction, entries.y), divisor
            return self.compare_entries(entries).mean(), divisor
        return self.compare_entries(entries, weight).sum() / divisor, divisor

    def select(self, prediction: Tensor, batch: SequenceBatch) -> tuple[Entries, Tensor | None]:
        """Return the entries of a batch that count, and what each row counts, (K,), if weighted.

        Weights are in the dtype of the predictions, but for half precision in single.

        Raises:
            ArgumentError, ShapeError, DtypeError: see :meth:`__call__`.
        """
        self._check_weights(self.name, batch)
        self._check_fit(prediction, batch)
        has_labels = self.target == "binary" and prediction.shape[-1] > 1
        of_rows = self.whole is not None and (self.target == "values" or has_labels)
        entries = select_entries(self.name, prediction, batch, mark_unknown=of_rows)
        chosen, y = entries.prediction, entries.y
        if self.target == "values" or (has_labels and of_rows):
            y = y.reshape(chosen.shape)
        elif has_labels:  # each is an entry
            chosen, y = chosen.reshape(-1, 1), y.flatten()
        elif self.target == "any":
            if chosen.shape[-1] == y.ndim == 1 and (y.is_floating_point() or not self.classes):
                y = y.unsqueeze(-1)  # or (N, 1) meets (N,)
        else:
            y = y.flatten()
        weight = None
        if batch.weight is not None:
            weight = entries.expand(batch.weight.to(promote_to_float32(prediction.dtype)))
        return Entries(chosen, y, entries.shape, entries.valid), weight

    def compare_entries(self, entries: Entries, weight: Tensor | None = None) -> Tensor:
        """Return one number per entry, by its weight if there are any; of a mean over entries."""
        assert self.compare is not None
        values = self.compare(entries.prediction, entries.y)
        return values if weight is None else values.flatten() * _repeat(weight, values.numel())

    def divisor(self, entries: Entries, weight: Tensor | None) -> Tensor | int:
        """Return the sum of what entries count; their number, if all count alike.

        Args:
            entries: from :meth:`select`.
            weight: what each row of them counts.
        """
        counts = None if self.counts is None else self.counts(entries.prediction, entries.y)
        if weight is None:
            return entries.y.numel() if counts is None else counts.sum()
        each = _repeat(weight, entries.y.numel())
        return (each if counts is None else counts * each).sum()

    @property
    def allows_multiple_labels(self) -> bool:
        """Whether integers (B, T) may be T labels of a sequence, and not a class per step."""
        return self.target == "any" and not self.classes

    def check_targets(self, split: str, batch: SequenceBatch) -> None:
        """Refuse targets that this score cannot be computed from.

        Args:
            split: what to call the data in a message.
            batch: the data.

        Raises:
            ArgumentError: sequences have weights, and nothing says how it is to count them.
            DtypeError: targets have the wrong dtype.
            DataError: a target that counts is outside its range, not finite, or at a step that is
                masked; or all are of one class, and the score needs both.
        """
        self._check_weights(f"{self.name}, of the {split} data", batch)
        y, where = batch.y, f"{self.name}: the targets of the {split} data"
        if self.target == "values" and not y.is_floating_point():
            raise DtypeError(f"{where} have dtype {y.dtype}, expected a floating-point one.")
        if self.target == "classes" and (y.is_floating_point() or y.dtype == torch.bool):
            raise DtypeError(f"{where} have dtype {y.dtype}, expected integer classes.")
        sides: set[bool] = set()  # whether there are negatives, and positives
        for first, piece in batch.iter_slices():
            check_masked_targets(where, piece, first)
            counting = get_valid_targets(piece)
            self._check_values(where, counting)
            if self.needs_both_classes and len(sides) < 2:
                sides.update((counting > 0.5).unique().tolist())
        if self.needs_both_classes and len(sides) == 1:
            (positive,) = sides
            raise DataError(
                f"{where} are all {'positive' if positive else 'negative'}, and it needs targets "
                "of both classes. Split the data otherwise, or use another metric."
            )

    def _check_weights(self, where: str, batch: SequenceBatch) -> None:
        if batch.weight is not None and self.whole is not None and not self.supports_weights:
            raise ArgumentError(
                f"{where}: sequences have weights, and it is one number of all entries together, "
                "which says nothing of weights. Take one that is a mean over entries, a Score with "
                "compare, or leave out the weights."
            )

    def _check_values(self, where: str, y: Tensor) -> None:
        if self.target == "binary" and not bool(((y >= 0) & (y <= 1)).all()):
            raise DataError(f"{where} must lie between 0 and 1. Map the two classes to 0 and 1.")
        if self.target == "classes" and not bool((y >= 0).all()):
            raise DataError(f"{where} hold a negative class. Mark missing targets in y_mask.")
        if not bool(torch.isfinite(y).all()):
            raise DataError(f"{where} are not all finite. Mark missing targets in y_mask.")

    def _check_fit(self, prediction: Tensor, batch: SequenceBatch) -> None:
        expected_axes = batch.x.shape[: prediction.ndim - 1]
        if prediction.ndim not in (2, 3) or prediction.shape[:-1] != expected_axes:
            raise shape_error(
                self.name,
                "prediction",
                prediction,
                f"(B, T, O) or (B, O) with (B, T) = {tuple(batch.x.shape[:2])}",
                "Return one vector per step or one per sequence from the model.",
            )
        if self.target == "classes" and self.whole is not None and prediction.shape[-1] == 1:
            raise shape_error(
                self.name,
                "prediction",
                prediction,
                "one output per class",
                f"For a single logit, take binary_{self.name}.",
            )
        if self.target == "any" and batch.y.shape[: len(expected_axes)] == expected_axes:
            return
        fits = batch.y.shape == prediction.shape[:-1] and (
            self.target == "classes" or prediction.shape[-1] == 1
        )
        if not fits and (self.target == "classes" or batch.y.shape != prediction.shape):
            raise shape_error(
                self.name,
                "y",
                batch.y,
                f"one that fits predictions of shape {tuple(prediction.shape)}",
                "Match the model's output size, and whether it returns a sequence.",
            )
        if self.target == "values" and batch.y.dtype != prediction.dtype:
            raise DtypeError(
                f"{self.name}: y has dtype {batch.y.dtype}, predictions have {prediction.dtype}. "
                "Convert the data, or the model, so that they agree."
            )


def get_valid_targets(batch: SequenceBatch) -> Tensor:
    """Return the targets that count, as far as can be told without predictions."""
    y, valid = batch.y, batch.sequence_target_mask
    if valid is None:
        valid = batch.mask if batch.y_mask is None else batch.y_mask
    # A target per sequence has no step axis for a mask to select from.
    return y[valid] if valid is not None and y.shape[: valid.ndim] == valid.shape else y


def check_masked_targets(where: str, batch: SequenceBatch, first: int) -> None:
    """Refuse a ``y_mask`` that counts padding, as one made by ``isfinite`` of padded targets is."""
    if batch.mask is None or batch.y_mask is None:
        return
    counts = batch.y_mask if batch.y_mask.ndim == 2 else batch.y_mask.any(-1)
    if counts.shape != batch.mask.shape or not bool((beyond := counts & ~batch.mask).any()):
        return
    row, step = beyond.nonzero()[0].tolist()
    raise DataError(
        f"{where} count at steps that mask leaves out, first at sequence {first + row}, step "
        f"{step}: y_mask is true there, and takes the place of mask. Give y_mask & mask."
    )


def _repeat(weight: Tensor, count: int) -> Tensor:
    """Return weights, (K,), for so many numbers, of which each has as many, one after the other."""
    return weight.repeat_interleave(count // weight.numel()) if count else weight[:0]
