"""Features that predict the target by themselves, as what is known only afterwards does."""

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cell_values import Bools, Floats
from .schema_fields import SchemaFields
from .sequences import Sequences, format_names
from .target import Target

MIN_AUROC, MIN_R2 = 0.995, 0.999
"""From these scores on, a feature is said to predict the target by itself."""
LEAK_NOTE = "Warning: a feature alone predicts"
"""How a note on one begins."""
_MIN_COUNT = 10  # of each class, and half as many as there must be values: fewer fit by chance
_MAX_CLASSES = 10
_MAX_ROWS = 10_000
_MAX_ELEMENTS = 1 << 20


def make_leak_notes(
    x: NDArray[Any], observed: Bools, target: Target, train: Sequences, schema: SchemaFields
) -> list[str]:
    """Return a warning for each target that single features predict on the training split.

    A feature counts with its value at the row of the target, or its last observed value if there
    is one target per sequence. Of classes the score is :func:`compute_auroc`, of values
    :func:`compute_r2`. Of more than 10,000 targets, as many are used, evenly spaced. Forecasts have
    no such features, as nothing is known ahead but what the user names.

    Args:
        x: inputs of every row, (R, I).
        observed: where they are, (R, I).
        target: of the table.
        train: sequences of the training split.
        schema: of the table.
    """
    if target.is_next_step:
        return []
    is_class = target.is_class or bool(target.labels)
    compute = compute_auroc if is_class else compute_r2
    rows = train.rows if target.per_step else target.first_rows(train)
    places = np.flatnonzero(target.has_target[rows])
    places = places[np.linspace(0, len(places) - 1, min(len(places), _MAX_ROWS)).astype(int)]
    y, known = (one[rows[places]].reshape(len(places), -1) for one in (target.y, target.known))
    scores: dict[str, list[Floats]] = {name: [] for name in schema.targets}
    used = len(places) if target.per_step else len(train.rows)
    width = max(1, _MAX_ELEMENTS // max(1, used))
    for first in range(0, x.shape[1], width):
        part = slice(first, first + width)
        values = np.where(observed[:, part], x[:, part], np.nan)
        if target.per_step:
            values = values[rows[places]].astype(np.float64)
        else:
            values = _take_last(values[train.rows], train)[places].astype(np.float64)
        for place, found in enumerate(scores.values()):
            there = known[:, place]
            found.append(compute(values[there], y[there, place].astype(np.float64)))
    notes = []
    metric, least = ("AUROC", MIN_AUROC) if is_class else ("R2", MIN_R2)
    for name, found in scores.items():
        score = np.concatenate(found)
        names = [f"{schema.inputs[k]!r} ({score[k]:.4g})" for k in np.flatnonzero(score >= least)]
        if names:
            notes.append(
                f"{LEAK_NOTE} {name!r} on the training split ({metric} of at least {least}): "
                f"{format_names(names, 12)}. Is it known at that time? If not, leave it out of the "
                "features."
            )
    return notes


def _take_last(values: NDArray[Any], sequences: Sequences) -> NDArray[Any]:
    """Return the last value of each column in each sequence, (N, K), of rows, (R, K), or NaN."""
    number = np.arange(len(values))[:, None]
    last = np.maximum.reduceat(np.where(np.isnan(values), -1, number), sequences.starts)
    found = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= sequences.starts[:, None], found, np.nan)


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
