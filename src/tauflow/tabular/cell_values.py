"""Cells of tables: what they mean, and what arrays of them hold."""

import math
import re
from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import DataError

MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>"})
"""Cells of a file that hold no value."""
_DASHES = ("-", "--", "---", "\u2013", "\u2014")
_WORDS = ("nil", "na", "n/a", "n.a.", "#n/a", "#na", "none", "null", "missing", "unknown", "nat")
LIKELY_MISSING = frozenset({*_DASHES, *_WORDS, "nd", "nan", "<na>", "?", ".", ".."})
"""Text, in lower case, that often means a missing value, and is only read so if a user says it."""
_NAN_WORDS = frozenset({"nan", "+nan", "-nan"})  # in lower case: all that float() reads as NaN
BOOLEAN_TEXTS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
MAX_EXACT_INTEGER = 2**53
"""Whole numbers beyond it are not all numbers of double precision."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_SHOWN_LENGTH = 40
"""How many characters of a cell a message shows."""

DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
GROUPED_NUMBER = re.compile(
    r"[+-]?[1-9]\d{0,2}(?:(?:,\d{3})+(?:\.\d*)?|(?:\.\d{3})+(?:,\d*)?|"
    r"(?:[\u0020\u00a0\u2009\u202f'\u2019]\d{3})+(?:[.,]\d*)?)"
)
"""Text such as 1,250 or 1.250,5, in which signs may divide thousands."""
_SIGNS = "%\u2030$\u20ac\u00a3\u00a5"
UNREAD_NUMBER = re.compile(
    rf"[{_SIGNS}]?[ \u00a0]?[-+\u2212]?(?:\d*[.,]?\d+(?:[eE][-+]?\d+)?|{GROUPED_NUMBER.pattern})"
    rf"[ \u00a0]?[{_SIGNS}]?"
)
"""Text such as 12 %, $5 and those above: numbers alone, with signs that are not read."""
QUANTITY = re.compile(
    rf"(?!\d+[A-Za-z]$)(?:{UNREAD_NUMBER.pattern})(?!\s*(?:st|nd|rd|th)$)\s*"
    r"(?:[A-Za-z\u00b5\u03bc\u00b0%][A-Za-z\u00b5\u03bc\u00b0%0-9/^\u00b2\u00b3 ]*|/\s*\d+)?"
)
"""Numbers with a unit, or as a fraction; not 1a and 2b, which are labels."""
MIN_NUMBER_SHARE = 0.9
"""With at least this part of its cells being numbers, a column is meant to hold numbers."""
SPACING = 1e-9
"""Times that differ by less than this part of a span are the same."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]


def is_text(values: NDArray[Any]) -> bool:
    """Whether objects are text alone, beside missing ones."""
    pandas = require("pandas", extra="tables")
    return bool(pandas.api.types.infer_dtype(values, skipna=True) in ("string", "empty"))


def find_missing(values: NDArray[Any]) -> Bools:
    """Return where an array holds ``None``, NaN or NaT."""
    if values.dtype.kind != "O":
        return np.asarray(values != values)
    pandas = require("pandas", extra="tables")
    return np.asarray(pandas.isna(values))


def unmask(data: Any) -> Any:
    """Return a masked array as one that lacks what is masked, and other things as they are.

    Missing is NaN, NaT or ``None``; whole numbers, which keep their digits, become objects.
    """
    if not isinstance(data, np.ma.MaskedArray):
        return data
    mask, values = np.ma.getmaskarray(data), np.asarray(data.data)
    if not mask.any():
        return values
    if values.dtype.kind in "fmM":
        missing: Any = np.array("NaT", values.dtype) if values.dtype.kind in "mM" else np.nan
        return np.where(mask, missing, values)
    cells = values.astype(object)
    cells[mask] = None
    return cells


def to_array(data: Any) -> NDArray[Any]:
    """Return an array, in which what is masked, ``None``, ``pandas.NA`` or NaT is missing.

    Among numbers it is NaN, among dates and durations NaT, and among other objects ``None``.
    """
    if isinstance(data, list | tuple):  # of whose entries NumPy would take what is below a mask
        data = [None if entry is np.ma.masked else unmask(entry) for entry in data]
    array: NDArray[Any] = np.asarray(unmask(data))
    if array.dtype.kind in "US" and not all(isinstance(entry, str | bytes) for entry in data):
        array = np.array(data, object)  # NumPy makes text of the numbers beside a text
    if array.dtype.kind != "O" or not (missing := find_missing(array)).any():
        return array
    numbers = all(isinstance(cell, Real) for cell in array[~missing].tolist())
    filled = np.full(array.shape, np.nan if numbers else None)
    filled[~missing] = array[~missing]
    return filled


def to_seconds(values: NDArray[Any]) -> Floats:
    """Return numbers as they are, and durations in seconds."""
    second = np.timedelta64(1, "s")
    return (values / second if values.dtype.kind == "m" else values).astype(np.float64)


def to_durations(seconds: Floats, *, dated: bool) -> NDArray[Any]:
    """Return seconds as ``timedelta64``, to the microsecond, or numbers where times are no dates.

    What is not finite, or longer than ``timedelta64`` holds, is NaT.
    """
    if not dated:
        return seconds
    durations = np.full(seconds.shape, np.timedelta64("NaT"), "timedelta64[us]")
    fits = np.abs(seconds) < 2**63 / 1e6
    durations[fits] = np.round(1e6 * seconds[fits]).astype("timedelta64[us]")
    return durations


def compute_slack(latest: float, longest: float) -> float:
    """Return by how much times may differ that are the same, but for rounding.

    Args:
        latest: the largest of them.
        longest: span that is looked at.
    """
    return max(longest * SPACING, 4 * float(np.spacing(latest + longest)))


def factorize(values: NDArray[Any]) -> tuple[Indices, list[Any]]:
    """Return which of its different cells each entry holds, -1 for none, and these, as they occur.

    Objects of different types differ: 1 is neither True nor '1'.
    """
    pandas = require("pandas", extra="tables")
    if values.dtype.kind == "O" and not is_text(values):
        places: dict[Any, int] = {}
        codes, cells = np.full(len(values), -1), list[Any]()
        for row in np.flatnonzero(~find_missing(values)).tolist():
            cell = values[row]
            key = (type(cell), cell if isinstance(cell, Hashable) else id(cell))
            codes[row] = places.setdefault(key, len(cells))
            if len(places) > len(cells):
                cells.append(cell)
        return codes, cells
    codes, different = pandas.factorize(values)
    if values.dtype.kind in "mM":
        return codes, np.asarray(different).astype(str).tolist()
    return codes, np.asarray(different).tolist()


def to_object_array(cells: Sequence[Any]) -> NDArray[Any]:
    """Return an array of any objects."""
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


def to_numbers(codes: Indices, cells: Sequence[Any]) -> tuple[Floats, Bools]:
    """Return cells as numbers, NaN where missing, and which are no numbers, (R,) each.

    They are given as :func:`factorize` returns them.
    """
    numbers = [parse_boolean(cell) for cell in cells]
    if None in numbers:
        numbers = [parse_number(cell) for cell in cells]
    wrong = np.array([*(number is None for number in numbers), False])[codes]
    floats = np.array([*(math.nan if n is None else n for n in numbers), math.nan], np.float64)
    return floats[codes], wrong


def check_no_datetimes(what: str, dtype: Any) -> None:
    """Raise :class:`DataError` if a dtype, of NumPy or pandas, is that of dates or durations.

    As numbers they would depend on what they happen to count, such as nanoseconds.
    """
    if dtype.kind in "mM":
        kind = "dates" if dtype.kind == "M" else "durations"
        raise DataError(
            f"{what} holds {kind} ({dtype}), expected numbers. Divide durations, or dates minus a "
            "first one, by a unit such as numpy.timedelta64(1, 'h'), or leave it out."
        )


def parse_number(value: Any) -> float | None:
    """Return the number in a cell, ``None`` if there is another thing in it."""
    if isinstance(value, str):
        if "_" in value:  # Python's separator of digits, which no file means
            return None
    elif isinstance(value, np.datetime64 | np.timedelta64 | complex):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # the last one of very large integers
        return None


def is_number(value: Any) -> bool:
    """Whether a cell holds a finite number, and no boolean."""
    number = None if isinstance(value, bool) else parse_number(value)
    return number is not None and math.isfinite(number)


def parse_exact_number(value: Any) -> float | int | None:
    """Return the number in a cell, a whole one with all its digits."""
    number = parse_number(value)
    if number is None or not number.is_integer():
        return number
    try:
        return int(value)
    except ValueError:  # of text such as 1e3
        return int(number)


def parse_boolean(value: Any) -> float | None:
    """Return 1 or 0 for a boolean or its word, ``None`` for another thing."""
    if isinstance(value, str):
        return BOOLEAN_TEXTS.get(value)
    return float(value) if isinstance(value, bool) else None


def is_missing_text(text: str) -> bool:
    """Whether a cell of a file means that there is no value."""
    return text in MISSING_TEXTS or text.lower() in _NAN_WORDS
