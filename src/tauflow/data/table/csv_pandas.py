"""The quick way to read a CSV file: one whose every line is plainly a row, by pandas."""

import csv
from collections.abc import Collection, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .categorical import Categorical, Column
from .file_content import MAX_LINE_BYTES
from .from_frame import select_number_columns
from .table import MAX_EXACT_INTEGER, MAX_INTEGER_CLASSES, MISSING_TEXTS, Indices

_USUAL_DELIMITERS = ",;\t|: "
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_BLOCK_BYTES = 1 << 20  # bytes looked at together
_CHUNK_ROWS = 1 << 15  # rows parsed together


def find_row_lines(stream: IO[bytes], width: int, delimiter: str) -> Indices | None:
    """Return which lines after the header are rows, from 1, if every other one is empty.

    ``None`` if a reader might take the lines for other rows.

    Args:
        stream: of the file, after the header.
        width: how many columns there are.
        delimiter: between cells.
    """
    if delimiter not in _USUAL_DELIMITERS or width < 2:
        return None
    numbers, lines = [np.zeros(0, np.int64)], 1
    for block in _iter_blocks(stream):
        odd = b"\0" in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n"))
        counts = None if odd or not _is_text(block) else _count_delimiters(block, delimiter)
        if counts is None:
            return None
        is_row = counts == width - 1
        if not is_row.all():
            texts = block.split(b"\n")
            if any(texts[place].strip() for place in np.flatnonzero(~is_row).tolist()):
                return None
        numbers.append(np.flatnonzero(is_row) + lines)
        lines += len(counts)
    rows = np.concatenate(numbers)
    return rows if rows.size else None


def _iter_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time."""
    rest: list[bytes] = []
    while block := stream.read(_BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, block[:end]])
            rest = []
        rest.append(block[end:])
        if sum(map(len, rest)) > MAX_LINE_BYTES:
            break  # which is no row
    if any(rest):
        yield b"".join([*rest, b"\n"])


def _is_text(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _count_delimiters(block: bytes, delimiter: str) -> Indices | None:
    """Return how many delimiters each line of a block has outside of quotations.

    ``None`` if a line is longer than Python's own reader takes cells, or a quotation mark neither
    begins nor ends a cell of the line, nor stands twice within it.
    """
    signs = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(signs == _NEWLINE)
    if np.diff(ends, prepend=-1).max() > csv.field_size_limit():
        return None
    places, marks = np.flatnonzero(signs == ord(delimiter)), np.flatnonzero(signs == _QUOTE)
    if marks.size:
        beside = np.concatenate([[_NEWLINE], signs, [_NEWLINE]])
        before, after = beside[marks[::2]], beside[marks[1::2] + 2]
        plain = np.isin(before, (_NEWLINE, _QUOTE, ord(delimiter))).all()
        plain &= np.isin(after, (_NEWLINE, _RETURN, _QUOTE, ord(delimiter))).all()
        if not plain or (np.searchsorted(marks, ends) % 2).any():
            return None
        places = places[np.searchsorted(marks, places) % 2 == 0]
    return np.diff(np.searchsorted(places, ends), prepend=0)


def read_typed_columns(
    pandas: Any,
    stream: IO[bytes],
    width: int,
    signs: tuple[str, str],
    text: Collection[int],
    labels: Collection[int],
    rows: int,
    na_values: Collection[str] = (),
) -> list[Column] | None:
    """Return the columns of rows; ``None`` if a row has no value, or is none for pandas.

    Args:
        pandas: the library.
        stream: of the file, where its rows begin.
        width: how many columns there are.
        signs: between cells, and before decimals.
        text: columns to be read as text in any case.
        labels: columns to be read as text if they hold few different whole numbers.
        rows: how many there are.
        na_values: cells without a value, beside the usual ones.
    """
    start = stream.tell()

    def parsed(text: Collection[int], only: Collection[int]) -> dict[int, Column | None]:
        stream.seek(start)
        return _read_columns(pandas, stream, width, signs, text, rows, na_values, only)

    try:
        found = parsed(text, range(width))
        again = {place for place, column in found.items() if column is None}
        again |= {place for place in labels if has_few_integers(found[place])}
        found |= parsed(again, sorted(again)) if again - set(text) else {}
    except (ValueError, OverflowError):
        return None
    columns = [column for column in found.values() if column is not None]
    if len(columns) < width:
        return None
    empty: NDArray[np.bool_] | None = None
    for column in columns:
        if isinstance(column, Categorical):
            gone = column.map_rows(lambda cell: cell is None, np.bool_)
        else:
            gone = np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, np.bool_)
        empty = gone if empty is None or not gone.size else empty & gone
        if not empty.any():
            return columns
    return None


def _read_columns(
    pandas: Any,
    stream: IO[bytes],
    width: int,
    signs: tuple[str, str],
    text: Collection[int],
    rows: int,
    na_values: Collection[str],
    usecols: Collection[int],
) -> dict[int, Column | None]:
    """Return some columns by place, ``None`` for those that are to be read again as text.

    Raises:
        ValueError: the rows are none for pandas, or more or fewer than there are.
    """
    # From 3.1 on, pandas reads all digits of a number by itself.
    older = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
    growing = {place: _ColumnBuilder(rows) for place in usecols}
    with pandas.read_csv(
        stream,
        sep=signs[0],
        decimal=signs[1],
        header=None,
        names=range(width),
        usecols=usecols,
        index_col=False,
        dtype=dict.fromkeys(text, object),
        na_values=[*MISSING_TEXTS, *na_values],
        keep_default_na=False,
        chunksize=_CHUNK_ROWS,
        low_memory=False,
        **({"float_precision": "round_trip"} if older else {}),
    ) as chunks:
        for chunk in chunks:
            rows -= len(chunk)
            numbers = select_number_columns(chunk)
            for place, column in growing.items():
                cells = numbers.get(place)
                column.add(_to_column(pandas, chunk[place]) if cells is None else cells)
    if rows:
        raise ValueError("fewer rows than lines")
    return {place: column.finish() for place, column in growing.items()}


class _ColumnBuilder:
    """A column that grows in one piece, so that it needs the room of one.

    Args:
        rows: how many it will have.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.count, self.is_certain = rows, 0, True
        self.values: NDArray[Any] | None = None
        self.places: dict[str | None, int] | None = None

    def add(self, cells: Column | None) -> None:
        """Append cells; those of text and of numbers, or ``None``, make the column uncertain."""
        if cells is None or not self.is_certain:
            self.is_certain = False
            return
        if self.values is None:
            self.places = {} if isinstance(cells, Categorical) else None
            kind = np.int32 if isinstance(cells, Categorical) else cells.dtype
            self.values = np.empty(self.rows, kind)
        if isinstance(cells, Categorical) != (self.places is not None):
            self.is_certain = False
            return
        if isinstance(cells, Categorical) and self.places is not None:
            places = self.places
            of_each = [places.setdefault(cell, len(places)) for cell in cells.categories]
            cells = np.array(of_each, np.int32)[cells.codes]
        assert isinstance(cells, np.ndarray)
        wider = np.promote_types(self.values.dtype, cells.dtype)
        if wider != self.values.dtype:
            self.is_certain = is_exact(self.values[: self.count])
            self.values = self.values.astype(wider)
        if wider.kind == "f":
            self.is_certain &= is_exact(cells)
        self.values[self.count : self.count + len(cells)] = cells
        self.count += len(cells)

    def finish(self) -> Column | None:
        """Return the column, ``None`` if it is uncertain what it holds."""
        if not self.is_certain or self.values is None:
            return None
        return self.values if self.places is None else Categorical(list(self.places), self.values)


def has_few_integers(cells: Column | None) -> bool:
    """Whether cells were read as whole numbers, few of which differ; some may be missing."""
    if cells is None or isinstance(cells, Categorical):
        return False
    different = np.unique(cells[~np.isnan(cells)])
    return len(different) <= MAX_INTEGER_CLASSES and bool((different % 1 == 0).all())


def is_exact(numbers: NDArray[Any]) -> bool:
    """Whether double precision holds all digits that numbers may have had."""
    return not (np.abs(numbers) >= MAX_EXACT_INTEGER).any()


def _to_column(pandas: Any, series: Any) -> Column | None:
    """Return cells of text, those that are what is in the file.

    ``None`` of others, which are booleans, very large numbers, or both.
    """
    text = ("string", "empty")
    if isinstance(series.dtype, np.dtype) and pandas.api.types.infer_dtype(series) not in text:
        return None
    codes, different = pandas.factorize(series)
    texts: list[str] = different.tolist()
    found = Categorical(texts, codes).set_value(None, codes < 0)
    bare = [text.strip() for text in texts]
    return found if bare == texts else found.map_values(lambda one: one and one.strip())
