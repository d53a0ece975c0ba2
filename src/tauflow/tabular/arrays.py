"""Arrays and lists of arrays, with their times, as rows of sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError

from .cell_values import Indices, check_no_datetimes, to_array, to_seconds
from .frame import Frame
from .grouping import group_into_sequences
from .sequences import Sequences

LAYOUTS = ("BTI", "BIT")


def read_arrays(X: Any, *, layout: str, lengths: Any) -> tuple[Any, Indices | None, int | None]:
    """Return the rows of arrays, how many each sequence has, and T where all are padded to it.

    Args:
        X: (B, I), one step per sequence; (B, T, I); or a list of (T_i, I).
        layout: ``"BTI"``, or ``"BIT"`` if time is the last axis.
        lengths: steps of each sequence of an array that is padded at its end, (B,).

    Returns:
        Rows, (R, I), to be checked yet; lengths, (N,), ``None`` for one row each; and T.
    """
    check_one_of(LAYOUTS, layout=layout)
    if is_list(X):
        check_no_lengths(lengths)
        return _read_list(X, layout)
    if getattr(X, "ndim", 2) < 3:
        check_no_lengths(lengths, "sequences of several steps, and X has one each.")
        rows = _to_features(X)
        if getattr(rows, "ndim", 2) < 3:
            return rows, None, 1
    array = to_array(X)
    if array.ndim > 3:
        raise ShapeError(
            f"X has shape {array.shape}, found array with dim {array.ndim}, expected (B, T, I) or "
            "(B, I). Make one axis of the features."
        )
    array = array.swapaxes(1, 2) if layout == "BIT" else array
    count, steps, features = array.shape
    if lengths is None:
        return array.reshape(-1, features), np.full(count, steps), steps
    counts = _check_lengths(lengths, count, steps)
    return array[np.arange(steps) < counts[:, None]], counts, steps


def is_list(X: Any) -> bool:
    """Whether X is several arrays of two axes, or frames, and not one."""
    if isinstance(X, np.ndarray):
        several = X.dtype == object and X.ndim == 1
    else:
        several = isinstance(X, list | tuple)
    if not several or len(X) == 0:
        return False
    first = X[0]
    if isinstance(first, list | tuple):  # whose entries may be of different lengths
        return len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return hasattr(first, "columns") or getattr(first, "ndim", 0) == 2


def check_no_lengths(
    lengths: Any, of: str = "padded arrays; those of a list say their own."
) -> None:
    """Raise :class:`ArgumentError` if lengths are given, which are for something else."""
    if lengths is not None:
        raise ArgumentError(f"lengths are for {of}")


def check_not_empty(X: Sequence[Any]) -> None:
    """Raise :class:`DataError` if a sequence of a list has no steps."""
    for number, part in enumerate(X):
        if not len(part):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")


def _read_list(X: Sequence[Any], layout: str) -> tuple[Any, Indices, None]:
    parts = [to_array(part) for part in X]
    for number, part in enumerate(parts):
        if part.ndim != 2:
            raise ShapeError(
                f"X[{number}] has shape {part.shape}, expected (T, I) as all sequences of the list."
            )
    parts = [part.T for part in parts] if layout == "BIT" else parts
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ShapeError(
                f"X[{number}] has {format_count(part.shape[1], 'feature')}, and X[0] has "
                f"{parts[0].shape[1]}. Give all sequences the same ones, NaN where they were not "
                "measured."
            )
    check_not_empty(parts)
    return np.concatenate(parts), np.array([len(part) for part in parts]), None


def _to_features(X: Any) -> Any:
    """Return X, (B, I), as an array, or as a frame of pandas, with NaN for what is missing."""
    sized = hasattr(X, "shape") or hasattr(X, "__array__")
    sized = sized or (hasattr(X, "__len__") and not isinstance(X, str | Mapping))
    if not sized:  # a sparse array may be a mapping, too
        kind = "mapping" if isinstance(X, Mapping) else type(X).__name__
        raise ArgumentError(
            f"X is a {kind}, expected an array, a list of arrays (T_i, I), or a data frame. Give "
            "list(X.values()) if it holds sequences, id= if it holds the columns of a table, and "
            "pandas.read_csv(X) if it names a file."
        )
    if hasattr(X, "select_dtypes"):
        for name, dtype in X.dtypes.items():
            check_no_datetimes(f"column {name!r} of X", dtype)
        return X.where(X.notna(), np.nan) if "object" in map(str, X.dtypes) else X
    return to_array(X) if isinstance(X, list | tuple | np.ndarray) else X


def _check_lengths(lengths: Any, count: int, steps: int) -> Indices:
    counts = to_array(lengths)
    if counts.shape != (count,) or counts.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be {format_count(count, 'whole number')}, one per sequence, got "
            f"{counts.dtype} of shape {counts.shape}."
        )
    wrong = (counts < 1) | (counts > steps)
    if wrong.any():
        raise ArgumentError(
            f"lengths must lie between 1 and T = {steps}, and that of sequence "
            f"{int(np.argmax(wrong))} is {counts[wrong][0]}."
        )
    return counts.astype(np.int64)


def add_times(rows: Sequences, *, dt: Any, t: Any) -> Sequences:
    """Return sequences of arrays or of a list with their time steps.

    Args:
        rows: the sequences.
        dt: time since the sample before: a number, or as ``t``.
        t: times of the samples: numbers, or dates for time steps in seconds; (B, T) of an array,
            (T_i,) each of a list. Those with a time zone are brought to UTC. The first time step
            is 0.
    """
    if dt is not None and t is not None:
        raise ArgumentError("dt and t are two ways to say the same; give one of them.")
    if dt is None and t is None:
        return rows
    if dt is None:
        moments = _flatten_to_rows(rows, "t", t)
        table = _make_time_frame(rows, "t", moments)
        timed = group_into_sequences(
            table, None, "t", "seconds", sort=False, allow_equal=True, skip_date_check=True
        )
        dates = moments if timed.dated else None
        rows = replace(rows, dated=timed.dated, zoned=timed.zoned, moments=dates)
        return replace(rows, dt=timed.compute_dt())
    dt = np.timedelta64(dt) if isinstance(dt, timedelta) else dt  # of pandas, too
    single = np.isscalar(dt) or getattr(dt, "ndim", 1) == 0
    values = np.full(len(rows.values), dt) if single else _flatten_to_rows(rows, "dt", dt)
    if values.dtype.kind not in "iufm":
        kind = "dates" if values.dtype.kind == "M" else values.dtype
        raise TimeError(f"dt holds {kind}, expected numbers or durations. Give dates as t.")
    gaps = to_seconds(values)
    good = np.isfinite(gaps) & (gaps >= 0)
    if not good.all():
        table = _make_time_frame(rows, "dt", gaps)
        raise TimeError(
            f"{table.describe_value(int(np.argmin(good)), 'dt')}, expected a finite number of 0 or "
            "more."
        )
    return replace(rows, dt=gaps, dated=values.dtype.kind == "m")


def make_frame(lengths: Indices, columns: Mapping[str, NDArray[Any]]) -> Frame:
    """Return rows of sequences, one after the other, as a table that calls them X[0], X[1] ..."""
    numbers = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    counted = " (counted from 0)"
    return Frame("X", columns, numbers, counted, is_training_data=False, lengths=lengths)


def _make_time_frame(rows: Sequences, name: str, times: NDArray[Any]) -> Frame:
    """Return times of sequences as a table; a single one has no number."""
    table = make_frame(rows.lengths, {name: times})
    return replace(table, lengths=None) if rows.is_single else table


def _flatten_to_rows(rows: Sequences, name: str, data: Any) -> NDArray[Any]:
    """Return one time per row, (R,), of what comes in the shape of X."""
    if rows.steps is not None:
        values, shape = to_array(data), (len(rows), rows.steps)
        flat = values.shape == (max(shape),) and min(shape) == 1  # one sequence, or of one step
        if not flat and values.shape not in (shape, (*shape, 1)):
            raise ShapeError(
                f"{name} has shape {values.shape}, expected {shape}: one for each step of X."
            )
        parts = [values.reshape(shape)[np.arange(rows.steps) < rows.lengths[:, None]]]
    else:
        parts = [to_array(part).reshape(-1) for part in data]
        if len(parts) != len(rows):
            raise ShapeError(
                f"{name} has {format_count(len(parts), 'sequence')}, and X has {len(rows)}."
            )
        for number, (part, length) in enumerate(zip(parts, rows.lengths, strict=True)):
            if len(part) != length:
                raise ShapeError(
                    f"{name}[{number}] has {format_count(len(part), 'entry', 'entries')}, and "
                    f"X[{number}] has {format_count(length, 'step')}."
                )
    if len({part.dtype.kind for part in parts} & {"M", "O"}) > 1:  # dates with and without zones
        series = require("pandas", extra="tables").Series
        parts = [series(part).astype(object).to_numpy() for part in parts]
    times: NDArray[Any] = np.concatenate(parts)
    if times.dtype.kind not in "iufmMO" or any(isinstance(time, str) for time in times[:1]):
        raise TimeError(f"{name} must be numbers or dates, got {times.dtype}. Convert them.")
    return times
