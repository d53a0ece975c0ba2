"""Predictions of a model, and the exact value of metrics over a whole split."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, is_readable
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch, check_batch
from tauflow.errors import ArgumentError, DataError

from .denormals import flush_denormals
from .elementwise import Score
from .eval_mode import evaluation_mode
from .metrics import METRICS
from .objectives import AnyScore, resolve_metric
from .process_group import DistributedContext


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
        ArgumentError: ``batch_size`` is no integer of 1 or more.
        DtypeError, DataError: the split is no batch or empty, no entry of it is valid, its
            ``y_mask`` counts padding, or the metric cannot be computed from a target.
    """
    check_batch("evaluate: data", data)
    batch_size = check_at_least(1, batch_size=batch_size)
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
        look()
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
        self.outputs: list[tuple[Tensor, ...]] = []

    def add(self, prediction: Tensor, batch: SequenceBatch) -> None:
        """Take in a batch."""
        entries, weight = self.score.select(prediction, batch)
        if self.score.target == "classes":
            _check_class_range(self.score.name, entries.prediction, entries.y)
        self.count += entries.y.numel()
        if self.score.whole is not None:
            self.outputs.append(
                (entries.prediction, entries.y, *(() if weight is None else (weight,)))
            )
            return
        values = self.score.compare_entries(entries, weight)
        self.total += values.sum(dtype=torch.float64).item()
        self.weight += float(
            self.score.divisor(entries, None if weight is None else weight.double())
        )

    def merge(self, ranks: DistributedContext) -> None:
        """Take in what the other processes saw; each batch as it came, in the order of the data."""
        self.total = sum(ranks.all_gather(self.total))
        self.count = sum(ranks.all_gather(self.count))
        self.weight = sum(ranks.all_gather(self.weight))
        lists = ranks.all_gather(self.outputs)
        longest = max(map(len, lists))
        self.outputs = [batch[k] for k in range(longest) for batch in lists if k < len(batch)]

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
        return float(self.score.whole(*map(torch.cat, zip(*self.outputs, strict=True))))
