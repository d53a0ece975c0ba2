"""Cells that hold no value: what a user says of them, and what seems to be one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .categorical import Categorical, Column
from .options import TableOptions
from .pivot import list_used_columns
from .sequences import format_names
from .table import LIKELY_MISSING, MAX_EXACT_INTEGER, Table, is_missing, parse_number


def mark_missing(table: Table, options: TableOptions) -> Table:
    """Return the table without what ``na_values`` says is missing, and count text that is.

    Args:
        table: the table.
        options: what the user says of it.
    """
    texts = frozenset(options.na_values or ())
    if table.untyped and not texts:
        return table
    numbers = {number for one in texts if (number := parse_number(one)) is not None}

    def is_marker(cell: Any) -> bool:
        if isinstance(cell, str) and cell in texts:
            return True
        return bool(numbers) and not isinstance(cell, bool) and parse_number(cell) in numbers

    columns = dict(table.columns)
    found = [] if table.untyped else _make_notes(table, options, texts)
    if texts:
        columns = {n: _remove_markers(one, is_marker, numbers) for n, one in columns.items()}
    return replace(table, columns=columns, notes=(*table.notes, *found))


def _remove_markers(
    column: Column, is_marker: Callable[[Any], bool], numbers: set[float]
) -> Column:
    if isinstance(column, Categorical):
        if not any(column.map_categories(is_marker)):
            return column
        return column.map_values(lambda cell: None if is_marker(cell) else cell)
    if column.dtype.kind not in "iuf" or not numbers:
        return column
    wanted: NDArray[Any] = np.array(sorted(numbers))
    if column.dtype.kind == "f":
        wanted = wanted.astype(column.dtype)
    absent = np.isin(column, wanted)
    if not absent.any():
        return column
    if (
        column.dtype.kind != "f"
        and int(np.abs(column.astype(np.float64)).max()) > MAX_EXACT_INTEGER
    ):
        return Categorical.from_values(column.tolist()).set_value(None, absent)
    held = column.astype(column.dtype if column.dtype.kind == "f" else np.float64)
    held[absent] = math.nan
    return held


def _make_notes(table: Table, options: TableOptions, texts: frozenset[str]) -> list[str]:
    """Say which text cells of a typed table are read as missing: in a file that is known."""
    told = []
    for name in list_used_columns(table, options):
        column = table.columns[name]
        if not isinstance(column, Categorical):
            continue

        def is_word(cell: Any) -> bool:
            return isinstance(cell, str) and bool(cell) and (cell in texts or is_missing(cell))

        if count := int(column.map_rows(is_word, np.bool_).sum()):
            words = sorted(filter(is_word, column.remove_unused_categories().categories))
            told.append(f"{count} of column {name!r} ({format_names(words)})")
    if not told:
        return []
    return [f"Cells of text that are read as missing: {format_names(told, 12)}."]


def find_missing_markers(table: Table) -> tuple[str, ...]:
    """Return the texts that seem to mean a missing value, for ``na_values``, sorted.

    They are words such as ``nil`` or ``-`` in columns whose other cells are all numbers, more
    different ones than there are such words.

    Args:
        table: a table, read without them.
    """
    found: set[str] = set()
    for column in table.columns.values():
        if not isinstance(column, Categorical):
            continue
        cells = [
            cell for cell in column.remove_unused_categories().categories if not is_missing(cell)
        ]
        words = {c for c in cells if isinstance(c, str) and c.lower() in LIKELY_MISSING}
        others = [cell for cell in cells if not (isinstance(cell, str) and cell in words)]
        if len(others) > len(words) and None not in map(parse_number, others):
            found |= words
    return tuple(sorted(found))
