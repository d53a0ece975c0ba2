"""Tables, and lists of data frames, as sequences with their values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tauflow.errors import ArgumentError, DataError

from .arrays import check_not_empty, make_frame
from .cell_values import Floats, check_no_datetimes
from .frame import Frame
from .from_frame import read_frame
from .grouping import SINGLE_SEQUENCE_ID, get_ids, group_into_sequences
from .inputs import build_inputs
from .reshape import reduce_to_ids, reshape
from .schema import Schema
from .sequences import Sequences, SourceTable

TABLE_ARGUMENTS = ("id", "time", "long", "static", "duplicates")
"""Arguments of estimators that describe a table."""


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") or hasattr(X, "keys")


def list_columns(frame: Any) -> list[Any]:
    """Return the names of the columns of a frame of any library, or of a mapping."""
    names = getattr(frame, "column_names", None)  # of Arrow, whose columns are no names
    return list(getattr(frame, "columns", frame) if names is None else names)


def read_table_sequences(
    X: Any, schema: Schema, targets: tuple[str, ...]
) -> tuple[Sequences, Schema]:
    """Return the sequences of a table, ids in the order of their rows, and the schema read by.

    Features by default are all other columns, and categories, where features are not named, are
    those of the table. Dates count in seconds; without times rows are one step apart.
    """
    id, time, features = schema.id, schema.time, schema.features
    table = replace(read_frame(X), is_training_data=False, arguments=TABLE_ARGUMENTS)
    for role, column in {"id": id, "time": time}.items():
        if column is not None:
            table.check_name(column, role)
    owners = get_ids(table, id)[1]
    used = None if features is None else (*features, *targets)
    frame = reshape(table, replace(schema, features=used), schema.variables or None)
    for name in targets:
        frame.check_name(name, "target")
    if features is None:
        features = tuple(name for name in frame.columns if name not in (id, time, *targets))
    if not features:
        raise DataError("the table has no features beside its ids, times and target.")
    grouped = group_into_sequences(
        frame, id, time, "seconds", sort=False, skip_date_check=schema.is_fitted
    )
    ids = None if id is None else np.asarray(X[id])[np.unique(owners, return_index=True)[1]]
    names = np.array([SINGLE_SEQUENCE_ID]) if ids is None else ids
    of_rows = (np.asarray(frame.columns[name])[grouped.rows] for name in targets)
    numbers = frame.row_numbers[grouped.rows]
    values, schema = _read_values(frame, schema, features)
    rows = Sequences(
        values=values[grouped.rows],
        lengths=grouped.lengths,
        number_count=len(schema.list_number_columns()),
        dt=None if time is None else grouped.compute_dt(),
        dated=grouped.dated,
        zoned=grouped.zoned,
        ids=ids,
        source=SourceTable(id or SINGLE_SEQUENCE_ID, owners, getattr(X, "index", None)),
        targets=tuple(
            reduce_to_ids("y", cells, grouped.sequence_index, names, numbers) for cells in of_rows
        ),
        is_single=id is None,
        moments=None if time is None else frame.get_original(time, grouped.rows),
    )
    return rows, replace(schema, variables=frame.variables)


def _read_values(table: Frame, schema: Schema, features: Sequence[str]) -> tuple[Floats, Schema]:
    """Return the values of features, (R, I), and the schema with these and their categories."""
    known = None if schema.features is None else schema.categories
    inputs = build_inputs(table, tuple(features), known)
    values = np.stack(inputs.columns, axis=1, dtype=np.float64, casting="unsafe")
    held = schema.dtypes or {n: d for n, d in table.describe_dtypes().items() if n in features}
    fitted = replace(schema, features=tuple(features), categories=inputs.categories, dtypes=held)
    return values, fitted


def read_frames(
    X: Sequence[Any], schema: Schema, fitted: Sequence[str] | None
) -> tuple[Sequences, Schema]:
    """Return the rows of data frames, with their columns in any order, and the schema read by.

    Columns are those of the features, or all of the first, which are then those of the others.
    """
    check_not_empty(X)
    names = list_columns(X[0]) if fitted is None else fitted
    tables = []
    for number, frame in enumerate(X):
        if not hasattr(frame, "columns"):
            raise ArgumentError(
                f"X[{number}] is a {type(frame).__name__}, and X[0] a data frame. Give one kind."
            )
        table = replace(read_frame(frame), where=f"X[{number}]")
        if fitted is None and set(table.columns) != set(names):
            raise DataError(
                f"X[{number}] has the columns {', '.join(table.columns)}, and X[0] has "
                f"{', '.join(names)}. Give all sequences the same ones, NaN where they were not "
                "measured."
            )
        for name in names:
            table.check_name(name, "feature")
            check_no_datetimes(f"{table.where}, column {name!r}", table.columns[name].dtype)
        tables.append(table)
    lengths = np.array([len(table) for table in tables])
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in names}
    kinds = tables[0].categorical.items()
    categorical = {n: k for n, k in kinds if all(n in table.categorical for table in tables)}
    joined = replace(make_frame(lengths, columns), categorical=categorical)
    values, schema = _read_values(joined, schema, names)
    numbers = len(schema.list_number_columns())
    return Sequences(values=values, lengths=lengths, number_count=numbers), schema
