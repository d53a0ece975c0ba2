"""How times are written: dates in a format, elapsed times, and which format it seems to be."""

import re
import shlex
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import TimeError

from .categorical import Categorical
from .table import Table, is_missing

_ISO = re.compile(r"\d{4}([-/.])\d\d(\1\d\d(?!\d)(?!.*[.,]\d{10}).*)?")
"""Dates that begin with the year, without more digits than those of nanoseconds."""
_OFFSET = re.compile(r".*[T ]\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)*)")
ELAPSED = "elapsed"
"""The format of times such as 24:37, hours and minutes since a start."""
_ELAPSED = re.compile(
    r"([+-]?\d{1,5} days?(,? |$))?([+-]?\d{1,6}:[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?)?"
)
_BARE_DATE_FORMATS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Dates that are written without a sign between their digits, by the number of these."""
_DIGITS = {"Y": 4, "j": 3, **dict.fromkeys("ymdHMS", 2)}
"""How many digits a field of a date has."""
_YEARS = range(1900, 2101)
_MAX_GUESSED = 20  # cells that a format is guessed from


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
        or (None if isinstance(cell, str) and not _ISO.fullmatch(cell) else cell)
        for cell in cells
    ]
    plain = [None if isinstance(cell, int | float) else cell for cell in dates]
    series = pandas.Series(plain, dtype=object)
    found = pandas.to_datetime(series, format="ISO8601", errors="coerce", utc=True)
    array = found.dt.tz_localize(None).to_numpy()
    return array


def has_offset(cell: Any) -> bool:
    """Whether a date, perhaps text, says how far it is from UTC."""
    if isinstance(cell, str):
        return _OFFSET.fullmatch(cell) is not None
    return getattr(cell, "tzinfo", None) is not None


def is_date(text: str) -> bool:
    """Whether a text is a date as times may be."""
    return _ISO.fullmatch(text) is not None and not np.isnat(to_dates([text])[0])


def parse_times(table: Table, column: str, time_format: str) -> Table:
    """Return the table with dates, or elapsed times, where times are written in a format.

    Args:
        table: the table.
        column: of the times.
        time_format: as ``pandas.to_datetime`` takes it, or ``"elapsed"``.

    Raises:
        TimeError: a cell is not written so.
    """
    values = table.columns[column]
    if values.dtype.kind == "m" or (values.dtype.kind == "M" and time_format != ELAPSED):
        return table
    written = (
        values if isinstance(values, Categorical) else Categorical.from_values(values.tolist())
    )
    are_numbers = [isinstance(cell, int | float) for cell in written.categories]
    cells = Categorical(written.map_categories(_format_cell), written.codes)
    expected = f"a date in the form {time_format!r} (time_format)"
    if time_format == ELAPSED:
        found = _parse_elapsed(cells.categories)
        expected = (
            "an elapsed time in hours and minutes such as 24:37, with seconds 24:37:05.5, or with "
            "days 1 day 00:37 (time_format)"
        )
    else:
        found = _parse_format(cells.categories, time_format)
        # Numbers have lost zeros in front, and dates with fewer digits may be read in two ways.
        digits = sum(_DIGITS.get(one, 0) for one in re.findall("%(.)", time_format))
        short = [not (t.isdecimal() and len(t) == digits) for t in cells.categories]
        found[np.logical_and(short, are_numbers)] = np.array("NaT", found.dtype)
        if any(are_numbers):
            expected += f", in numbers with all of its digits ({digits}), or as text"
    wrong = np.isnat(found)[cells.codes] & ~table.find_missing(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TimeError(
            f"{table.describe_value(row, column)}, expected {expected}. Correct it, or the form."
        )
    is_zoned = "%z" in time_format.replace("%%", "").lower()
    zones = {**table.time_zones, column: "UTC"} if is_zoned else table.time_zones
    return replace(table, columns={**table.columns, column: found[cells.codes]}, time_zones=zones)


def _parse_format(texts: Sequence[str], time_format: str) -> NDArray[Any]:
    """Return dates in UTC, NaT for what is written otherwise."""
    pandas = require("pandas", extra="tables")
    series = pandas.Series(list(texts), dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a format that nothing has
        found = pandas.to_datetime(series, format=time_format, errors="coerce", utc=True)
    return np.array(found.dt.tz_localize(None))  # a copy, which may be changed


def _format_cell(cell: Any) -> str:
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def _parse_elapsed(texts: Sequence[str]) -> NDArray[Any]:
    """Return how long elapsed times are, NaT where a text is none."""
    pandas = require("pandas", extra="tables")
    spans: list[str | None] = []
    for text in texts:
        is_span = text and _ELAPSED.fullmatch(text)
        whole = f"{text}:00" if text.count(":") == 1 else text  # pandas wants seconds
        spans.append(re.sub(r",(?=\d)", ".", whole) if is_span else None)
    found = pandas.to_timedelta(pandas.Series(spans, dtype=object), errors="coerce")
    return np.asarray(found)


def infer_bare_format(cells: Iterable[Any]) -> str | None:
    """Return the format of dates without signs, such as 20240531, if all numbers may be such."""
    texts, forms = [], set()
    for cell in cells:
        text = _format_cell(cell)
        form = _BARE_DATE_FORMATS.get(len(text)) if text.isdecimal() else None
        if form is None or int(text[:4]) not in _YEARS:
            return None
        texts.append(text)
        forms.add(form)
    # Only as many digits as there are leave each field two of them, and none to guess.
    if len(forms) != 1 or np.isnat(_parse_format(texts, form := forms.pop())).any():
        return None
    return form


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
        form = infer_bare_format(texts)
        return () if form is None else (form,)
    if all(_ELAPSED.fullmatch(one) for one in texts):
        return (ELAPSED,)
    if is_date(texts[0]):
        return ()
    guess = require("pandas.tseries.api", extra="tables").guess_datetime_format
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of days beyond 12
        found = [guess(t, dayfirst=d) for d in (True, False) for t in texts[:_MAX_GUESSED]]
    found += [one.replace("%B", "%b") for one in found if one]  # both fit May
    forms = [one for one in dict.fromkeys(found) if one]
    fitting = [one for one in forms if not np.isnat(_parse_format(texts, one)).any()]
    return tuple(one for one in fitting if "%B" not in one) or tuple(fitting)


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
