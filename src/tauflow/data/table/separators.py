"""Signs in numbers that are text: commas before decimals, and what stands between thousands."""

import re
from collections.abc import Iterable
from typing import Any

DECIMAL_COMMA = re.compile(r"[+\u2212-]?\d*,\d+(?:[eE][+\u2212-]?\d+)?")
_SPACES = "\u0020\u00a0\u2009\u202f'\u2019"  # of any width, and apostrophes
_GROUPED = re.compile(
    r"[+\u2212-]?[1-9]\d{0,2}"
    rf"(?:(?:,\d{{3}})+(?:\.\d*)?|(?:\.\d{{3}})+(?:,\d*)?|(?:[{_SPACES}]\d{{3}})+(?:[.,]\d*)?)"
)
_ONE_COMMA = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
SIMPLE_NUMBER = re.compile(r"[+\u2212-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_HUNDREDS = re.compile(r"[+-]?[1-9]\d\d")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{3,}")
_REMOVE_ADVICE = "Write numbers without signs between thousands: 1250."


def has_thousands_separators(cell: Any) -> bool:
    """Whether a cell is text such as 1,250 or 1.250,5, in which signs may divide thousands."""
    return isinstance(cell, str) and _GROUPED.fullmatch(cell) is not None


def get_thousands_advice(cell: Any, cells: Iterable[Any]) -> str:
    """Return what to do about a number in which signs divide thousands; nothing if none seem to.

    Args:
        cell: what is no number as it is written.
        cells: the different ones of its column: a comma in another one that is before decimals
            says that this one is, too.
    """
    if not has_thousands_separators(cell):
        return ""
    if _ONE_COMMA.fullmatch(cell) is None:
        return _REMOVE_ADVICE
    written = [one for one in cells if isinstance(one, str)]
    if any(DECIMAL_COMMA.fullmatch(one) and not has_thousands_separators(one) for one in written):
        return ""
    return (
        "Every comma in a number of the column has three digits after it, as between thousands: "
        "write numbers without them, 1250, and decimals with a point."
    )


def find_ambiguous_commas(cells: Iterable[Any]) -> tuple[int, int] | None:
    """Return the places of two cells of a column whose commas may divide thousands, if they may.

    That is so where each comma stands before three digits, while whole numbers of three digits
    have none, and none has more digits: 900 beside 1,050. Decimals such as 0,125, or 36,625 beside
    37, are no such cells.

    Args:
        cells: the different ones of the column.

    Returns:
        The first one with a comma, and the first such whole number.
    """
    texts = list(map(str, cells))
    commas = [place for place, text in enumerate(texts) if "," in text]
    wholes = [place for place, text in enumerate(texts) if _HUNDREDS.fullmatch(text)]
    if not commas or not wholes or any(map(_THOUSANDS.fullmatch, texts)):
        return None
    divided = all(_ONE_COMMA.fullmatch(texts[place]) for place in commas)
    return (commas[0], wholes[0]) if divided else None
