"""Times of a table: numbers as they are, dates and durations in a unit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.registry import suggest_name
from tauflow._internal.time_precision import to_torch_float_dtype
from tauflow.errors import TimeError, UnknownNameError

from .cell_values import (
    MAX_EXACT_INTEGER,
    Floats,
    factorize,
    parse_exact_number,
    parse_number,
    to_object_array,
    to_seconds,
)
from .frame import Frame
from .time_formats import (
    ELAPSED,
    format_cell,
    get_format_advice,
    infer_bare_format,
    is_date,
    parse_elapsed,
    parse_format,
)

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
_EXPECTED_SPANS = "expected numbers in the unit of the times, or durations and texts such as '24h'"
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_DATE = re.compile(r"\d{1,4}[^\w,]+\w+[^\w,]+\d{1,4}\b.*")
"""What is written like a date, in whatever form."""
_OFFSET = re.compile(r".*[T ]\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)*)")
_LEAP_SECOND = re.compile(r".*:\d\d:60\b.*")
_MAX_INT64 = np.iinfo(np.int64).max
_DIGITS = {"Y": 4, "j": 3, **dict.fromkeys("ymdHMS", 2)}
"""How many digits a field of a date has."""


@dataclass(frozen=True)
class Times:
    """Times of the rows of a table.

    Args:
        values: of every row, (R,), finite.
        unit: its name.
        dated: whether they were dates or durations, and not numbers.
        dtype: floating-point type that their numbers had to fit into; ``None`` if exact.
        zoned: whether they were dates with a time zone; ``None`` of durations and numbers.
    """

    values: Floats
    unit: str
    dated: bool
    dtype: torch.dtype | None = None
    zoned: bool | None = None


def resolve_unit(name: str, what: str = "time_unit") -> str:
    """Return the full name of a unit such as ``"h"`` or ``"hours"``.

    Args:
        name: of the unit.
        what: it is the unit of, for the message.

    Raises:
        UnknownNameError: dates cannot be converted to it.
    """
    full = _find_unit(name)
    if full is None:
        raise UnknownNameError(
            f"{what}={name!r} is unknown.{suggest_name(name, UNITS)} Dates can be converted to: "
            f"{', '.join(UNITS)}."
        )
    return full


def _find_unit(name: str) -> str | None:
    low = name.strip().lower()
    return low if low in UNITS else _UNIT_ABBREVIATIONS.get(low)


def parse_duration(name: str, text: str) -> np.timedelta64:
    """Return a span of time such as ``"24h"`` or ``"30 minutes"``, to the microsecond.

    Args:
        name: of the argument, for messages.
        text: a number and a unit.

    Raises:
        TimeError: it is no such text, or there is no such unit.
    """
    match = _DURATION.fullmatch(text)
    unit = None if match is None else _find_unit(match[2])
    if match is None or unit is None:
        raise TimeError(
            f"{name} holds {text!r}, expected a span of time such as '24h', in one of the units "
            f"{', '.join(UNITS)}. Months and years are of different lengths: give days."
        )
    return np.timedelta64(round(float(match[1]) * (UNITS[unit] / np.timedelta64(1, "us"))), "us")


def to_spans(name: str, values: Any, *, dated: bool) -> Floats:
    """Return numbers as they are, and durations or texts such as ``"24h"`` in seconds.

    Args:
        name: of the argument, for messages.
        values: numbers, or durations and texts, of any shape.
        dated: whether the times that they belong to are dates, and not numbers.

    Raises:
        TimeError: they are no such spans; or they are numbers beside dates, or the reverse.
    """
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind in "OU" and array.size:
        spans = [_to_duration(name, cell) for cell in array.ravel().tolist()]
        array = np.array(spans).reshape(array.shape)
    if array.dtype.kind not in "iufm":
        raise TimeError(f"{name} holds {array.dtype}, {_EXPECTED_SPANS}.")
    if array.dtype.kind == "m" and not dated:
        raise TimeError(
            f"{name} holds durations, and the times of the data are numbers, in an unknown "
            "unit. Give numbers in that unit."
        )
    if array.dtype.kind != "m" and dated:
        raise TimeError(
            f"{name} holds numbers, and the times of the data are dates, so that the unit of these "
            "numbers is not known. Give texts such as '24h', or durations."
        )
    return to_seconds(array)


def _to_duration(name: str, cell: Any) -> np.timedelta64:
    if isinstance(cell, str):
        return parse_duration(name, cell)
    if not isinstance(cell, timedelta | np.timedelta64):
        raise TimeError(f"{name} holds {cell!r} ({type(cell).__name__}), {_EXPECTED_SPANS}.")
    return np.timedelta64(cell, "us")


def format_span(span: float, *, dated: bool) -> str:
    """Return a span of time for a message, as hours, minutes and seconds where times are dates."""
    return str(timedelta(seconds=span)) if dated else f"{span:g}"


def to_dates(cells: Sequence[Any]) -> NDArray[Any]:
    """Return objects as dates in UTC, or durations, as pandas reads them; NaT for others.

    Args:
        cells: dates and durations of Python, NumPy and pandas, periods, which begin then, and text
            that begins with the year, as in ISO 8601.
    """
    pandas = require("pandas", extra="tables")
    durations = (timedelta, np.timedelta64)
    if any(isinstance(cell, durations) for cell in cells):
        spans = [cell if isinstance(cell, durations) else None for cell in cells]
        array: NDArray[Any] = pandas.to_timedelta(pandas.Series(spans, dtype=object)).to_numpy()
        return array
    dates = [
        getattr(cell, "start_time", None)  # of a period; other dates have none
        or (None if isinstance(cell, str) and not is_date(cell) else cell)
        for cell in cells
    ]
    plain = [None if isinstance(cell, int | float) else cell for cell in dates]
    series = pandas.Series(plain, dtype=object)
    parsed = pandas.to_datetime(series, format="ISO8601", errors="coerce", utc=True)
    array = parsed.dt.tz_localize(None).to_numpy()
    return array


def to_moments(times: NDArray[Any], *, dated: bool, name: str = "those of at") -> NDArray[Any]:
    """Return times of a table, (R,), as numbers, or as dates in UTC without a zone.

    Raises:
        TimeError: they are dates and should be numbers, or the reverse; ``name`` says which.
    """
    is_number = getattr(times.dtype, "kind", "M") in "iuf"
    if is_number is dated:
        had, has = ("dates", "numbers") if dated else ("numbers", "dates")
        raise TimeError(f"the times of X are {had}, and {name} are {has}. Give {had}.")
    if not dated:
        return times.astype(np.float64)
    if times.dtype.kind in "mM" and not hasattr(times, "tz"):
        return times
    if times.dtype.kind == "O":
        return to_dates(times.tolist())
    pandas = require("pandas", extra="tables")
    dates = pandas.to_datetime(times, format="ISO8601", utc=True).tz_localize(None)
    moments: NDArray[Any] = dates.to_numpy()
    return moments


def check_zones(zoned: bool | None, wanted: bool | None, name: str, of: str) -> None:
    """Raise :class:`TimeError` if some dates have a time zone, and those of ``of`` have none.

    Or the reverse. ``None`` is of what has no dates, or of which it is not known.
    """
    if zoned is None or wanted is None or zoned is wanted:
        return
    had, has = ("a time zone", "none") if wanted else ("no time zone", "one")
    advice = "Give them one: tz_localize(...)." if wanted else "Remove it: tz_localize(None)."
    raise TimeError(f"the dates of {of} have {had}, and those of {name} have {has}. {advice}")


def parses_as_date(text: str) -> bool:
    """Whether a text is a date as times may be."""
    return is_date(text) and not np.isnat(to_dates([text])[0])


def read_times(
    frame: Frame, column: str, unit: str | None, *, skip_date_check: bool = False
) -> Times:
    """Return the times of a column.

    Dates are converted to the unit, by default hours, and counted from the earliest. Numbers stay
    as they are, but for whole ones too large for double precision, such as nanoseconds since 1970,
    which are counted from the smallest; for them the unit is a name only, by default the column's.

    Args:
        frame: the table.
        column: of the times: numbers, or dates (ISO 8601, ``datetime64``), or durations
            (``timedelta64``). Dates with an offset from UTC are brought to UTC. Dates without
            hyphens, as in 20240531, are refused: nothing tells them from numbers.
        unit: see above.
        skip_date_check: whether numbers are known to be no such dates, as those of an earlier
            table.

    Raises:
        TimeError: a row has no time, its text is no time, or it may be a date and a number alike.
        UnknownNameError: dates cannot be converted to that unit.
    """
    frame.check_filled(column, _EXPECTED, "Fill the time in, or remove the row.", TimeError)
    values = frame.columns[column]
    zoned = column in frame.time_zones or has_offset(values[0])
    if values.dtype.kind == "O" and parse_number(values[0]) is None:
        values = _read_dates(frame, column, values)
    if values.dtype.kind in "mM":
        name = resolve_unit(unit or DEFAULT_UNIT)
        if int(values.max().astype(np.int64)) - int(values.min().astype(np.int64)) > _MAX_INT64:
            values = values.astype(f"{values.dtype.kind}8[us]")  # nanoseconds would wrap around
        # Counted from the earliest in the dates' own precision: no digit of a time step is lost.
        since: Floats = (values - values.min()) / UNITS[name]
        return Times(since, name, True, torch.float64, zoned if values.dtype.kind == "M" else None)
    numbers = _read_numbers(frame, column, values)
    form = None if skip_date_check else infer_bare_format(numbers[:1].tolist())
    if form is not None:
        form = infer_bare_format(dict.fromkeys(numbers.tolist()))
    if form is not None:  # at a month's end a day would count as 70
        text = str(int(numbers[0]))
        dates = f"Write dates with hyphens: pandas.to_datetime(..., format={form!r})"
        if frame.is_training_data:
            dates = f"If they are dates, pass time_format={form!r} (--time-format {form})"
        raise TimeError(
            f"{frame.describe_cell(0, column)} holds {text}, and like it every value of the column "
            f"may be a number, or a date without hyphens; expected {_EXPECTED}. {dates}; if they "
            f"are numbers, subtract {text} from all of them, which changes no time step."
        )
    exact = values.dtype.kind in "biu" and np.abs(numbers).max() <= MAX_EXACT_INTEGER
    return Times(
        numbers, unit or infer_unit(column), False, None if exact else _get_float_dtype(values)
    )


def _get_float_dtype(values: NDArray[Any]) -> torch.dtype | None:
    """Return the type in which the numbers of a column came, or are read."""
    if values.dtype.kind != "O":
        return to_torch_float_dtype(values.dtype) or torch.float64
    kinds = {cell.dtype for cell in factorize(values)[1] if isinstance(cell, np.floating)}
    return to_torch_float_dtype(min(kinds, key=lambda kind: kind.itemsize, default=np.dtype(float)))


def infer_unit(column: str) -> str:
    """Return the unit that a column of numbers is named after, or the words for its own one."""
    words = column.lower().replace("_", " ").replace("(", " ").replace(")", " ").split()
    for word in reversed(words):
        if word in UNITS or word in _UNIT_ABBREVIATIONS:
            return resolve_unit(word)
    return f"unit of {column!r}"


def _read_numbers(frame: Frame, column: str, values: NDArray[Any]) -> Floats:
    if values.dtype.kind == "O":
        codes, cells = factorize(values)
        exact = [parse_exact_number(cell) for cell in cells]
        if None in exact:
            row = int(np.argmax(codes == exact.index(None)))
            raise _time_error(frame, column, row, "a number, as in the first row")
        is_whole = all(isinstance(number, int) for number in exact)
        values = to_object_array(exact)[codes]
    else:
        exactly = values.dtype.kind in "biu"
        is_whole = exactly or bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    least = int(values.min()) if is_whole else 0
    if is_whole and max(abs(least), abs(int(values.max()))) > MAX_EXACT_INTEGER:
        if values.dtype.kind == "i" and int(values.max()) - least <= _MAX_INT64:
            return (values.astype(np.int64) - least).astype(np.float64)
        spans = [int(number) - least for number in values.tolist()]
        if max(spans) > int(np.finfo(np.float64).max):
            why = "a number whose distance from the others double precision can hold"
            raise _time_error(frame, column, spans.index(max(spans)), why)
        values = np.array([float(span) for span in spans])
    numbers = values.astype(np.float64, copy=False)
    if not np.isfinite(numbers).all():
        raise _time_error(frame, column, int(np.argmax(~np.isfinite(numbers))), "a finite number")
    return numbers


def _read_dates(frame: Frame, column: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return dates or durations of objects, and refuse the first row that holds none."""
    codes, cells = factorize(values)
    parsed = to_dates(cells)
    wrong, expected = np.isnat(parsed), _EXPECTED
    if not wrong.any():
        zoned = np.array([has_offset(cell) for cell in cells])
        wrong = zoned != zoned[0]
        expected = "an offset from UTC in either every date of the column or none"
    if wrong.any():
        raise _time_error(frame, column, int(np.argmax(wrong[codes])), expected)
    dates: NDArray[Any] = parsed[codes]
    return dates


def has_offset(cell: Any) -> bool:
    """Whether a date, perhaps text, says how far it is from UTC."""
    if isinstance(cell, str):
        return _OFFSET.fullmatch(cell) is not None
    return getattr(cell, "tzinfo", None) is not None


def _time_error(frame: Frame, column: str, row: int, expected: str) -> TimeError:
    values = frame.columns[column]
    form = ""
    if frame.is_training_data or frame.arguments:
        form = get_format_advice(factorize(values)[1], is_option=frame.is_training_data)
    advice = form or frame.get_decimal_advice(row, column) or "Correct it, or remove the row."
    text = frame.format_value(row, column)
    if _LEAP_SECOND.fullmatch(text):
        advice = "Leap seconds are not supported: write the first second of the next minute."
    elif frame.is_training_data and not form and _DATE.fullmatch(text):
        advice += (
            " For dates in another form say which, as pandas.to_datetime does: "
            "time_format='%d.%m.%Y' (--time-format)."
        )
    return TimeError(f"{frame.describe_value(row, column)}, expected {expected}. {advice}")


def parse_times(frame: Frame, column: str, time_format: str) -> Frame:
    """Return the table with dates, or elapsed times, where times are written in a format.

    Args:
        frame: the table.
        column: of the times.
        time_format: as ``pandas.to_datetime`` takes it, or ``"elapsed"``.

    Raises:
        TimeError: a cell is not written so.
    """
    values = frame.columns[column]
    if values.dtype.kind == "m" or (values.dtype.kind == "M" and time_format != ELAPSED):
        return frame
    codes, cells = factorize(values)
    are_numbers = [isinstance(cell, int | float) for cell in cells]
    texts = list(map(format_cell, cells))
    expected = f"a date in the form {time_format!r} (time_format)"
    if time_format == ELAPSED:
        times = parse_elapsed(texts)
        expected = (
            "an elapsed time in hours and minutes such as 24:37, with seconds 24:37:05.5, or with "
            "days 1 day 00:37 (time_format)"
        )
    else:
        times = parse_format(texts, time_format)
        # Numbers have lost zeros in front, and dates with fewer digits may be read in two ways.
        digits = sum(_DIGITS.get(letter, 0) for letter in re.findall("%(.)", time_format))
        short = [not (t.isdecimal() and len(t) == digits) for t in texts]
        times[np.logical_and(short, are_numbers)] = np.array("NaT", times.dtype)
        if any(are_numbers):
            expected += f", in numbers with all of its digits ({digits}), or as text"
    wrong = np.append(np.isnat(times), False)[codes]
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TimeError(
            f"{frame.describe_value(row, column)}, expected {expected}. Correct it, or the form."
        )
    is_zoned = "%z" in time_format.replace("%%", "").lower()
    zones = {**frame.time_zones, column: "UTC"} if is_zoned else frame.time_zones
    dates = np.append(times, np.array("NaT", times.dtype))[codes]
    return replace(frame, columns={**frame.columns, column: dates}, time_zones=zones)
