"""Metrics by name, and their exact value over a whole split."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.checks import values_readable
from tauflow.errors import ArgumentError, DataError
from tauflow.registry import Registry

from .asked import AnyScore, score_asked
from .losses import absolute_error, binary_cross_entropy, cross_entropy, huber, squared_error
from .modes import evaluating
from .ranks import Ranks
from .score import Score, per_entry, repeated
from .subnormals import flushed_subnormals
from .whole_scores import (
    WholeScore,
    area_under_roc,
    average_precision,
    balanced_accuracy,
    f1,
    of_counts,
    of_logits,
    of_one_logit,
    r2,
    root_mean_square,
)


def correct_class(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the largest logit is that of the true class, else 0; NaN if a logit is."""
    right = (prediction.argmax(-1) == y).to(prediction.dtype)
    return right.masked_fill(prediction.isnan().any(-1), math.nan)


def correct_side(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the logit is on the side of zero that the target, 0 or 1, says, else 0.

    Where the logit is NaN, so is the result.
    """
    right = ((prediction > 0) == (y.view_as(prediction) > 0.5)).to(prediction.dtype)
    return right.masked_fill(prediction.isnan(), math.nan)


def brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probabilities of all classes; of two, that of either.

    Its mean is :func:`sklearn.metrics.brier_score_loss`.
    """
    classes = prediction.shape[-1]
    truth = F.one_hot(y.long().clamp(max=classes - 1), classes).to(prediction.dtype)
    error = (prediction.softmax(-1) - truth).square().sum(-1)
    return error / 2 if classes == 2 else error


def brier_of_logit(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probability that a single logit stands for."""
    return (prediction.sigmoid() - y.view_as(prediction).to(prediction.dtype)).square()


def _of_two_kinds(
    name: str, of_classes: WholeScore, of_logit: WholeScore, *, both: bool = False
) -> dict[str, Score]:
    """Return a score of all entries for one logit per class, and for a single logit."""
    kinds = {name: ("classes", of_classes), f"binary_{name}": ("binary", of_logit)}
    return {
        name: Score(
            *(name, target),
            higher_is_better=True,
            whole=whole,
            both_classes=both,
            weighs=True,
        )
        for name, (target, whole) in kinds.items()
    }


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "rmse": Score("rmse", "values", whole=root_mean_square, weighs=True),
        "mae": Score("mae", "values", absolute_error),
        "r2": Score("r2", "values", whole=r2, weighs=True, higher_is_better=True),
        "huber": Score("huber", "values", huber),
        "accuracy": Score("accuracy", "classes", correct_class, higher_is_better=True),
        "binary_accuracy": Score("binary_accuracy", "binary", correct_side, higher_is_better=True),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "log_loss": Score("log_loss", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
        "binary_log_loss": Score("binary_log_loss", "binary", binary_cross_entropy),
        "brier": Score("brier", "classes", brier),
        "binary_brier": Score("binary_brier", "binary", brier_of_logit),
        **_of_two_kinds(
            "auroc", of_logits(area_under_roc), of_one_logit(area_under_roc), both=True
        ),
        **_of_two_kinds(
            "average_precision",
            of_logits(average_precision),
            of_one_logit(average_precision),
            both=True,
        ),
        **_of_two_kinds("f1", of_counts(f1), of_counts(f1)),
        **_of_two_kinds(
            "balanced_accuracy", of_counts(balanced_accuracy), of_counts(balanced_accuracy)
        ),
    },
)
"""Metrics that training knows by name; add one with ``METRICS.add(name, Score(...))``.

Those of classes are for one logit per class, those that begin with ``binary_`` for a single one.
Values agree with scikit-learn's functions of these names. Of two classes, ``auroc``,
``average_precision`` and ``f1`` are of the second one; of more, they are averaged over the classes,
each against all others. Areas, F1, ``balanced_accuracy``, ``rmse`` and ``r2`` are of all entries of
a split together; of several outputs the last two are means over outputs.
"""


def skips_padding(model: nn.Module) -> bool:
    """Whether a model says that padding at the ends of sequences changes nothing.

    Then batches come without what is padding in all of their sequences, and their lengths differ;
    what is compiled would be compiled again for many of them, and gets all of one length.
    """
    compiled = any(
        getattr(part, "_compiled_call_impl", None) is not None or hasattr(part, "_orig_mod")
        for part in model.modules()
    )
    return not compiled and getattr(model, "skips_padding", False) is True


def predict(model: nn.Module, batch: SequenceBatch) -> Tensor:
    """Call a model on a batch and return its predictions without its final state."""
    options = {} if batch.observed is None else {"observed": batch.observed}
    result = model(batch.x, dt=batch.dt, mask=batch.mask, **options)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        raise ArgumentError(
            f"the model returned a {type(result).__name__}, expected (prediction, state). Return "
            "both, or build the model with tauflow.SequenceModel."
        )
    prediction: Tensor = result[0]
    return prediction


def evaluate(
    model: nn.Module, data: SequenceBatch, *, metric: AnyScore, batch_size: int = 512
) -> float:
    """Return a metric over a whole split, in evaluation mode.

    The value is that of all valid entries of the split, whatever the batch size; each counts what
    its sequence weighs, if there are weights. Every module is in its former mode afterwards.

    Args:
        model: called as ``prediction, state = model(x, dt=..., mask=...)``.
        data: the split.
        metric: a name in :data:`METRICS`, a :class:`Score`, or a function of predictions and
            targets, as :func:`tauflow.training.train` takes it.
        batch_size: sequences per forward pass.

    Raises:
        DtypeError, DataError: the split is empty, no entry of it is valid, its ``y_mask`` counts
            padding, or a target is none that the metric can be computed from.
    """
    score = score_asked("metric", metric, METRICS)
    score.check_targets("evaluated", data)
    (value,) = evaluate_all(model, data, metrics=[score], batch_size=batch_size)
    return value


@torch.no_grad()
def evaluate_all(
    model: nn.Module,
    data: SequenceBatch,
    *,
    metrics: Sequence[Score],
    batch_size: int = 512,
    ranks: Ranks | None = None,
    device: torch.device | None = None,
) -> list[float]:
    """Return several metrics over a whole split, from one pass; see :func:`evaluate`.

    With the processes of a group each takes every so manyth batch, and all return the same.
    Batches are moved to the device, if there is one.
    """
    ranks = ranks or Ranks()
    tallies = [_Tally(metric) for metric in metrics]
    trims, labels = skips_padding(model), any(metric.takes_labels for metric in metrics)

    def look() -> None:
        for start in range(ranks.rank * batch_size, len(data), ranks.world * batch_size):
            batch = data[start : start + batch_size]
            if trims:
                batch = batch.trimmed(labels=labels)
            if device is not None:
                batch = batch.to(device)
            with flushed_subnormals():
                prediction = predict(model, batch)
            for tally in tallies:
                tally.add(prediction, batch)

    with evaluating(model):
        ranks.together(look)
    if ranks.several:
        for tally in tallies:
            tally.merge(ranks)
    return [tally.value(len(data)) for tally in tallies]


def _refuse_other_classes(where: str, prediction: Tensor, y: Tensor) -> None:
    """Refuse classes beyond the outputs, which would count as wrong, or as one of the others."""
    if values_readable(y) and y.numel() and int(y.max()) >= prediction.shape[-1]:
        raise DataError(
            f"{where}: targets hold the class {int(y.max())}, and the model has "
            f"{prediction.shape[-1]} outputs, for classes from 0 on. Set output_size to the number "
            "of classes."
        )


class _Tally:
    """What is kept of the batches seen so far: a sum, or all entries of a score that needs them."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.total, self.count, self.weight = 0.0, 0, 0.0
        self.kept: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, prediction: Tensor, batch: SequenceBatch) -> None:
        """Take in a batch."""
        batch = self.score.by_rows(batch)
        chosen, y = self.score.selected(prediction, batch)
        weight = per_entry(prediction, batch)
        if self.score.target == "classes":
            _refuse_other_classes(self.score.name, chosen, y)
        if self.score.whole is not None:
            rows = self.score.rows(chosen, y)
            each = None if weight is None else repeated(weight, len(rows[1]))
            self.kept.append((*rows, each))
            self.count += y.numel()
            return
        entries = self.score.entries(chosen, y)
        if weight is not None:
            entries = entries.flatten() * repeated(weight, entries.numel())
        self.total += entries.sum(dtype=torch.float64).item()
        self.count += entries.numel()
        weight = None if weight is None else weight.double()
        self.weight += float(self.score.divisor(chosen, y, weight))

    def merge(self, ranks: Ranks) -> None:
        """Take in what the other processes saw; each batch as it came, in the order of the data."""
        self.total = sum(ranks.gathered(self.total))
        self.count = sum(ranks.gathered(self.count))
        self.weight = sum(ranks.gathered(self.weight))
        lists = ranks.gathered(self.kept)
        longest = max(map(len, lists))
        self.kept = [kept[k] for k in range(longest) for kept in lists if k < len(kept)]

    def value(self, sequences: int) -> float:
        """Return the score of everything taken in."""
        if self.count == 0:
            raise DataError(
                f"{self.score.name}: the data have no valid entry: there are {sequences} "
                "sequences, and y_mask, or mask, is false at every step. Evaluate on data with at "
                "least one target."
            )
        if self.score.whole is None:
            return self.total / self.weight if self.weight else math.nan
        predictions, targets, weights = zip(*self.kept, strict=True)
        weight = None if weights[0] is None else torch.cat(weights)
        return float(self.score.of_all(torch.cat(predictions), torch.cat(targets), weight))
