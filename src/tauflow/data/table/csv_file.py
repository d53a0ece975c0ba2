"""CSV files: pandas parses them, and Python's strict reader names rows that are wrong."""

import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .categorical import Categorical, Column
from .file_content import InMemoryFile, read_content
from .from_frame import MANY_COLUMNS, check_unique
from .table import (
    MAX_EXACT_INTEGER,
    MAX_SHOWN_LENGTH,
    MISSING_TEXTS,
    Indices,
    Table,
)

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_UTF8_BOM = b"\xef\xbb\xbf"
_CHUNK_ROWS = 1 << 16


def read_csv_table(
    path: Path | InMemoryFile,
    delimiter: str = ",",
    names: Collection[str | None] = (),
    decimal: str = ".",
    na_values: Collection[str] = (),
) -> Table:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count. pandas
    decides what a column holds; one whose numbers may have more digits than double precision is
    text.

    Args:
        path: of the file, or the content of an open one.
        delimiter: a character; ``"tab"`` or a backslash and a t, as typed in a shell, is a tab.
        names: columns to be read as text, such as ids, so that 01 and 1 differ.
        decimal: sign before the decimals of numbers; numbers with another one are text.
        na_values: texts, no numbers, that mean a missing value, beside the usual ones.

    Raises:
        ArgumentError: the delimiter is not a single character.
        DataNotFoundError: there is no such file.
        DataError: the file is no such table.
        MissingExtraError: pandas is not installed.
    """
    delimiter = _NAMED_DELIMITERS.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ArgumentError(
            f"delimiter must be a single character, or 'tab', got {delimiter!r}. Leave it out for "
            "a comma."
        )
    require("pandas", extra="tables")
    file = _CsvReader(path, delimiter, read_content(path).removeprefix(_UTF8_BOM))
    header = file.read_header()
    text = {place for place, one in enumerate(header) if one in names or delimiter == decimal}
    columns, numbers = file.read_columns(decimal, text, [*MISSING_TEXTS, *na_values])

    def read_original(number: int, column: str) -> str:
        original = _CsvReader(path, delimiter, read_content(path))
        return next(islice(original.parse_rows(), number - 1, None))[header.index(column)]

    by_name = dict(zip(header, columns, strict=True))
    return Table(str(path), by_name, numbers, original_text=read_original, untyped=True)


class _CsvReader:
    """The content of a CSV file.

    Args:
        path: of the file, for messages.
        delimiter: between cells.
        content: its bytes.
    """

    def __init__(self, path: Path | InMemoryFile, delimiter: str, content: bytes) -> None:
        self.path, self.content, self.delimiter = path, content, delimiter
        self.header: list[str] = []
        self.header_row = 0

    def parse_rows(self) -> Iterator[list[str]]:
        """Yield the cells of each record.

        Raises:
            DataError: the content is no text, or no CSV.
        """
        row = 0
        lines = io.TextIOWrapper(io.BytesIO(self.content), "utf-8", newline="")
        try:
            records = csv.reader(lines, delimiter=self.delimiter, strict=True)
            for row, cells in enumerate(records, start=1):  # noqa: B007
                yield [cell.strip() for cell in cells]
        except UnicodeDecodeError:
            self._check_encoding()
            raise
        except csv.Error as error:
            raise DataError(
                f"{self.path}, row {row + 1} is not CSV ({error}). If a cell of it begins with a "
                "quotation mark, end it with one, and write one within it twice."
            ) from error

    def _check_encoding(self) -> None:
        """Raise :class:`DataError`, which names the first line that is not in UTF-8."""
        try:
            self.content.decode()
        except UnicodeDecodeError as error:
            before, rest = self.content[: error.start], self.content[error.start :]
            row = before.count(b"\n") + 1
            line = (before.rpartition(b"\n")[2] + rest.partition(b"\n")[0]).decode("latin-1")
            raise DataError(
                f"{self.path} is not text in UTF-8: line {row} holds the byte {rest[0]:#04x}; in "
                f"Latin-1 it is {line[:MAX_SHOWN_LENGTH].strip()!r}. Save the file as CSV UTF-8, "
                "or pass pandas.read_csv(..., encoding='latin-1') to from_table."
            ) from error

    def read_header(self) -> list[str]:
        """Return the names of the columns, and remember in which row they are.

        Raises:
            DataError: there are none, or one of them is empty.
            ArgumentError: two are equal.
        """
        filled = (found for found in enumerate(self.parse_rows(), start=1) if any(found[1]))
        self.header_row, header = next(filled, (0, []))
        if not header:
            what = "holds empty cells and lines alone" if self.content else "is empty"
            raise DataError(
                f"{self.path} {what}. Its first row has to name the columns, and the others to "
                "hold samples."
            )
        if len(header) == 1:
            signs = (sign for sign in ";\t|," if sign != self.delimiter and sign in header[0])
            if other := next(signs, None):
                raise DataError(
                    f"{self.path} has the single column {header[0][:MAX_SHOWN_LENGTH]!r}: its "
                    f"cells seem to be separated by {other!r}. Pass delimiter={other!r} "
                    f"(--delimiter {other!r})."
                )
            words, below = header[0].split(), next(filled, (0, [""]))[1][0].split()
            if len(words) == len(below) > 1:
                raise DataError(
                    f"{self.path} has the single column {header[0][:MAX_SHOWN_LENGTH]!r}: its "
                    "cells seem to be separated by spaces. Pass pandas.read_csv(..., sep=r'\\s+') "
                    "to from_table, or separate them by commas."
                )
        if "" in header:
            advice = "Give it one, or remove it; if the row is a title, remove the row."
            if "" not in header[1:]:  # as pandas writes the index of a frame
                advice = "Give it one, or remove it: in pandas, to_csv(..., index=False)."
            raise DataError(
                f"{self.path}, row {self.header_row}: column {header.index('') + 1} has no name. "
                f"{advice}"
            )
        check_unique(f"{self.path}, row {self.header_row}", header)
        self.header = header
        return header

    def read_columns(
        self, decimal: str, text: set[int], na_values: Sequence[str]
    ) -> tuple[list[Column], Indices]:
        """Return columns and the number of each row.

        pandas fills short rows up and cuts long ones off, so that rows that may not be plain are
        checked here.

        Raises:
            DataError: see :meth:`check_rows`; or pandas cannot read the file.
        """
        if len(self.header) > MANY_COLUMNS:
            return self._read_wide(decimal, text, na_values)
        pandas = require("pandas", extra="tables")
        skipped: list[int] = []
        numbers = np.arange(self._count_plain_rows()) + self.header_row + 1
        if not len(numbers):
            numbers, skipped = self.check_rows()
        rows = len(numbers)
        options: dict[str, Any] = {"decimal": decimal, "na_values": na_values}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                found = self._parse(pandas, rows, skipped, text, **options)
                again = {place for place, one in found.items() if one is None}
                if again:
                    found |= self._parse(
                        pandas, rows, skipped, again, usecols=sorted(again), **options
                    )
        except (ValueError, OverflowError, pandas.errors.ParserWarning) as error:
            self.check_rows()
            raise DataError(
                f"{self.path} cannot be read as CSV ({error}). Write it again."
            ) from error
        return [column for _, column in sorted(found.items()) if column is not None], numbers

    def _parse(
        self,
        pandas: Any,
        rows: int,
        skipped: Sequence[int],
        text: Collection[int],
        *,
        usecols: Sequence[int] | None = None,
        **options: Any,
    ) -> dict[int, Column | None]:
        """Return columns, by default all; see :meth:`_ColumnBuilder.build`.

        In chunks, as pandas needs several times the memory of what it returns.
        """
        older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        wanted = range(len(self.header)) if usecols is None else usecols
        columns = {place: _ColumnBuilder(rows) for place in wanted}
        with pandas.read_csv(
            io.BytesIO(self.content),
            sep=self.delimiter,
            header=None,
            names=range(len(self.header)),
            usecols=usecols,
            skiprows=[*range(self.header_row), *skipped],
            skip_blank_lines=False,
            index_col=False,
            dtype=dict.fromkeys(text, object),
            keep_default_na=False,
            chunksize=_CHUNK_ROWS,
            low_memory=False,
            **({"float_precision": "round_trip"} if older else {}),  # the default of 3.1
            **options,
        ) as chunks:
            for chunk in chunks:
                for place, series in chunk.items():
                    columns[place].append(pandas, series)
        return {place: column.build() for place, column in columns.items()}

    def _count_plain_rows(self) -> int:
        """Return the number of rows if each line is one, with as many cells as expected; else 0."""
        start = 0
        for _ in range(self.header_row):
            start = self.content.find(b"\n", start) + 1
        sign = self.delimiter.encode()
        empty = rb"\n[\s%b]*(\n|\Z)" % re.escape(sign)
        if not start or start == len(self.content) or b'"' in self.content or len(sign) > 1:
            return 0
        returns = self.content.count(b"\r")  # which end rows, too
        if returns and returns != self.content.count(b"\r\n"):
            return 0
        tail = self.content[-3:]
        spaces = tail[len(tail.rstrip()) :]
        if spaces not in (b"", b"\n", b"\r\n"):
            return 0
        end = len(self.content) - len(spaces)
        if re.compile(empty).search(self.content, start - 1, end):
            return 0
        lines = self.content.count(b"\n", start) + (not self.content.endswith(b"\n"))
        cells = self.content.count(sign, start) + lines
        return lines if cells == lines * len(self.header) else 0

    def check_rows(self) -> tuple[Indices, list[int]]:
        """Return the number of each row, and which records hold nothing, counted from 0.

        Raises:
            DataError: see :meth:`iter_checked_rows`.
        """
        rows = [(number, bool(row)) for number, row in self.iter_checked_rows()]
        empty = [number - 1 for number, is_filled in rows if not is_filled]
        return np.array([number for number, is_filled in rows if is_filled]), empty

    def iter_checked_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of each row below the names, none of an empty one.

        Raises:
            DataError: there are no rows, one of them has another number of cells, or a quotation
                mark that is none seems to have swallowed rows.
        """
        header, is_empty = self.header, True
        for number, row in enumerate(self.parse_rows(), start=1):
            if number <= self.header_row:
                continue
            if not any(row):
                yield number, []
                continue
            if len(row) != len(header):
                names = header if len(header) < 12 else [*header[:3], "...", header[-1]]
                raise DataError(
                    f"{self.path}, row {number} has {format_count(len(row), 'cell')}, but there "
                    f"{'is' if len(header) == 1 else 'are'} {format_count(len(header), 'column')} "
                    f"({', '.join(names)}). Correct the row; a text that holds {self.delimiter!r} "
                    "needs quotation marks. Remove titles and remarks above the names and between "
                    "rows."
                )
            self._check_quotes(number, row)
            is_empty = False
            yield number, row
        if is_empty:
            raise DataError(f"{self.path} holds no rows below the row of column names. Add some.")

    def _check_quotes(self, number: int, row: Sequence[str]) -> None:
        """Raise an error if a row of several lines would be as many rows without its quotations.

        Two stray quotation marks, such as those of inches, otherwise swallow all rows between them.
        """
        lines = self.delimiter.join(row).splitlines()
        counts = {line.count(self.delimiter) for line in lines}
        if len(lines) > 1 and len(row) > 1 and counts == {len(row) - 1}:
            raise DataError(
                f"{self.path}, row {number} holds {format_count(len(lines), 'line')}, each with as "
                "many cells as there are columns: a quotation mark that is none seems to have "
                "swallowed rows. Remove it, or the line breaks within the quotation: "
                f"{lines[0].strip()[:MAX_SHOWN_LENGTH]!r}"
            )

    def _read_wide(
        self, decimal: str, text: set[int], na_values: Sequence[str]
    ) -> tuple[list[Column], Indices]:
        """Return columns and numbers of rows; of 100,000 columns ten times faster than pandas."""
        numbers, rows = zip(*((n, row) for n, row in self.iter_checked_rows() if row), strict=True)
        columns: list[Column] = []
        for place, cells in enumerate(zip(*rows, strict=True)):
            known = [None if cell in na_values else cell for cell in cells]
            is_text = place in text or decimal != "."
            typed = None if is_text else _parse_numbers(known)
            columns.append(Categorical.from_values(known) if typed is None else typed)
        return columns, np.array(numbers)


class _ColumnBuilder:
    """A column that comes in chunks.

    They are copied into one array at once: memory of many small ones would not go back to the
    system.

    Args:
        rows: of the whole column.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.count = rows, 0
        self.numbers: NDArray[Any] | None = None
        self.codes: Indices | None = None
        self.places: dict[Any, int] = {}

    def append(self, pandas: Any, series: Any) -> None:
        """Take the next chunk."""
        part = slice(self.count, self.count + len(series))
        self.count = part.stop
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iuf":
            dtype = series.dtype
            if self.numbers is None:
                self.numbers = np.empty(self.rows, dtype)
            self.numbers = self.numbers.astype(np.result_type(self.numbers, dtype), copy=False)
            self.numbers[part] = series
            return
        if self.codes is None:
            self.codes = np.full(self.rows, -1)
        codes, cells = pandas.factorize(series)
        texts = [one.strip() if isinstance(one, str) else one for one in cells]
        places = [self.places.setdefault(one, len(self.places)) for one in texts]
        self.codes[part] = np.array([*places, -1])[codes]

    def build(self) -> Column | None:
        """Return the column, with ``None`` for missing text.

        There is none if cells may not be what is written: of several kinds, or of too many digits.

        Raises:
            ValueError: chunks are missing.
        """
        if self.count != self.rows:
            raise ValueError(f"{self.count} of {format_count(self.rows, 'row')} could be read")
        if self.codes is None:
            assert self.numbers is not None
            whole = self.numbers.dtype.kind != "f"
            exact = whole or not (np.abs(self.numbers) >= MAX_EXACT_INTEGER).any()
            return self.numbers if exact else None
        absent = self.codes < 0
        if self.numbers is not None and not np.isnan(self.numbers[absent]).all():
            return None
        if not all(isinstance(one, str) for one in self.places):
            return None
        return Categorical(list(self.places), self.codes).set_value(None, absent)


def _parse_numbers(cells: Sequence[str | None]) -> NDArray[Any] | None:
    """Return cells as numbers, NaN for ``None``, if double precision holds all their digits."""
    text = "".join(cell for cell in cells if cell is not None)
    if "_" in text or not text.isascii():  # which Python reads as parts of numbers
        return None
    try:
        if None not in cells and not any(sign in text for sign in ".eE"):
            return np.array(cells, np.int64)
    except (OverflowError, ValueError):
        pass
    try:
        numbers = np.array(["nan" if one is None else one for one in cells], np.float64)
    except ValueError:
        return None
    return None if (np.abs(numbers) >= MAX_EXACT_INTEGER).any() else numbers
