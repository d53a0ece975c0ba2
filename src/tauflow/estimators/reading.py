"""What users call X, arrays, lists of arrays and long tables, as rows of sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.data.table.from_frame import concat_tables, table_from_frame
from tauflow.data.table.inputs import build_inputs
from tauflow.data.table.options import DUPLICATES
from tauflow.data.table.pivot import pivot_long
from tauflow.data.table.schema import Schema
from tauflow.data.table.sequences import get_ids, group_into_sequences
from tauflow.data.table.table import Table
from tauflow.data.table.times import read_times
from tauflow.errors import ArgumentError, DataError, ShapeError

from .arrays import to_array, to_features
from .input_kwargs import TABLE_KWARGS
from .preparation import list_columns
from .ragged import Floats, Indices, RaggedSequences, SourceTable
from .targets import reduce_to_ids
from .times import add_times

LAYOUTS = ("BTI", "BIT")


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") or hasattr(X, "keys")


def read_arrays(X: Any, *, layout: str, lengths: Any) -> tuple[Any, Indices | None, int | None]:
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
    check_one_of(LAYOUTS, layout=layout)
    if _is_list(X):
        if lengths is not None:
            raise ArgumentError("lengths are for padded arrays; those of a list say their own.")
        return _read_list(X, layout)
    if getattr(X, "ndim", 2) < 3:
        if lengths is not None:
            raise ArgumentError("lengths are for sequences of several steps, and X has one each.")
        found = to_features(X)
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
                f"{parts[0].shape[1]}. Give "
                "all sequences the same ones, NaN where they were not measured."
            )
        if not len(part):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")
    return np.concatenate(parts), np.array([len(part) for part in parts]), None


def _are_frames(X: Any) -> bool:
    """Whether X is a list of data frames whose columns have names, and not numbers."""
    if not _is_list(X) or not hasattr(X[0], "columns"):
        return False
    return all(isinstance(name, str) for name in _list_columns(X[0]))


def _list_columns(frame: Any) -> list[Any]:
    return list(getattr(frame, "column_names", frame.columns))  # the columns of Arrow are no names


def drop_columns(X: Any, names: Sequence[str]) -> Any:
    """Return a table without some columns; anything else as it is, if there are none."""
    if names and isinstance(X, Mapping):
        return {name: column for name, column in X.items() if name not in names}
    for name in names:
        X = _drop_target_column(X, name)
    return X


def _drop_target_column(frame: Any, target: str | None) -> Any:
    """Return a data frame without the column of the target, and anything else as it is.

    Raises:
        UnknownNameError: there is no such column.
    """
    if target is None or not hasattr(frame, "columns"):
        return frame
    table_from_frame(frame).check_name(target, "target")
    kept = [name for name in _list_columns(frame) if name != target]
    return frame.select(kept) if hasattr(frame, "select") else frame[kept]  # pandas has no select


def _concat_frames(X: Sequence[Any], layout: str, features: Sequence[str] | None) -> Table:
    """Return the rows of data frames, with their columns in any order, as one table.

    Args:
        X: the frames.
        layout: of arrays; of frames only ``"BTI"`` makes sense.
        features: columns to take; by default all of the first, which are then those of the others.

    Raises:
        ArgumentError: something is no data frame, or time is said to be the last axis.
        DataError: a frame has other columns than the first, or no rows.
        UnknownNameError: a frame lacks a feature.
    """
    if layout != LAYOUTS[0]:
        raise ArgumentError(
            f"layout={layout!r} is for arrays: a data frame has a column for each feature. Leave "
            "it out."
        )
    names = _list_columns(X[0]) if features is None else features
    sheets = []
    for number, frame in enumerate(X):
        if not hasattr(frame, "columns"):
            raise ArgumentError(
                f"X[{number}] is a {type(frame).__name__}, and X[0] a data frame. Give one kind."
            )
        if not len(frame):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")
        sheet = replace(table_from_frame(frame), where=f"X[{number}]", is_training_data=False)
        if features is None and set(sheet.columns) != set(names):
            raise DataError(
                f"X[{number}] has the columns {', '.join(sheet.columns)}, and X[0] has "
                f"{', '.join(names)}. Give all sequences the same ones, NaN where they were not "
                "measured."
            )
        for name in names:
            sheet.check_name(name, "feature")
        sheets.append(sheet)
    return concat_tables(sheets, names)


def _check_lengths(lengths: Any, count: int, steps: int) -> Indices:
    found = to_array(lengths)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be {format_count(count, 'whole number')}, one per sequence, got "
            f"{found.dtype} of shape "
            f"{found.shape}."
        )
    if count and not (found.min() >= 1 and found.max() <= steps):
        wrong = int(np.argmax((found < 1) | (found > steps)))
        raise ArgumentError(
            f"lengths must lie between 1 and T = {steps}, and that of sequence {wrong} is "
            f"{found[wrong]}."
        )
    return found.astype(np.int64)


def read_table_rows(
    X: Any, schema: Schema, *, target: str | None
) -> tuple[RaggedSequences, Schema]:
    """Return the sequences of a table, ids in the order of their rows, and the schema read by.

    Args:
        X: a data frame, or a mapping of names to columns.
        schema: its roles; features by default are all other columns, and categories, where features
            are not named, are those of the table. Dates count in seconds; without times rows are
            one step apart.
        target: column that is no feature, with one value per id.

    Raises:
        ArgumentError, UnknownNameError: there is no such column, or option.
        DataError, TimeError: a cell does not hold what it should, or times run backwards.
    """
    id, time, features = schema.id, schema.time, schema.features
    table = replace(table_from_frame(X), is_training_data=False)
    for role, column in {"id": id, "time": time}.items():
        if column is not None:
            table.check_name(column, role)
    assert id is not None
    owners = get_ids(table, id)[1]
    used = None if features is None else [*features, *([] if target is None else [target])]
    sheet = pivot_long(table, replace(schema, features=used), schema.variables or None)
    if target is not None:
        sheet.check_name(target, "target")
    if features is None:
        features = tuple(name for name in sheet.columns if name not in (id, time, target))
    if not features:
        raise DataError("the table has no features beside its ids, times and target.")
    times = None
    if time is not None:
        times = read_times(sheet, time, "seconds", skip_date_check=schema.is_fitted)
    found = group_into_sequences(sheet, id, time, times, sort=False)
    ids = np.asarray(X[id])[np.unique(owners, return_index=True)[1]]
    of_ids = None
    if target is not None:
        values = np.asarray(sheet.columns[target])[found.rows]
        numbers = sheet.row_numbers[found.rows]
        of_ids = reduce_to_ids("y", values, found.sequence_index, ids, numbers)
    values, schema = _read_values(sheet, schema, features)
    rows = RaggedSequences(
        values[found.rows],
        found.lengths,
        None if time is None else found.dt(),
        times is not None and times.dated,
        ids=ids,
        source=SourceTable(id, owners, getattr(X, "index", None)),
        target=of_ids,
        variables=sheet.variables,
        names=tuple(list_columns(schema)),
        times=None if time is None else sheet.get_original(time, found.rows),
    )
    return rows, replace(schema, variables=sheet.variables)


def _read_values(table: Table, schema: Schema, features: Sequence[str]) -> tuple[Floats, Schema]:
    """Return the values of features, (R, I), and the schema with these and their categories."""
    known = None if schema.features is None else schema.categories
    inputs = build_inputs(table, tuple(features), known)
    values = np.stack(inputs.columns, axis=1, dtype=np.float64, casting="unsafe")
    held = schema.dtypes or {n: d for n, d in table.describe_dtypes().items() if n in features}
    found = replace(schema, features=tuple(features), categories=inputs.categories, dtypes=held)
    return values, found


def read_rows(
    estimator: Any,
    X: Any,
    *,
    layout: str,
    is_series_2d: bool,
    reset: bool,
    target: str | None = None,
    dt: Any = None,
    t: Any = None,
    lengths: Any = None,
    **table: Any,
) -> RaggedSequences:
    """Return the sequences of whatever X is.

    Args:
        estimator: remembers, as by :func:`sklearn.utils.validation.validate_data`, number and names
            of the features, and what was said of the columns of a table.
        X: see :meth:`~tauflow.estimators.base.AbstractSequenceEstimator.fit`.
        layout: of arrays.
        is_series_2d: whether an array of two axes is one sequence, (T, I).
        reset: whether to remember, rather than to compare.
        target: column of a table that is no feature.
        dt: gaps.
        t: times.
        lengths: of padded sequences.
        table: what is said of a table, see :data:`~tauflow.estimators.input_kwargs.TABLE_KWARGS`.

    Raises:
        ArgumentError, DataError, ShapeError, TimeError, UnknownNameError: X is no such thing.
    """
    columns = {name: value for name, value in table.items() if value is not None}
    schema = Schema() if reset else estimator.schema_
    if not reset and is_table(X):
        columns = get_table_options(schema) | columns
    if "id" in columns:
        arrays = {"dt": dt, "t": t, "lengths": lengths}
        _check_kind(X, arrays, columns["id"])
        names = get_fitted_names(estimator, reset=reset)
        if names is not None and "static" in columns:
            columns["static"] = [c for c in columns["static"] if c in (*names, target)] or None
        # Columns may be named differently from the training.
        rows, schema = read_table_rows(X, replace(schema, **columns), target=target)
    elif columns:
        name, value = next(iter(columns.items()))
        raise ArgumentError(f"{name}={value!r} is for a table with ids; give id= too.")
    elif _are_frames(X):
        if lengths is not None:
            raise ArgumentError("lengths are for padded arrays; those of a list say their own.")
        fitted = get_fitted_names(estimator, reset=reset)
        sheet = _concat_frames(X, layout, fitted)
        values, schema = _read_values(sheet, schema, list(sheet.columns))
        counts, names = np.array([len(one) for one in X]), tuple(list_columns(schema))
        rows = add_times(RaggedSequences(values, counts, names=names), dt=dt, t=t)
    else:
        X = _drop_target_column(X, target)
        rows = _validate_arrays(
            estimator, X, lengths, layout=layout, is_series_2d=is_series_2d, reset=reset
        )
        rows = add_times(rows, dt=dt, t=t)
    if reset:
        if schema.features is not None:
            store_feature_names(estimator, schema.features)
        estimator.schema_ = name_features(estimator, schema)
        estimator._one_step = rows.steps == 1
    return rows


def get_table_options(schema: Schema) -> dict[str, Any]:
    """Return what is said of the columns of a table, as methods of estimators take it."""
    said = {name: getattr(schema, name) for name in TABLE_KWARGS}
    return {k: v for k, v in said.items() if v not in (None, DUPLICATES[0])}


def name_features(estimator: Any, schema: Schema) -> Schema:
    """Return the schema with names of features; those of arrays are numbers from 0."""
    numbered = map(str, range(estimator.n_features_in_))
    names = getattr(estimator, "feature_names_in_", numbered)
    return replace(schema, features=schema.features or tuple(names))


def _check_kind(X: Any, arrays: dict[str, Any], id: str) -> None:
    for name, value in arrays.items():
        if value is not None:
            raise ArgumentError(f"{name} is for arrays; a table has a column of times, time=.")
    if not is_table(X):
        raise ArgumentError(
            f"id={id!r} names a column of a table, and X is a {type(X).__name__}. Give a data "
            "frame, or leave id out."
        )


def _validate_arrays(
    estimator: Any, X: Any, lengths: Any, *, layout: str, is_series_2d: bool, reset: bool
) -> RaggedSequences:
    values, counts, steps = read_arrays(X, layout=layout, lengths=lengths)
    values = validate_data(
        estimator,
        values,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
    ).astype(np.float64)
    if counts is not None:
        return RaggedSequences(values, counts, steps=steps)
    if is_series_2d:
        return RaggedSequences(values, np.array([len(values)]), steps=len(values), is_single=True)
    if not (reset or getattr(estimator, "_one_step", True)):  # of files of before it is not known
        raise ShapeError(
            f"X has shape {values.shape}, and the estimator was fitted to sequences of several "
            "steps. Give X[None] if it is one sequence, (T, I), such as X[0][None] of an array, "
            "and X[:, None] if it is one step of each of several."
        )
    return RaggedSequences(values, np.ones(len(values), np.int64), steps=steps)


def get_fitted_names(estimator: Any, *, reset: bool) -> Sequence[str] | None:
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


def store_feature_names(estimator: Any, names: Sequence[str]) -> None:
    """Keep the names of the features, as scikit-learn does."""
    estimator.feature_names_in_ = np.array(names, object)
    estimator.n_features_in_ = len(names)
