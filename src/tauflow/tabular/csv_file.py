"""CSV files: pandas parses them, and Python's strict reader names rows that are wrong."""

import csv
import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    factorize,
    is_missing_text,
    to_object_array,
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
    return file.read_frame(decimal, text, [*MISSING_TEXTS, *na_values])


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

    def read_frame(self, decimal: str, text: set[int], na_values: Sequence[str]) -> Frame:
        """Return the table, read once where every line is a row, as nearly all files have it.

        Raises:
            DataError: see :meth:`check_rows`; or pandas cannot read the file.
        """
        if self._is_plain():
            try:
                frame = self._parse(decimal, text, na_values, ())
            except _get_parse_errors():
                pass  # the strict reader says in which row
            else:
                if not self._has_empty_row(frame):
                    return frame
                del frame
        numbers, empty = self.check_rows()
        try:
            frame = self._parse(decimal, text, na_values, empty)
            if len(frame) != len(numbers):
                raise ValueError(f"{len(frame)} of {format_count(len(numbers), 'row')}")
        except _get_parse_errors() as error:
            raise DataError(
                f"{self.path} cannot be read as CSV ({error}). Write it again."
            ) from error
        return replace(frame, row_numbers=numbers)

    def _parse(
        self, decimal: str, text: set[int], na_values: Sequence[str], empty: Sequence[int]
    ) -> Frame:
        """Return what pandas reads, with text tidied, without records that hold nothing."""
        pandas = require("pandas", extra="tables")
        older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        options = {
            "sep": self.delimiter,
            "header": None,
            "names": range(len(self.header)),
            "skiprows": [*range(self.header_row), *empty] if empty else self.header_row,
            "skip_blank_lines": False,
            "index_col": False,
            "dtype": dict.fromkeys(text, object),
            "keep_default_na": False,
            "na_values": na_values,
            "decimal": decimal,
            **({"float_precision": "round_trip"} if older else {}),  # the default of 3.1
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            warnings.simplefilter("error", pandas.errors.DtypeWarning)
            try:
                read = pandas.read_csv(io.BytesIO(self.content), **options)
                is_uniform = not any(map(_may_have_been_integers, read.items()))
            except pandas.errors.DtypeWarning:
                is_uniform = False
            if not is_uniform:  # of a column whose parts have several types, all of it decides
                read = pandas.read_csv(io.BytesIO(self.content), low_memory=False, **options)
        tidied = {
            name: _tidy(series) for name, (_, series) in zip(self.header, read.items(), strict=True)
        }
        return Frame(
            str(self.path),
            {name: values for name, (values, _) in tidied.items()},
            np.arange(len(read)) + self.header_row + 1,
            is_file=True,
            factorized={name: (values, *of) for name, (values, of) in tidied.items() if of},
        )

    def _is_plain(self) -> bool:
        """Whether each line is a row: nothing is quoted, and all signs between cells are there.

        pandas refuses longer rows than the first, and would fill shorter ones up.
        """
        content, sign, start = self.content, self.delimiter.encode(), 0
        for _ in range(self.header_row):
            start = content.find(b"\n", start) + 1 or len(content)
        # A return without a new line ends a row, too.
        is_returned = b"\r" in content and content.count(b"\r") != content.count(b"\r\n")
        if b'"' in content or is_returned or len(sign) > 1 or start == len(content):
            return False
        each, end = len(self.header) - 1, content.find(b"\n", start) % (len(content) + 1)
        lines = content.count(b"\n", start) + (not content.endswith(b"\n"))
        return content.count(sign, start, end) == each > 0 and (
            content.count(sign, start) == lines * each
        )

    def _has_empty_row(self, frame: Frame) -> bool:
        """Whether a row of a file whose lines are rows has no value."""
        empty = frame.find_missing(self.header[-1])
        for name in self.header[:-1] if empty.any() else ():
            empty &= frame.find_missing(name)
        return bool(empty.any())

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


def _tidy(series: Any) -> tuple[NDArray[Any], tuple[Indices, list[Any]] | None]:
    """Return a column as an array, and of text which of its different cells each row holds.

    Text has no spaces at its ends, and what is missing is ``None``.
    """
    if series.dtype.kind in "iufb":
        return series.to_numpy(), None
    if series.dtype == object:
        codes, cells = factorize(series.to_numpy())
    else:
        codes, different = series.factorize()
        cells = different.tolist()
    places: dict[Any, int] = {}
    of_each = list[int]()
    for cell in cells:
        tidied = cell.strip() if isinstance(cell, str) else cell  # a boolean beside missing values
        is_missing = isinstance(cell, str) and is_missing_text(tidied)
        of_each.append(-1 if is_missing else places.setdefault(tidied, len(places)))
    if series.dtype == object and list(places) == cells:
        return series.to_numpy(), (codes, cells)
    codes = np.array([*of_each, -1])[codes]
    return to_object_array([*places, None])[codes], (codes, list(places))


def _may_have_been_integers(column: tuple[Any, Any]) -> bool:
    """Whether a column, a name and cells, are floating point, and some were larger integers."""
    values = column[1].to_numpy() if column[1].dtype.kind == "f" else np.zeros(1)
    return bool(max(np.fmax.reduce(values), -np.fmin.reduce(values)) >= 2**63)


def _get_parse_errors() -> tuple[type[Exception], ...]:
    pandas = require("pandas", extra="tables")
    return ValueError, OverflowError, pandas.errors.ParserWarning
