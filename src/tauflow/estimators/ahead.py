"""What comes after each row of a sequence, and when."""

import numpy as np

from .rows import Floats, Indices, Rows

_EVEN = 1e-6  # gaps that differ less than by this part are the same


def samples_after(rows: Rows, horizon: int) -> Floats:
    """Return the samples after each row, (R, H, I), NaN beyond the end of its sequence."""
    places, beyond = _places(rows, horizon)
    return np.where(beyond[..., None] > 0, np.nan, rows.values[places])


def times_after(rows: Rows, further: Floats) -> Floats:
    """Return the times from each row to the next ones, (R, H).

    Args:
        rows: with gaps.
        further: times from the last row of each sequence to what follows it, (N, H).
    """
    assert rows.gaps is not None
    places, beyond = _places(rows, further.shape[1])
    clock = np.cumsum(rows.gaps)
    last = np.take_along_axis(further[rows.owners], np.maximum(beyond - 1, 0), axis=1)
    times: Floats = clock[places] - clock[:, None] + np.where(beyond > 0, last, 0.0)
    return times


def typical_gap(rows: Rows) -> float | None:
    """Return the median gap, ``None`` without gaps or if they are all the same."""
    if rows.gaps is None:
        return None
    gaps = np.delete(rows.gaps, rows.starts)
    if not len(gaps) or np.ptp(gaps) <= _EVEN * gaps.max():
        return None
    return float(np.median(gaps[gaps > 0]))


def _places(rows: Rows, horizon: int) -> tuple[Indices, Indices]:
    """Return the rows after each, (R, H), the last one beyond the end, and how far beyond."""
    after = np.arange(len(rows.values))[:, None] + np.arange(1, horizon + 1)
    ends = rows.ends[rows.owners][:, None]
    return np.minimum(after, ends), np.maximum(after - ends, 0)
