"""Turn recordings into windows and time steps. Only this module makes elapsed times."""

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least
from tauflow._internal.time_precision import find_precision_loss, to_torch_float_dtype
from tauflow.errors import TimeError

G = TypeVar("G", bound=np.generic)


def dt_from_times(
    times: NDArray[np.floating | np.integer], *, first_dt: float
) -> NDArray[np.float32]:
    """Return the time elapsed since the previous sample.

    Args:
        times: (..., T), not decreasing along the last axis.
        first_dt: time step in front of the first sample.

    Returns:
        Time steps, (..., T), in the unit of ``times``.

    Raises:
        TimeError: a time is not finite, or smaller than the one before it, or the times' type is
            too coarse for the time steps between them.
    """
    if not np.isfinite(times).all():
        raise TimeError("times must be finite; remove samples without a time.")
    gaps = np.diff(times, axis=-1)
    if (gaps < 0).any():
        where = tuple(map(int, np.argwhere(gaps < 0)[0]))
        raise TimeError(f"times run backwards after entry {where}; sort the samples by time.")
    _check_precision(times, gaps)
    start = np.full((*times.shape[:-1], 1), first_dt)
    # Differences are taken in the precision of the times: absolute times are large, dt is small.
    return np.concatenate([start, gaps], axis=-1).astype(np.float32)


def _check_precision(times: NDArray[Any], dt: NDArray[Any]) -> None:
    dtype = to_torch_float_dtype(times.dtype)
    if dtype is None or not dt.size:
        return
    rows = torch.arange(dt.size) // dt.shape[-1]
    ends, between = (torch.from_numpy(np.ravel(a).astype(np.float64)) for a in (times[..., 1:], dt))
    lost = find_precision_loss(ends, between, rows, dtype)
    if lost is not None:
        row = int(rows[lost.place])
        raise TimeError(
            f"{lost.describe(f'times of sequence {row}', times.dtype)} Read them as float64 or as "
            "integers, or subtract a first time before they are rounded."
        )


def cut_windows(sequence: NDArray[G], length: int, stride: int) -> NDArray[G]:
    """Cut a recording into overlapping windows.

    Windows start at ``range(0, n - length, stride)``. As in the published protocols, a window that
    would end exactly at the last row is left out.

    Args:
        sequence: (n, ...).
        length: rows per window.
        stride: rows from one start to the next.

    Returns:
        Windows, (W, length, ...), a copy; W is 0 if the recording is too short.
    """
    check_at_least(1, length=length)
    check_at_least(1, stride=stride)
    starts = np.arange(0, len(sequence) - length, stride)
    cut: NDArray[G] = sequence[starts[:, None] + np.arange(length)]
    return cut
