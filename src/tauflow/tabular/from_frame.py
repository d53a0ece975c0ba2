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

from .cell_values import (
    MAX_EXACT_INTEGER,
    MAX_SHOWN_LENGTH,
    factorize,
    find_missing,
    to_object_array,
    unmask,
)
from .frame import Frame

_Column = tuple[NDArray[Any], tuple[str, ...] | None, str | None]
"""Cells; the categories of a categorical dtype, ``()`` without an order; the time zone of dates."""


def read_frame(table: Any) -> Frame:
    """Return the columns of a data frame of any library, or of a mapping of names to arrays.

    Rows are counted from 0, as in ``table.iloc[row]``.

    Raises:
        ArgumentError: it is no such thing, a column is not one value per row, or two have one name.
        DataError: it has no rows.
        MissingExtraError: pandas is not installed, or narwhals for a frame of another library.
    """
    require("pandas", extra="tables")
    series = _list_series(table)
    check_unique("the table", [name for name, _ in series])
    columns = {name: _to_column(name, values) for name, values in series}
    lengths = {name: len(cells) for name, (cells, _, _) in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ArgumentError(f"the columns of the table must be equally long, got {listed}.")
    rows = next(iter(lengths.values()))
    if not rows:
        raise DataError("the table holds no rows. Give one row for each sample.")
    unread = list_index_names(table)
    note = f"The index of the frame, {', '.join(unread)}, is not read: reset_index() makes columns."
    return Frame(
        "the table",
        {name: cells for name, (cells, _, _) in columns.items()},
        np.arange(rows),
        " (counted from 0)",
        categorical={name: texts for name, (_, texts, _) in columns.items() if texts is not None},
        time_zones={name: zone for name, (_, _, zone) in columns.items() if zone is not None},
        notes=(note,) if unread else (),
        index_names=unread,
    )


def list_index_names(table: Any) -> tuple[str, ...]:
    """Return the names of an index of pandas, or what it holds if it has none and holds times."""
    index: Any = getattr(table, "index", None)
    if not hasattr(index, "names"):
        return ()
    names = tuple(str(name) for name in index.names if name is not None)
    is_time = hasattr(index, "freq")  # dates, periods and durations
    return names or (type(index).__name__,) * is_time


def _list_series(table: Any) -> list[tuple[str, Any]]:
    """Return names and columns of a frame or a mapping."""
    homes = {kind.__module__.partition(".")[0] for kind in type(table).__mro__}
    if isinstance(table, Mapping):
        series = [(str(name), values) for name, values in table.items()]
    elif "pandas" in homes and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        check_unique("the table", names)
        series = [(str(name), values) for name, values in table.items()]
    else:
        series = [] if "pandas" in homes else _list_narwhals_series(table, homes)
    if not series:
        raise ArgumentError(
            "table must be a pandas DataFrame, or a mapping of column names to arrays, with at "
            f"least one column, got {type(table).__name__}. Read a file with "
            "tauflow.data.read_csv, join several with pandas.concat, and make a frame of a Series "
            "by to_frame()."
        )
    return series


def _list_narwhals_series(table: Any, homes: set[str]) -> list[tuple[str, Any]]:
    """Return names and columns of a frame of another library than pandas, none of other things."""
    if not hasattr(type(table), "columns"):
        return []
    narwhals = require("narwhals", extra="tables")
    if "pyarrow" in homes:  # in which names may repeat, and of which narwhals would say so
        check_unique("the table", table.schema.names)
    if "pyarrow" in homes and type(table).__name__ == "RecordBatch":
        table = sys.modules["pyarrow"].Table.from_batches([table])
    frame = narwhals.from_native(table, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        raise ArgumentError(
            f"table is a {type(table).__name__} that is not computed yet. Collect it first."
        )
    if not isinstance(frame, narwhals.DataFrame):
        return []
    return [(series.name, series) for series in frame.iter_columns()]


def _to_column(name: str, values: Any) -> _Column:
    if hasattr(values, "isna"):
        column = _from_pandas(values)
    elif hasattr(values, "null_count"):
        column = _from_narwhals(values)
    else:
        column = _from_array(values), None, None
    cells = column[0]
    if cells.ndim != 1:
        raise ArgumentError(
            f"the table's column {name!r} has shape {cells.shape}, expected one value per row. "
            "Make a column of each of its values."
        )
    if cells.dtype.kind not in "biufmMO":
        cells = to_object_array(cells.tolist())
    if cells.dtype.kind == "O":
        cells = tidy_objects(cells, keep=column[1] is not None)  # codes of categories stay whole
    return cells, *column[1:]


def _read_category_order(values: Any) -> tuple[str, ...]:
    """Return the categories of a column whose dtype orders them, else ``()``."""
    dtype: Any = getattr(values, "dtype", None)
    if getattr(dtype, "ordered", False):
        return tuple(map(str, dtype.categories))
    is_enum = type(dtype).__name__ == "Enum"  # of Polars and narwhals
    return tuple(dtype.categories) if is_enum else ()


def _from_pandas(values: Any) -> _Column:
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return values.to_numpy(), None, None
    if str(dtype) == "category":
        return np.asarray(values.astype(object)), _read_category_order(values), None
    zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
    if zone is not None:
        return values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), None, str(zone)
    if hasattr(dtype, "freq"):  # periods, which begin then
        return values.dt.start_time.to_numpy(), None, None
    return values.to_numpy(), None, None


def _from_narwhals(values: Any) -> _Column:
    kind = str(values.dtype).partition("(")[0]
    if kind in ("Categorical", "Enum"):
        return to_object_array(values.to_list()), _read_category_order(values), None
    if values.dtype.is_integer() and values.null_count():  # which keep all their digits
        return to_object_array(values.to_list()), None, None
    zone = getattr(values.dtype, "time_zone", None)  # of which the array, in UTC, says nothing
    return np.asarray(values.to_numpy()), None, zone


def _from_array(values: Any) -> NDArray[Any]:
    array = np.asarray(unmask(values.to_numpy() if hasattr(values, "to_numpy") else values))
    if array.dtype.kind in "SU" and isinstance(values, list | tuple):
        return to_object_array(values)  # of which NumPy makes text of the numbers beside a text
    return array


def tidy_objects(cells: NDArray[Any], *, keep: bool = False) -> NDArray[Any]:
    """Return objects with text stripped and ``None`` where missing; numbers alone as such."""
    pandas = require("pandas", extra="tables")
    kind = pandas.api.types.infer_dtype(cells, skipna=True)
    missing = find_missing(cells)
    if kind in ("integer", "floating", "mixed-integer-float", "decimal") and not keep:
        there = cells[~missing]
        if kind != "integer" or (missing.any() and _fits_float(there)):
            numbers = np.full(len(cells), np.nan)
            numbers[~missing] = there.astype(np.float64)
            return numbers
        if not missing.any() and all(abs(int(number)) < 2**63 for number in there.tolist()):
            return np.asarray(cells, np.int64)
    if kind == "boolean" and not missing.any():
        return np.asarray(cells, np.bool_)
    texts: NDArray[Any] = cells.copy()
    texts[missing] = None
    if kind == "string":
        codes, different = factorize(texts)
        return to_object_array([*(cell.strip() or None for cell in different), None])[codes]
    if kind in ("mixed", "mixed-integer", "empty"):
        for row, cell in enumerate(texts.tolist()):
            if isinstance(cell, str):
                texts[row] = cell.strip() or None
    return texts


def _fits_float(numbers: NDArray[Any]) -> bool:
    return all(abs(int(number)) <= MAX_EXACT_INTEGER for number in numbers.tolist())


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
            f"{where}: several columns are called {twice!r}. Give each another name."
        )
