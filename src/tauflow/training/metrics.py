"""Metrics by name, and their exact value over a whole split."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import is_readable
from tauflow._internal.registry import Registry
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError

from .dataset_metrics import (
    DatasetMetric,
    area_under_roc,
    average_precision,
    balanced_accuracy_score,
    calibration_of_classes,
    calibration_of_logit,
    f1_score,
    from_binary_logit,
    from_class_counts,
    from_class_logits,
    r2_score,
    root_mean_squared_error,
)
from .denormals import flush_denormals
from .distributed import DistributedContext
from .eval_mode import evaluation_mode
from .losses import absolute_error, binary_cross_entropy, cross_entropy, huber, squared_error
from .resolve_metric import AnyScore, resolve_metric
from .score import Score, expand_sequence_weights, repeat_weights


def score_class_accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the largest logit is that of the true class, else 0; NaN if a logit is."""
    right = (prediction.argmax(-1) == y).to(prediction.dtype)
    return right.masked_fill(prediction.isnan().any(-1), math.nan)


def score_binary_accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the logit is on the side of zero that the target, 0 or 1, says, else 0.

    Where the logit is NaN, so is the result.
    """
    right = ((prediction > 0) == (y.view_as(prediction) > 0.5)).to(prediction.dtype)
    return right.masked_fill(prediction.isnan(), math.nan)


def score_brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probabilities of all classes; of two, that of either.

    Its mean is :func:`sklearn.metrics.brier_score_loss`.
    """
    classes = prediction.shape[-1]
    truth = F.one_hot(y.long().clamp(max=classes - 1), classes).to(prediction.dtype)
    error = (prediction.softmax(-1) - truth).square().sum(-1)
    return error / 2 if classes == 2 else error


def score_binary_brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probability that a single logit stands for."""
    return (prediction.sigmoid() - y.view_as(prediction).to(prediction.dtype)).square()


def _make_score_pair(
    name: str,
    of_classes: DatasetMetric,
    of_logit: DatasetMetric,
    *,
    needs_both_classes: bool = False,
) -> dict[str, Score]:
    """Return a score of all entries for one logit per class, and for a single logit."""
    kinds = {name: ("classes", of_classes), f"binary_{name}": ("binary", of_logit)}
    return {
        name: Score(
            *(name, target),
            higher_is_better=True,
            whole=whole,
            needs_both_classes=needs_both_classes,
            supports_weights=True,
        )
        for name, (target, whole) in kinds.items()
    }


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "rmse": Score("rmse", "values", whole=root_mean_squared_error, supports_weights=True),
        "mae": Score("mae", "values", absolute_error),
        "r2": Score("r2", "values", whole=r2_score, supports_weights=True, higher_is_better=True),
        "huber": Score("huber", "values", huber),
        "accuracy": Score("accuracy", "classes", score_class_accuracy, higher_is_better=True),
        "binary_accuracy": Score(
            "binary_accuracy", "binary", score_binary_accuracy, higher_is_better=True
        ),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "log_loss": Score("log_loss", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
        "binary_log_loss": Score("binary_log_loss", "binary", binary_cross_entropy),
        "brier": Score("brier", "classes", score_brier),
        "binary_brier": Score("binary_brier", "binary", score_binary_brier),
        "ece": Score("ece", "classes", whole=calibration_of_classes, supports_weights=True),
        "binary_ece": Score(
            "binary_ece", "binary", whole=calibration_of_logit, supports_weights=True
        ),
        **_make_score_pair(
            "auroc",
            from_class_logits(area_under_roc),
            from_binary_logit(area_under_roc),
            needs_both_classes=True,
        ),
        **_make_score_pair(
            "average_precision",
            from_class_logits(average_precision),
            from_binary_logit(average_precision),
            needs_both_classes=True,
        ),
        **_make_score_pair("f1", from_class_counts(f1_score), from_class_counts(f1_score)),
        **_make_score_pair(
            "balanced_accuracy",
            from_class_counts(balanced_accuracy_score),
            from_class_counts(balanced_accuracy_score),
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


def can_trim_padding(model: nn.Module) -> bool:
    """Whether a model says that padding at the ends of sequences changes nothing.

    Then batches come without what is padding in all of their sequences, and their lengths differ;
    what is compiled would be compiled again for many of them, and gets all of one length.
    """
    compiled = any(
        getattr(part, "_compiled_call_impl", None) is not None or hasattr(part, "_orig_mod")
        for part in model.modules()
    )
    return not compiled and getattr(model, "ignores_padding", False) is True


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
    score = resolve_metric("metric", metric, METRICS)
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
    ranks: DistributedContext | None = None,
    device: torch.device | None = None,
) -> list[float]:
    """Return several metrics over a whole split, from one pass; see :func:`evaluate`.

    With the processes of a group each takes every so manyth batch, and all return the same.
    Batches are moved to the device, if there is one.
    """
    ranks = ranks or DistributedContext()
    tallies = [_MetricAccumulator(metric) for metric in metrics]
    trims, labels = (
        can_trim_padding(model),
        any(metric.allows_multiple_labels for metric in metrics),
    )

    def look() -> None:
        for start in range(ranks.rank * batch_size, len(data), ranks.world_size * batch_size):
            batch = data[start : start + batch_size]
            if trims:
                batch = batch.trim_padding(has_label_sets=labels)
            if device is not None:
                batch = batch.to(device)
            with flush_denormals():
                prediction = predict(model, batch)
            for tally in tallies:
                tally.add(prediction, batch)

    with evaluation_mode(model):
        ranks.on_all_ranks(look)
    if ranks.is_distributed:
        for tally in tallies:
            tally.merge(ranks)
    return [tally.value(len(data)) for tally in tallies]


def _check_class_range(where: str, prediction: Tensor, y: Tensor) -> None:
    """Refuse classes beyond the outputs, which would count as wrong, or as one of the others."""
    if is_readable(y) and y.numel() and int(y.max()) >= prediction.shape[-1]:
        raise DataError(
            f"{where}: targets hold the class {int(y.max())}, and the model has "
            f"{format_count(prediction.shape[-1], 'output')}, for classes from 0 on. Set "
            "output_size to the number "
            "of classes."
        )


class _MetricAccumulator:
    """What is kept of the batches seen so far: a sum, or all entries of a score that needs them."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.total, self.count, self.weight = 0.0, 0, 0.0
        self.outputs: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, prediction: Tensor, batch: SequenceBatch) -> None:
        """Take in a batch."""
        batch = self.score.mask_unknown_values(batch)
        chosen, y = self.score.select_valid(prediction, batch)
        weight = expand_sequence_weights(prediction, batch)
        if self.score.target == "classes":
            _check_class_range(self.score.name, chosen, y)
        if self.score.whole is not None:
            rows = self.score.flatten_rows(chosen, y)
            each = None if weight is None else repeat_weights(weight, len(rows[1]))
            self.outputs.append((*rows, each))
            self.count += y.numel()
            return
        entries = self.score.compute_per_entry(chosen, y)
        if weight is not None:
            entries = entries.flatten() * repeat_weights(weight, entries.numel())
        self.total += entries.sum(dtype=torch.float64).item()
        self.count += entries.numel()
        weight = None if weight is None else weight.double()
        self.weight += float(self.score.divisor(chosen, y, weight))

    def merge(self, ranks: DistributedContext) -> None:
        """Take in what the other processes saw; each batch as it came, in the order of the data."""
        self.total = sum(ranks.all_gather(self.total))
        self.count = sum(ranks.all_gather(self.count))
        self.weight = sum(ranks.all_gather(self.weight))
        lists = ranks.all_gather(self.outputs)
        longest = max(map(len, lists))
        self.outputs = [kept[k] for k in range(longest) for kept in lists if k < len(kept)]

    def value(self, sequences: int) -> float:
        """Return the score of everything taken in."""
        if self.count == 0:
            raise DataError(
                f"{self.score.name}: the data have no valid entry: there are "
                f"{format_count(sequences, 'sequence')}, and y_mask, or mask, is false at "
                "every step. Evaluate on data with at least one target."
            )
        if self.score.whole is None:
            return self.total / self.weight if self.weight else math.nan
        predictions, targets, weights = zip(*self.outputs, strict=True)
        weight = None if weights[0] is None else torch.cat(weights)
        return float(
            self.score.compute_aggregate(torch.cat(predictions), torch.cat(targets), weight)
        )
