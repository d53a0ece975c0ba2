"""Columns of numbers with text among them, such as targets that would become classes."""

import math

import numpy as np

from tauflow.errors import DataError

from .categorical import Categorical
from .table import DECIMAL_COMMA, GROUPED_NUMBER, Table, parse_number

_MIN_NUMBER_SHARE = 0.9
"""With at least this part of its cells being numbers, a column is meant to hold numbers."""
_UNREAD = (DECIMAL_COMMA, GROUPED_NUMBER)
"""Numbers with signs that are not read."""


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
        lambda one: _is_number(one) or any(p.fullmatch(str(one)) for p in _UNREAD), np.bool_
    )
    return bool(counted.any() and seem[counted].mean() >= _MIN_NUMBER_SHARE)


def check_unparsed_numbers(table: Table, column: str) -> None:
    """Raise an error for text in a target whose cells are nearly all numbers.

    Numbers that are text beside others that are not count as text.

    Raises:
        DataError: there is such text. The first cell is named.
    """
    rows = np.flatnonzero(~table.find_missing(column))
    cells = Categorical.from_values(table.columns[column][rows].tolist())
    is_text = cells.map_rows(lambda one: isinstance(one, str), np.bool_)
    plain = cells.map_rows(_is_number, np.bool_) & (is_text.all() | ~is_text)
    if plain.all() or not is_mostly_numbers(table, column):
        return
    place = int(np.argmax(~plain))
    row = int(rows[place])
    advice = table.get_number_advice(cells[place], row, column) or "Correct it."
    raise DataError(
        f"{table.describe_value(row, column)}, which is no number as it is written, and "
        "nearly all cells of the target seem to be numbers. "
        f"{advice} If they are classes, say so: task='classification' (--task)."
    )


def _is_number(cell: object) -> bool:
    number = None if isinstance(cell, bool) else parse_number(cell)
    return number is not None and math.isfinite(number)
