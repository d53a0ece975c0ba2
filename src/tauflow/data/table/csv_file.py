"""CSV files: read by pandas where every row is plain, else by Python's strict reader."""

import csv
import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .categorical import Categorical, Column
from .file_content import InMemoryFile, check_file_exists, read_content
from .from_frame import MANY_COLUMNS, check_unique, strip_texts
from .table import (
    MAX_EXACT_INTEGER,
    MAX_INTEGER_CLASSES,
    MAX_SHOWN_LENGTH,
    MISSING_TEXTS,
    Indices,
    Table,
)

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_UTF8_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20
_CHUNK_ROWS = 1 << 18


def read_csv_table(
    path: Path | InMemoryFile,
    delimiter: str = ",",
    names: Collection[str | None] = (),
    labels: Collection[str] = (),
    decimal: str = ".",
    na_values: Collection[str] = (),
) -> Table:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count. pandas
    decides what a column holds; one whose numbers may have more digits than double precision is
    text. A file with a row of another length, a cell of several lines, or more than
    :data:`~.from_frame.MANY_COLUMNS` columns is read by Python's strict reader instead, which names
    the row that is wrong.

    Args:
        path: of the file, or the content of an open one.
        delimiter: a character; ``"tab"`` or a backslash and a t, as typed in a shell, is a tab.
        names: columns to be read as text, such as ids, so that 01 and 1 differ.
        labels: columns, such as targets, to be read so if they hold few different whole numbers.
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
    check_file_exists(path)
    content = read_content(path).removeprefix(_UTF8_BOM)
    file = _CsvReader(path, content, delimiter)
    header = file.read_header()
    text = [place for place, one in enumerate(header) if one in names or delimiter == decimal]
    absent = [*MISSING_TEXTS, *na_values]
    maybe = [place for place, one in enumerate(header) if one in labels]
    found = file.read_with_pandas(len(header), decimal, text, maybe, absent)
    columns: list[Column]
    if found is None:
        cells, numbers = file.read_strictly(header)
        columns = []
        for place, column in enumerate(cells):
            known = [None if one in absent else one for one in column]
            # Decimal commas are replaced later, in columns of text.
            typed = None if place in text or decimal != "." else _parse_numbers(known)
            is_text = typed is None or (place in maybe and _has_few_integers(typed))
            columns.append(strip_texts(known) if is_text or typed is None else typed)
    else:
        columns, numbers = found

    def read_original(number: int, column: str) -> str:
        original = _CsvReader(path, read_content(path), delimiter)
        return next(islice(original.parse_rows(), number - 1, None))[header.index(column)]

    by_name = dict(zip(header, columns, strict=True))
    return Table(str(path), by_name, numbers, original_text=read_original, untyped=True)


class _CsvReader:
    """The content of a CSV file.

    Args:
        path: of the file, for messages.
        content: its bytes.
        delimiter: between cells.
    """

    def __init__(self, path: Path | InMemoryFile, content: bytes, delimiter: str) -> None:
        self.path, self.content, self.delimiter = path, content, delimiter
        self.header_row, self.start = 0, 0

    def parse_rows(self) -> Iterator[list[str]]:
        """Yield the cells of each record.

        Raises:
            DataError: the content is no text, or no CSV.
        """
        row = 0
        lines = io.TextIOWrapper(io.BytesIO(self.content), "utf-8", newline="")
        try:
            for row, cells in enumerate(self._parse(lines), start=1):  # noqa: B007
                yield [cell.strip() for cell in cells]
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not text in UTF-8 ({error}). Save it as CSV UTF-8."
            ) from error
        except csv.Error as error:
            raise DataError(
                f"{self.path}, row {row + 1} is not CSV ({error}). If a cell of it begins with a "
                "quotation mark, end it with one, and write one within it twice."
            ) from error

    def _parse(self, lines: Any) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def read_header(self) -> list[str]:
        """Return the names of the columns, and remember where the rows begin.

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
        if "" in header:
            raise DataError(
                f"{self.path}, row {self.header_row}: column {header.index('') + 1} has no name. "
                "Give it one, or remove it."
            )
        check_unique(f"{self.path}, row {self.header_row}", header)
        for _ in range(self.header_row):
            self.start = self.content.find(b"\n", self.start) + 1
        return header

    def read_with_pandas(
        self,
        width: int,
        decimal: str,
        text: Collection[int],
        labels: Collection[int],
        na_values: Sequence[str],
    ) -> tuple[list[Column], Indices] | None:
        """Return columns and the number of each row; ``None`` if a row is not plain.

        pandas fills short rows up, so that the delimiters are counted here.
        """
        pandas = require("pandas", extra="tables")
        is_quoted = b'"' in self.content
        if width > MANY_COLUMNS or not self.start or (is_quoted and not self._is_plain(width)):
            return None

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                read = partial(self._read_typed, pandas, width, decimal, na_values)
                found = read(range(width), {*text, *labels})
                numbers = [n for n in labels if _holds_numbers(found[n])]
                found |= read(numbers, set()) if numbers else {}
                texts = [n for n, one in found.items() if _is_uncertain(pandas, one)]
                found |= read(texts, set(texts)) if texts else {}
        except (ValueError, OverflowError, pandas.errors.ParserWarning):
            return None
        rows = self._number_rows(len(found[0]))
        if not found[0].size or rows is None:
            return None
        if not (is_quoted or self._count_cells(len(rows)) == width * len(rows)):
            return None
        columns = [_to_column(pandas, found.pop(place)) for place in range(width)]
        return None if _has_empty_row(columns) else (columns, rows)

    def _read_typed(
        self,
        pandas: Any,
        width: int,
        decimal: str,
        na_values: Sequence[str],
        places: Sequence[int],
        text: Collection[int],
    ) -> dict[int, Any]:
        """Return some columns as pandas types them, those of ``text`` as objects.

        In chunks, as pandas needs several times the memory of what it returns.
        """
        older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        stream = io.BytesIO(self.content)
        stream.seek(self.start)
        parts: dict[int, list[Any]] = {place: [] for place in places}
        with pandas.read_csv(
            stream,
            sep=self.delimiter,
            decimal=decimal,
            header=None,
            names=range(width),
            usecols=None if len(places) == width else places,
            index_col=False,
            dtype=dict.fromkeys(text, object),
            na_values=na_values,
            keep_default_na=False,
            chunksize=_CHUNK_ROWS,
            low_memory=False,
            **({"float_precision": "round_trip"} if older else {}),  # the default of 3.1
        ) as chunks:
            for chunk in chunks:
                for place, of_column in parts.items():
                    of_column.append(chunk[place])
        return {place: pandas.concat(parts.pop(place), ignore_index=True) for place in places}

    def _count_cells(self, rows: int) -> int:
        """Return how many cells so many rows have in all, none of which is in quotations."""
        content = np.frombuffer(self.content, np.uint8, offset=self.start)
        blocks = (content[n : n + _BLOCK_BYTES] for n in range(0, len(content), _BLOCK_BYTES))
        return rows + sum(int(np.count_nonzero(one == ord(self.delimiter))) for one in blocks)

    def _is_plain(self, width: int) -> bool:
        """Whether each line is one record, with as many cells as there are columns, or none."""
        lines = io.TextIOWrapper(io.BytesIO(self.content), "utf-8", newline="")
        reader, count = self._parse(lines), 0
        try:
            for count, row in enumerate(reader, start=1):
                if reader.line_num != count or (len(row) != width and any(map(str.strip, row))):
                    return False
        except (UnicodeDecodeError, csv.Error):
            return False
        return True

    def _number_rows(self, count: int) -> Indices | None:
        """Return the numbers of the rows if every line is one, or empty."""
        lines = self.content.count(b"\n", self.start) + (not self.content.endswith(b"\n"))
        if lines == count:
            return np.arange(count) + self.header_row + 1
        filled = [bool(line.strip()) for line in self.content[self.start :].splitlines()]
        rows = np.flatnonzero(filled) + self.header_row + 1
        return rows if len(rows) == count else None

    def read_strictly(self, header: Sequence[str]) -> tuple[Iterator[Sequence[str]], Indices]:
        """Return the cells of each column, and the number of each row.

        Raises:
            DataError: there are no rows, one of them has another number of cells, or a quotation
                mark that is none seems to have swallowed rows.
        """
        numbers, rows = [], []
        for number, row in enumerate(self.parse_rows(), start=1):
            if number <= self.header_row or not any(row):
                continue
            if len(row) != len(header):
                names = header if len(header) < 12 else [*header[:3], "...", header[-1]]
                raise DataError(
                    f"{self.path}, row {number} has {format_count(len(row), 'cell')}, but there "
                    f"are {format_count(len(header), 'column')} ({', '.join(names)}). Correct the "
                    f"row; a text that holds {self.delimiter!r} needs quotation marks."
                )
            self._check_quotes(number, row)
            numbers.append(number)
            rows.append(row)
        if not rows:
            raise DataError(f"{self.path} holds no rows below the row of column names. Add some.")
        return zip(*rows, strict=True), np.array(numbers)

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


def _holds_numbers(series: Any) -> bool:
    """Whether text is numbers, other than a few whole ones."""
    cells = series.dropna().unique()
    numbers = _parse_numbers(cells.tolist())
    return numbers is not None and not _has_few_integers(numbers)


def _is_uncertain(pandas: Any, series: Any) -> bool:
    """Whether cells may not be what is written: of several kinds, or of too many digits."""
    if series.dtype.kind == "f":
        return bool((series.abs() >= MAX_EXACT_INTEGER).any())
    is_text = pandas.api.types.infer_dtype(series) in ("string", "empty")
    return series.dtype.kind in "bO" and not is_text


def _has_empty_row(columns: Sequence[Column]) -> bool:
    """Whether a row has no value, which is none then."""
    empty = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if isinstance(column, Categorical):
            empty &= column.map_rows(lambda cell: not cell, np.bool_)
        else:
            empty &= np.isnan(column)
        if not empty.any():
            return False
    return True


def _to_column(pandas: Any, series: Any) -> Column:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return np.asarray(series)
    codes, different = pandas.factorize(series)
    texts: list[str] = different.tolist()
    found = Categorical(texts, codes).set_value(None, codes < 0)
    bare = [text.strip() for text in texts]
    return found if bare == texts else found.map_values(lambda one: one and one.strip())


def _has_few_integers(cells: Any) -> bool:
    """Whether cells were read as whole numbers, few of which differ; some may be missing."""
    if cells.dtype.kind not in "iuf":
        return False
    different = np.unique(np.asarray(cells[~np.isnan(cells)]))
    return len(different) <= MAX_INTEGER_CLASSES and bool((different % 1 == 0).all())


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
