"""Cells that hold no value: what a user says of them, and what seems to be one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .coded import Coded, Column
from .frames import some
from .options import TableOptions
from .sheet import EXACT, LIKELY_MISSING, Sheet, as_number, is_missing
from .tidy import used_columns


def with_missing(sheet: Sheet, options: TableOptions) -> Sheet:
    """Return the table without what ``na_values`` says is missing, and count text that is.

    Args:
        sheet: the table.
        options: what the user says of it.
    """
    texts = frozenset(options.na_values or ())
    numbers = {number for one in texts if (number := as_number(one)) is not None}

    def is_marker(cell: Any) -> bool:
        if isinstance(cell, str) and cell in texts:
            return True
        return bool(numbers) and not isinstance(cell, bool) and as_number(cell) in numbers

    columns = dict(sheet.columns)
    found = [] if sheet.untyped else _notes(sheet, options, texts)
    for name, column in sheet.columns.items() if texts else ():
        columns[name] = _without(column, is_marker, numbers)
    return replace(sheet, columns=columns, notes=(*sheet.notes, *found))


def _without(column: Column, is_marker: Callable[[Any], bool], numbers: set[float]) -> Column:
    if isinstance(column, Coded):
        if not any(column.each(is_marker)):
            return column
        return column.changed(lambda cell: None if is_marker(cell) else cell)
    if column.dtype.kind not in "iuf" or not numbers:
        return column
    wanted: NDArray[Any] = np.array(sorted(numbers))
    if column.dtype.kind == "f":
        wanted = wanted.astype(column.dtype)
    absent = np.isin(column, wanted)
    if not absent.any():
        return column
    if column.dtype.kind != "f" and int(np.abs(column.astype(np.float64)).max()) > EXACT:
        return Coded.of(column.tolist()).put(None, absent)
    held = column.astype(column.dtype if column.dtype.kind == "f" else np.float64)
    held[absent] = math.nan
    return held


def _notes(sheet: Sheet, options: TableOptions, texts: frozenset[str]) -> list[str]:
    """Say which text cells of a typed table are read as missing: in a file that is known."""
    told = []
    for name in used_columns(sheet, options):
        column = sheet.columns[name]
        if not isinstance(column, Coded):
            continue

        def is_word(cell: Any) -> bool:
            return isinstance(cell, str) and bool(cell) and (cell in texts or is_missing(cell))

        if count := int(column.told(is_word, np.bool_).sum()):
            words = sorted(filter(is_word, column.occurring().different))
            told.append(f"{count} of column {name!r} ({some(words)})")
    if not told:
        return []
    return [f"Cells of text that are read as missing: {some(told, 12)}."]


def likely_missing(sheet: Sheet) -> tuple[str, ...]:
    """Return the texts that seem to mean a missing value, for ``na_values``, sorted.

    They are words such as ``nil`` or ``-`` in columns whose other cells are all numbers, more
    different ones than there are such words.

    Args:
        sheet: a table, read without them.
    """
    found: set[str] = set()
    for column in sheet.columns.values():
        if not isinstance(column, Coded):
            continue
        cells = [cell for cell in column.occurring().different if not is_missing(cell)]
        words = {c for c in cells if isinstance(c, str) and c.lower() in LIKELY_MISSING}
        others = [cell for cell in cells if cell not in words]
        if len(others) > len(words) and None not in map(as_number, others):
            found |= words
    return tuple(sorted(found))
