"""What losses and metrics share: compare predictions with targets, entry by entry, where valid."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow.batch import SequenceBatch, promote_to_float32
from tauflow.errors import ArgumentError, DataError, DtypeError

PredictionLoss = Callable[[Tensor, SequenceBatch], Tensor]
"""What makes one number of predictions, (B, T, O) or (B, O), and the targets of a batch."""


class NoValidEntriesError(DataError):
    """No entry of a batch is valid, which a part of a step may be like."""


@dataclass(frozen=True)
class Score:
    """A comparison of predictions with targets: a mean over entries, or a number of all at once.

    Args:
        name: what it is called.
        target: what targets are: ``"values"``, floating point, one per output; ``"classes"``,
            integers below the number of outputs; ``"binary"``, 0 to 1, for a single logit;
            ``"any"``, whatever ``whole`` can make something of.
        compare: maps predictions (..., O) and targets that fit them to one number per entry.
        higher_is_better: whether a larger score is a better one.
        mean: the mean of ``compare`` in one operation, if there is a faster one than taking it.
        counts: maps the same to what each entry counts in the divisor of the mean, (K,); by
            default 1. Beside ``whole``, it says what that has divided by.
        whole: instead of ``compare``, maps predictions (N, O) and targets (N,) of all entries to
            the score, if it is no mean over entries, as the area under a ROC curve is none. Values
            are (N, O), NaN where one of a row is not known. Of ``"any"``, targets are (N, ...) as
            they come, and those of single outputs (N, 1) as these, integers too, unless they are
            ``classes``.
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
        self._check_weights(self.name, batch)
        batch = self.mask_unknown_values(batch)
        weight = expand_sequence_weights(prediction, batch)
        prediction, y = self.select_valid(prediction, batch)
        if y.numel() == 0:
            raise NoValidEntriesError(
                f"{self.name}: no entry of this batch is valid: y_mask, or mask, is false at every "
                "step. Leave out such sequences, or take larger batches."
            )
        if self.whole is not None:
            prediction, y = self.flatten_rows(prediction, y)
            value = self.compute_aggregate(prediction, y, weight)
            return value, self.divisor(prediction, y, weight)
        if weight is not None or self.counts is not None:
            entries = self.compute_per_entry(prediction, y).flatten()
            if weight is not None:
                entries = entries * repeat_weights(weight, entries.numel())
            divisor = self.divisor(prediction, y, weight)
            return entries.sum() / divisor, divisor
        if self.mean is not None:
            return self.mean(prediction, y), y.numel()
        return self.compute_per_entry(prediction, y).mean(), y.numel()

    def divisor(self, prediction: Tensor, y: Tensor, weight: Tensor | None) -> Tensor | int:
        """Return the sum of what entries count; their number, if all count alike.

        Args:
            prediction: what :meth:`select_valid` returns, or :meth:`flatten_rows`.
            y: the targets with it.
            weight: what each entry counts, or each sequence or step that several are of.
        """
        counts = None if self.counts is None else self.counts(prediction, y)
        if weight is None:
            return y.numel() if counts is None else counts.sum()
        each = repeat_weights(weight, y.numel())
        return (each if counts is None else counts * each).sum()

    @property
    def allows_multiple_labels(self) -> bool:
        """Whether integers (B, T) may be T labels of a sequence, and not a class per step."""
        return self.target == "any" and not self.classes

    def compute_per_entry(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Return one number per entry, given what :meth:`select_valid` returns.

        Raises:
            ArgumentError: the score is no mean over entries.
        """
        if self.compare is None:
            raise ArgumentError(f"{self.name} has no number per entry; it is one of all of them.")
        return self.compare(prediction, y)

    def mask_unknown_values(self, batch: SequenceBatch) -> SequenceBatch:
        """Return a batch whose ``y_mask`` chooses rows, with NaN for values that are not known.

        So ``whole`` can tell outputs apart; other scores take their batches as they are.
        """
        known, of_sequences = batch.y_mask, batch.sequence_target_mask
        if self.whole is None or self.target != "values" or known is None or known.ndim < 3:
            return batch
        if of_sequences is not None:
            return replace(batch, y=batch.y.masked_fill(~of_sequences, torch.nan), y_mask=None)
        return replace(batch, y=batch.y.masked_fill(~known, torch.nan), y_mask=known.any(-1))

    def flatten_rows(self, prediction: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions (N, O) and their targets, given what :meth:`select_valid` returns."""
        if self.target == "values":
            return prediction.flatten(0, -2), y.reshape(prediction.shape).flatten(0, -2)
        if self.target != "any":
            return prediction.flatten(0, -2), y.flatten()
        y = y.flatten(0, max(0, prediction.ndim - 2))
        single = prediction.shape[-1] == 1 and y.ndim == 1
        if single and (y.is_floating_point() or not self.classes):  # or (N, 1) meets (N,)
            y = y.unsqueeze(-1)
        return prediction.flatten(0, -2), y

    def compute_aggregate(self, prediction: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Return the score that ``whole`` gives of what :meth:`flatten_rows` returns.

        Args:
            prediction: (N, O).
            y: targets, (N, ...).
            weight: what each of them counts, (N,), or each sequence or step that several are of.
        """
        assert self.whole is not None
        if weight is None:
            return self.whole(prediction, y)
        return self.whole(prediction, y, repeat_weights(weight, len(y)))

    def select_valid(self, prediction: Tensor, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
        """Return predictions and targets of the valid entries; see :meth:`__call__`."""
        self._check_fit(prediction, batch)
        valid = _get_valid_mask(self.name, prediction, batch)
        if valid is None:
            return prediction, batch.y
        # Selecting first keeps whatever stands in the padding out of the gradients too.
        chosen, y = prediction[valid], batch.y[valid]
        if valid.ndim == prediction.ndim:  # of single outputs, each of which is an entry
            chosen = chosen.unsqueeze(-1)
        return chosen, y

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
        if self.target == "binary" and prediction.shape[-1] != 1:
            raise shape_error(
                self.name, "prediction", prediction, "a single output", "Use output_size=1."
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
    y, valid = batch.y, batch.mask if batch.y_mask is None else batch.y_mask
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


def expand_sequence_weights(prediction: Tensor, batch: SequenceBatch) -> Tensor | None:
    """Return the weights of sequences for what :meth:`Score.select_valid` returns, (K,), if any.

    They are in the dtype of the predictions, but for half precision in single.
    """
    if batch.weight is None:
        return None
    own = batch.weight.to(promote_to_float32(prediction.dtype))
    valid = batch.mask if batch.y_mask is None else batch.y_mask
    if prediction.ndim == 2:
        valid = batch.sequence_target_mask
        if valid is None:
            return own
    if valid is None:
        return own.repeat_interleave(prediction.shape[1])
    return own.view(-1, *(1,) * (valid.ndim - 1)).expand_as(valid)[valid]


def repeat_weights(weight: Tensor, count: int) -> Tensor:
    """Return weights, (K,), for so many numbers, of which each has as many, one after the other."""
    return weight.repeat_interleave(count // weight.numel()) if count else weight[:0]


def _get_valid_mask(where: str, prediction: Tensor, batch: SequenceBatch) -> Tensor | None:
    if prediction.ndim == 3:
        return batch.mask if batch.y_mask is None else batch.y_mask
    if batch.y_mask is not None and batch.sequence_target_mask is None:
        raise ArgumentError(
            f"{where}: y_mask marks single steps, but the model predicts once per sequence. "
            "Drop y_mask, or return a prediction per step."
        )
    return batch.sequence_target_mask
