"""Targets of numbers with text among them, which would make classes of the numbers."""

import shlex
from typing import Any

import numpy as np

from tauflow.errors import DataError

from .categorical import Categorical
from .separators import DECIMAL_COMMA, SIMPLE_NUMBER, has_thousands_separators
from .table import LIKELY_MISSING, Table

_MIN_NUMBER_SHARE = 0.9
"""With at least this part of its cells being numbers, a column is meant to hold numbers."""


def check_unparsed_numbers(table: Table, column: str) -> None:
    """Raise an error for text in a target whose cells are nearly all numbers.

    Signs alone, such as a question mark, do not count among the cells. Numbers may have signs that
    are not read, such as a decimal comma, or be text beside others that are not.

    Raises:
        DataError: there is such text. The first cell is named.
    """
    rows = np.flatnonzero(~table.find_missing(column))
    cells = Categorical.from_values(table.columns[column][rows].tolist())
    is_text = cells.map_rows(lambda one: isinstance(one, str), np.bool_)
    number = cells.map_rows(lambda one: bool(SIMPLE_NUMBER.fullmatch(str(one))), np.bool_)
    plain = number & (is_text.all() | ~is_text)
    unread = number | cells.map_rows(_is_unparsed_number, np.bool_)
    counted = cells.map_rows(lambda one: any(map(str.isalnum, str(one))), np.bool_)
    if plain.all() or not counted.any() or unread[counted].mean() < _MIN_NUMBER_SHARE:
        return
    place = int(np.argmax(~plain))
    row, text = int(rows[place]), str(cells[place])
    advice = table.get_decimal_advice(row, column) or "Correct it. "
    if text.lower() in LIKELY_MISSING:
        advice = (
            f"If it means a missing value, pass na_values=[{text!r}] "
            f"(--missing={shlex.quote(text)}). "
        )
    raise DataError(
        f"{table.describe_value(row, column)}, which is no number as it is written, and "
        f"{'nearly ' * (not unread.all())}all cells of the target seem to be numbers. "
        f"{advice.strip()} If they are classes, say so: task='classification' (--task)."
    )


def _is_unparsed_number(cell: Any) -> bool:
    """Whether text is a number with signs that are not read."""
    return has_thousands_separators(cell) or bool(
        isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell)
    )
