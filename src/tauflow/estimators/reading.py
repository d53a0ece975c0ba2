"""What users call X, arrays, lists of arrays and long tables, as rows of sequences."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from tauflow.checks import one_of
from tauflow.data.table.frames import sequences_of
from tauflow.data.table.from_frame import sheet_of
from tauflow.data.table.times import read_times
from tauflow.errors import ArgumentError, DataError, ShapeError

from .rows import Floats, Indices, Rows
from .times import with_times

LAYOUTS = ("BTI", "BIT")


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") or hasattr(X, "keys")


def rows_of_arrays(X: Any, *, layout: str, lengths: Any) -> tuple[Any, Indices | None, int | None]:
    """Return the rows of arrays, how many each sequence has, and T where all are padded to it.

    Args:
        X: (B, I), one step per sequence; (B, T, I); or a list of (T_i, I).
        layout: ``"BTI"``, or ``"BIT"`` if time is the last axis.
        lengths: steps of each sequence of an array that is padded at its end, (B,).

    Returns:
        Rows, (R, I), to be checked yet; lengths, (N,), ``None`` for one row each; and T.

    Raises:
        ShapeError: arrays of a list do not fit each other, or X has more than three axes.
        ArgumentError: lengths are no such numbers, or are given for a list.
        UnknownNameError: there is no such layout.
    """
    one_of(LAYOUTS, layout=layout)
    if _is_list(X):
        if lengths is not None:
            raise ArgumentError("lengths are for padded arrays; those of a list say their own.")
        return _rows_of_list(X, layout)
    if getattr(X, "ndim", 2) < 3:
        if lengths is not None:
            raise ArgumentError("lengths are for sequences of several steps, and X has one each.")
        return X, None, 1
    array = np.asarray(X)
    if array.ndim > 3:
        raise ShapeError(
            f"X has shape {array.shape}, found array with dim {array.ndim}, expected (B, T, I) or "
            "(B, I). Make one axis of the features."
        )
    array = array.swapaxes(1, 2) if layout == "BIT" else array
    count, steps, features = array.shape
    if lengths is None:
        return array.reshape(-1, features), np.full(count, steps), steps
    counts = _checked_lengths(lengths, count, steps)
    return array[np.arange(steps) < counts[:, None]], counts, steps


def _is_list(X: Any) -> bool:
    """Whether X is several arrays of two axes, and not one."""
    if isinstance(X, np.ndarray):
        several = X.dtype == object and X.ndim == 1
    else:
        several = isinstance(X, list | tuple)
    if not several or len(X) == 0:
        return False
    first = X[0]
    if hasattr(first, "columns"):
        return True
    if isinstance(first, list | tuple):  # whose entries may be of different lengths
        return len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return bool(getattr(first, "ndim", 0) == 2)


def _rows_of_list(X: Sequence[Any], layout: str) -> tuple[Any, Indices, None]:
    parts = [np.asarray(part) for part in X]
    for number, part in enumerate(parts):
        if part.ndim != 2:
            raise ShapeError(
                f"X[{number}] has shape {part.shape}, expected (T, I) as all sequences of the list."
            )
    parts = [part.T for part in parts] if layout == "BIT" else parts
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ShapeError(
                f"X[{number}] has {part.shape[1]} features, and X[0] has {parts[0].shape[1]}. Give "
                "all sequences the same ones, NaN where they were not measured."
            )
        if not len(part):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")
    return np.concatenate(parts), np.array([len(part) for part in parts]), None


def _are_frames(X: Any) -> bool:
    """Whether X is a list of data frames whose columns have names, and not numbers."""
    if not _is_list(X) or not hasattr(X[0], "columns"):
        return False
    return all(isinstance(name, str) for name in _names_in(X[0]))


def _names_in(frame: Any) -> list[Any]:
    return list(getattr(frame, "column_names", frame.columns))  # the columns of Arrow are no names


def without(frame: Any, besides: Sequence[str]) -> Any:
    """Return a data frame without some of its columns, and anything else as it is.

    Raises:
        UnknownNameError: there is no such column.
    """
    if not besides or not hasattr(frame, "columns"):
        return frame
    for name in besides:
        sheet_of(frame).check_name(name, "target")
    kept = [name for name in _names_in(frame) if name not in besides]
    return frame.select(kept) if hasattr(frame, "select") else frame[kept]  # pandas has no select


def _rows_of_frames(
    X: Sequence[Any], layout: str, features: Sequence[str] | None
) -> tuple[Floats, Indices, Sequence[str]]:
    """Return the rows of data frames, (R, I), how many each has, and which columns they are.

    Args:
        X: the frames, with their columns in any order.
        layout: of arrays; of frames only ``"BTI"`` makes sense.
        features: columns to take; by default all of the first, which are then those of the others.

    Raises:
        ArgumentError: something is no data frame, or time is said to be the last axis.
        DataError: a frame has other columns than the first, or no rows, or a cell is no number.
        UnknownNameError: a frame lacks a feature.
    """
    if layout != LAYOUTS[0]:
        raise ArgumentError(
            f"layout={layout!r} is for arrays: a data frame has a column for each feature. Leave "
            "it out."
        )
    names = _names_in(X[0]) if features is None else features
    parts = []
    for number, frame in enumerate(X):
        if not hasattr(frame, "columns"):
            raise ArgumentError(
                f"X[{number}] is a {type(frame).__name__}, and X[0] a data frame. Give one kind."
            )
        if not len(frame):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")
        sheet = replace(sheet_of(frame), where=f"X[{number}]", learning=False)
        if features is None and set(sheet.columns) != set(names):
            raise DataError(
                f"X[{number}] has the columns {', '.join(sheet.columns)}, and X[0] has "
                f"{', '.join(names)}. Give all sequences the same ones, NaN where they were not "
                "measured."
            )
        columns = [sheet.numbers(sheet.check_name(name, "feature")) for name in names]
        parts.append(np.stack(columns, axis=1))
    return np.concatenate(parts), np.array([len(part) for part in parts]), names


def _checked_lengths(lengths: Any, count: int, steps: int) -> Indices:
    found = np.asarray(lengths)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be {count} whole numbers, one per sequence, got {found.dtype} of shape "
            f"{found.shape}."
        )
    if count and not (found.min() >= 1 and found.max() <= steps):
        wrong = int(np.argmax((found < 1) | (found > steps)))
        raise ArgumentError(
            f"lengths must lie between 1 and T = {steps}, and that of sequence {wrong} is "
            f"{found[wrong]}."
        )
    return found.astype(np.int64)


def rows_of_table(
    X: Any, *, id: str, time: str | None, features: Sequence[str] | None, besides: Sequence[str]
) -> Rows:
    """Return the sequences of a long table, one row per sample; ids in the order of their rows.

    Args:
        X: a data frame, or a mapping of names to columns.
        id: column that says which sequence a row belongs to.
        time: column of the times, numbers, or dates for gaps in seconds; without one rows are one
            step apart.
        features: columns of the features; by default all others.
        besides: columns that are no features, though nobody says what they are.

    Raises:
        UnknownNameError: there is no such column.
        DataError, TimeError: a cell does not hold what it should, or times run backwards.
    """
    sheet = replace(sheet_of(X), learning=False)
    for role, column in {"id": id, "time": time}.items():
        if column is not None:
            sheet.check_name(column, role)
    if features is None:
        features = [name for name in sheet.columns if name not in (id, time, *besides)]
    names = [sheet.check_name(name, "feature") for name in features]
    if not names:
        raise DataError("the table has no features beside its ids, times and target.")
    times = None if time is None else read_times(sheet, time, "seconds")
    found = sequences_of(sheet, id, time, times, sort=False)
    values = np.stack([sheet.numbers(name) for name in names], axis=1)[found.rows]
    gaps = None if time is None else found.gaps()
    dated = times is not None and times.dated
    return Rows(values, found.lengths, gaps, dated, order=found.rows, names=tuple(names))


def read_rows(
    estimator: Any,
    X: Any,
    *,
    layout: str,
    series: bool,
    reset: bool,
    besides: Sequence[str],
    dt: Any = None,
    t: Any = None,
    lengths: Any = None,
    id: str | None = None,
    time: str | None = None,
) -> Rows:
    """Return the sequences of whatever X is.

    Args:
        estimator: remembers, as by :func:`sklearn.utils.validation.validate_data`, number and names
            of the features, and the columns of ids and times.
        X: see :meth:`AbstractSequenceEstimator.fit`.
        layout: of arrays.
        series: whether an array of two axes is one sequence, (T, I).
        dt: gaps.
        t: times.
        lengths: of padded sequences.
        id: column of a table.
        time: column of a table.
        reset: whether to remember, rather than to compare.
        besides: columns of a table that are no features.

    Raises:
        ArgumentError, DataError, ShapeError, TimeError, UnknownNameError: X is no such thing.
    """
    if not reset and is_table(X):
        remembered = estimator._columns
        id, time = id or remembered[0], time or remembered[1]
    if id is not None:
        arrays = {"dt": dt, "t": t, "lengths": lengths}
        rows = _checked_table(estimator, X, arrays, reset=reset, id=id, time=time, besides=besides)
    elif time is not None:
        raise ArgumentError(f"time={time!r} names a column of a table with ids; give id= too.")
    elif _are_frames(X):
        rows = _checked_frames(estimator, X, lengths, layout=layout, reset=reset)
        rows = with_times(rows, dt=dt, t=t)
    else:
        X = without(X, besides)
        values, counts, steps = rows_of_arrays(X, layout=layout, lengths=lengths)
        values = validate_data(
            estimator,
            values,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        ).astype(np.float64)
        single = series and counts is None
        if single:
            counts, steps = np.array([len(values)]), len(values)
        elif counts is None:
            counts = np.ones(len(values), np.int64)
        rows = with_times(Rows(values, counts, steps=steps, single=single), dt=dt, t=t)
    if reset:
        estimator._columns = (id, time)
    return rows


def _checked_table(
    estimator: Any,
    X: Any,
    arrays: dict[str, Any],
    *,
    reset: bool,
    id: str,
    time: str | None,
    besides: Sequence[str],
) -> Rows:
    for name, value in arrays.items():
        if value is not None:
            raise ArgumentError(f"{name} is for arrays; a table has a column of times, time=.")
    if not is_table(X):
        raise ArgumentError(
            f"id={id!r} names a column of a table, and X is a {type(X).__name__}. Give a data "
            "frame, or leave id out."
        )
    names = _fitted_names(estimator, reset=reset)
    rows = rows_of_table(X, id=id, time=time, features=names, besides=besides)
    if reset:
        _remember_names(estimator, rows.names or ())
    return rows


def _checked_frames(
    estimator: Any, X: Sequence[Any], lengths: Any, *, layout: str, reset: bool
) -> Rows:
    if lengths is not None:
        raise ArgumentError("lengths are for padded arrays; those of a list say their own.")
    fitted = _fitted_names(estimator, reset=reset)
    values, counts, names = _rows_of_frames(X, layout, fitted)
    if reset:
        _remember_names(estimator, names)
    return Rows(values, counts)


def _fitted_names(estimator: Any, *, reset: bool) -> Sequence[str] | None:
    """Return the features to take of a table by their names; ``None`` if they are yet to learn.

    Raises:
        ArgumentError: the estimator was fitted to what has no names.
    """
    if reset:
        return None
    names: Sequence[str] = getattr(estimator, "feature_names_in_", ())
    if not len(names):
        raise ArgumentError(
            "the estimator was fitted to arrays, which name no features. Give an array, or fit it "
            "to a data frame."
        )
    return names


def _remember_names(estimator: Any, names: Sequence[str]) -> None:
    estimator.feature_names_in_ = np.array(names, object)
    estimator.n_features_in_ = len(names)
