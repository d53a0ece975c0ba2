"""Fixed-length features of sequences: what a model without memory can be given of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch

Floats = NDArray[np.float64]

STATISTICS = ("last", "first", "mean", "std", "min", "max", "count", "time since last")
"""Statistics of the values of each feature that were observed up to a step."""
TIME_STATISTICS = ("steps", "duration", "mean gap")
"""What is known of the times of the steps up to a step."""

_MAX_ELEMENTS = 1 << 19
"""How many values of x are summarised at a time."""


class SummaryFeatures(NamedTuple):
    """Summary features, (N, K), in double precision, and the name of each column."""

    values: Floats
    names: tuple[str, ...]


def compute_summary_features(
    batch: SequenceBatch, names: Sequence[str] | None = None, *, where: Tensor | None = None
) -> SummaryFeatures:
    """Summarise the observed values of sequences up to a step.

    For each of the I features: its last, first, mean, smallest and largest observed value, their
    standard deviation (of the population), their number, and the time since the last one. For all
    features together: the number of steps, the time from the first to the last of them, and the
    mean time step. Padding and values that were not observed do not count; a later step never does.

    Args:
        batch: x of shape (B, T, I). Without ``dt``, steps are one unit of time apart.
        names: of the I features; by default ``x0``, ``x1``, ...
        where: (B, T) bool, the steps at which to summarise what came until then, that step
            included; by default the last valid step of each sequence.

    Returns:
        (N, 8 * I + 3) numbers, with N the number of steps that ``where`` marks, in the order of
        sequences, then steps. NaN where nothing was observed, but for counts, and for the mean time
        step of fewer than two steps.

    Raises:
        ShapeError: x has other axes, as images have, or names or ``where`` do not fit it.
    """
    if batch.x.ndim != 3:
        raise shape_error(
            "compute_summary_features",
            "x",
            batch.x,
            "(B, T, I)",
            "Images have no summary features.",
        )
    size = batch.x.shape[-1]
    named = [f"x{place}" for place in range(size)] if names is None else list(names)
    if len(named) != size:
        raise shape_error(
            "compute_summary_features",
            "x",
            batch.x,
            f"(B, T, {len(named)}), as names has {format_count(len(named), 'entry', 'entries')}",
            "Give one name per feature.",
        )
    if where is not None and where.shape != batch.x.shape[:2]:
        raise shape_error(
            "compute_summary_features",
            "where",
            where,
            str(tuple(batch.x.shape[:2])),
            "It goes with x.",
        )
    columns = (
        *(f"{name}: {statistic}" for statistic in STATISTICS for name in named),
        *TIME_STATISTICS,
    )
    at_a_time = max(1, _MAX_ELEMENTS // max(1, batch.x[:1].numel()))
    parts = [np.empty((0, len(columns)))]
    for first in range(0, len(batch), at_a_time):
        rows = slice(first, first + at_a_time)
        parts.append(_summarise_batch(batch[rows], None if where is None else where[rows]))
    return SummaryFeatures(np.concatenate(parts), columns)


def _summarise_batch(batch: SequenceBatch, where: Tensor | None) -> Floats:
    """Return the summary features of a few sequences."""
    valid = batch.valid.numpy(force=True)
    if where is None:
        chosen = np.zeros(valid.shape, np.bool_)
        chosen[np.arange(len(valid)), batch.lengths.numpy(force=True) - 1] = True
    else:
        chosen = where.numpy(force=True)
    x = batch.x.to(torch.float64).numpy(force=True)
    seen = np.broadcast_to(valid[..., None], x.shape)
    if batch.observed is not None:
        seen = seen & batch.observed.numpy(force=True)
    steps = valid.cumsum(1)
    gaps = np.ones(valid.shape) if batch.dt is None else batch.dt.double().numpy(force=True)
    clock = np.where(valid & (steps > 1), gaps, 0.0).cumsum(1)  # from the first valid step on
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_gap = np.where(steps > 1, clock / (steps - 1), np.nan)
        spans = (steps, np.where(steps > 0, clock, np.nan), mean_gap)
        statistics = _compute_feature_statistics(x, seen, clock)
        columns = [*statistics, *(column[..., None] for column in spans)]
        return np.concatenate([column[chosen] for column in columns], axis=1, dtype=np.float64)


def _compute_feature_statistics(
    x: Floats, observed: NDArray[np.bool_], clock: Floats
) -> list[Floats]:
    """Return the statistics of each feature up to each step, (B, T, I) each."""
    count = observed.cumsum(1).astype(np.float64)
    places = np.arange(x.shape[1])[:, None]
    latest = np.maximum.accumulate(np.where(observed, places, -1), axis=1)
    none = latest < 0
    earliest = np.broadcast_to(observed.argmax(1, keepdims=True), x.shape)
    values = np.where(observed, x, np.nan)
    first = np.where(none, np.nan, np.take_along_axis(values, earliest, 1))
    last = np.where(none, np.nan, np.take_along_axis(values, latest.clip(min=0), 1))
    # Counted from the first value, sums of squares do not cancel where all values are far from 0.
    moved = np.where(observed, x - np.take_along_axis(values, earliest, 1), 0.0)
    mean = moved.cumsum(1) / count
    variance = (moved**2).cumsum(1) / count - mean**2
    since = clock[..., None] - np.take_along_axis(
        np.broadcast_to(clock[..., None], x.shape), latest.clip(min=0), 1
    )
    return [
        last,
        first,
        mean + first,
        np.sqrt(variance.clip(min=0.0)),
        np.fmin.accumulate(values, axis=1),
        np.fmax.accumulate(values, axis=1),
        count,
        np.where(none, np.nan, since),
    ]
