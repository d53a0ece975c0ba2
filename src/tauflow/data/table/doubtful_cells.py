"""Cells that may not be what they are read as: numbers that are text, or mean missing values."""

import math
import re
from collections.abc import Iterable

import numpy as np

from tauflow.errors import DataError

from .categorical import Categorical, Column
from .sequences import format_names
from .table import UNREAD_NUMBER, Table, parse_number
from .time_formats import is_date

_MIN_NUMBER_SHARE = 0.9
"""With at least this part of its cells being numbers, a column is meant to hold numbers."""
_QUANTITY = re.compile(
    rf"(?:{UNREAD_NUMBER.pattern})(?!\s*(?:st|nd|rd|th)$)\s*"
    r"(?:[A-Za-z\u00b5\u03bc\u00b0%][A-Za-z\u00b5\u03bc\u00b0%0-9/^\u00b2\u00b3 ]*|/\s*\d+)?"
)
"""Numbers with a unit, or as a fraction."""
_PLACEHOLDERS = tuple(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in (2, 3, 4, 5))
"""Numbers such as -999 that often mean a missing value."""


def make_doubt_notes(table: Table, names: Iterable[str]) -> list[str]:
    """Return warnings of what may be a row of cells in place of names, or a missing value.

    Args:
        table: the table.
        names: of the columns of numbers in which placeholders such as -999 are looked for.
    """
    notes = []
    if table.untyped and _has_cells_as_names(table):
        notes.append(
            f"Warning: row 1 is read as names, {format_names(list(table.columns))}, and looks like "
            "the rows below it. If the file has no row of names, put one before it."
        )
    found = {name: number for name in names if (number := _find_placeholder(table.columns[name]))}
    if found:
        told = format_names([f"{number:.0f} in {name!r}" for name, number in found.items()], 12)
        number = next(iter(found.values()))
        notes.append(
            f"Warning: far from all other values, and read as numbers: {told}. If they mean "
            f"missing values, pass na_values=['{number:.0f}'] (--missing={number:.0f})."
        )
    return notes


def _has_cells_as_names(table: Table) -> bool:
    """Whether each name of a column could be a cell of it, and they do not count the columns."""
    numbers = [number for name in table.columns if (number := parse_number(name)) is not None]
    if not numbers or (len(numbers) == len(table.columns) and set(np.diff(numbers)) <= {1.0}):
        return False
    return all(
        (name in column.categories or is_date(name))
        if isinstance(column, Categorical)
        else parse_number(name) is not None
        for name, column in table.columns.items()
    )


def _find_placeholder(column: Column) -> float | None:
    """Return a number such as -999 if it is further from all others than these are apart."""
    if isinstance(column, Categorical) or column.dtype.kind not in "iuf" or not len(column):
        return None
    ends = (float(np.fmin.reduce(column)), float(np.fmax.reduce(column)))
    for end in ends:
        if end not in _PLACEHOLDERS:
            continue
        others = column[(column != end) & (column == column)].astype(np.float64)
        if others.size and 0 < np.ptp(others) < np.abs(others - end).min():
            return end
    return None


def is_mostly_numbers(table: Table, column: str) -> bool:
    """Whether nearly all cells of a column that are not missing seem to be numbers.

    Signs alone, such as a question mark, do not count among the cells. Numbers may have signs that
    are not read, such as a decimal comma.
    """
    cells = table.columns[column]
    if not isinstance(cells, Categorical):
        return cells.dtype.kind in "biuf"
    cells = cells[~table.find_missing(column)]
    counted = cells.map_rows(lambda one: any(map(str.isalnum, str(one))), np.bool_)
    seem = cells.map_rows(
        lambda one: _is_number(one) or UNREAD_NUMBER.fullmatch(str(one)) is not None, np.bool_
    )
    return bool(counted.any() and seem[counted].mean() >= _MIN_NUMBER_SHARE)


def check_unparsed_numbers(table: Table, column: str) -> None:
    """Raise an error for text in a target some of whose cells are numbers, or most with units.

    Numbers that are text beside others that are not count as text.

    Raises:
        DataError: there is such text. The first cell is named.
    """
    rows = np.flatnonzero(~table.find_missing(column))
    cells = Categorical.from_values(table.columns[column][rows].tolist())
    is_text = cells.map_rows(lambda one: isinstance(one, str), np.bool_)
    plain = cells.map_rows(_is_number, np.bool_) & (is_text.all() | ~is_text)
    measured = cells.map_rows(lambda one: _QUANTITY.fullmatch(str(one)) is not None, np.bool_)
    if plain.all() or not (
        plain.any() or is_mostly_numbers(table, column) or measured.mean() >= _MIN_NUMBER_SHARE
    ):
        return
    place = int(np.argmax(~plain))
    row = int(rows[place])
    advice = table.get_number_advice(cells[place], row, column) or (
        "Write numbers alone, without units, and leave cells without one empty."
    )
    others = "other cells of the target are" if plain.any() else "nearly all cells seem to be"
    raise DataError(
        f"{table.describe_value(row, column)}, which is no number as it is written, and {others} "
        f"numbers. {advice} If they are classes, say so: task='classification' (--task)."
    )


def _is_number(cell: object) -> bool:
    number = None if isinstance(cell, bool) else parse_number(cell)
    return number is not None and math.isfinite(number)
