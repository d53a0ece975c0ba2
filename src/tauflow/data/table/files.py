"""What a table may be in: a file of one of several formats, or a frame of any library."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError

from .csv_file import read_csv_table
from .doubtful_cells import make_doubt_notes
from .file_content import InMemoryFile, check_unpacked, is_parquet, resolve_file
from .from_frame import MANY_COLUMNS, table_from_frame
from .na_values import mark_missing
from .options import CLASSIFICATION, COMMA, TableOptions
from .pivot import list_named_columns, list_used_columns, pivot_long
from .sequences import format_names
from .table import Table, parse_number

if TYPE_CHECKING:
    from pandas import DataFrame

PARQUET_SUFFIXES = (".parquet", ".pq")
"""How names of files of that format end."""
_CELL_BYTES = 8
_SAVED_INDEX_NAME = re.compile(r"__index_level_\d+__")
_TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", *PARQUET_SUFFIXES)


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
) -> Table:
    """Return the cells of a table, tidied: see :func:`tauflow.data.table.pivot.pivot_long`.

    Args:
        table: the path of a file in CSV, plain or compressed by gzip, or Parquet; such a file that
            is open; or a table as :func:`tauflow.data.table.from_frame.table_from_frame` takes it.
        options: what the user says of it.
        delimiter: of the cells of a CSV file, if not that of the options; what they say of one
            counts for a file to learn from alone, as other tables may be no such files.
        decimal: sign before the decimals of numbers that are text, if not that of the options.
        variables: of a long table those that an earlier one had.
        is_strict: whether others than these are refused.
        is_training_data: whether it is read to learn from, see
            :class:`tauflow.data.table.table.Table`.

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
            sheet = table_from_frame(table)
        elif is_csv:
            sheet = _read_csv(file, options)
        else:
            table = _read_parquet(file)
            sheet = replace(table_from_frame(table), where=str(file))
    except MemoryError as error:
        raise DataError(
            f"{'the table' if file is None else file} needs more memory than there is. Give a part "
            "of its rows, or fewer columns."
        ) from error
    sheet = replace(sheet, is_training_data=is_training_data)
    sheet = mark_missing(_drop_saved_index(sheet, table, options), options)
    sheet = pivot_long(sheet, options, variables, is_strict=is_strict)
    if not is_training_data or len(sheet.columns) > MANY_COLUMNS:
        return sheet
    keys = (options.id, options.time)
    names = [name for name in list_used_columns(sheet, options) if name not in keys]
    return replace(sheet, notes=(*sheet.notes, *make_doubt_notes(sheet, names)))


def read_frame(path: Path, options: TableOptions, *, is_training_data: bool = True) -> "DataFrame":
    """Return the rows of a file, as :func:`read_table` reads them, as a data frame of pandas."""
    sheet = read_table(path, options, is_training_data=is_training_data)
    for role, name in {"id": options.id, "time": options.time}.items():
        if name is not None:
            sheet.check_name(name, role)
    return to_frame(sheet)


def to_frame(sheet: Table, rows: NDArray[np.int64] | None = None) -> "DataFrame":
    """Return some rows of a table, by default all, as a data frame of pandas."""
    pandas = require("pandas", extra="tables")
    rows = np.arange(len(sheet)) if rows is None else rows
    columns = {name: sheet.get_original(name, rows) for name in sheet.columns}
    return pandas.DataFrame(columns, index=rows)


def _drop_saved_index(cells: Table, table: Any, options: TableOptions) -> Table:
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
        saved = {one for one in named if isinstance(one, str)}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        saved = set()  # it has none, or none that can be read
    saved |= set(filter(_SAVED_INDEX_NAME.fullmatch, cells.columns))
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


def _read_csv(path: Path | InMemoryFile, options: TableOptions) -> Table:
    names = [options.id, options.group, *(options.long or ())[:1]]
    if options.time_format is not None:
        names.append(options.time)
    if options.task == CLASSIFICATION:
        names += options.targets
    absent = [one for one in options.na_values or () if parse_number(one) is None]
    return read_csv_table(path, options.delimiter, names, options.decimal, absent)


def _read_parquet(path: Path | InMemoryFile) -> Any:
    parquet = require("pyarrow.parquet", extra="parquet")
    try:  # of the file alone: read_table makes columns of folders that are called a=b
        file = parquet.ParquetFile(path if isinstance(path, Path) else path.open())
        check_unpacked(path, _CELL_BYTES * file.metadata.num_rows * file.metadata.num_columns)
        return file.read()
    except (OSError, ValueError) as error:  # Arrow's own errors inherit these
        raise DataError(f"{path} cannot be read as Parquet ({error}). Write it again.") from error
