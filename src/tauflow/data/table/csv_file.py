"""A CSV file as a table in memory."""

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError, DataNotFoundError
from tauflow.extras import require
from tauflow.registry import nearest

from .sheet import EXACT, MISSING_WORDS, SHOWN, Indices, Sheet, check_unique, stripped

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_USUAL_DELIMITERS = ",;\t|: "
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 22  # bytes looked at together
_ROWS = 1 << 16  # rows parsed together


def read_sheet(
    path: Path, delimiter: str = ",", names: Collection[str | None] = (), decimal: str = "."
) -> Sheet:
    """Read a CSV file in UTF-8 whose first row names the columns.

    Rows are counted as in a spreadsheet: the row of names is row 1, and empty rows count.

    A column of numbers is one of NumPy's, unless one of them may have more digits than double
    precision: then, as all other columns, it is text. What pandas reads are files whose every line
    is plainly a row; Python's own reader, which is strict, reads others or says what is wrong.

    Args:
        path: of the file.
        delimiter: a character; ``"tab"`` or a backslash and a t, as typed in a shell, is a tab.
        names: columns whose cells are names, such as ids: they are text in any case.
        decimal: sign before the decimals of numbers; numbers with another one are text.

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
    content = _content(path)
    header, start, number = _header(content, delimiter)
    rows = _plain_rows(content, start, len(header), delimiter) if path.is_file() else None
    if rows is not None and any(header):
        _check_header(path, header, delimiter)
        text = [place for place, name in enumerate(header) if name in names]
        columns = _typed(pandas, content, start, len(header), (delimiter, decimal), text)
        if columns is not None and len(columns[0]) == len(rows):
            numbers = rows + number

            def written(row: int, column: str) -> str:
                return _cells(_line(path, int(numbers[row])), delimiter)[header.index(column)]

            typed = dict(zip(header, columns, strict=True))
            return Sheet(str(path), typed, numbers, written=written)
    return _strictly(path, content, delimiter)


def _content(path: Path) -> bytes:
    check_there(path)
    content = path.read_bytes()
    try:
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        content = content.removeprefix(b"\xef\xbb\xbf")
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}). Save it as CSV UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}). Copy it again.") from error
    return content


def _line(path: Path, number: int) -> bytes:
    with path.open("rb") as raw:
        packed = raw.read(len(_GZIP)) == _GZIP
        raw.seek(0)
        lines = gzip.GzipFile(fileobj=raw) if packed else raw
        return next(itertools.islice(lines, number - 1, None))


def check_there(path: Path) -> None:
    """Raise :class:`DataNotFoundError`, which names a file like it, if there is no such file."""
    if not path.exists() or path.is_dir():
        beside = path.parent.glob(f"*{path.suffix}") if path.parent.is_dir() else ()
        hint = nearest(path.name, [other.name for other in beside if other.is_file()])
        raise DataNotFoundError(f"there is no file {path}.{hint} Check the path.")


def _header(content: bytes, delimiter: str) -> tuple[list[str], int, int]:
    """Return the cells of the first line that is not empty, where it ends, and its number."""
    stream = io.BytesIO(content)
    for number, line in enumerate(stream, start=1):
        if line.strip():
            return _cells(line, delimiter), stream.tell(), number
    return [], 0, 0


def _cells(line: bytes, delimiter: str) -> list[str]:
    try:
        (cells,) = csv.reader([line.decode()], delimiter=delimiter, strict=True)
    except (csv.Error, TypeError, ValueError):  # of several lines, perhaps
        return []
    return [cell.strip() for cell in cells]


def _plain_rows(content: bytes, start: int, width: int, delimiter: str) -> Indices | None:
    """Return which lines after the header are rows, from 1, if every other one is empty.

    ``None`` if a reader might take the lines for other rows.
    """
    odd = b"\0" in content or content.count(b"\r") != content.count(b"\r\n")
    if odd or delimiter not in _USUAL_DELIMITERS or width < 2:
        return None
    numbers, lines = [np.zeros(0, np.int64)], 1
    for block in _blocks(content, start):
        ends = np.flatnonzero(block == _NEWLINE)
        if not ends.size or ends[-1] != len(block) - 1:
            ends = np.append(ends, len(block))
        counts = _delimiters(block, ends, ord(delimiter))
        if counts is None:
            return None
        for place in np.flatnonzero(counts != width - 1).tolist():
            begin = ends[place - 1] + 1 if place else 0
            if block[begin : ends[place]].tobytes().strip():
                return None
        numbers.append(np.flatnonzero(counts == width - 1) + lines)
        lines += len(ends)
    rows = np.concatenate(numbers)
    return rows if rows.size else None


def _blocks(content: bytes, start: int) -> Iterator[NDArray[np.uint8]]:
    """Yield whole lines, some megabytes at a time."""
    while start < len(content):
        stop = content.rfind(b"\n", start, start + _BLOCK) + 1
        stop = stop or content.find(b"\n", start + _BLOCK) + 1 or len(content)
        yield np.frombuffer(content, np.uint8, stop - start, start)
        start = stop


def _delimiters(block: NDArray[np.uint8], ends: Indices, delimiter: int) -> Indices | None:
    """Return how many delimiters each line has outside of quotations.

    ``None`` if a line is too long, or a quotation mark neither begins nor ends a cell of the line,
    nor stands twice within it.
    """
    if np.diff(ends, prepend=-1).max() > csv.field_size_limit():
        return None
    places = np.flatnonzero(block == delimiter)
    marks = np.flatnonzero(block == _QUOTE)
    if marks.size:
        beside = np.concatenate([[_NEWLINE], block, [_NEWLINE]])
        before, after = beside[marks[::2]], beside[marks[1::2] + 2]
        plain = np.isin(before, (_NEWLINE, _QUOTE, delimiter)).all()
        plain &= np.isin(after, (_NEWLINE, _RETURN, _QUOTE, delimiter)).all()
        if not plain or (np.searchsorted(marks, ends) % 2).any():
            return None
        places = places[np.searchsorted(marks, places) % 2 == 0]
    return np.diff(np.searchsorted(places, ends), prepend=0)


def _typed(
    pandas: Any,
    content: bytes,
    start: int,
    width: int,
    signs: tuple[str, str],
    text: Collection[int],
) -> list[NDArray[Any]] | None:
    """Return the columns of rows; ``None`` if a row has no value, or is none for pandas.

    Args:
        pandas: the library.
        content: of the file.
        start: where its rows do.
        width: how many columns there are.
        signs: between cells, and before decimals.
        text: columns to be read as objects, which text and missing values are.
    """
    # From 3.1 on, pandas reads all digits of a number by itself.
    older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
    stream = io.BytesIO(content)
    stream.seek(start)
    parts: list[list[NDArray[Any]]] = [[] for _ in range(width)]
    try:
        with pandas.read_csv(
            stream,
            sep=signs[0],
            decimal=signs[1],
            header=None,
            names=range(width),
            index_col=False,
            dtype=dict.fromkeys(text, object),
            na_values=list(MISSING_WORDS),
            keep_default_na=False,
            chunksize=_ROWS,
            low_memory=False,
            **({"float_precision": "round_trip"} if older else {}),
        ) as chunks:
            for chunk in chunks:
                for place, part in enumerate(parts):
                    cells = chunk[place].to_numpy()
                    typed = cells.dtype.kind in "iuf"
                    part.append(cells if typed else stripped(cells.tolist()))
    except (ValueError, OverflowError):
        return None
    columns = [np.concatenate(part) for part in parts]
    again = [
        place
        for place, column in enumerate(columns)
        if place not in text and not _is_certain(pandas, column)
    ]
    if again:
        return _typed(pandas, content, start, width, signs, [*text, *again])
    empty = np.logical_and.reduce([pandas.isna(column) for column in columns])
    return None if empty.any() else columns


def _is_certain(pandas: Any, column: NDArray[Any]) -> bool:
    """Whether a column holds what is in the file: numbers with all their digits, or text."""
    if column.dtype.kind == "O":  # of truth values, very large numbers, or both
        return bool(pandas.api.types.infer_dtype(column) == "string")
    return column.dtype.kind != "f" or not (np.abs(column) >= EXACT).any()


def _strictly(path: Path, content: bytes, delimiter: str) -> Sheet:
    """Read a file of text cells, and refuse what is no table, by row."""
    lines = list(io.StringIO(content.decode(), newline=""))
    rows, firsts = _rows(path, lines, delimiter)
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(row)]
    if len(filled) < 2:
        raise DataError(f"{path} holds no rows below the row of column names. Add some.")
    header = filled[0][1]
    _check_header(path, header, delimiter)
    for number, row in filled[1:]:
        if len(row) != len(header):
            names = header if len(header) < 12 else [*header[:3], "...", header[-1]]
            raise DataError(
                f"{path}, row {number} has {len(row)} cells, but there are {len(header)} columns "
                f"({', '.join(names)}). Correct the row; a text that holds {delimiter!r} needs "
                "quotation marks."
            )
        _check_quotes(path, number, lines[firsts[number - 1] : firsts[number]], header, delimiter)
    cells = [row for _, row in filled[1:]]
    columns = {name: stripped([row[place] for row in cells]) for place, name in enumerate(header)}
    return Sheet(str(path), columns, np.array([number for number, _ in filled[1:]], np.int64))


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
