"""CSV files: pandas parses them, and Python's strict reader names rows that are wrong."""

import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .cell_values import (
    MAX_SHOWN_LENGTH,
    MISSING_TEXTS,
    Indices,
    is_missing_text,
    map_cells,
)
from .file_content import InMemoryFile, read_content
from .frame import Frame
from .from_frame import check_unique

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_UTF8_BOM = b"\xef\xbb\xbf"


def read_csv_table(
    path: Path | InMemoryFile,
    delimiter: str = ",",
    names: Collection[str | None] = (),
    decimal: str = ".",
    na_values: Collection[str] = (),
) -> Frame:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count. pandas
    decides what a column holds.

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
    text = {place for place, name in enumerate(header) if name in names or delimiter == decimal}
    columns, numbers = file.read_columns(decimal, text, [*MISSING_TEXTS, *na_values])
    return Frame(str(path), dict(zip(header, columns, strict=True)), numbers, is_file=True)


@dataclass
class _CsvReader:
    """The content of a CSV file.

    Args:
        path: of the file, for messages.
        delimiter: between cells.
        content: its bytes.
        header: names of the columns, once they are read.
        header_row: the row that they stand in, counted from 1.
    """

    path: Path | InMemoryFile
    delimiter: str
    content: bytes
    header: list[str] = field(default_factory=list)
    header_row: int = 0

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
            DataError: no name is given, or a name is empty.
            ArgumentError: two are equal.
        """
        filled = (row for row in enumerate(self.parse_rows(), start=1) if any(row[1]))
        self.header_row, header = next(filled, (0, []))
        if not header:
            what = "holds empty cells and lines alone" if self.content else "is empty"
            raise DataError(
                f"{self.path} {what}. Its first row has to name the columns, and the others to "
                "hold samples."
            )
        if len(header) == 1:
            self._check_delimiter(header[0], next(filled, (0, [""]))[1][0])
        if "" in header:
            advice = "Give it one, or remove it; if the row is a title, remove the row."
            if "" not in header[1:]:  # as pandas writes the index of a frame
                advice = (
                    "Give it one, or remove it: in pandas, to_csv(..., index_label='time') if the "
                    "index holds times or ids, and index=False if it numbers the rows."
                )
            raise DataError(
                f"{self.path}, row {self.header_row}: column {header.index('') + 1} has no name. "
                f"{advice}"
            )
        check_unique(f"{self.path}, row {self.header_row}", header)
        self.header = header
        return header

    def _check_delimiter(self, name: str, below: str) -> None:
        """Raise :class:`DataError` if a single column seems to be several."""
        other = next((sign for sign in ";\t|," if sign != self.delimiter and sign in name), None)
        words = name.split()
        if other is None and not len(words) == len(below.split()) > 1:
            return
        signs, advice = repr(other), f"Pass delimiter={other!r} (--delimiter {other!r})."
        if other is None:
            signs = "spaces"
            advice = "Pass pandas.read_csv(..., sep=r'\\s+') to from_table, or write commas."
        raise DataError(
            f"{self.path} has the single column {name[:MAX_SHOWN_LENGTH]!r}: its cells seem to be "
            f"separated by {signs}. {advice}"
        )

    def read_columns(
        self, decimal: str, text: set[int], na_values: Sequence[str]
    ) -> tuple[list[NDArray[Any]], Indices]:
        """Return columns and the number of each row.

        pandas fills short rows up and cuts long ones off, so that rows that may not be plain are
        checked here.

        Raises:
            DataError: see :meth:`check_rows`; or pandas cannot read the file.
        """
        pandas = require("pandas", extra="tables")
        skipped: list[int] = []
        numbers = np.arange(self._count_plain_rows()) + self.header_row + 1
        if not len(numbers):
            numbers, skipped = self.check_rows()
        older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                frame = pandas.read_csv(
                    io.BytesIO(self.content),
                    sep=self.delimiter,
                    header=None,
                    names=range(len(self.header)),
                    skiprows=[*range(self.header_row), *skipped],
                    skip_blank_lines=False,
                    index_col=False,
                    dtype=dict.fromkeys(text, object),
                    keep_default_na=False,
                    na_values=na_values,
                    decimal=decimal,
                    low_memory=False,
                    **({"float_precision": "round_trip"} if older else {}),  # the default of 3.1
                )
            if len(frame) != len(numbers):
                raise ValueError(f"{len(frame)} of {format_count(len(numbers), 'row')}")
        except (ValueError, OverflowError, pandas.errors.ParserWarning) as error:
            self.check_rows()
            raise DataError(
                f"{self.path} cannot be read as CSV ({error}). Write it again."
            ) from error
        columns = []
        for _, series in frame.items():
            values = series.to_numpy()
            columns.append(values if values.dtype.kind in "iufb" else map_cells(values, _tidy))
        return columns, numbers

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
            DataError: there are no rows, one of them has another number of cells, or a quotation
                mark that opens no text seems to have swallowed rows.
        """
        header, filled, empty = self.header, list[int](), list[int]()
        for number, row in enumerate(self.parse_rows(), start=1):
            if number <= self.header_row:
                continue
            if not any(row):
                empty.append(number - 1)
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
            filled.append(number)
        if not filled:
            raise DataError(f"{self.path} holds no rows below the row of column names. Add some.")
        return np.array(filled), empty

    def _check_quotes(self, number: int, row: Sequence[str]) -> None:
        """Raise an error if a row of several lines would be as many rows without its quotations.

        Two stray quotation marks, such as those of inches, otherwise swallow all rows between them.
        """
        lines = self.delimiter.join(row).splitlines()
        counts = {line.count(self.delimiter) for line in lines}
        if len(lines) > 1 and len(row) > 1 and counts == {len(row) - 1}:
            raise DataError(
                f"{self.path}, row {number} holds {format_count(len(lines), 'line')}, each with as "
                "many cells as there are columns: a stray quotation mark seems to have "
                "swallowed rows. Remove it, or the line breaks within the quotation: "
                f"{lines[0].strip()[:MAX_SHOWN_LENGTH]!r}"
            )


def _tidy(cell: Any) -> Any:
    """Return text without spaces at its ends, ``None`` of what is missing."""
    if not isinstance(cell, str):
        return cell  # a boolean beside missing values
    return None if is_missing_text(cell := cell.strip()) else cell
