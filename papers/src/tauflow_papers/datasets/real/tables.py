"""Read tables of text, and say where a cell is not what it should be."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

ADVICE = "Get the file again."


@dataclass(frozen=True)
class TextTable:
    """Rows of text.

    Args:
        where: name of the file, for messages.
        columns: name of every column.
        rows: cells, as many per row as there are columns.
        first_line: line of the first row in the file, counted from 1.
    """

    where: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    first_line: int

    def cells(self, column: str) -> list[str]:
        """Return one column as text."""
        place = self.columns.index(column)
        return [row[place] for row in self.rows]

    def numbers(self, columns: Sequence[str], *, missing: str | None = None) -> NDArray[np.float64]:
        """Return columns as finite numbers.

        Args:
            columns: their names.
            missing: what stands for a missing value, which becomes NaN.

        Returns:
            Values, (rows, columns).

        Raises:
            DataError: a cell is not a finite number.
        """
        values = np.empty((len(self.rows), len(columns)))
        for place, column in enumerate(columns):
            texts = self.cells(column)
            absent = np.array([text == missing for text in texts])
            try:
                values[:, place] = ["nan" if text == missing else text for text in texts]
                wrong = ~np.isfinite(values[:, place]) & ~absent
            except ValueError:
                wrong = np.array([text != missing and not _is_number(text) for text in texts])
            if wrong.any():
                self._raise_invalid(int(np.argmax(wrong)), column, "a finite number")
        return values

    def integers(self, column: str) -> NDArray[np.int64]:
        """Return a column of integers, exactly.

        Args:
            column: its name.

        Raises:
            DataError: a cell is not a 64-bit integer.
        """
        texts = self.cells(column)
        for row, text in enumerate(texts):
            if not text.removeprefix("-").isdecimal() or abs(int(text)) >= 2**63:
                self._raise_invalid(row, column, "an integer")
        return np.array([int(text) for text in texts], dtype=np.int64)

    def codes(self, column: str, meaning: Mapping[str, int]) -> NDArray[np.int64]:
        """Return a column of names as integers.

        Args:
            column: its name.
            meaning: integer of every name that may occur.

        Raises:
            DataError: a cell holds something else.
        """
        texts = self.cells(column)
        for row, text in enumerate(texts):
            if text not in meaning:
                self._raise_invalid(row, column, "one of " + ", ".join(map(repr, meaning)))
        return np.array([meaning[text] for text in texts], dtype=np.int64)

    def datetimes(self, column: str, time_format: str) -> list[datetime]:
        """Return a column of dates or times.

        Args:
            column: its name.
            time_format: how they are written, in the terms of :meth:`datetime.datetime.strptime`.

        Raises:
            DataError: a cell is not written like that.
        """
        moments = []
        for row, text in enumerate(self.cells(column)):
            try:
                moments.append(datetime.strptime(text, time_format))
            except ValueError:
                self._raise_invalid(row, column, f"a time written as {time_format}")
        return moments

    def _raise_invalid(self, row: int, column: str, expected: str) -> None:
        got = self.rows[row][self.columns.index(column)]
        raise DataError(
            f"{self.where}, line {self.first_line + row}, column {column!r} holds {got[:40]!r}, "
            f"expected {expected}. {ADVICE}"
        )


def parse_table(
    where: str,
    content: bytes,
    columns: Sequence[str],
    *,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
) -> TextTable:
    """Read a table whose rows all have the same fields.

    Args:
        where: name of the file, for messages.
        content: the file, in UTF-8.
        columns: name of every column.
        header: the fields of the first line, or ``None`` if the table begins at once.
        delimiter: between fields; a space stands for any number of them.

    Raises:
        DataError: the text has another header, a row with more or fewer fields, or no row.
    """
    try:
        lines = content.decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not a text file in UTF-8 ({error}). {ADVICE}") from error
    if delimiter == " ":
        rows = [line.split() for line in lines]
    else:
        try:
            rows = list(csv.reader(lines, delimiter=delimiter))
        except csv.Error as error:  # a field that never ends, say, after a stray quotation mark
            raise DataError(f"{where} is not such a table ({error}). {ADVICE}") from error
    first_line = 1
    if header is not None:
        _check_header(where, rows[0] if rows else [], header)
        rows, first_line = rows[1:], 2
    if not rows:
        raise DataError(f"{where} holds no rows. {ADVICE}")
    for number, row in enumerate(rows, start=first_line):
        if len(row) != len(columns):
            names = columns if len(columns) < 12 else [*columns[:3], "...", columns[-1]]
            raise DataError(
                f"{where}, line {number} has {format_count(len(row), 'field')}, expected "
                f"{len(columns)} "
                f"({', '.join(names)}). {ADVICE}"
            )
    return TextTable(where, tuple(columns), rows, first_line)


def parse_matrix(where: str, content: bytes, columns: int) -> NDArray[np.float64]:
    """Read a table of finite numbers with spaces between them, without a data frame.

    Args:
        where: name of the file, for messages.
        content: the file.
        columns: numbers per line.

    Raises:
        DataError: a line has more or fewer fields, a field is no finite number, or no line exists.
    """
    lines = content.decode("utf-8", errors="replace").rstrip().splitlines()
    if not lines:
        raise DataError(f"{where} holds no rows. {ADVICE}")
    values = np.empty((len(lines), columns))
    for row, line in enumerate(lines):
        cells = line.split()
        if len(cells) != columns:
            raise DataError(
                f"{where}, line {row + 1} has {format_count(len(cells), 'field')}, expected "
                f"{columns}. {ADVICE}"
            )
        wrong = next((place for place, cell in enumerate(cells) if not _is_number(cell)), None)
        if wrong is not None:
            raise DataError(
                f"{where}, line {row + 1}, column {wrong + 1} holds {cells[wrong][:40]!r}, "
                f"expected a finite number. {ADVICE}"
            )
        values[row] = cells
    return values


def _check_header(where: str, got: list[str], header: Sequence[str]) -> None:
    if got == list(header):
        return
    absent = [name for name in header if name not in got]
    trouble = f"it lacks {', '.join(absent)}" if absent else "the order differs"
    raise DataError(
        f"{where}, line 1 holds the columns {', '.join(got)[:200] or '(none)'}, expected "
        f"{', '.join(header)[:200]}; {trouble}. {ADVICE}"
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_row_count(where: str, got: int, expected: int) -> None:
    """Raise :class:`DataError` unless a file without a published digest has its known length."""
    if got != expected:
        raise DataError(
            f"{where} has {format_count(got, 'row')}, expected {expected:,}: it is cut "
            f"off or another version. {ADVICE}"
        )
