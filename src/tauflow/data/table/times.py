"""Times of a table: numbers as they are, dates and durations in a unit."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.registry import suggest_name
from tauflow._internal.time_precision import to_torch_float_dtype
from tauflow.errors import TimeError, UnknownNameError

from .categorical import Categorical, Column, to_object_array
from .table import MAX_EXACT_INTEGER, Floats, Table, parse_exact_number, parse_number
from .time_formats import get_format_advice, has_offset, infer_bare_format, to_dates

DEFAULT_UNIT = "hours"
UNITS = {
    "milliseconds": np.timedelta64(1, "ms"),
    "seconds": np.timedelta64(1, "s"),
    "minutes": np.timedelta64(1, "m"),
    "hours": np.timedelta64(1, "h"),
    "days": np.timedelta64(1, "D"),
    "weeks": np.timedelta64(1, "W"),
}
"""Units that dates can be converted to."""
_UNIT_ABBREVIATIONS = {
    **{"ms": "milliseconds", "s": "seconds", "sec": "seconds", "min": "minutes", "h": "hours"},
    **{"hr": "hours", "d": "days", "w": "weeks"},
    **{name.removesuffix("s"): name for name in UNITS},
}
_EXPECTED = (
    "a number, or a date such as 2024-05-31 or 2024-05-31T14:30:00, with nine decimals at most"
)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_DATE = re.compile(r"\d{1,4}[^\w,]+\w+[^\w,]+\d{1,4}\b.*")
"""What is written like a date, in whatever form."""
_MAX_INT64 = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Times:
    """Times of the rows of a table.

    Args:
        values: of every row, (R,), finite.
        unit: its name.
        dated: whether they were dates or durations, and not numbers.
        dtype: floating-point type that their numbers had to fit into; ``None`` if exact.
    """

    values: Floats
    unit: str
    dated: bool
    dtype: torch.dtype | None = None


def resolve_unit(name: str, what: str = "time_unit") -> str:
    """Return the full name of a unit such as ``"h"`` or ``"hours"``.

    Args:
        name: of the unit.
        what: it is the unit of, for the message.

    Raises:
        UnknownNameError: dates cannot be converted to it.
    """
    low = name.strip().lower()
    full = low if low in UNITS else _UNIT_ABBREVIATIONS.get(low)
    if full is None:
        raise UnknownNameError(
            f"{what}={name!r} is unknown.{suggest_name(name, UNITS)} Dates can be converted to: "
            f"{', '.join(UNITS)}."
        )
    return full


def parse_duration(name: str, text: str) -> np.timedelta64:
    """Return a span of time such as ``"24h"`` or ``"30 minutes"``, to the microsecond.

    Args:
        name: of the argument, for messages.
        text: a number and a unit.

    Raises:
        TimeError: it is no such text.
        UnknownNameError: there is no such unit.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise TimeError(f"{name} holds {text!r}, expected a span of time such as '24h'.")
    unit = UNITS[resolve_unit(found[2], name)] / np.timedelta64(1, "us")
    return np.timedelta64(round(float(found[1]) * unit), "us")


def read_times(
    table: Table, column: str, unit: str | None, *, skip_date_check: bool = False
) -> Times:
    """Return the times of a column.

    Dates are converted to the unit, by default hours, and counted from the earliest. Numbers stay
    as they are, but for whole ones too large for double precision, such as nanoseconds since 1970,
    which are counted from the smallest; for them the unit is a name only, by default the column's.

    Args:
        table: the table.
        column: of the times: numbers, or dates (ISO 8601, ``datetime64``), or durations
            (``timedelta64``). Dates with an offset from UTC are brought to UTC. Dates without
            hyphens, as in 20240531, are refused: nothing tells them from numbers.
        unit: see above.
        skip_date_check: whether numbers are known to be no such dates, as those of an earlier
            table.

    Raises:
        TimeError: a row has no time, what it has is none, or it may be a date and a number alike.
        UnknownNameError: dates cannot be converted to that unit.
    """
    table.check_filled(column, _EXPECTED, "Fill the time in, or remove the row.", TimeError)
    values = table.columns[column]
    if isinstance(values, Categorical) and parse_number(values[0]) is None:
        values = _read_dates(table, column, values)
    if not isinstance(values, Categorical) and values.dtype.kind in "mM":
        name = resolve_unit(unit or DEFAULT_UNIT)
        if int(values.max().astype(np.int64)) - int(values.min().astype(np.int64)) > _MAX_INT64:
            values = values.astype(f"{values.dtype.kind}8[us]")  # nanoseconds would wrap around
        # Counted from the earliest in the dates' own precision: no digit of a gap is lost.
        since: Floats = (values - values.min()) / UNITS[name]
        return Times(since, name, True)
    numbers = _read_numbers(table, column, values)
    form = None if skip_date_check else infer_bare_format(numbers[:1].tolist())
    if form is not None:
        form = infer_bare_format(dict.fromkeys(numbers.tolist()))
    if form is not None:  # a month's end would make a gap of 70 days of one
        text = str(int(numbers[0]))
        dates = f"Write dates with hyphens: pandas.to_datetime(..., format={form!r})"
        if table.is_training_data:
            dates = f"If they are dates, pass time_format={form!r} (--time-format {form})"
        raise TimeError(
            f"{table.describe_cell(0, column)} holds {text}, and like it every value of the column "
            f"may be a number, or a date without hyphens; expected {_EXPECTED}. {dates}; if they "
            f"are numbers, subtract {text} from all of them, which changes no gap."
        )
    exact = values.dtype.kind in "biu" and np.abs(numbers).max() <= MAX_EXACT_INTEGER
    dtype = None if exact else _get_float_dtype(values)
    return Times(numbers, unit or _infer_unit(column), False, dtype)


def _get_float_dtype(values: Column) -> torch.dtype | None:
    """Return the type in which the numbers of a column came, or are read."""
    if not isinstance(values, Categorical):
        return to_torch_float_dtype(values.dtype) or torch.float64
    kinds = {value.dtype for value in values.categories if isinstance(value, np.floating)}
    return to_torch_float_dtype(min(kinds, key=lambda kind: kind.itemsize, default=np.dtype(float)))


def _infer_unit(column: str) -> str:
    """Return the unit that a column of numbers is named after, or the words for its own one."""
    words = column.lower().replace("_", " ").replace("(", " ").replace(")", " ").split()
    for word in reversed(words):
        if word in UNITS or word in _UNIT_ABBREVIATIONS:
            return resolve_unit(word)
    return f"unit of {column!r}"


def _read_numbers(table: Table, column: str, cells: Column) -> Floats:
    values: NDArray[Any]
    if isinstance(cells, Categorical):
        cells = cells.remove_unused_categories()
        exact = cells.map_categories(parse_exact_number)
        if None in exact:
            row = int(np.argmax(cells.codes == exact.index(None)))
            raise _time_error(table, column, row, "a number, as in the first row")
        whole = all(isinstance(number, int) for number in exact)
        values = to_object_array(exact)[cells.codes]
    else:
        values = cells
        exactly = values.dtype.kind in "biu"
        whole = exactly or bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    least = int(values.min()) if whole else 0
    if whole and max(abs(least), abs(int(values.max()))) > MAX_EXACT_INTEGER:
        if values.dtype.kind == "i" and int(values.max()) - least <= np.iinfo(np.int64).max:
            return (values.astype(np.int64) - least).astype(np.float64)
        spans = [int(number) - least for number in values.tolist()]
        if max(spans) > int(np.finfo(np.float64).max):
            why = "a number whose distance from the others double precision can hold"
            raise _time_error(table, column, spans.index(max(spans)), why)
        values = np.array([float(span) for span in spans])
    found = values.astype(np.float64, copy=False)
    if not np.isfinite(found).all():
        raise _time_error(table, column, int(np.argmax(~np.isfinite(found))), "a finite number")
    return found


def _read_dates(table: Table, column: str, cells: Categorical) -> NDArray[Any]:
    """Return dates or durations of objects, and refuse the first row that holds none."""
    cells = cells.remove_unused_categories()
    found = to_dates(cells.categories)
    wrong, expected = np.isnat(found), _EXPECTED
    if not wrong.any():
        zoned = np.array(cells.map_categories(has_offset))
        wrong = zoned != zoned[0]
        expected = "an offset from UTC in either every date of the column or none"
    if wrong.any():
        row = int(np.argmax(wrong[cells.codes]))
        raise _time_error(table, column, row, expected)
    dates: NDArray[Any] = found[cells.codes]
    return dates


def _time_error(table: Table, column: str, row: int, expected: str) -> TimeError:
    form = get_format_advice(table, column) if table.is_training_data else ""
    advice = form or table.get_decimal_advice(row, column) or "Correct it, or remove the row."
    if table.is_training_data and not form and _DATE.fullmatch(table.format_value(row, column)):
        advice += (
            " For dates in another form say which, as pandas.to_datetime does: "
            "time_format='%d.%m.%Y' (--time-format)."
        )
    return TimeError(f"{table.describe_value(row, column)}, expected {expected}. {advice}")
