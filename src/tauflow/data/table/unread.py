"""Targets of numbers with text among them, which would make classes of the numbers."""

import shlex
from typing import Any

import numpy as np

from tauflow.errors import DataError

from .coded import Coded
from .separators import DECIMAL_COMMA, PLAIN, is_grouped
from .sheet import LIKELY_MISSING, Sheet

_MOST = 0.9
"""With at least this part of its cells being numbers, a column is meant to hold numbers."""


def refuse_unread_numbers(sheet: Sheet, column: str) -> None:
    """Raise an error for text in a target whose cells are nearly all numbers.

    Signs alone, such as a question mark, do not count among the cells. Numbers may have signs that
    are not read, such as a decimal comma, or be text beside others that are not.

    Raises:
        DataError: there is such text. The first cell is named.
    """
    rows = np.flatnonzero(~sheet.missing(column))
    cells = Coded.of(sheet.columns[column][rows].tolist())
    is_text = cells.told(lambda one: isinstance(one, str), np.bool_)
    number = cells.told(lambda one: bool(PLAIN.fullmatch(str(one))), np.bool_)
    plain = number & (is_text.all() | ~is_text)
    unread = number | cells.told(_is_unread, np.bool_)
    counted = cells.told(lambda one: any(map(str.isalnum, str(one))), np.bool_)
    if plain.all() or not counted.any() or unread[counted].mean() < _MOST:
        return
    place = int(np.argmax(~plain))
    row, text = int(rows[place]), str(cells[place])
    advice = sheet.decimal_advice(row, column) or "Correct it. "
    if text.lower() in LIKELY_MISSING:
        advice = (
            f"If it means a missing value, pass na_values=[{text!r}] "
            f"(--missing={shlex.quote(text)}). "
        )
    raise DataError(
        f"{sheet.holds(row, column)}, which is no number as it is written, and "
        f"{'nearly ' * (not unread.all())}all cells of the target seem to be numbers. "
        f"{advice.strip()} If they are classes, say so: task='classification' (--task)."
    )


def _is_unread(cell: Any) -> bool:
    """Whether text is a number with signs that are not read."""
    return is_grouped(cell) or bool(isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell))
