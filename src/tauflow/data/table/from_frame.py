"""A data frame of any library, or a mapping of names to arrays, as a table in memory."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import find_control_character
from tauflow.errors import ArgumentError, DataError

from .categorical import Categorical, Column
from .table import MAX_SHOWN_LENGTH, Table

MANY_COLUMNS = 1000
"""With more columns, those of numbers are taken out of a frame of pandas together."""


def table_from_frame(table: Any) -> Table:
    """Return the columns of a data frame of any library, or of a mapping of names to arrays.

    Rows are counted from 0, as in ``table.iloc[row]``.

    Raises:
        ArgumentError: it is no such thing, a column is not one value per row, or two have one name.
        DataError: it has no rows.
        MissingExtraError: it is of another library than pandas, and narwhals is not installed.
    """
    table, categorical, zones = _convert_frame(table)
    names = list(getattr(table, "columns", table if isinstance(table, Mapping) else ()))
    if not names:
        raise ArgumentError(
            f"table must be a pandas DataFrame, or a mapping of column names to arrays, with at "
            f"least one column, got {type(table).__name__}. Read a file with "
            "tauflow.data.read_csv, and join several with pandas.concat."
        )
    check_unique("the table", [str(name) for name in names])
    columns: dict[str, Column] = {}
    marked, numbers = set(categorical), {}
    if hasattr(table, "dtypes") and len(names) > MANY_COLUMNS:
        numbers = select_number_columns(table)
    for name in names:
        values = numbers[name] if name in numbers else table[name]
        columns[str(name)] = _to_column(str(name), values)
        if _has_categorical_dtype(values):
            marked.add(str(name))
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ArgumentError(f"the columns of the table must be equally long, got {told}.")
    rows = next(iter(lengths.values()))
    if not rows:
        raise DataError("the table holds no rows. Give one row for each sample.")
    unread = _list_index_names(table)
    note = f"The index of the frame, {', '.join(unread)}, is not read: reset_index() makes columns."
    return Table(
        "the table",
        columns,
        np.arange(rows),
        " (counted from 0)",
        categorical=frozenset(marked),
        time_zones=zones,
        notes=(note,) if unread else (),
        index_names=unread,
    )


def _list_index_names(table: Any) -> tuple[str, ...]:
    """Return the names of an index of pandas, or what it holds if it has none and holds times."""
    index: Any = getattr(table, "index", None)
    if not hasattr(index, "names"):
        return ()
    names = tuple(str(name) for name in index.names if name is not None)
    is_time = hasattr(index, "freq")  # dates, periods and durations
    return names or (type(index).__name__,) * is_time


def select_number_columns(frame: Any) -> dict[Any, NDArray[Any]]:
    """Return the columns of numbers of pandas by name, copied.

    A frame takes its time to hand out one at a time.
    """
    names: dict[Any, list[Any]] = {}
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
            names.setdefault(dtype, []).append(name)
    found: dict[Any, NDArray[Any]] = {}
    for of_type in names.values():
        found.update(zip(of_type, frame[of_type].to_numpy().T, strict=True))
    return found


def _has_categorical_dtype(values: Any) -> bool:
    """Whether a column of pandas, Polars or narwhals says that it holds categories."""
    dtype = getattr(values, "dtype", "")
    kind = "" if isinstance(dtype, np.dtype) else str(dtype).partition("(")[0]
    return kind in ("category", "Categorical", "Enum")


def _convert_frame(table: Any) -> tuple[Any, frozenset[str], dict[str, str]]:
    """Return a frame of another library than pandas by column, which are categorical, and zones.

    Others are returned as they are.
    """
    homes = {kind.__module__.partition(".")[0] for kind in type(table).__mro__}
    if isinstance(table, Mapping) or "pandas" in homes or not hasattr(type(table), "columns"):
        return table, frozenset(), {}
    narwhals = require("narwhals", extra="tables")
    if "pyarrow" in homes:  # in which names may repeat, and of which narwhals would say so
        check_unique("the table", table.schema.names)
    if "pyarrow" in homes and type(table).__name__ == "RecordBatch":
        table = sys.modules["pyarrow"].Table.from_batches([table])
    frame = narwhals.from_native(table, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        raise ArgumentError(
            f"table is a {type(table).__name__} that nobody has computed yet. Collect it first."
        )
    if not isinstance(frame, narwhals.DataFrame):
        return table, frozenset(), {}
    columns, categorical, zones = {}, set(), {}
    for series in frame.iter_columns():
        if _has_categorical_dtype(series):
            categorical.add(series.name)
        if zone := getattr(series.dtype, "time_zone", None):
            zones[series.name] = zone  # of which the array, in UTC, says nothing
        # As Python's own numbers, whole ones beside missing values keep all their digits.
        as_list = _has_categorical_dtype(series) or (
            series.dtype.is_integer() and series.null_count()
        )
        columns[series.name] = series.to_list() if as_list else series.to_numpy()
    return columns, frozenset(categorical), zones


def _to_column(name: str, values: Any) -> Column:
    if isinstance(values, np.ma.MaskedArray):
        values = _fill_masked(values)
    if _has_categorical_dtype(values) and hasattr(values, "isna") and values.isna().any():
        values = values.astype(object)  # codes beside missing ones stay whole
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.ndim != 1:
        raise ArgumentError(
            f"the table's column {name!r} has shape {array.shape}, expected one value per row. "
            "Make a column of each of its values."
        )
    if array.dtype.kind in "biufmM":
        return array
    # NumPy makes text of the numbers beside a text in a list.
    cells = list(values) if isinstance(values, list | tuple) else array.tolist()
    return Categorical.from_values(cells).map_values(
        lambda one: one.strip() if isinstance(one, str) else one
    )


def _fill_masked(values: Any) -> NDArray[Any]:
    """Return an array of NumPy's with a mask as one whose masked entries are missing values."""
    if values.dtype.kind in "mM":
        undated: NDArray[Any] = values.filled(np.array("NaT", values.dtype))
        return undated
    cells = np.empty(values.shape, object)
    cells[...] = values.tolist()  # None where masked
    return cells


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs again, if one does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_unique(where: str, names: Sequence[str]) -> None:
    """Raise :class:`ArgumentError` if two columns have one name, or one that cannot be printed."""
    for name in names:
        if character := find_control_character(name):
            raise ArgumentError(
                f"{where}: the column {name[:MAX_SHOWN_LENGTH]!r} has the control character "
                f"{character!r} in its name. Remove it."
            )
    twice = find_repeated(names)
    if twice is not None:
        raise ArgumentError(
            f"{where}: several columns are called {twice!r}. Give each a name of its own."
        )
