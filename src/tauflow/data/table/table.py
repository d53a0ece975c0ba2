"""A table in memory: columns of cells, and where each cell stands for a message."""

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import find_control_character
from tauflow.errors import ArgumentError, DataError, UnknownNameError

from .categorical import Categorical, Column, to_object_array

MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>"})
"""Text cells that hold no value."""
_DASHES = ("-", "--", "---", "\u2013", "\u2014")
_WORDS = ("nil", "na", "n/a", "n.a.", "#n/a", "#na", "none", "null", "missing", "unknown", "nat")
LIKELY_MISSING = frozenset({*_DASHES, *_WORDS, "?", ".", ".."})
"""Text, in lower case, that often means a missing value, and is only read so if a user says it."""
_NAN_WORDS = frozenset({"nan", "+nan", "-nan"})  # in lower case: all that float() reads as NaN
BOOLEAN_TEXTS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
MAX_EXACT_INTEGER = 2**53
"""Whole numbers beyond it are not all numbers of double precision."""
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_INTEGER_CLASSES = 20
"""Whole numbers with at most so many values are classes, unless the task is given."""
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

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """Columns of cells, in which text is without spaces at its ends.

    Args:
        where: what to call the table in a message.
        columns: one per name, all as long: arrays of numbers, booleans, dates or durations, or
            objects, among them text.
        row_numbers: how a message counts each row.
        row_number_suffix: what to add to the number of a row, so that a reader finds it.
        original_text: returns what stands in a cell of a file, 1.50 and not 1.5, by the number of
            the row and the column.
        variables: of a long table, which are columns now.
        untyped: whether every cell was text, as in a CSV file, so that a number may be written so.
        categorical: columns that say of themselves that they hold categories, which codes are too.
        time_zones: of columns of ``datetime64``, which is in UTC then, the time zone that they are
            in.
        is_training_data: whether it is read to learn from: targets, groups and parts are needed,
            and who gave it can pass options, such as ``sort``, that a message advises.
        merged_count: how many rows, or values of a long table, were merged into others of the same
            time.
        notes: what a reader must know of how the cells were read.
        index_names: names of the index of a data frame, which is not read.
    """

    where: str
    columns: Mapping[str, Column]
    row_numbers: Indices
    row_number_suffix: str = ""
    original_text: Callable[[int, str], str] | None = None
    variables: tuple[str, ...] = ()
    untyped: bool = False
    categorical: frozenset[str] = frozenset()
    time_zones: Mapping[str, str] = field(default_factory=dict)
    is_training_data: bool = True
    merged_count: int = 0
    notes: tuple[str, ...] = ()
    index_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.row_numbers)

    def check_name(self, column: str, role: str) -> str:
        """Return a column's name.

        Raises:
            ArgumentError: it is no text, as the names of columns are.
            UnknownNameError: there is no such column.
        """
        if not isinstance(column, str):
            raise ArgumentError(
                f"the column of the {role} must be named by text, got {column!r} "
                f"({type(column).__name__}). A column that is called {column!r} is "
                f"{str(column)!r} here."
            )
        if column not in self.columns:
            names = (repr(name) if "," in name else name for name in self.columns)
            hint = suggest_name(column, self.columns)
            if column in self.index_names:
                hint = " It is the index of the frame, which is not read: pass table.reset_index()."
            raise UnknownNameError(
                f"{self.where} has no column {column!r} ({role}).{hint} Its columns: "
                f"{', '.join(names)}."
            )
        return column

    def describe_row(self, row: int) -> str:
        """Return the words for a row whose column, or another cell, is named beside it."""
        return f"row {self.row_numbers[row]}"

    def describe_cell(self, row: int, column: str) -> str:
        """Return the words for a cell."""
        return f"{self.where}, {self.describe_row(row)}{self.row_number_suffix}, column {column!r}"

    def format_value(self, row: int, column: str) -> str:
        """Return what is in a cell, as it was written."""
        if self.original_text:
            return self.original_text(int(self.row_numbers[row]), column)
        zone = " UTC" if column in self.time_zones else ""
        return str(self.columns[column][row]) + zone

    def get_original(self, column: str, rows: Indices) -> Any:
        """Return the cells of some rows as the table has them: dates in their time zone."""
        cells = np.asarray(self.columns[column][rows])
        if column not in self.time_zones:
            return cells
        pandas = require("pandas", extra="tables")
        return pandas.DatetimeIndex(cells).tz_localize("UTC").tz_convert(self.time_zones[column])

    def describe_value(self, row: int, column: str) -> str:
        """Return the words for a cell and what is in it."""
        shown = self.format_value(row, column)[:MAX_SHOWN_LENGTH]
        return f"{self.describe_cell(row, column)} holds {shown!r}"

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell holds no value; text is text where cells have types."""
        return is_missing(cell) and (not isinstance(cell, str) or self.untyped or not cell)

    def find_missing(self, column: str) -> Bools:
        """Return where a column has no value, (R,)."""
        values = self.columns[column]
        absent: Bools
        if isinstance(values, Categorical):
            absent = values.map_rows(self.is_missing, np.bool_)
        elif values.dtype.kind in "fmM":
            absent = np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
        else:
            absent = np.zeros(len(values), np.bool_)
        return absent

    def describe_dtypes(self) -> dict[str, str]:
        """Return what each column holds, by its type alone."""
        names = {"b": "booleans", "M": "dates", "m": "durations", "f": "numbers"}
        return {
            name: "categories"
            if name in self.categorical
            else "text"
            if isinstance(column, Categorical)
            else names.get(column.dtype.kind, "whole numbers")
            for name, column in self.columns.items()
        }

    def check_filled(self, column: str, what: str, advice: str, error: type[Exception]) -> None:
        """Raise ``error``, which names the first row without a value, if there is one."""
        missing = self.find_missing(column)
        if missing.any():
            row = int(np.argmax(missing))
            cell = self.columns[column][row]
            if self.original_text:
                cell = self.original_text(int(self.row_numbers[row]), column)
            held = "is empty"
            if isinstance(cell, str) and cell.strip():
                held = f"holds {cell[:MAX_SHOWN_LENGTH]!r}, which is read as missing"
            raise error(f"{self.describe_cell(row, column)} {held}, expected {what}. {advice}")

    def numbers(self, column: str) -> Floats:
        """Return a column as numbers, NaN where it has no value, (R,).

        Booleans are numbers in a column of nothing else: TRUE among measurements is a mistake.

        Raises:
            DataError: a cell is not a finite number of single precision, or the column holds dates
                or durations.
        """
        values = self.columns[column]
        check_no_datetimes(f"{self.where}, column {column!r}", values.dtype)
        if isinstance(values, Categorical):
            found = self._read_numbers(column, values)
        else:
            found = values.astype(np.float64, copy=False)
        large = np.abs(found) > _MAX_FLOAT32
        if large.any():
            raise self._not_a_number_error(int(np.argmax(large)), column)
        return found

    def _read_numbers(self, column: str, values: Categorical) -> Floats:
        values = values.remove_unused_categories()
        absent = values.map_categories(self.is_missing)
        truths = values.map_categories(parse_boolean)
        if any(one is None and not gone for one, gone in zip(truths, absent, strict=True)):
            truths = values.map_categories(parse_number)
        found = to_object_array(
            [math.nan if gone else x for gone, x in zip(absent, truths, strict=True)]
        )
        wrong = np.array([one is None for one in found.tolist()], np.bool_)
        if wrong.any():
            raise self._not_a_number_error(int(np.argmax(wrong[values.codes])), column)
        numbers: Floats = found.astype(np.float64)[values.codes]
        return numbers

    def check_no_containers(self, column: str) -> None:
        """Raise :class:`DataError` if a cell of a column holds several values, such as a list."""
        values = self.columns[column]
        for code, cell in enumerate(values.categories if isinstance(values, Categorical) else ()):
            try:
                hash(cell)
            except TypeError as error:
                assert isinstance(values, Categorical)
                row = int(np.argmax(values.codes == code))
                raise DataError(
                    f"{self.describe_value(row, column)} ({type(cell).__name__}), expected one "
                    "value. Make a column of each value, or leave the column out."
                ) from error

    def texts(self, column: str) -> Categorical:
        """Return a column as text; what a cell without a value gives is undefined.

        Raises:
            DataError: a cell holds a control character: names are drawn and printed.
        """
        values = self.columns[column]
        if isinstance(values, Categorical):
            plain = all(type(cell) is str for cell in values.categories)
            texts = (values if plain else values.map_values(str)).remove_unused_categories()
        else:
            texts = Categorical.from_formatted(values)
        for code, text in enumerate(texts.categories):
            if character := find_control_character(text):
                raise DataError(
                    f"{self.describe_cell(int(np.argmax(texts.codes == code)), column)} holds "
                    f"{text[:MAX_SHOWN_LENGTH]!r}, with the control character {character!r}. "
                    "Remove it: ids and classes are names."
                )
        return texts

    def get_decimal_advice(self, row: int, column: str) -> str:
        """Return what to do about a number with signs that are not read."""
        value = self.columns[column][row]
        if not isinstance(value, str) or not UNREAD_NUMBER.fullmatch(value):
            return ""
        if not any(form.fullmatch(value) for form in (DECIMAL_COMMA, GROUPED_NUMBER)):
            return "Write the number alone, without signs such as % or $, and a minus as '-'."
        # A file is read with this option also to predict.
        is_passed = "," in value and (self.is_training_data or self.untyped)
        passed = " Or pass decimal=',' (--decimal)." * is_passed
        return f"Write numbers without signs between thousands, and decimals with a point.{passed}"

    def format_option_advice(self, option: str) -> str:
        """Return the words for another way out, an option, where one can be passed."""
        return f", or pass {option}" if self.is_training_data else ""

    def get_number_advice(self, value: Any, row: int, column: str) -> str:
        """Return what to do about text that may mean a missing value, or a number."""
        is_word = isinstance(value, str) and (value.lower() in LIKELY_MISSING or is_missing(value))
        if is_word and self.is_training_data:
            return (
                f"If {value!r} means a missing value, pass na_values=[{value!r}] "
                f"(--missing={shlex.quote(value)}), or leave the column out."
            )
        return self.get_decimal_advice(row, column)

    def _not_a_number_error(self, row: int, column: str) -> DataError:
        value = self.columns[column][row]
        advice = self.get_number_advice(value, row, column)
        expected = "a finite number"
        number = parse_number(value)
        if number is not None and math.isfinite(number):
            expected += f" up to {_MAX_FLOAT32:.2g}, the largest in single precision"
            advice = "Divide the column by a number; if it means a missing value, leave it empty."
        advice = advice or (
            "Write text as numbers, or leave the column out; an empty cell is a missing value. "
            "Texts are categories if none of the column reads as a number."
        )
        return DataError(f"{self.describe_value(row, column)}, expected {expected}. {advice}")


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
        if "_" in value:  # Python's own separator of digits, and nobody else's
            return None
    elif isinstance(value, np.datetime64 | np.timedelta64 | complex):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # the last one of very large integers
        return None


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


def is_missing(value: Any) -> bool:
    """Whether a cell holds no value."""
    if isinstance(value, str):
        return value in MISSING_TEXTS or value.lower() in _NAN_WORDS
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    number = parse_number(value)  # not only of a float: a Decimal may be NaN too
    return number is not None and math.isnan(number)
