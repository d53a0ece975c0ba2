"""Arrays and lists of arrays, with their times, as rows of sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow._internal.time_precision import find_precision_loss, to_torch_float_dtype
from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError
from tauflow.tabular.cell_values import Floats, Indices, check_no_datetimes, find_missing
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import to_dates

LAYOUTS = ("BTI", "BIT")


def to_array(data: Any) -> NDArray[Any]:
    """Return an array, in which what is masked, ``None``, ``pandas.NA`` or NaT is missing.

    Among numbers it is NaN, among dates and durations NaT, and among other objects ``None``.
    """
    if isinstance(data, list | tuple):  # of whose entries NumPy would take what is below a mask
        data = [None if one is np.ma.masked else _unmask(one) for one in data]
    array: NDArray[Any] = np.asarray(_unmask(data))
    if array.dtype.kind in "US" and not all(isinstance(one, str | bytes) for one in data):
        array = np.array(data, object)  # NumPy makes text of the numbers beside a text
    if array.dtype.kind != "O" or not (missing := find_missing(array)).any():
        return array
    numbers = all(isinstance(cell, Real) for cell in array[~missing].tolist())
    found = np.full(array.shape, np.nan if numbers else None)
    found[~missing] = array[~missing]
    return found


def _unmask(data: Any) -> Any:
    """Return a masked array as one that lacks what is masked, and other things as they are."""
    if not isinstance(data, np.ma.MaskedArray):
        return data
    mask, values = np.ma.getmaskarray(data), np.asarray(data.data)
    if not mask.any():
        return values
    none: Any = None
    if values.dtype.kind in "biufmM":
        none = np.array("NaT", values.dtype) if values.dtype.kind in "mM" else np.nan
    return np.where(mask, none, values)


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
        found = _to_features(X)
        if getattr(found, "ndim", 2) < 3:
            return found, None, 1
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
        objects = [place for place, dtype in enumerate(X.dtypes) if str(dtype) == "object"]
        for place, (name, dtype) in enumerate(X.dtypes.items()):
            check_no_datetimes(f"column {name!r} of X", dtype)
            if place in objects:
                _check_not_nested(X.iloc[:, place].tolist(), f"column {name!r} of X")
        return X.where(X.notna(), np.nan) if objects else X
    if isinstance(X, list | tuple):
        sizes = [np.shape(one) for one in X]
        if {len(size) for size in sizes} == {1} and len(set(sizes)) > 1:
            other = next(place for place, size in enumerate(sizes) if size != sizes[0])
            raise ShapeError(
                f"X[0] has shape {sizes[0]}, and X[{other}] {sizes[other]}: sequences are (T, I). "
                "Give x[:, None] for each, if they have one feature."
            )
    if not isinstance(X, list | tuple | np.ndarray):
        return X
    found = to_array(X)
    if found.dtype == object:
        _check_not_nested(found.ravel().tolist(), "X")
    return found


def _check_not_nested(cells: list[Any], where: str) -> None:
    for cell in cells:
        if isinstance(cell, list | tuple | np.ndarray) or hasattr(cell, "iloc"):
            raise ArgumentError(
                f"{where} holds a {type(cell).__name__} in a cell, expected numbers. Give a list "
                "of arrays (T_i, I), one for each sequence: x[:, None] of a single feature, or "
                "numpy.column_stack of several."
            )


def _check_lengths(lengths: Any, count: int, steps: int) -> Indices:
    found = to_array(lengths)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be {format_count(count, 'whole number')}, one per sequence, got "
            f"{found.dtype} of shape {found.shape}."
        )
    wrong = (found < 1) | (found > steps)
    if wrong.any():
        raise ArgumentError(
            f"lengths must lie between 1 and T = {steps}, and that of sequence "
            f"{int(np.argmax(wrong))} is {found[wrong][0]}."
        )
    return found.astype(np.int64)


def add_times(rows: Sequences, *, dt: Any, t: Any) -> Sequences:
    """Return sequences of arrays or of a list with their gaps.

    Args:
        rows: the sequences.
        dt: time since the sample before: a number, or as ``t``.
        t: times of the samples: numbers, or dates for gaps in seconds; (B, T) of an array, (T_i,)
            each of a list. Those with a time zone are brought to UTC. The first gap is 0.
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


def _check_dt(rows: Sequences, dt: NDArray[Any]) -> Floats:
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


def _compute_dt(rows: Sequences, times: NDArray[Any]) -> Floats:
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
    # Parts of dates with and without zones must not meet in one array of objects.
    plain, zones = zip(*(_to_utc(name, part) for part in parts), strict=True)
    if len(set().union(*zones)) > 1:
        raise TimeError(
            f"{name} has dates with a time zone beside dates without one. Give all of them a zone, "
            "or none."
        )
    found: NDArray[Any] = np.concatenate(plain)
    if found.dtype.kind not in "iufmM":
        raise TimeError(f"{name} must be numbers or dates, got {found.dtype}. Convert them.")
    return found


def _to_utc(name: str, values: NDArray[Any]) -> tuple[NDArray[Any], set[bool]]:
    """Return dates that are objects as ``datetime64``, in UTC, and whether they have a zone."""
    cells = values.tolist() if values.dtype.kind == "O" else []
    if not cells or not all(one is None or isinstance(one, datetime) for one in cells):
        return values, {False} if values.dtype.kind == "M" else set()
    found = to_dates(cells)
    dates = [one for one in cells if one is not None and one == one]  # NaT is not
    lost = np.flatnonzero(np.isnat(found) & [one is not None and one == one for one in cells])
    if lost.size:
        raise TimeError(
            f"{name} holds {cells[lost[0]]}, which pandas cannot hold as a date in UTC. Correct it."
        )
    return found, {one.tzinfo is not None for one in dates}


def _format_position(rows: Sequences, row: int) -> str:
    owner = int(rows.sequence_index[row])
    return f"sequence {owner}, step {row - int(rows.starts[owner])}"


def to_moments(times: NDArray[Any], *, dated: bool, name: str = "those of at") -> NDArray[Any]:
    """Return times of a table, (R,), as numbers, or as dates in UTC without a zone.

    Raises:
        TimeError: they are dates and should be numbers, or the reverse; ``name`` says which.
    """
    is_number = getattr(times.dtype, "kind", "M") in "iuf"
    if is_number is dated:
        had, has = ("dates", "numbers") if dated else ("numbers", "dates")
        raise TimeError(f"the times of X are {had}, and {name} are {has}. Give {had}.")
    if not dated:
        return times.astype(np.float64)
    if times.dtype.kind in "mM" and not hasattr(times, "tz"):
        return times
    pandas = require("pandas", extra="tables")
    found = pandas.to_datetime(times, format="ISO8601", utc=True).tz_localize(None)
    moments: NDArray[Any] = found.to_numpy()
    return moments
