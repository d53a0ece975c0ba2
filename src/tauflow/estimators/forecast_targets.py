"""What comes after each row of a sequence, and when."""

import numpy as np

from .ragged import Floats, Indices, RaggedSequences

_EVEN_TOLERANCE = 1e-6  # gaps that differ less than by this part are the same


def take_future_samples(rows: RaggedSequences, horizon: int) -> Floats:
    """Return the samples after each row, (R, H, I), NaN beyond the end of its sequence."""
    places, beyond = _future_indices(rows, horizon)
    return np.where(beyond[..., None] > 0, np.nan, rows.values[places])


def compute_lead_times(rows: RaggedSequences, after_last: Floats) -> Floats:
    """Return the times from each row to the next ones, (R, H).

    Args:
        rows: with gaps.
        after_last: times from the last row of each sequence to what follows it, (N, H).
    """
    assert rows.dt is not None
    places, beyond = _future_indices(rows, after_last.shape[1])
    clock = np.cumsum(rows.dt)
    last = np.take_along_axis(after_last[rows.sequence_index], np.maximum(beyond - 1, 0), axis=1)
    times: Floats = clock[places] - clock[:, None] + np.where(beyond > 0, last, 0.0)
    return times


def compute_typical_dt(rows: RaggedSequences) -> float | None:
    """Return the median gap, ``None`` without gaps or if they are all the same."""
    if rows.dt is None:
        return None
    gaps = np.delete(rows.dt, rows.starts)
    if not len(gaps) or np.ptp(gaps) <= _EVEN_TOLERANCE * gaps.max():
        return None
    return float(np.median(gaps[gaps > 0]))


def _future_indices(rows: RaggedSequences, horizon: int) -> tuple[Indices, Indices]:
    """Return the rows after each, (R, H), the last one beyond the end, and how far beyond."""
    after = np.arange(len(rows.values))[:, None] + np.arange(1, horizon + 1)
    ends = rows.ends[rows.sequence_index][:, None]
    return np.minimum(after, ends), np.maximum(after - ends, 0)
