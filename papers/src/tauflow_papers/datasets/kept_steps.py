"""Steps of recordings that are kept, and the gaps that those in between leave."""

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import DataError, TimeError


def dt_from_positions(positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the steps elapsed since the previous kept position.

    The first gap counts from the position before the first, so that a sequence whose first step is
    kept begins with 1.

    Args:
        positions: (..., T), increasing, 0 for the first step of the recording.

    Returns:
        Gaps, (..., T), at least 1.

    Raises:
        TimeError: positions do not increase, or are negative.
    """
    gaps = np.diff(positions, prepend=-1)
    if (gaps < 1).any():
        raise TimeError(
            "positions must be increasing and not negative; entry "
            f"{int(np.argmax(gaps < 1))} is not. Sort them and drop duplicates."
        )
    return gaps.astype(np.float32)


def lag_dt(dt: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each gap one step late, the first two being the first: a known error in print.

    Args:
        dt: (..., T).
    """
    return np.concatenate([dt[..., :1], dt[..., :-1]], axis=-1)


def drop_frames(steps: int, keep: float, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Choose the positions of a recording that survive random loss.

    One uniform number is drawn per step, in order, so that recordings handled one after the other
    with one generator reproduce published data.

    Args:
        steps: number of steps.
        keep: probability to keep a step.
        rng: source of random numbers.

    Returns:
        Kept positions, increasing.

    Raises:
        DataError: no step was kept.
    """
    remaining = np.flatnonzero(rng.random_sample(steps) < keep)
    if remaining.size == 0:
        raise DataError(f"no step is left of {steps}; use a longer recording or keep more.")
    return remaining
