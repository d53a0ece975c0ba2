"""Times of a table: numbers as they are, dates and durations in a unit."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.registry import suggest_name
from tauflow._internal.time_precision import to_torch_float_dtype
from tauflow.errors import TimeError, UnknownNameError

from .categorical import Categorical, Column, to_object_array
from .table import MAX_EXACT_INTEGER, Floats, Table, parse_exact_number, parse_number
from .time_formats import get_bare_date_format, get_format_advice, is_bare_date

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
_NANOSECONDS = re.compile(r"(?<=[.,]\d{6})\d{1,3}(?!\d)")
_TOO_FINE = re.compile(r"[.,]\d{10}")
_NANOSECONDS_FROM, _NANOSECONDS_TO = np.datetime64("1677-09-22"), np.datetime64("2262-04-11")
"""Dates that 64 bits can count in nanoseconds from 1970."""
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
        values = _parse_dates(table, column, values)
    if not isinstance(values, Categorical) and values.dtype.kind in "mM":
        name = resolve_unit(unit or DEFAULT_UNIT)
        if int(values.max().astype(np.int64)) - int(values.min().astype(np.int64)) > _MAX_INT64:
            values = values.astype(f"{values.dtype.kind}8[us]")  # nanoseconds would wrap around
        # Counted from the earliest in the dates' own precision: no digit of a gap is lost.
        since: Floats = (values - values.min()) / UNITS[name]
        return Times(since, name, True)
    numbers = _read_numbers(table, column, values)
    if not skip_date_check:
        _check_bare_dates(table, column, numbers)
    exact = values.dtype.kind in "biu" and np.abs(numbers).max() <= MAX_EXACT_INTEGER
    return Times(
        numbers, unit or _infer_unit(column), False, None if exact else _get_float_dtype(values)
    )


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


def _check_bare_dates(table: Table, column: str, numbers: Floats) -> None:
    """Refuse numbers that all read as dates: a month's end would make a gap of 70 days of one."""
    first = float(numbers[0])
    if not (is_bare_date(first) and all(map(is_bare_date, dict.fromkeys(numbers.tolist())))):
        return
    text, form = str(int(first)), get_bare_date_format(first)
    dates = f"Write dates with hyphens: pandas.to_datetime(..., format={form!r})"
    if table.is_training_data:
        dates = f"If they are dates, pass time_format={form!r} (--time-format {form})"
    raise TimeError(
        f"{table.describe_cell(0, column)} holds {text}, and like it every value of the column may "
        f"be a number, or a date without hyphens; expected {_EXPECTED}. {dates}; if they are "
        f"numbers, subtract {text} from all of them, which changes no gap."
    )


def _parse_dates(table: Table, column: str, values: Categorical) -> NDArray[np.datetime64]:
    values = values.remove_unused_categories()
    plain = _parse_uniform_dates(values.categories)
    found: NDArray[np.datetime64]
    found = (_parse_each_date(table, column, values) if plain is None else plain)[values.codes]
    return found


def _parse_uniform_dates(texts: Sequence[Any]) -> NDArray[np.datetime64] | None:
    """Return dates that are all written as 2024-05-31T14:30:00, or cut alike; else ``None``."""
    length = len(texts[0]) if type(texts[0]) is str else 0
    if length not in (10, 16, 19) or not all(type(t) is str and len(t) == length for t in texts):
        return None
    form = np.array([*"0000-00-00T00:00:00"[:length]])
    signs = np.array(texts).view("U1").reshape(len(texts), length)
    digits = signs[:, form == "0"]
    others = np.where(signs == " ", "T", signs)[:, form != "0"] == form[form != "0"]
    if not (others.all() and ((digits >= "0") & (digits <= "9")).all()):
        return None
    if (signs[:, :4] == "0").all(axis=1).any():  # of no year that Python knows
        return None
    try:
        return np.array(texts, "datetime64[us]")
    except ValueError:
        return None


def _parse_each_date(table: Table, column: str, values: Categorical) -> NDArray[np.datetime64]:
    """Return the dates of the different cells, and refuse the first row that holds none."""

    def wrong(code: int, expected: str) -> TimeError:
        return _time_error(table, column, int(np.argmax(values.codes == code)), expected)

    moments: list[datetime] = []
    finer: list[int] = []
    for code, value in enumerate(values.categories):
        moment, more = _parse_date(value)
        if moment is None:
            raise wrong(code, _EXPECTED)
        if moments and (moment.tzinfo is None) != (moments[0].tzinfo is None):
            raise wrong(code, "an offset from UTC in either every date of the column or none")
        moments.append(moment)
        finer.append(more)
    return convert_to_utc(moments, finer, wrong)


def convert_to_utc(
    moments: Sequence[datetime | None],
    nanoseconds: Sequence[int],
    make_error: Callable[[int, str], Exception],
) -> NDArray[np.datetime64]:
    """Return dates as NumPy's, NaT for ``None``; those with a time zone in UTC.

    Args:
        moments: the dates, to the microsecond.
        nanoseconds: to be added to each.
        make_error: returns what to raise for the place of a date and what was expected there.
    """
    plain: list[datetime | None] = []
    for place, one in enumerate(moments):
        if one is None or one.tzinfo is None:
            plain.append(one)
            continue
        try:
            plain.append(one.astimezone(timezone.utc).replace(tzinfo=None))
        except OverflowError:
            raise make_error(place, "a date from year 1 to 9999 in UTC too") from None
    found: NDArray[np.datetime64] = np.array(plain, "datetime64[us]")
    if not any(nanoseconds):
        return found
    far = (found < _NANOSECONDS_FROM) | (found > _NANOSECONDS_TO)
    if far.any():  # NumPy would wrap around silently
        expected = f"dates from {_NANOSECONDS_FROM} to {_NANOSECONDS_TO} beside nanoseconds"
        raise make_error(int(np.argmax(far)), expected)
    exactly: NDArray[np.datetime64] = found + np.array(nanoseconds, "timedelta64[ns]")
    return exactly


def is_date(text: str) -> bool:
    """Whether a text is a date as times may be."""
    return _parse_date(text)[0] is not None


def _parse_date(value: Any) -> tuple[datetime | None, int]:
    """Return a date to the microsecond, ``None`` if it is none, and nanoseconds to add."""
    if isinstance(value, datetime):
        return value, getattr(value, "nanosecond", 0)  # which pandas' dates have
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day), 0
    if not isinstance(value, str) or _TOO_FINE.search(value):  # which Python would cut
        return None, 0
    text = value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value
    digits = _NANOSECONDS.search(text)
    try:
        moment = datetime.fromisoformat(_NANOSECONDS.sub("", text) if digits else text)
    except ValueError:
        return None, 0
    return moment, int(digits[0].ljust(3, "0")) if digits else 0


def _time_error(table: Table, column: str, row: int, expected: str) -> TimeError:
    form = get_format_advice(table, column) if table.is_training_data else ""
    advice = form or table.get_decimal_advice(row, column) or "Correct it, or remove the row."
    if table.is_training_data and not form and _DATE.fullmatch(table.format_value(row, column)):
        advice += (
            " For dates in another form say which, as strptime of Python does: "
            "time_format='%d.%m.%Y' (--time-format)."
        )
    return TimeError(f"{table.describe_value(row, column)}, expected {expected}. {advice}")
