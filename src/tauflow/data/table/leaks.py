"""Features that predict the target by themselves, as what is known only afterwards does."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard

from .schema_fields import SchemaFields
from .sequences import format_names
from .table import Bools, Floats

MIN_AUROC, MIN_R2 = 0.995, 0.999
"""From these scores on, a feature is said to predict the target by itself."""
_MIN_COUNT = 10  # of each class, and half as many as there must be values: fewer fit by chance
_MAX_CLASSES = 10
_MAX_ROWS = 10_000
_MAX_ELEMENTS = 1 << 20


def make_leak_notes(train: SequenceBatch, card: DatasetCard, schema: SchemaFields) -> list[str]:
    """Return a warning for each target that single features predict on the training part.

    A feature counts with its value at the step of the target, or its last observed value if there
    is one target per sequence. Of classes the score is :func:`compute_auroc`, of values
    :func:`compute_r2`. Of more than 10,000 targets, as many are used, evenly spaced. Forecasts have
    no such features, as nothing is known ahead but what the user names.

    Args:
        train: the training part of a table.
        card: of the table.
        schema: on the table.
    """
    if card.forecast:
        return []
    specs = card.target_specs
    is_class = [bool(spec.classes) for spec in specs] or [card.task == "classify"] * len(
        schema.targets
    )
    y, known, blocks = _select_values(train, card)
    scores: dict[str, list[Floats]] = {target: [] for target in schema.targets}
    for values in blocks:
        for place, found in enumerate(scores.values()):
            there = known[:, place]
            compute = compute_auroc if is_class[place] else compute_r2
            found.append(compute(values[there], y[there, place]))
    notes = []
    for (target, found), of_class in zip(scores.items(), is_class, strict=True):
        metric, least = ("AUROC", MIN_AUROC) if of_class else ("R2", MIN_R2)
        score = np.concatenate(found)
        names = [f"{schema.inputs[k]!r} ({score[k]:.4g})" for k in np.flatnonzero(score >= least)]
        if names:
            notes.append(
                f"Warning: a feature alone predicts {target!r} on the training part "
                f"({metric} of at least {least}): {format_names(names, 12)}. Is it known at that "
                "time? If not, leave it out of the features."
            )
    return notes


def compute_auroc(x: Floats, y: Floats) -> Floats:
    """Return how well each column tells classes apart: 1 if always, 0.5 if not at all.

    Args:
        x: (N, K); NaN is below all other values.
        y: class of each row, (N,).

    Returns:
        (K,): the area under the ROC curve of two classes, in the better direction; of more, the
        mean over pairs. Classes with fewer than ten rows do not count; 0 if fewer than two are
        left.
    """
    x = np.where(np.isnan(x), -np.inf, x)
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[counts >= _MIN_COUNT]
    if not 2 <= len(classes) <= _MAX_CLASSES:
        return np.zeros(x.shape[1])
    areas = []
    for low, high in combinations(classes, 2):
        rows = (y == low) | (y == high)
        ranks, positive = np.apply_along_axis(_compute_ranks, 0, x[rows]), y[rows] == high
        ones, zeros = int(positive.sum()), int((~positive).sum())
        area = (ranks[positive].sum(0) - ones * (ones + 1) / 2) / (ones * zeros)
        areas.append(np.maximum(area, 1 - area))
    found: Floats = np.mean(areas, axis=0)
    return found


def _compute_ranks(x: Floats) -> Floats:
    """Return the rank of each value, (N,), from 1 on; equal values share their mean."""
    _, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks: Floats = np.cumsum(counts) - (counts - 1) / 2
    return ranks[codes]


def compute_r2(x: Floats, y: Floats) -> Floats:
    """Return the coefficient of determination of a line through each column and the target.

    Args:
        x: (N, K); NaN where missing, which does not count.
        y: (N,).

    Returns:
        (K,): 0 of columns that are constant, or have fewer than 20 values.
    """
    there = ~np.isnan(x)
    count = np.maximum(there.sum(0), 1)
    x, target = np.where(there, x, 0.0), np.where(there, y[:, None], 0.0)
    x = np.where(there, x - x.sum(0) / count, 0.0)
    target = np.where(there, target - target.sum(0) / count, 0.0)
    spread = (x**2).sum(0) * (target**2).sum(0)
    enough = (there.sum(0) >= 2 * _MIN_COUNT) & (spread > 0)
    found: Floats = np.where(enough, (x * target).sum(0) ** 2 / np.where(enough, spread, 1.0), 0.0)
    return found


def _select_values(
    train: SequenceBatch, card: DatasetCard
) -> tuple[Floats, Bools, Iterator[Floats]]:
    """Return targets, (N, O), which are known, and blocks of columns of features, (N, k)."""
    valid = train.valid.numpy()
    y = train.y.numpy()
    known = np.ones(y.shape, np.bool_) if train.y_mask is None else train.y_mask.numpy()
    lead = 2 if card.per_step else 1
    y = y.reshape(*y.shape[:lead], -1)
    known = np.broadcast_to(known.reshape(*known.shape[:lead], -1), y.shape)
    places = valid & known.any(-1) if card.per_step else valid.any(1) & known.any(-1)
    chosen = np.flatnonzero(places)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), _MAX_ROWS)).astype(int)]
    y, known = (one.reshape(-1, y.shape[-1])[chosen] for one in (y, known))
    width = max(1, _MAX_ELEMENTS // max(1, len(chosen) if card.per_step else valid.size))

    def iter_blocks() -> Iterator[Floats]:
        for first in range(0, train.x.shape[-1], width):
            part = slice(first, first + width)
            x = train.x[..., part].numpy()
            seen = valid[..., None]
            if train.observed is not None:
                seen = seen & train.observed[..., part].numpy()
            seen = np.broadcast_to(seen, x.shape)
            if card.per_step:
                rows, there = (one.reshape(-1, x.shape[-1])[chosen] for one in (x, seen))
            else:
                steps = np.arange(x.shape[1])[:, None]
                last = np.where(seen[chosen], steps, -1).max(1)
                there = last >= 0
                rows = np.take_along_axis(x[chosen], last.clip(min=0)[:, None], 1)[:, 0]
            yield np.where(there, rows.astype(np.float64), np.nan)

    return y.astype(np.float64), known, iter_blocks()
