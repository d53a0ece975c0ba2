"""What users call X as rows of sequences, and what an estimator keeps of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from tauflow.errors import ArgumentError, ShapeError
from tauflow.tabular.arrays import LAYOUTS, add_times, check_no_lengths, is_list, read_arrays
from tauflow.tabular.cell_values import check_no_datetimes
from tauflow.tabular.from_frame import read_frame
from tauflow.tabular.options import DUPLICATES
from tauflow.tabular.pandas_index import convert_series, read_index, read_indexes
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequence_tables import (
    is_table,
    list_columns,
    read_frames,
    read_table_sequences,
)
from tauflow.tabular.sequences import Sequences

from .input_kwargs import ARRAY_KWARGS, TABLE_KWARGS
from .preparation import compare_with_training


def read_rows(
    estimator: Any,
    X: Any,
    *,
    layout: str,
    is_series_2d: bool,
    reset: bool,
    targets: tuple[str, ...] = (),
    **options: Any,
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
    X = convert_series(X, is_series=is_series_2d)
    schema = Schema() if reset else estimator.schema_
    columns = {name: options[name] for name in TABLE_KWARGS if options.get(name) is not None}
    if not reset and is_table(X):
        columns = get_table_options(schema) | columns
    arrays = {name: options.get(name) for name in ARRAY_KWARGS}
    if is_table(X):
        X, columns, arrays = read_index(X, columns, arrays, is_series=is_series_2d)
    if "id" in columns or ("time" in columns and "static" not in columns):
        _check_kind(X, arrays, columns.get("id"))
        names = get_fitted_names(estimator, reset=reset)
        if names is not None and "static" in columns:
            columns["static"] = [c for c in columns["static"] if c in (*names, *targets)] or None
        # Columns may be named differently from the training.
        rows, schema = read_table_sequences(X, replace(schema, **columns), targets)
    elif columns:
        name, value = list(columns.items())[-1]
        raise ArgumentError(f"{name}={value!r} is for a table with ids; give id= too, or time=.")
    else:
        lengths = arrays.pop("lengths")
        is_named = is_list(X) and hasattr(X[0], "columns")
        if is_named and all(isinstance(name, str) for name in list_columns(X[0])):
            check_no_lengths(lengths)
            fitted = get_fitted_names(estimator, reset=reset)
            if layout != LAYOUTS[0]:
                raise ArgumentError(
                    f"layout={layout!r} is for arrays: a data frame has a column for each feature. "
                    "Leave it out."
                )
            rows, schema = read_frames(X, schema, fitted)
            arrays = read_indexes(X, arrays)
        else:
            X, cells = drop_columns(X, targets)
            rows = _validate_arrays(
                estimator, X, lengths, layout=layout, is_series_2d=is_series_2d, reset=reset
            )
            rows = replace(rows, targets=cells)
        rows = add_times(rows, **arrays)
    if reset:
        remember(estimator, replace(schema, zoned=rows.zoned), one_step=rows.steps == 1)
    else:
        compare_with_training(schema, rows, getattr(estimator, "target_features_", ()))
    return rows


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
    options = {name: getattr(schema, name) for name in TABLE_KWARGS}
    return {k: v for k, v in options.items() if v not in (None, DUPLICATES[0])}


def drop_columns(X: Any, names: Sequence[str]) -> tuple[Any, tuple[NDArray[Any], ...]]:
    """Return a data frame without some columns, and the cells of these."""
    if not names:
        return X, ()
    table = read_frame(X)
    cells = tuple(np.asarray(table.columns[table.check_name(name, "target")]) for name in names)
    remaining = [name for name in list_columns(X) if name not in names]
    if isinstance(X, Mapping):
        return {name: X[name] for name in remaining}, cells
    return X.select(remaining) if hasattr(X, "select") else X[
        remaining
    ], cells  # pandas has no select


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
