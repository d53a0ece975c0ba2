"""What a table may be in: a file of one of several formats, or a frame of any library."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError

from .cell_values import DECIMAL_COMMA, MAX_EXACT_INTEGER, parse_number, to_object_array
from .csv_file import read_csv_table
from .file_content import InMemoryFile, check_unpacked, is_parquet, resolve_file
from .frame import Frame
from .from_frame import read_frame as read_data_frame
from .options import CLASSIFICATION, COMMA, TableOptions
from .reshape import list_named_columns, list_used_columns, reshape
from .sequences import format_names
from .times import parses_as_date

if TYPE_CHECKING:
    from pandas import DataFrame

PARQUET_SUFFIXES = (".parquet", ".pq")
"""How names of files of that format end."""
_CELL_BYTES = 8
_SAVED_INDEX_NAME = re.compile(r"__index_level_\d+__")
_TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", *PARQUET_SUFFIXES)
_PLACEHOLDERS = tuple(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in (2, 3, 4, 5))
"""Numbers such as -999 that often mean a missing value."""


def is_table_file(path: Path) -> bool:
    """Whether a path is a file, or would be that of a table by its name."""
    return path.is_file() or (path.suffix.lower() in _TABLE_SUFFIXES and not path.is_dir())


def get_table_name(path: Path) -> str:
    """Return the name of a file without what tells its format."""
    while path.suffix.lower() in _TABLE_SUFFIXES:
        path = path.with_suffix("")
    return path.name


def read_table(
    table: Any,
    options: TableOptions,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    variables: Sequence[str] | None = None,
    is_strict: bool = True,
    is_training_data: bool = True,
) -> Frame:
    """Return the cells of a table, tidied: see :func:`tauflow.tabular.reshape.reshape`.

    Args:
        table: the path of a file in CSV, plain or compressed by gzip, or Parquet; such a file that
            is open; or a table as :func:`tauflow.tabular.from_frame.read_frame` takes it.
        options: what the user says of it.
        delimiter: of the cells of a CSV file, if not that of the options; what they say of one
            counts for a file to learn from alone, as other tables may be no such files.
        decimal: sign before the decimals of numbers that are text, if not that of the options.
        variables: of a long table those that an earlier one had.
        is_strict: whether others than these are refused.
        is_training_data: whether it is read to learn from, see
            :class:`tauflow.tabular.frame.Frame`.

    Raises:
        ArgumentError: a delimiter is given for what has none.
        UnknownNameError: there is no such decimal sign.
        DataNotFoundError, DataError, MissingExtraError: the file is not there, is no such table, or
            needs a library that is not installed.
    """
    file = resolve_file(table)
    is_csv = file is not None and not is_parquet(file)
    asked = delimiter or (options.delimiter if is_training_data else COMMA)
    if not is_csv and asked != COMMA:
        raise ArgumentError("delimiter is for a CSV file. Leave it out.")
    used = (delimiter or options.delimiter) if is_csv else COMMA
    decimal = options.decimal if decimal is None else decimal
    options = replace(options, delimiter=used, decimal=decimal)
    try:
        if file is None:
            frame = read_data_frame(table)
        elif is_csv:
            frame = _read_csv(file, options)
        else:
            table = _read_parquet(file)
            frame = replace(read_data_frame(table), where=str(file))
    except MemoryError as error:
        raise DataError(
            f"{'the table' if file is None else file} needs more memory than there is. Give a part "
            "of its rows, or fewer columns."
        ) from error
    frame = replace(frame, is_training_data=is_training_data)
    frame = _drop_saved_index(frame, table, options)
    if options.na_values:
        frame = _mark_missing(frame, options.na_values)
    if options.decimal == ",":
        frame = _replace_decimal_commas(frame, options)
    frame = reshape(frame, options, variables, is_strict=is_strict)
    if not is_training_data:
        return frame
    keys = (options.id, options.time)
    names = [name for name in list_used_columns(frame, options) if name not in keys]
    return replace(frame, notes=(*frame.notes, *_make_doubt_notes(frame, names)))


def read_frame(path: Path, options: TableOptions, *, is_training_data: bool = True) -> "DataFrame":
    """Return the rows of a file, as :func:`read_table` reads them, as a data frame of pandas."""
    frame = read_table(path, options, is_training_data=is_training_data)
    for role, name in {"id": options.id, "time": options.time}.items():
        if name is not None:
            frame.check_name(name, role)
    return to_pandas(frame)


def to_pandas(frame: Frame, rows: NDArray[np.int64] | None = None) -> "DataFrame":
    """Return some rows of a table, by default all, as a data frame of pandas."""
    pandas = require("pandas", extra="tables")
    rows = np.arange(len(frame)) if rows is None else rows
    columns = {name: frame.get_original(name, rows) for name in frame.columns}
    return pandas.DataFrame(columns, index=rows)


def _drop_saved_index(cells: Frame, table: Any, options: TableOptions) -> Frame:
    """Return the table without the index of a pandas frame that was saved as columns.

    Row numbers of a table that was sorted by outcome tell the outcome. Where a user names such a
    column, it stays.

    Args:
        cells: the table.
        table: what it was made of, of which Arrow's knows more than names.
        options: what the user says of it.
    """
    try:
        named = table.schema.pandas_metadata["index_columns"]
        saved = {entry for entry in named if isinstance(entry, str)}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        saved = set()  # it has none, or none that can be read
    saved |= set(filter(_SAVED_INDEX_NAME.fullmatch, cells.columns))
    if not saved:
        return cells
    saved &= cells.columns.keys() - list_named_columns(
        options, is_training_data=cells.is_training_data
    )
    if not saved or len(saved) == len(cells.columns):
        return cells
    columns = {name: column for name, column in cells.columns.items() if name not in saved}
    note = (
        f"Saved index of a pandas frame, left out unless named, as by --id or --time: "
        f"{format_names(sorted(saved))}."
    )
    return replace(cells, columns=columns, notes=(*cells.notes, note))


def _read_csv(path: Path | InMemoryFile, options: TableOptions) -> Frame:
    names = [options.id, options.group, *(options.long or ())[:1]]
    if options.time_format is not None:
        names.append(options.time)
    if options.task == CLASSIFICATION:
        names += options.targets
    absent = [text for text in options.na_values or () if parse_number(text) is None]
    return read_csv_table(path, options.delimiter, names, options.decimal, absent)


def _read_parquet(path: Path | InMemoryFile) -> Any:
    parquet = require("pyarrow.parquet", extra="parquet")
    try:  # of the file alone: read_table makes columns of folders that are called a=b
        file = parquet.ParquetFile(path if isinstance(path, Path) else path.open())
        check_unpacked(path, _CELL_BYTES * file.metadata.num_rows * file.metadata.num_columns)
        return file.read()
    except (OSError, ValueError) as error:  # Arrow's own errors inherit these
        raise DataError(f"{path} cannot be read as Parquet ({error}). Write it again.") from error


def _mark_missing(frame: Frame, na_values: Sequence[str]) -> Frame:
    """Return the table without the cells that are said to be missing: texts, or equal numbers."""
    texts = frozenset(na_values)
    numbers = {number for text in texts if (number := parse_number(text)) is not None}

    def is_marker(cell: Any) -> bool:
        if isinstance(cell, str) and cell in texts:
            return True
        return bool(numbers) and not isinstance(cell, bool) and parse_number(cell) in numbers

    columns = dict(frame.columns)
    for name, values in frame.columns.items():
        if values.dtype.kind == "O":
            codes, cells = frame.factorize(name)
            absent = np.array([*map(is_marker, cells), False])[codes]
            held = values.copy()
            held[absent] = None
        elif values.dtype.kind in "iuf" and numbers:
            wanted = np.array(sorted(numbers))
            absent = np.isin(values, wanted.astype(values.dtype) if _is_float(values) else wanted)
            if _is_float(values) or np.abs(values.astype(np.float64)).max() <= MAX_EXACT_INTEGER:
                held = values.astype(values.dtype if _is_float(values) else np.float64)
                held[absent] = math.nan
            else:
                held = to_object_array(values.tolist())
                held[absent] = None
        else:
            continue
        if absent.any():
            columns[name] = held
    return replace(frame, columns=columns)


def _replace_decimal_commas(frame: Frame, options: TableOptions) -> Frame:
    """Return the table with points where numbers have decimal commas.

    Raises:
        DataError: a number has a point.
    """
    names = {options.id, options.group, *(options.long or ())[:1]}
    if options.time_format is not None:
        names.add(options.time)
    columns = dict(frame.columns)
    otherwise = "leave decimal out" if frame.is_training_data else "pass decimal='.' (--decimal)"
    for name, values in frame.columns.items():
        if name in names or values.dtype.kind != "O":
            continue

        def has_point(cell: Any) -> bool:
            return isinstance(cell, str) and "." in cell and parse_number(cell) is not None

        def replace_comma(cell: Any) -> Any:
            is_comma = isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell)
            return cell.replace(",", ".") if is_comma else cell

        codes, cells = frame.factorize(name)
        points = list(map(has_point, cells))
        if any(points):
            row = int(np.argmax(codes == points.index(True)))
            raise DataError(
                f"{frame.describe_value(row, name)}, a number with a point, and "
                "decimals were said to have commas. Remove points between thousands, or "
                f"{otherwise}."
            )
        columns[name] = to_object_array([*map(replace_comma, cells), None])[codes]
    return replace(frame, columns=columns)


def _is_float(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f"


def _make_doubt_notes(frame: Frame, names: Iterable[str]) -> list[str]:
    """Return warnings of what may be a row of cells in place of names, or a missing value.

    Args:
        frame: the table.
        names: of the columns of numbers in which placeholders such as -999 are looked for.
    """
    notes = []
    if frame.is_file and _has_cells_as_names(frame):
        notes.append(
            f"Warning: row 1 is read as names, {format_names(list(frame.columns))}, and looks like "
            "the rows below it. If the file has no row of names, put one before it."
        )
    placeholders = {
        name: number for name in names if (number := find_placeholder(frame.columns[name]))
    }
    if placeholders:
        listed = format_names(
            [f"{number:.0f} in {name!r}" for name, number in placeholders.items()], 12
        )
        number = next(iter(placeholders.values()))
        notes.append(
            f"Warning: far from all other values, and read as numbers: {listed}. If they mean "
            f"missing values, pass na_values=['{number:.0f}'] (--missing={number:.0f})."
        )
    return notes


def _has_cells_as_names(frame: Frame) -> bool:
    """Whether each name of a column could be a cell of it, and they do not count the columns."""
    numbers = [number for name in frame.columns if (number := parse_number(name)) is not None]
    if not numbers or (len(numbers) == len(frame.columns) and set(np.diff(numbers)) <= {1.0}):
        return False
    return all(
        (parses_as_date(name) or name in frame.list_cells(name))
        if values.dtype.kind == "O"
        else parse_number(name) is not None
        for name, values in frame.columns.items()
    )


def find_placeholder(values: NDArray[Any]) -> float | None:
    """Return a number such as -999 if it is further from all others than these are apart."""
    if values.dtype.kind not in "iuf" or not len(values):
        return None
    for end in (float(np.fmin.reduce(values)), float(np.fmax.reduce(values))):
        if end not in _PLACEHOLDERS:
            continue
        others = values[(values != end) & (values == values)].astype(np.float64)
        if others.size and 0 < np.ptp(others) < np.abs(others - end).min():
            return end
    return None
