"""How times are written: dates in a format of ``strptime``, elapsed times, and which it seems."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np

from tauflow.errors import ArgumentError, TimeError

from .categorical import Categorical, Column
from .table import Table, is_missing

ELAPSED = "elapsed"
"""The format of times such as 24:37, hours and minutes since a start."""
_ELAPSED = re.compile(
    r"(?:(?P<days>[+-]?\d{1,5}) days?(?:,? |$))?"
    r"(?:(?P<sign>[+\u2212-])?(?P<hours>\d{1,6}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d)(?:[.,](?P<fraction>\d{1,9}))?)?)?"
)
_BARE_DATE_FORMATS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Dates that are written without a sign between their digits, by the number of these."""
_YEARS = range(1900, 2101)
_DATE = re.compile(r"(\w+)([ /.-]|, ?)(\w+)([ /.-]|, ?)(\w+)")
_CLOCK = re.compile(
    r"(?P<gap>[ T]|, ?)(?P<clock>\d{1,2}:\d{2}(?P<seconds>:\d{2}(?P<fraction>\.\d{1,6})?)?)"
    r"(?P<half> ?[AaPp][Mm])?(?P<zone> ?(?:[+-]\d{2}:?\d{2}|Z))?"
)


def parse_times(table: Table, column: str, time_format: str) -> Table:
    """Return the table with dates, or elapsed times, where times are written in a format.

    Args:
        table: the table.
        column: of the times.
        time_format: as ``strptime`` takes it, or ``"elapsed"``.

    Raises:
        ArgumentError: Python would read a part of the times, and leave it out of the dates.
        TimeError: a cell is not written so.
    """
    if "%Z" in time_format.replace("%%", ""):
        raise ArgumentError(
            f"time_format={time_format!r}: Python reads the name of a time zone (%Z) and leaves "
            "it out of "
            "the date. Write the offset from UTC instead, such as +0200, and read it with %z."
        )
    values = table.columns[column]
    if time_format == ELAPSED and values.dtype.kind != "m":
        return _parse_elapsed(table, column)
    if values.dtype.kind in "mM":
        return table
    written, are_numbers = _format_cells(values)
    moments: list[datetime | None] = []
    otherwise: list[str] = []
    for cell, is_number in zip(written.categories, are_numbers, strict=True):
        try:
            found = datetime.strptime(cell, time_format)
        except ValueError:
            moments.append(None)
            otherwise.append("")
            continue
        same = not is_number or found.strftime(time_format) == cell
        otherwise.append("" if same else found.strftime(time_format))
        if found.tzinfo is not None:
            found = found.astimezone(timezone.utc).replace(tzinfo=None)
        moments.append(found if same else None)
    found = np.array([one or "NaT" for one in moments], "datetime64[us]")[written.codes]
    wrong = np.flatnonzero(np.isnat(found) & ~table.find_missing(column))
    if wrong.size:
        raise _date_format_error(
            table, int(wrong[0]), column, time_format, otherwise[written.codes[wrong[0]]]
        )
    zones = {**table.time_zones, column: "UTC"} if "%z" in time_format else table.time_zones
    return replace(table, columns={**table.columns, column: found}, time_zones=zones)


def _date_format_error(table: Table, row: int, column: str, form: str, otherwise: str) -> TimeError:
    """Return the error for a cell that is no date in a format, or may have lost digits."""
    if otherwise:
        return TimeError(
            f"{table.describe_value(row, column)}, a number, which {form!r} (time_format) would "
            f"write {otherwise!r}: zeros may have been lost from it. Give the column as text."
        )
    return TimeError(
        f"{table.describe_value(row, column)}, expected a date in the form {form!r} (time_format). "
        "Correct it, or the form."
    )


def _format_cells(values: Column) -> tuple[Categorical, list[bool]]:
    """Return cells as text, and which of the different ones were numbers.

    Whole numbers are written without a point.
    """
    if isinstance(values, Categorical):
        return values.map_values(_format_cell), values.map_categories(
            lambda cell: not isinstance(cell, str)
        )
    cells = Categorical.from_formatted(values)
    if values.dtype.kind == "f":
        cells = cells.map_values(lambda cell: _format_cell(float(cell)))
    return cells, cells.map_categories(lambda cell: True)


def _format_cell(cell: Any) -> str:
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def convert_time_objects(table: Table, column: str) -> Table:
    """Return the table with NumPy's dates or durations where a column holds them as objects.

    Such are ``datetime.timedelta``, ``numpy.datetime64`` and ``pandas.Period``, which begins then.
    """
    cells = table.columns[column]
    if not isinstance(cells, Categorical):
        return table
    cells = cells.remove_unused_categories()
    found = cells.map_categories(_to_numpy_time)
    kinds = {one.dtype.kind for one in found if one is not None}
    others = [c for c, one in zip(cells.categories, found, strict=True) if one is None]
    if len(kinds) != 1 or not all(map(is_missing, others)):
        return table
    nothing: Any = np.datetime64("NaT") if kinds == {"M"} else np.timedelta64("NaT")
    times = np.array([nothing if one is None else one for one in found])
    return replace(table, columns={**table.columns, column: times[cells.codes]})


def _to_numpy_time(cell: Any) -> Any:
    """Return a date or a duration as one of NumPy, ``None`` for another thing."""
    if isinstance(cell, timedelta):  # that of pandas counts nanoseconds
        return np.timedelta64(getattr(cell, "to_timedelta64", lambda: cell)())
    if type(cell).__name__ == "Period":
        return np.datetime64(cell.start_time.to_datetime64())
    return cell if isinstance(cell, np.datetime64 | np.timedelta64) else None


def _parse_elapsed(table: Table, column: str) -> Table:
    """Return the table with durations where times are written as elapsed ones.

    Raises:
        TimeError: a cell is not written so.
    """
    values = table.columns[column]
    cells = (
        values if isinstance(values, Categorical) else Categorical.from_formatted(values)
    ).remove_unused_categories()
    spans = [
        None if is_missing(cell) else _parse_nanoseconds(str(cell)) for cell in cells.categories
    ]
    absent = [span is None for span in spans]
    found = np.array([span or 0 for span in spans], "timedelta64[ns]")
    found[absent] = np.timedelta64("NaT")
    durations = found[cells.codes]
    wrong = np.flatnonzero(np.isnat(durations) & ~table.find_missing(column))
    if wrong.size:
        raise TimeError(
            f"{table.describe_value(int(wrong[0]), column)}, expected an elapsed time in hours and "
            "minutes such as 24:37, with seconds 24:37:05.5, or with days 1 day 00:37 "
            "(time_format). Correct it, or the form."
        )
    return replace(table, columns={**table.columns, column: durations})


def _parse_nanoseconds(text: str) -> int | None:
    """Return how long an elapsed time is, ``None`` if a text is none."""
    found = _ELAPSED.fullmatch(text)
    if found is None or (found["days"] is None and found["hours"] is None):
        return None
    if found["days"] is not None and len(found["hours"] or "") > 2:
        return None
    minutes = 60 * int(found["hours"] or 0) + int(found["minutes"] or 0)
    span = 10**9 * (60 * minutes + int(found["seconds"] or 0))
    span += int((found["fraction"] or "").ljust(9, "0"))
    span = -span if found["sign"] in ("-", "\u2212") else span
    return 24 * 3600 * 10**9 * int(found["days"] or 0) + span


def is_bare_date(number: float) -> bool:
    """Whether a number may be a date that is written without signs, such as 20240531."""
    text = str(int(number)) if float(number).is_integer() else ""
    if len(text) not in _BARE_DATE_FORMATS or int(text[:4]) not in _YEARS:
        return False
    # Only as many digits as there are leave each field two of them, and none to guess.
    return _matches_format(text, _BARE_DATE_FORMATS[len(text)])


def get_bare_date_format(number: float) -> str:
    """Return the format of a number that :func:`is_bare_date` says may be a date."""
    return _BARE_DATE_FORMATS[len(str(int(number)))]


def _matches_format(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def infer_time_formats(cells: Iterable[Any]) -> tuple[str, ...]:
    """Return the values of ``time_format`` with which all cells are times.

    Of several, which differ in the order of day and month, nothing tells the right one. There is
    none for dates of ISO 8601, which need none, and for numbers that are no dates.

    Args:
        cells: of a column, its different ones; missing ones do not count.
    """
    texts = [_format_cell(cell) for cell in cells if not is_missing(cell)]
    if not texts:
        return ()
    if texts[0].isdecimal():
        bare = all(one.isdecimal() and is_bare_date(int(one)) for one in texts)
        forms = {_BARE_DATE_FORMATS[len(one)] for one in texts} if bare else set()
        return tuple(forms) if len(forms) == 1 else ()
    if all(_ELAPSED.fullmatch(one) for one in texts):
        return (ELAPSED,)
    try:
        datetime.fromisoformat(texts[0])
    except ValueError:
        return _infer_date_formats(texts)
    return ()


def _infer_date_formats(texts: list[str]) -> tuple[str, ...]:
    clocks = [_CLOCK.search(text) for text in texts]
    dates, times = set(), set()
    for text, clock in zip(texts, clocks, strict=True):
        if (clock is None) != (clocks[0] is None) or (clock and clock.end() != len(text)):
            return ()
        dates.add(text[: clock.start()] if clock else text)
        times.add(clock[0] if clock else "")
    form = ""
    if clock := clocks[0]:
        form = f"{clock['gap']}%{'I' if clock['half'] else 'H'}:%M"
        form += ":%S" * bool(clock["seconds"]) + ".%f" * bool(clock["fraction"])
        form += f"{clock['half'][:-2]}%p" if clock["half"] else ""
        form += f"{clock['zone'][: -len(clock['zone'].strip())]}%z" if clock["zone"] else ""
        if not all(_matches_format(time, form) for time in times):
            return ()
    first = _DATE.fullmatch(next(iter(dates)))
    orders = [] if first is None else _list_date_orders(first[1], first[3], first[5])
    found = []
    for order in orders:
        assert first is not None
        date = f"%{order[0]}{first[2]}%{order[1]}{first[4]}%{order[2]}"
        if all(_matches_format(text, date) for text in dates):
            found.append(date + form)
    return tuple(one for one in found if "%B" not in one) or tuple(found)  # of May both fit


def _list_date_orders(one: str, two: str, three: str) -> list[str]:
    """Return the orders that the parts of a date may be in, as letters of ``strptime``."""
    kinds = "".join(
        "b" if part.isalpha() else "Y" if len(part) == 4 else "d" if len(part) < 3 else "x"
        for part in (one, two, three)
    )
    orders = {
        "Ydd": ["Ymd"],
        "ddY": ["dmY", "mdY"],
        "ddd": ["dmy", "mdy", "ymd"],
        "dbY": ["dbY"],
        "dbd": ["dby"],
        "bdY": ["bdY"],
        "Ybd": ["Ybd"],
    }.get(kinds, [])
    return [order.replace("b", name) for order in orders for name in "bB"[: 1 + ("b" in order)]]


def get_format_advice(table: Table, column: str) -> str:
    """Return which ``time_format`` to give for a column that is not read as times, if any is."""
    cells = table.columns[column]
    found = infer_time_formats(
        cells.categories if isinstance(cells, Categorical) else np.unique(cells).tolist()
    )
    if not found:
        return ""
    if found == (ELAPSED,):
        return (
            "The column looks like elapsed times, in hours and minutes: pass "
            "time_format='elapsed' (--time-format elapsed)."
        )
    one = f"time_format={found[0]!r} (--time-format {shlex.quote(found[0])})"
    if len(found) == 1:
        return f"The column looks like dates of the form {found[0]!r}: pass {one}."
    forms = " or ".join(map(repr, found))
    return f"The column looks like dates of the form {forms}; say which, as in {one}."
