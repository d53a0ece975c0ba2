"""What a table may be in: a file of one of several formats, or a frame of any library."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tauflow.errors import ArgumentError, DataError
from tauflow.extras import require

from .csv_file import check_there, read_sheet
from .options import COMMA, TableOptions
from .sheet import Sheet, sheet_of

_PARQUET = (".parquet", ".pq")
_SUFFIXES = (".csv", ".tsv", ".txt", ".gz", *_PARQUET)


def is_table_file(path: Path) -> bool:
    """Whether a path is a file, or would be that of a table by its name."""
    return path.is_file() or (path.suffix.lower() in _SUFFIXES and not path.is_dir())


def name_of(path: Path) -> str:
    """Return the name of a file without what tells its format."""
    while path.suffix.lower() in _SUFFIXES:
        path = path.with_suffix("")
    return path.name


def read_table(table: Any, options: TableOptions, *, delimiter: str | None = None) -> Sheet:
    """Return the cells of a table.

    Args:
        table: the path of a file in CSV, plain or compressed by gzip, or Parquet; or a table as
            :func:`tauflow.data.table.sheet.sheet_of` takes it.
        options: what the user says of it.
        delimiter: of the cells of a CSV file, if not that of the options.

    Raises:
        ArgumentError: a delimiter is given for what has none.
        DataNotFoundError, DataError, MissingExtraError: the file is not there, is no such table, or
            needs a library that is not installed.
    """
    is_file = isinstance(table, str | Path)
    is_csv = is_file and Path(table).suffix.lower() not in _PARQUET
    if not is_csv and (delimiter or options.delimiter) != COMMA:
        raise ArgumentError("delimiter is for a CSV file. Leave it out.")
    if is_csv:
        names = (options.id, options.group)
        return read_sheet(Path(table), delimiter or options.delimiter, names)
    return _read_parquet(Path(table)) if is_file else sheet_of(table)


def _read_parquet(path: Path) -> Sheet:
    parquet = require("pyarrow.parquet", extra="parquet")
    check_there(path)
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:  # Arrow's own errors inherit these
        raise DataError(f"{path} cannot be read as Parquet ({error}). Write it again.") from error
    return replace(sheet_of(table), where=str(path))
