"""Metrics by name, and their exact value over a whole split."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.checks import shape_error, values_readable
from tauflow.errors import ArgumentError, DataError
from tauflow.registry import Registry

from .asked import AnyScore, score_asked
from .losses import absolute_error, binary_cross_entropy, cross_entropy, huber, squared_error
from .ranks import Ranks
from .score import Score, per_entry, repeated
from .subnormals import flushed_subnormals


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


def area_under_roc(logit: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the chance that a positive's logit is above a negative's, half of it if they tie.

    That is the area under the curve of true against false positives, by the formula of Mann and
    Whitney.

    Args:
        logit: (N,).
        positive: (N,) bool.
        weight: (N,), how much each counts; by default all alike.

    Returns:
        The area; NaN if a logit is, which has no place among the others.

    Raises:
        DataError: there are no positives, or no negatives.
    """
    of_positives, (of_negatives, order) = logit[positive], logit[~positive].sort()
    if not len(of_positives) or not len(of_negatives):
        raise DataError(
            f"the area under a ROC curve needs targets of both classes, but all {len(logit)} are "
            f"{'positive' if len(of_positives) else 'negative'}. Use another metric."
        )
    if bool(logit.isnan().any()):
        return logit.new_tensor(math.nan)
    each = _weights_or_ones(weight, logit)
    up_to = F.pad(each[~positive][order].cumsum(0), (1, 0))
    below = up_to[torch.searchsorted(of_negatives, of_positives)]
    not_above = up_to[torch.searchsorted(of_negatives, of_positives, right=True)]
    own = each[positive]
    return (own * (below + not_above)).sum() / (2 * own.sum() * up_to[-1])


def _weights_or_ones(weight: Tensor | None, like: Tensor) -> Tensor:
    """Return weights in double precision, (N,), where the device has it."""
    dtype = torch.float32 if like.device.type == "mps" else torch.float64
    return torch.ones_like(like, dtype=dtype) if weight is None else weight.to(dtype)


def f1(found: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the harmonic mean of precision and recall, 0 where there is neither.

    Args:
        found: (N,) bool, what was taken for positive.
        positive: (N,) bool, what is.
        weight: (N,), how much each counts; by default all alike.
    """
    each = _weights_or_ones(weight, found)
    hits, either = each[found & positive].sum(), each[found].sum() + each[positive].sum()
    return 2.0 * hits / torch.where(either > 0, either, 1.0)


def _of_two_classes(name: str, score: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a score of two logits per entry, and classes 0 and 1, the positive one."""

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        if prediction.shape[-1] != 2:
            raise shape_error(
                name, "prediction", prediction, "two outputs", "It is for two classes."
            )
        return score(prediction[:, 1] - prediction[:, 0], y == 1, weight)

    return whole


def _of_one_logit(score: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a score of one logit per entry, and targets 0 and 1."""
    return lambda prediction, y, weight=None: score(prediction[:, 0], y > 0.5, weight)


def _f1_of_logits(logit: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    if bool(logit.isnan().any()):
        return logit.new_tensor(math.nan)
    return f1(logit > 0, positive, weight)


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "mae": Score("mae", "values", absolute_error),
        "huber": Score("huber", "values", huber),
        "accuracy": Score("accuracy", "classes", correct_class, higher_is_better=True),
        "binary_accuracy": Score("binary_accuracy", "binary", correct_side, higher_is_better=True),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
        "auroc": Score(
            "auroc",
            "classes",
            higher_is_better=True,
            whole=_of_two_classes("auroc", area_under_roc),
            both_classes=True,
            weighs=True,
        ),
        "binary_auroc": Score(
            "binary_auroc",
            "binary",
            higher_is_better=True,
            whole=_of_one_logit(area_under_roc),
            both_classes=True,
            weighs=True,
        ),
        "f1": Score(
            "f1",
            "classes",
            higher_is_better=True,
            whole=_of_two_classes("f1", _f1_of_logits),
            weighs=True,
        ),
        "binary_f1": Score(
            "binary_f1",
            "binary",
            higher_is_better=True,
            whole=_of_one_logit(_f1_of_logits),
            weighs=True,
        ),
    },
)
"""Metrics that training knows by name; add one with ``METRICS.add(name, Score(...))``.

The areas and F1 scores are of two classes, the second being the positive one, over all entries of a
split together: ``auroc`` and ``f1`` of two logits, the ``binary_`` ones of a single logit.
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


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for a while."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


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
