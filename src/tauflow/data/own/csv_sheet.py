"""A CSV file as a table in memory."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tauflow.errors import ArgumentError, DataError, DataNotFoundError
from tauflow.registry import nearest

from .sheet import SHOWN, Sheet, check_unique

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}


def read_sheet(path: Path, delimiter: str = ",") -> Sheet:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count.

    Args:
        path: of the file.
        delimiter: a character; ``"tab"`` or a backslash and a t, as typed in a shell, is a tab.

    Raises:
        ArgumentError: the delimiter is not a single character.
        DataNotFoundError: there is no such file.
        DataError: the file is no such table.
    """
    delimiter = _NAMED_DELIMITERS.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise ArgumentError(
            f"delimiter must be a single character, or 'tab', got {delimiter!r}. Leave it out for "
            "a comma."
        )
    lines = _lines(path)
    rows, firsts = _rows(path, lines, delimiter)
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(row)]
    if len(filled) < 2:
        raise DataError(f"{path} holds no rows below the row of column names. Add some.")
    header = filled[0][1]
    _check_header(path, header, delimiter)
    for number, row in filled[1:]:
        if len(row) != len(header):
            raise DataError(
                f"{path}, row {number} has {len(row)} cells, but there are {len(header)} columns "
                f"({_listed(header)}). Correct the row; a text that holds {delimiter!r} needs "
                "quotation marks."
            )
        _check_quotes(path, number, lines[firsts[number - 1] : firsts[number]], header, delimiter)
    columns = {}
    for place, name in enumerate(header):
        columns[name] = np.empty(len(filled) - 1, object)
        columns[name][:] = [row[place] for _, row in filled[1:]]
    numbers = np.array([number for number, _ in filled[1:]], np.int64)
    return Sheet(str(path), columns, numbers)


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(file)
    except (FileNotFoundError, IsADirectoryError) as error:
        beside = path.parent.glob(f"*{path.suffix}") if path.parent.is_dir() else ()
        hint = nearest(path.name, [other.name for other in beside if other.is_file()])
        raise DataNotFoundError(f"there is no file {path}.{hint} Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}). Save it as CSV UTF-8.") from error


def _rows(path: Path, lines: Sequence[str], delimiter: str) -> tuple[list[list[str]], list[int]]:
    """Return the cells of every row, and the line in which each begins; one more for the end."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    firsts = [0]
    try:
        for row in reader:
            rows.append([cell.strip() for cell in row])
            firsts.append(reader.line_num)
    except csv.Error as error:
        raise DataError(
            f"{path}, row {len(rows) + 1} is not CSV ({error}). If a cell of it begins with a "
            "quotation mark, end it with one, and write one within it twice."
        ) from error
    return rows, firsts


def _check_quotes(
    path: Path, number: int, lines: Sequence[str], header: Sequence[str], delimiter: str
) -> None:
    """Refuse a row of several lines that would be as many whole rows if no mark were a quotation.

    Two stray quotation marks, such as those of inches, otherwise swallow all rows between them.
    """
    if len(lines) < 2 or len(header) < 2:
        return
    if all(line.count(delimiter) == len(header) - 1 for line in lines):
        raise DataError(
            f"{path}, row {number} holds {len(lines)} lines, each with as many cells as there are "
            "columns: a quotation mark that is none seems to have swallowed rows. Remove it, or "
            f"the line breaks within the quotation: {lines[0].strip()[:SHOWN]!r}"
        )


def _check_header(path: Path, header: Sequence[str], delimiter: str) -> None:
    if len(header) == 1:
        other = next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)
        if other is not None:
            raise DataError(
                f"{path} has the single column {header[0][:SHOWN]!r}: its cells seem to be "
                f"separated by {other!r}. Pass delimiter={other!r} (--delimiter {other!r})."
            )
    if "" in header:
        raise DataError(
            f"{path}, row 1: column {header.index('') + 1} has no name. Give it one, or remove it."
        )
    check_unique(f"{path}, row 1", header)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) < 12 else [*names[:3], "...", names[-1]])
