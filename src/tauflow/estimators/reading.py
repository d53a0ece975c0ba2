"""What users call X, arrays, lists of arrays and long tables, as rows of sequences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from tauflow.checks import one_of
from tauflow.data.table.frames import sequences_of
from tauflow.data.table.sheet import sheet_of
from tauflow.data.table.times import read_times
from tauflow.errors import ArgumentError, DataError, ShapeError

from .rows import Indices, Rows
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
    sheet = sheet_of(X)
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
    else:
        if time is not None:
            raise ArgumentError(f"time={time!r} names a column of a table with ids; give id= too.")
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
    names = None if reset else getattr(estimator, "feature_names_in_", ())
    if names is not None and not len(names):
        raise ArgumentError("the estimator was fitted to arrays, which name no features.")
    rows = rows_of_table(X, id=id, time=time, features=names, besides=besides)
    if reset:
        estimator.feature_names_in_ = np.array(rows.names, object)
        estimator.n_features_in_ = len(estimator.feature_names_in_)
    return rows
