"""What a table may be in: a file of one of several formats, or a frame of any library."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tauflow.errors import ArgumentError, DataError
from tauflow.extras import require

from .csv_file import read_sheet
from .frames import some
from .from_frame import sheet_of
from .missing import with_missing
from .opened import HeldFile, check_there, file_of
from .options import CLASSIFICATION, COMMA, TableOptions
from .sheet import Sheet, as_number
from .tidy import named_columns, tidied

PARQUET = (".parquet", ".pq")
"""How names of files of that format end."""
_NUMBERS_OF_ROWS = re.compile(r"__index_level_\d+__")
_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", *PARQUET)


def is_table_file(path: Path) -> bool:
    """Whether a path is a file, or would be that of a table by its name."""
    return path.is_file() or (path.suffix.lower() in _SUFFIXES and not path.is_dir())


def name_of(path: Path) -> str:
    """Return the name of a file without what tells its format."""
    while path.suffix.lower() in _SUFFIXES:
        path = path.with_suffix("")
    return path.name


def read_table(
    table: Any,
    options: TableOptions,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    variables: Sequence[str] | None = None,
    only: bool = True,
    learning: bool = True,
) -> Sheet:
    """Return the cells of a table, tidied: see :func:`tauflow.data.table.tidy.tidied`.

    Args:
        table: the path of a file in CSV, plain or compressed by gzip, or Parquet; such a file that
            is open; or a table as :func:`tauflow.data.table.from_frame.sheet_of` takes it.
        options: what the user says of it.
        delimiter: of the cells of a CSV file, if not that of the options; what they say of one
            counts for a file to learn from alone, as other tables may be no such files.
        decimal: sign before the decimals of numbers that are text, if not that of the options.
        variables: of a long table those that an earlier one had.
        only: whether others than these are refused.
        learning: whether it is read to learn from, see :class:`tauflow.data.table.sheet.Sheet`.

    Raises:
        ArgumentError: a delimiter is given for what has none.
        UnknownNameError: there is no such decimal sign.
        DataNotFoundError, DataError, MissingExtraError: the file is not there, is no such table, or
            needs a library that is not installed.
    """
    file = file_of(table)
    is_csv = file is not None and not _is_parquet(file)
    asked = delimiter or (options.delimiter if learning else COMMA)
    if not is_csv and asked != COMMA:
        raise ArgumentError("delimiter is for a CSV file. Leave it out.")
    used = (delimiter or options.delimiter) if is_csv else COMMA
    decimal = options.decimal if decimal is None else decimal
    options = replace(options, delimiter=used, decimal=decimal)
    try:
        if file is None:
            sheet = sheet_of(table)
        elif is_csv:
            sheet = _read_csv(file, options)
        else:
            table = _parquet_table(file)
            sheet = replace(sheet_of(table), where=str(file))
    except MemoryError as error:
        raise DataError(
            f"{'the table' if file is None else file} needs more memory than there is. Give a part "
            "of its rows, or fewer columns."
        ) from error
    sheet = replace(sheet, learning=learning)
    sheet = with_missing(_without_saved_index(sheet, table, options), options)
    return tidied(sheet, options, variables, only=only)


def _without_saved_index(sheet: Sheet, table: Any, options: TableOptions) -> Sheet:
    """Return the table without the index of a pandas frame that was saved as columns.

    Row numbers of a table that was sorted by outcome tell the outcome. Where a user names such a
    column, it stays.

    Args:
        sheet: the table.
        table: what it was made of, of which Arrow's knows more than names.
        options: what the user says of it.
    """
    said = getattr(getattr(table, "schema", None), "pandas_metadata", None) or {}
    saved = {one for one in said.get("index_columns", ()) if isinstance(one, str)}
    saved |= set(filter(_NUMBERS_OF_ROWS.fullmatch, sheet.columns))
    saved &= sheet.columns.keys() - named_columns(options, learning=sheet.learning)
    if not saved or len(saved) == len(sheet.columns):
        return sheet
    columns = {name: column for name, column in sheet.columns.items() if name not in saved}
    note = f"Saved index of a pandas frame, left out: {some(sorted(saved))}."
    return replace(sheet, columns=columns, notes=(*sheet.notes, note))


def _is_parquet(file: Path | HeldFile) -> bool:
    if isinstance(file, HeldFile):
        return file.content.startswith(b"PAR1")
    return file.suffix.lower() in PARQUET


def _read_csv(path: Path | HeldFile, options: TableOptions) -> Sheet:
    names = [options.id, options.group, *(options.long or ())[:1]]
    if options.time_format is not None:
        names.append(options.time)
    labels: tuple[str, ...] = ()
    if options.task == CLASSIFICATION:
        names += options.targets
    elif options.task is None and not options.is_forecast:
        labels = options.targets
    absent = [one for one in options.na_values or () if as_number(one) is None]
    return read_sheet(path, options.delimiter, names, labels, options.decimal, absent)


def _parquet_table(path: Path | HeldFile) -> Any:
    parquet = require("pyarrow.parquet", extra="parquet")
    check_there(path)
    try:
        return parquet.read_table(path if isinstance(path, Path) else path.open())
    except (OSError, ValueError) as error:  # Arrow's own errors inherit these
        raise DataError(f"{path} cannot be read as Parquet ({error}). Write it again.") from error
