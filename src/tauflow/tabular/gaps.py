"""Simple ways to fill missing values of sequences, and values that are hidden to compare them."""

import numpy as np
from numpy.typing import NDArray

from .cell_values import Floats
from .sequences import Sequences

HIDDEN = ("values", "rows")
"""What is hidden to learn from: single values, or all values of some rows."""


def hide_values(
    rows: Sequences, fraction: float, kind: str, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which measured values to hide, (R, I): a fraction of the values, or of the rows."""
    shape = rows.values.shape if kind == HIDDEN[0] else (len(rows.values), 1)
    drawn: NDArray[np.bool_] = (random.random(shape) < fraction) & ~np.isnan(rows.values)
    return drawn


def carry_forward(rows: Sequences) -> Floats:
    """Return the last value measured in the same sequence up to each row, (R, I), or NaN."""
    return _take(rows.values, _find_neighbours(rows)[0])


def interpolate(rows: Sequences) -> Floats:
    """Return values, (R, I), on the line between those before and after in the same sequence.

    Before the first value of a feature, and after the last, that value; NaN without any.
    """
    before, after = _find_neighbours(rows)
    clock = np.arange(len(rows.values), dtype=np.float64) if rows.dt is None else rows.dt.cumsum()
    low, high = _take(rows.values, before), _take(rows.values, after)
    span = clock[after] - clock[before]
    share = (clock[:, None] - clock[before]) / np.where(span > 0, span, 1.0)
    line = low + (high - low) * np.where(span > 0, share, 0.0)
    return np.where(np.isnan(low), high, np.where(np.isnan(high), low, line))


def _find_neighbours(rows: Sequences) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the last value up to each row and of the next from it on, -1 if none."""
    there, count = ~np.isnan(rows.values), len(rows.values)
    number = np.arange(count)[:, None]
    before = np.maximum.accumulate(np.where(there, number, -1), axis=0)
    after = np.minimum.accumulate(np.where(there, number, count)[::-1], axis=0)[::-1]
    first, last = (np.repeat(ends, rows.lengths)[:, None] for ends in (rows.starts, rows.last_rows))
    return np.where(before >= first, before, -1), np.where(after <= last, after, -1)


def _take(values: Floats, places: NDArray[np.int64]) -> Floats:
    taken: Floats = np.take_along_axis(values, np.maximum(places, 0), axis=0)
    return np.where(places < 0, np.nan, taken)
