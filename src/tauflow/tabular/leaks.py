"""Features that predict the target by themselves, as what is known only afterwards does."""

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require

from .cell_values import Bools, Floats
from .schema_fields import SchemaFields
from .sequences import Sequences, format_names
from .target import Target

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MIN_AUROC, MIN_R2 = 0.995, 0.999
"""From these scores on, a feature is said to predict the target by itself."""
LEAK_NOTE = "Warning: a feature alone predicts"
"""How a note on one begins."""
_MIN_COUNT = 10  # of each class, and half as many as there must be values: fewer fit by chance
_MAX_CLASSES = 10
_MAX_ROWS = 10_000


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
    compute, metric, least = (
        (compute_auroc, "AUROC", MIN_AUROC) if is_class else (compute_r2, "R2", MIN_R2)
    )
    rows = train.rows if target.per_step else target.first_rows(train)
    places = np.flatnonzero(target.has_target[rows])
    places = places[np.linspace(0, len(places) - 1, min(len(places), _MAX_ROWS)).astype(int)]
    pandas = require("pandas", extra="tables")
    y, known = (
        values[rows[places]].reshape(len(places), -1) for values in (target.y, target.known)
    )
    targets = pandas.DataFrame(np.where(known, y, np.nan), columns=list(schema.targets))
    if target.per_step:
        values = np.where(observed[rows[places]], x[rows[places]], np.nan)
    else:
        values = _take_last_values(x, observed, train.select(places))
    features = pandas.DataFrame(values, dtype=np.float64)
    notes = []
    for name, column in targets.items():
        column = column.dropna()
        score = compute(features.loc[column.index], column).to_numpy()
        names = [f"{schema.inputs[k]!r} ({score[k]:.4g})" for k in np.flatnonzero(score >= least)]
        if names:
            notes.append(
                f"{LEAK_NOTE} {name!r} on the training split ({metric} of at least {least}): "
                f"{format_names(names, 12)}. Is it known at that time? If not, leave it out of the "
                "features."
            )
    return notes


def _take_last_values(x: NDArray[Any], observed: Bools, sequences: Sequences) -> Floats:
    """Return the last observed value of each input in each sequence, (N, I), or NaN."""
    values = np.full((len(sequences), x.shape[1]), np.nan)
    rows = sequences.rows
    for place in range(x.shape[1]):  # one at a time, as tables may be large
        there = np.where(observed[rows, place], np.arange(len(rows)), -1)
        last = np.maximum.reduceat(there, sequences.starts)
        values[last >= 0, place] = x[rows[last[last >= 0]], place]
    return values


def compute_auroc(x: "DataFrame", y: "Series[Any]") -> "Series[Any]":
    """Return how well each column tells classes apart: 1 if always, 0.5 if not at all.

    Args:
        x: (N, K); NaN is below all other values.
        y: class of each row, (N,).

    Returns:
        (K,): the area under the ROC curve of two classes, in the better direction; of more, the
        mean over pairs. Classes with fewer than ten rows do not count; 0 if fewer than two are
        left.
    """
    counts = y.value_counts().sort_index()
    classes = counts[counts >= _MIN_COUNT]
    if not 2 <= len(classes) <= _MAX_CLASSES:
        return x.sum() * 0.0
    areas = []
    for low, high in combinations(classes.index, 2):
        ranks = x[y.isin((low, high))].rank(na_option="top")
        ones = classes[high]
        area = (ranks.loc[y.index[y == high]].sum() - ones * (ones + 1) / 2) / (ones * classes[low])
        areas.append(area.where(area > 0.5, 1 - area))
    return sum(areas[1:], areas[0]) / len(areas)


def compute_r2(x: "DataFrame", y: "Series[Any]") -> "Series[Any]":
    """Return the coefficient of determination of a line through each column and the target.

    Args:
        x: (N, K); NaN where missing, which does not count.
        y: (N,).

    Returns:
        (K,): 0 of columns that are constant, or have fewer than 20 values.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # of columns that are constant
        determination = x.corrwith(y) ** 2
    return determination.where(x.count() >= 2 * _MIN_COUNT).fillna(0.0)
