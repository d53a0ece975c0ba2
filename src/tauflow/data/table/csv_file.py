"""A CSV file as a table in memory."""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .categorical import Column
from .csv_pandas import find_row_lines, has_few_integers, is_exact, read_typed_columns
from .file_content import (
    MAX_LINE_BYTES,
    InMemoryFile,
    check_file_exists,
    open_file,
    read_content,
    read_line,
)
from .from_frame import MANY_COLUMNS, check_unique, strip_texts
from .table import MAX_SHOWN_LENGTH, MISSING_TEXTS, Table

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_UTF8_BOM = b"\xef\xbb\xbf"  # with which UTF-8 may begin


def read_csv_table(
    path: Path | InMemoryFile,
    delimiter: str = ",",
    names: Collection[str | None] = (),
    labels: Collection[str] = (),
    decimal: str = ".",
    na_values: Collection[str] = (),
) -> Table:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count.

    A column of numbers is one of NumPy's, unless one of them may have more digits than double
    precision: then, as all other columns, it is text. What pandas reads are files whose every line
    is plainly a row; Python's own reader, which is strict, reads others or says what is wrong.

    Args:
        path: of the file, or what was read of an open one.
        delimiter: a character; ``"tab"`` or a backslash and a t, as typed in a shell, is a tab.
        names: columns whose cells are names, such as ids: they are text in any case.
        labels: columns whose cells may be names, such as targets: they are text, too, if they hold
            few different whole numbers, so that 01 and 1 can be told apart.
        decimal: sign before the decimals of numbers; numbers with another one are text.
        na_values: texts, no numbers, that mean a missing value, beside the usual ones; a column
            with them need not be text for that.

    Raises:
        ArgumentError: the delimiter is not a single character.
        DataNotFoundError: there is no such file.
        DataError: the file is no such table.
        MissingExtraError: pandas is not installed.
    """
    delimiter = _NAMED_DELIMITERS.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise ArgumentError(
            f"delimiter must be a single character, or 'tab', got {delimiter!r}. Leave it out for "
            "a comma."
        )
    pandas = require("pandas", extra="tables")
    check_file_exists(path)
    with open_file(path) as stream:
        start = len(_UTF8_BOM) if stream.read(len(_UTF8_BOM)) == _UTF8_BOM else 0
        header, number = _read_header(stream, start, delimiter)
        start = stream.tell()
        is_wide = len(header) > MANY_COLUMNS  # of which a frame of pandas takes seconds to make
        rows = None if is_wide else find_row_lines(stream, len(header), delimiter)
        if rows is not None and any(header):
            _check_header(path, header, delimiter)
            # Where commas are both, those in quotation may be neither: cells are needed as written.
            both = delimiter == decimal
            text = [place for place, name in enumerate(header) if both or name in names]
            maybe = [place for place, name in enumerate(header) if name in labels]
            stream.seek(start)
            signs = (delimiter, decimal)
            columns = read_typed_columns(
                pandas, stream, len(header), signs, text, maybe, len(rows), na_values
            )
            if columns is not None:
                rows += number

                def written(row: int, column: str) -> str:
                    return _parse_line(read_line(path, int(rows[row])), delimiter)[
                        header.index(column)
                    ]

                typed = dict(zip(header, columns, strict=True))
                return Table(str(path), typed, rows, original_text=written, untyped=True)
        stream.seek(0)
        content = read_content(path, stream).removeprefix(_UTF8_BOM)
    table, cells = _read_with_csv_module(path, content, delimiter)
    absent = MISSING_TEXTS.union(na_values)

    def parse(name: str, texts: Sequence[str]) -> Column:
        known = [None if one in absent else one for one in texts]
        if name in names or decimal != ".":  # decimal commas are read later, in columns of text
            return strip_texts(known)
        found = _parse_numbers(known)
        return strip_texts(known) if name in labels and has_few_integers(found) else found

    return replace(table, columns={name: parse(name, texts) for name, texts in cells})


def _read_header(stream: IO[bytes], start: int, delimiter: str) -> tuple[list[str], int]:
    """Return the cells of the first line that is not empty, and its number; read on behind it."""
    stream.seek(start)
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), start=1):
        if line.strip():
            return _parse_line(line, delimiter), number
    return [], 0


def _parse_line(line: bytes, delimiter: str) -> list[str]:
    try:
        (cells,) = csv.reader([line.decode()], delimiter=delimiter, strict=True)
    except (csv.Error, TypeError, ValueError):  # of several lines, perhaps
        return []
    return [cell.strip() for cell in cells]


def _parse_numbers(cells: Sequence[str | None]) -> Column:
    """Return cells as numbers, NaN for ``None``, if double precision holds all their digits."""
    text = "".join(cell for cell in cells if cell is not None)
    if "_" in text or not text.isascii():  # which Python reads as parts of numbers
        return strip_texts(cells)
    try:
        if None not in cells and not any(sign in text for sign in ".eE"):
            return np.array(cells, np.int64)
    except (OverflowError, ValueError):
        pass
    try:
        numbers = np.array(["nan" if one is None else one for one in cells], np.float64)
    except ValueError:
        return strip_texts(cells)
    return numbers if is_exact(numbers) else strip_texts(cells)


def _read_with_csv_module(
    path: Path | InMemoryFile, content: bytes, delimiter: str
) -> tuple[Table, Iterator[tuple[str, Sequence[str]]]]:
    """Return a table without columns, and the name and cells of each; refuse what is no table."""
    try:
        lines = list(io.StringIO(content.decode(), newline=""))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}). Save it as CSV UTF-8.") from error
    rows, firsts = _parse_rows(path, lines, delimiter)
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(row)]
    if not filled:
        what = "holds empty cells and lines alone" if content else "is empty"
        raise DataError(
            f"{path} {what}. Its first row has to name the columns, and the others to hold samples."
        )
    if len(filled) < 2:
        raise DataError(f"{path} holds no rows below the row of column names. Add some.")
    header = filled[0][1]
    _check_header(path, header, delimiter)
    for number, row in filled[1:]:
        if len(row) != len(header):
            names = header if len(header) < 12 else [*header[:3], "...", header[-1]]
            raise DataError(
                f"{path}, row {number} has {format_count(len(row), 'cell')}, but there are "
                f"{format_count(len(header), 'column')} "
                f"({', '.join(names)}). Correct the row; a text that holds {delimiter!r} needs "
                "quotation marks."
            )
        _check_quotes(path, number, lines[firsts[number - 1] : firsts[number]], header, delimiter)
    numbers = np.array([number for number, _ in filled[1:]], np.int64)

    def written(row: int, column: str) -> str:
        number = int(numbers[row])
        cells = next(csv.reader(lines[firsts[number - 1] : firsts[number]], delimiter=delimiter))
        return cells[header.index(column)].strip()

    cells = zip(header, zip(*(row for _, row in filled[1:]), strict=True), strict=True)
    return Table(str(path), {}, numbers, original_text=written, untyped=True), cells


def _parse_rows(
    path: Path | InMemoryFile, lines: Sequence[str], delimiter: str
) -> tuple[list[list[str]], list[int]]:
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
    path: Path | InMemoryFile,
    number: int,
    lines: Sequence[str],
    header: Sequence[str],
    delimiter: str,
) -> None:
    """Refuse a row of several lines that would be as many whole rows if no mark were a quotation.

    Two stray quotation marks, such as those of inches, otherwise swallow all rows between them.
    """
    if len(lines) < 2 or len(header) < 2:
        return
    if all(line.count(delimiter) == len(header) - 1 for line in lines):
        raise DataError(
            f"{path}, row {number} holds {format_count(len(lines), 'line')}, each with as many "
            "cells as there are "
            "columns: a quotation mark that is none seems to have swallowed rows. Remove it, or "
            f"the line breaks within the quotation: {lines[0].strip()[:MAX_SHOWN_LENGTH]!r}"
        )


def _check_header(path: Path | InMemoryFile, header: Sequence[str], delimiter: str) -> None:
    if len(header) == 1:
        other = next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)
        if other is not None:
            raise DataError(
                f"{path} has the single column {header[0][:MAX_SHOWN_LENGTH]!r}: its cells seem to "
                f"be separated by {other!r}. Pass delimiter={other!r} (--delimiter {other!r})."
            )
    if "" in header:
        raise DataError(
            f"{path}, row 1: column {header.index('') + 1} has no name. Give it one, or remove it."
        )
    check_unique(f"{path}, row 1", header)
