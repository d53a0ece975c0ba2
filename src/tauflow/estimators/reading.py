"""What users call X, arrays, lists and long tables, as rows of sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError
from tauflow.tabular.cell_values import Floats, check_no_datetimes
from tauflow.tabular.frame import Frame
from tauflow.tabular.from_frame import read_frame
from tauflow.tabular.grouping import SINGLE_SEQUENCE_ID, get_ids, group_into_sequences
from tauflow.tabular.inputs import MAX_CATEGORIES, build_inputs, find_categories
from tauflow.tabular.options import DUPLICATES
from tauflow.tabular.reshape import reshape
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import Sequences, SourceTable

from .arrays import LAYOUTS, add_times, check_no_lengths, check_not_empty, is_list, read_arrays
from .input_kwargs import ARRAY_KWARGS, TABLE_KWARGS
from .preparation import compare_with_training
from .targets import reduce_to_ids


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") or hasattr(X, "keys")


def read_rows(
    estimator: Any,
    X: Any,
    *,
    layout: str,
    is_series_2d: bool,
    reset: bool,
    targets: tuple[str, ...] = (),
    **said: Any,
) -> Sequences:
    """Return the sequences of whatever X is.

    Args:
        estimator: remembers, as by :func:`sklearn.utils.validation.validate_data`, number and names
            of the features, and what was said of the columns of a table.
        X: see :meth:`~tauflow.estimators.base.AbstractSequenceEstimator.fit`.
        layout: of arrays.
        is_series_2d: whether an array of two axes is one sequence, (T, I).
        reset: whether to remember, rather than to compare.
        targets: columns of a table that are no features.
        **said: of :data:`~tauflow.estimators.input_kwargs.INPUT_KWARGS`.
    """
    X = _convert_series(X, is_series=is_series_2d)
    schema = Schema() if reset else estimator.schema_
    columns = {name: said[name] for name in TABLE_KWARGS if said.get(name) is not None}
    if not reset and is_table(X):
        columns = get_table_options(schema) | columns
    arrays = {name: said.get(name) for name in ARRAY_KWARGS}
    if is_table(X):
        X, columns, arrays = _read_index(X, columns, arrays, is_series=is_series_2d)
    if "id" in columns or ("time" in columns and "static" not in columns):
        _check_kind(X, arrays, columns.get("id"))
        names = get_fitted_names(estimator, reset=reset)
        if names is not None and "static" in columns:
            columns["static"] = [c for c in columns["static"] if c in (*names, *targets)] or None
        # Columns may be named differently from the training.
        rows, schema = _read_table(X, replace(schema, **columns), targets)
    elif columns:
        name, value = list(columns.items())[-1]
        raise ArgumentError(f"{name}={value!r} is for a table with ids; give id= too, or time=.")
    else:
        lengths = arrays.pop("lengths")
        is_named = is_list(X) and hasattr(X[0], "columns")
        if is_named and all(isinstance(name, str) for name in _list_columns(X[0])):
            check_no_lengths(lengths)
            fitted = get_fitted_names(estimator, reset=reset)
            rows, schema = _read_frames(X, schema, layout, fitted)
            arrays = _read_indexes(X, arrays)
        else:
            X, cells = drop_columns(X, targets)
            rows = _validate_arrays(
                estimator, X, lengths, layout=layout, is_series_2d=is_series_2d, reset=reset
            )
            rows = replace(rows, targets=cells)
        rows = add_times(rows, **arrays)
    if reset:
        remember(estimator, schema, one_step=rows.steps == 1)
    else:
        compare_with_training(schema, rows, getattr(estimator, "target_features_", ()))
    return rows


def _convert_series(X: Any, *, is_series: bool) -> Any:
    """Return frames for Series of pandas, which are sequences of one feature."""
    if is_series and _is_series(X):
        return X.rename("value" if X.name is None else X.name).to_frame()
    if isinstance(X, list) and X and all(_is_series(one) for one in X):
        return [one.rename("value" if one.name is None else one.name).to_frame() for one in X]
    return X


def _is_series(one: Any) -> bool:
    return hasattr(one, "to_frame") and hasattr(one, "index") and not hasattr(one, "columns")


def _read_index(
    X: Any, columns: dict[str, Any], arrays: dict[str, Any], *, is_series: bool
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a frame of pandas without an index to read, and what it says of the columns.

    Levels that are named as id or time become columns. Dates and durations are the times where
    nothing else is named. Of one step for each of several sequences it names these.
    """
    index: Any = getattr(X, "index", None)
    if not hasattr(index, "nlevels"):
        return X, columns, arrays
    id, time = columns.get("id"), columns.get("time")
    levels = [name for name in index.names if name in (id, time) and name not in X.columns]
    levels = [name for name in levels if name is not None]
    X = X.reset_index(level=levels) if levels else X
    has_array = any(arrays[name] is not None for name in ("dt", "t"))
    if len(levels) == index.nlevels or (has_array and not columns):
        return X, columns, arrays
    if (
        _holds_times(X.index)
        and time not in X.columns
        and X.index.name in (None, time or X.index.name)
    ):
        if is_series and not columns:
            return X, columns, {**arrays, "t": _to_moments(X.index)}
        if columns:
            name = time or X.index.name or "index"
            return X.reset_index(names=name), {**columns, "time": name}, arrays
    if columns or is_series or X.index.nlevels > 1:
        _check_index(X, "X")
    return X, columns, arrays


def _read_indexes(X: Sequence[Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the times in the indexes of data frames, if they hold times."""
    indexes = [getattr(frame, "index", None) for frame in X]
    if any(arrays[name] is not None for name in ("dt", "t")):
        return arrays
    timed = [_holds_times(index) for index in indexes]
    if all(timed):
        return {**arrays, "t": [_to_moments(index) for index in indexes]}
    for number, frame in enumerate(X):
        if any(timed) and not timed[number]:
            raise TimeError(
                f"X[{number}] has no times in its index, and others have. Give all of them some."
            )
        _check_index(frame, f"X[{number}]")
    return arrays


def _holds_times(index: Any) -> bool:
    """Whether an index of pandas is one of dates, periods or durations."""
    return type(index).__name__ in ("DatetimeIndex", "PeriodIndex", "TimedeltaIndex")


def _to_moments(index: Any) -> Any:
    return index.to_timestamp() if hasattr(index, "to_timestamp") else index


def _check_index(frame: Any, where: str) -> None:
    """Raise :class:`DataError` if a frame of pandas has an index that is no number of its rows."""
    index = getattr(frame, "index", None)
    unread = [name for name in getattr(index, "names", ()) if name not in (None, *frame.columns)]
    if unread or getattr(index, "nlevels", 1) > 1:
        named = ", ".join(map(repr, unread)) or "of several levels"
        raise DataError(
            f"{where} has the index {named}, which is not read. Name its levels as id= and time=, "
            "make columns of them, reset_index(), or leave them out, reset_index(drop=True). Dates "
            "and durations alone are the times."
        )


def remember(estimator: Any, schema: Schema, *, one_step: bool) -> None:
    """Keep how X is read, and the names of the features as scikit-learn does.

    If the schema names none, the estimator knows them, or how many there are. ``one_step`` says
    whether X was an array of sequences of one step.
    """
    if schema.features is not None:
        estimator.feature_names_in_ = np.array(schema.features, object)
        estimator.n_features_in_ = len(schema.features)
    numbered = map(str, range(estimator.n_features_in_))
    names = getattr(estimator, "feature_names_in_", numbered)
    estimator.schema_ = replace(schema, features=schema.features or tuple(names))
    estimator._one_step = one_step


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


def get_table_options(schema: Schema) -> dict[str, Any]:
    """Return what is said of the columns of a table, as methods of estimators take it."""
    said = {name: getattr(schema, name) for name in TABLE_KWARGS}
    return {k: v for k, v in said.items() if v not in (None, DUPLICATES[0])}


def drop_columns(X: Any, names: Sequence[str]) -> tuple[Any, tuple[NDArray[Any], ...]]:
    """Return a data frame without some columns, and the cells of these."""
    if not names:
        return X, ()
    table = read_frame(X)
    cells = tuple(np.asarray(table.columns[table.check_name(one, "target")]) for one in names)
    kept = [name for name in _list_columns(X) if name not in names]
    return X.select(kept) if hasattr(X, "select") else X[kept], cells  # pandas has no select


def _read_table(X: Any, schema: Schema, targets: tuple[str, ...]) -> tuple[Sequences, Schema]:
    """Return the sequences of a table, ids in the order of their rows, and the schema read by.

    Features by default are all other columns, and categories, where features are not named, are
    those of the table. Dates count in seconds; without times rows are one step apart.
    """
    id, time, features = schema.id, schema.time, schema.features
    table = replace(read_frame(X), is_training_data=False)
    for role, column in {"id": id, "time": time}.items():
        if column is not None:
            table.check_name(column, role)
    owners = get_ids(table, id)[1]
    used = None if features is None else (*features, *targets)
    sheet = reshape(table, replace(schema, features=used), schema.variables or None)
    for name in targets:
        sheet.check_name(name, "target")
    if features is None:
        features = tuple(name for name in sheet.columns if name not in (id, time, *targets))
    if not features:
        raise DataError("the table has no features beside its ids, times and target.")
    found = group_into_sequences(
        sheet, id, time, "seconds", sort=False, skip_date_check=schema.is_fitted
    )
    ids = None if id is None else np.asarray(X[id])[np.unique(owners, return_index=True)[1]]
    of_rows = (np.asarray(sheet.columns[name])[found.rows] for name in targets)
    numbers = sheet.row_numbers[found.rows]
    values, schema = _read_values(sheet, schema, features)
    rows = Sequences(
        values=values[found.rows],
        lengths=found.lengths,
        dt=None if time is None else found.compute_dt(),
        dated=found.dated,
        ids=ids,
        source=SourceTable(id or SINGLE_SEQUENCE_ID, owners, getattr(X, "index", None)),
        targets=tuple(
            reduce_to_ids(
                "y",
                one,
                found.sequence_index,
                np.array([SINGLE_SEQUENCE_ID]) if ids is None else ids,
                numbers,
            )
            for one in of_rows
        ),
        is_single=id is None,
        moments=None if time is None else sheet.get_original(time, found.rows),
    )
    return rows, replace(schema, variables=sheet.variables)


def _read_values(table: Frame, schema: Schema, features: Sequence[str]) -> tuple[Floats, Schema]:
    """Return the values of features, (R, I), and the schema with these and their categories."""
    known = None if schema.features is None else schema.categories
    inputs = build_inputs(table, tuple(features), known)
    values = np.stack(inputs.columns, axis=1, dtype=np.float64, casting="unsafe")
    held = schema.dtypes or {n: d for n, d in table.describe_dtypes().items() if n in features}
    found = replace(schema, features=tuple(features), categories=inputs.categories, dtypes=held)
    return values, found


def _check_kind(X: Any, arrays: Mapping[str, Any], id: str | None) -> None:
    for name, value in arrays.items():
        if value is not None:
            raise ArgumentError(f"{name} is for arrays; a table has a column of times, time=.")
    if not is_table(X):
        role = "time" if id is None else "id"
        named = role if id is None else f"id={id!r}"
        raise ArgumentError(
            f"{named} names a column of a table, and X is a {type(X).__name__}. Give a data "
            f"frame, or leave {role} out."
        )


def _list_columns(frame: Any) -> list[Any]:
    """Return the names of the columns of a frame of any library, or of a mapping."""
    names = getattr(frame, "column_names", None)  # of Arrow, whose columns are no names
    return list(getattr(frame, "columns", frame) if names is None else names)


def _read_frames(
    X: Sequence[Any], schema: Schema, layout: str, fitted: Sequence[str] | None
) -> tuple[Sequences, Schema]:
    """Return the rows of data frames, with their columns in any order, and the schema read by.

    Columns are those of the features, or all of the first, which are then those of the others.
    """
    if layout != LAYOUTS[0]:
        raise ArgumentError(
            f"layout={layout!r} is for arrays: a data frame has a column for each feature. Leave "
            "it out."
        )
    check_not_empty(X)
    names = _list_columns(X[0]) if fitted is None else fitted
    sheets = []
    for number, frame in enumerate(X):
        if not hasattr(frame, "columns"):
            raise ArgumentError(
                f"X[{number}] is a {type(frame).__name__}, and X[0] a data frame. Give one kind."
            )
        sheet = replace(read_frame(frame), where=f"X[{number}]", is_training_data=False)
        if fitted is None and set(sheet.columns) != set(names):
            raise DataError(
                f"X[{number}] has the columns {', '.join(sheet.columns)}, and X[0] has "
                f"{', '.join(names)}. Give all sequences the same ones, NaN where they were not "
                "measured."
            )
        for name in names:
            sheet.check_name(name, "feature")
        sheets.append(sheet)
    if schema.features is None:
        texts = [(name, _find_shared_categories(sheets, name)) for name in names]
        categories = tuple((name, found) for name, found in texts if found)
        schema = replace(schema, features=tuple(names), categories=categories)
    parts = [_read_values(sheet, schema, names) for sheet in sheets]
    values, lengths = np.concatenate([part for part, _ in parts]), [len(one) for one in sheets]
    return Sequences(values=values, lengths=np.array(lengths)), parts[0][1]


def _find_shared_categories(tables: Sequence[Frame], column: str) -> tuple[str, ...]:
    """Return the categories of a column in several tables; none if it holds numbers in one."""
    found = [find_categories(one, column) for one in tables if not one.find_missing(column).all()]
    texts = sorted({text for texts in found for text in texts}) if all(found) else []
    if len(texts) > MAX_CATEGORIES:
        raise DataError(
            f"X: the column {column!r} holds {format_count(len(texts), 'different text')}, and at "
            f"most {MAX_CATEGORIES} are taken as categories. Leave it out of the features, or join "
            "some."
        )
    return tuple(texts)


def _validate_arrays(
    estimator: Any, X: Any, lengths: Any, *, layout: str, is_series_2d: bool, reset: bool
) -> Sequences:
    values, counts, steps = read_arrays(X, layout=layout, lengths=lengths)
    if isinstance(values, np.ndarray):
        check_no_datetimes("X", values.dtype)
    dtypes = [np.float64, np.float32]
    values = validate_data(
        estimator, values, reset=reset, dtype=dtypes, ensure_all_finite="allow-nan"
    ).astype(np.float64)
    if counts is not None:
        return Sequences(values=values, lengths=counts, steps=steps)
    if is_series_2d:
        return Sequences(
            values=values, lengths=np.array([len(values)]), steps=len(values), is_single=True
        )
    if not (reset or getattr(estimator, "_one_step", True)):  # of files of before it is not known
        raise ShapeError(
            f"X has shape {values.shape}, and the estimator was fitted to sequences of several "
            "steps. Give X[None] if it is one sequence, (T, I), such as X[0][None] of an array, "
            "and X[:, None] if it is one step of each of several."
        )
    return Sequences(values=values, lengths=np.ones(len(values), np.int64), steps=steps)
