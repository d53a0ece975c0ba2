"""Gaps of sequences, from times or as they are given."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow._internal.time_precision import find_precision_loss, to_torch_float_dtype
from tauflow.data.table.times import convert_to_utc
from tauflow.errors import ArgumentError, ShapeError, TimeError

from .arrays import to_array
from .ragged import Floats, RaggedSequences


def add_times(rows: RaggedSequences, *, dt: Any, t: Any) -> RaggedSequences:
    """Return sequences with their gaps.

    Args:
        rows: of arrays or of a list.
        dt: time since the sample before: a number, or as ``t``.
        t: times of the samples: numbers, or dates for gaps in seconds; (B, T) of an array, (T_i,)
            each of a list. Those with a time zone are brought to UTC. The first gap is 0.

    Raises:
        ArgumentError: both are given.
        ShapeError: they do not fit X.
        TimeError: gaps are negative or not finite, times run backwards, or are too coarse; or
            some have a time zone and others none.
    """
    if dt is not None and t is not None:
        raise ArgumentError("dt and t are two ways to say the same; give one of them.")
    if dt is None and t is None:
        return rows
    if dt is None:
        values = _flatten_to_rows(rows, "t", t)
        gaps = _compute_dt(rows, values)
    else:
        dt = np.timedelta64(dt) if isinstance(dt, timedelta) else dt  # of pandas, too
        single = np.isscalar(dt) or getattr(dt, "ndim", 1) == 0
        values = np.full(len(rows.values), dt) if single else _flatten_to_rows(rows, "dt", dt)
        gaps = _check_dt(rows, values)
    return replace(rows, dt=gaps, dated=values.dtype.kind in "mM")


def _check_dt(rows: RaggedSequences, dt: NDArray[Any]) -> Floats:
    if dt.dtype.kind == "M":
        raise TimeError("dt holds dates, expected numbers or durations. Give dates as t.")
    dt = to_seconds(dt)
    good = np.isfinite(dt) & (dt >= 0)
    if not good.all():
        row = int(np.argmin(good))
        raise TimeError(
            f"dt is {dt[row]:g} at {_format_position(rows, row)}, expected a finite number of 0 "
            "or more."
        )
    return dt


def _compute_dt(rows: RaggedSequences, times: NDArray[Any]) -> Floats:
    bad = np.isnat(times) if times.dtype.kind in "mM" else ~np.isfinite(times)
    if bad.any():
        place = _format_position(rows, int(np.argmax(bad)))
        raise TimeError(f"t is not finite at {place}; remove samples without a time.")
    if times.dtype.kind in "iu":
        times = times.astype(np.int64)  # differences of short or unsigned integers wrap around
    between = to_seconds(np.diff(times, prepend=times[:1]))
    between[rows.starts] = 0.0
    if (between < 0).any():
        place = _format_position(rows, int(np.argmax(between < 0)))
        raise TimeError(f"t runs backwards at {place}. Sort the samples of a sequence by time.")
    dtype, inner = to_torch_float_dtype(times.dtype), np.ones(len(times), np.bool_)
    inner[rows.starts] = False
    if dtype is not None and inner.any():
        ends, gaps = (torch.from_numpy(a[inner].astype(np.float64)) for a in (times, between))
        lost = find_precision_loss(ends, gaps, torch.from_numpy(rows.sequence_index[inner]), dtype)
        if lost is not None:
            raise TimeError(
                f"{lost.describe('the times t', times.dtype)} Give them as float64, integers or "
                "dates from the start, or subtract a first time before they are rounded."
            )
    return between


def to_seconds(values: NDArray[Any]) -> Floats:
    """Return numbers as they are, and durations in seconds."""
    second = np.timedelta64(1, "s")
    return (values / second if values.dtype.kind == "m" else values).astype(np.float64)


def _flatten_to_rows(rows: RaggedSequences, name: str, data: Any) -> NDArray[Any]:
    """Return one value per row, (R,), of what comes in the shape of X."""
    if rows.steps is not None:
        values = to_array(data)
        shape = (len(rows), rows.steps)
        flat = values.shape == (max(shape),) and min(shape) == 1  # one sequence, or of one step
        fits = flat or values.shape in (shape, (*shape, 1))
        if not fits:
            raise ShapeError(
                f"{name} has shape {values.shape}, expected {shape}: one for each step of X."
            )
        values = values.reshape(shape)[np.arange(rows.steps) < rows.lengths[:, None]]
        return _check_numeric(name, _convert_zones_to_utc(name, [values]))
    parts = [to_array(part).reshape(-1) for part in data]
    found = [len(part) for part in parts]
    if found != rows.lengths.tolist():
        if len(parts) != len(rows):
            raise ShapeError(
                f"{name} has {format_count(len(parts), 'sequence')}, and X has {len(rows)}."
            )
        wrong = int(np.argmax(np.array(found) != rows.lengths))
        raise ShapeError(
            f"{name}[{wrong}] has {format_count(found[wrong], 'entry', 'entries')}, and "
            f"X[{wrong}] has {format_count(rows.lengths[wrong], 'step')}."
        )
    return _check_numeric(name, _convert_zones_to_utc(name, parts))


def _convert_zones_to_utc(name: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return what came in parts, (R,); dates that are objects as ``datetime64``, in UTC.

    Raises:
        TimeError: some dates have a time zone and others none, or no such type can hold them.
    """
    zoned: set[bool] = set()
    plain = []
    for values in parts:
        dates = values.tolist() if values.dtype.kind == "O" else []
        if dates and all(one is None or isinstance(one, datetime) for one in dates):
            zoned |= {one.tzinfo is not None for one in dates if one is not None and one == one}
            plain.append(_to_utc(name, dates))
        else:
            zoned |= {False} if values.dtype.kind == "M" else set()
            plain.append(values)
    if len(zoned) > 1:
        raise TimeError(
            f"{name} has dates with a time zone beside dates without one. Give all of them a zone, "
            "or none."
        )
    return np.concatenate(plain)


def _to_utc(name: str, dates: Sequence[Any]) -> NDArray[np.datetime64]:
    known = [one if one is not None and one == one else None for one in dates]  # NaT is not

    def make_error(place: int, expected: str) -> TimeError:
        return TimeError(f"{name} holds {dates[place]}, expected {expected}. Correct it.")

    return convert_to_utc(known, [getattr(one, "nanosecond", 0) for one in known], make_error)


def _check_numeric(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "iufmM":
        raise TimeError(f"{name} must be numbers or dates, got {values.dtype}. Convert them.")
    return values


def _format_position(rows: RaggedSequences, row: int) -> str:
    owner = int(rows.sequence_index[row])
    return f"sequence {owner}, step {row - int(rows.starts[owner])}"
