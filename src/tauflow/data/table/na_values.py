"""Cells that hold no value: what a user says of them, and what seems to be one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .categorical import Categorical, Column
from .options import TableOptions
from .table import LIKELY_MISSING, MAX_EXACT_INTEGER, Table, is_missing, parse_number


def mark_missing(table: Table, options: TableOptions) -> Table:
    """Return the table without what ``na_values`` says is missing.

    Args:
        table: the table.
        options: what the user says of it.
    """
    texts = frozenset(options.na_values or ())
    if not texts:
        return table
    numbers = {number for one in texts if (number := parse_number(one)) is not None}

    def is_marker(cell: Any) -> bool:
        if isinstance(cell, str) and cell in texts:
            return True
        return bool(numbers) and not isinstance(cell, bool) and parse_number(cell) in numbers

    columns = table.columns.items()
    return replace(table, columns={n: _remove_markers(c, is_marker, numbers) for n, c in columns})


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
