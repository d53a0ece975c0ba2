"""How times are written: dates in a format, elapsed times, and which format it seems to be."""

import re
import shlex
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require

_ISO = re.compile(r"\d{4}([-/.])\d\d(\1\d\d(?!\d)(?!.*[.,]\d{10}).*)?")
"""Dates that begin with the year, without more digits than those of nanoseconds."""
ELAPSED = "elapsed"
"""The format of times such as 24:37, hours and minutes since a start."""
_ELAPSED = re.compile(
    r"([+-]?\d{1,5} days?(,? |$))?([+-]?\d{1,6}:[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?)?"
)
_BARE_DATE_FORMATS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Dates that are written without a sign between their digits, by the number of these."""
_YEARS = range(1900, 2101)
_MAX_GUESSED = 20  # cells that a format is guessed from
_SHORT_DATES = ("%d-%b-%y", "%d %b %y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I %p")
"""Forms that pandas does not guess: two-digit years, and a half of the day."""
_LONG_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d-%b-%Y", "%Y-%m-%d")


def is_date(text: str) -> bool:
    """Whether a text begins with the year, as a date of ISO 8601 that may be read."""
    return _ISO.fullmatch(text) is not None


def parse_format(texts: Sequence[str], time_format: str) -> NDArray[Any]:
    """Return dates in UTC, NaT for what is written otherwise."""
    pandas = require("pandas", extra="tables")
    series = pandas.Series(list(texts), dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a format that nothing has
        dates = pandas.to_datetime(series, format=time_format, errors="coerce", utc=True)
    return np.array(dates.dt.tz_localize(None))  # a copy, which may be changed


def format_cell(cell: Any) -> str:
    """Return a cell as text, whole numbers without a point."""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


def parse_elapsed(texts: Sequence[str]) -> NDArray[Any]:
    """Return how long elapsed times are, NaT where a text is not one."""
    pandas = require("pandas", extra="tables")
    spans: list[str | None] = []
    for text in texts:
        is_span = text and _ELAPSED.fullmatch(text)
        complete = f"{text}:00" if text.count(":") == 1 else text  # pandas wants seconds
        spans.append(re.sub(r",(?=\d)", ".", complete) if is_span else None)
    durations = pandas.to_timedelta(pandas.Series(spans, dtype=object), errors="coerce")
    return np.asarray(durations)


def infer_bare_format(cells: Iterable[Any]) -> str | None:
    """Return the format of dates without signs, such as 20240531, if all numbers may be such."""
    texts, forms = [], set()
    for cell in cells:
        text = format_cell(cell)
        form = _BARE_DATE_FORMATS.get(len(text)) if text.isdecimal() else None
        if form is None or int(text[:4]) not in _YEARS:
            return None
        texts.append(text)
        forms.add(form)
    # Only as many digits as there are leave each field two of them, and none to guess.
    if len(forms) != 1 or np.isnat(parse_format(texts, form := forms.pop())).any():
        return None
    return form


def infer_time_formats(cells: Iterable[Any]) -> tuple[str, ...]:
    """Return the values of ``time_format`` with which all cells are times.

    Of several, which differ in the order of day and month, nothing tells the right one. There is
    none for dates of ISO 8601, which need none, and for numbers that are no dates.

    Args:
        cells: of a column, its different ones, none of them missing.
    """
    texts = [format_cell(cell) for cell in cells]
    if not texts:
        return ()
    if texts[0].isdecimal():
        form = infer_bare_format(texts)
        return () if form is None else (form,)
    if all(_ELAPSED.fullmatch(text) for text in texts):
        return (ELAPSED,)
    if is_date(texts[0]) and "M" not in texts[0][-2:].upper():
        return ()
    guess = require("pandas.tseries.api", extra="tables").guess_datetime_format
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of days beyond 12
        guesses = [guess(t, dayfirst=d) for d in (True, False) for t in texts[:_MAX_GUESSED]]
    guesses += [form.replace("%B", "%b") for form in guesses if form]  # both fit May
    if re.search(r"\d", texts[0]) and re.search(r"[-/. ]", texts[0]):
        guesses += [day + clock for day in (*_SHORT_DATES, *_LONG_DATES) for clock in _CLOCKS]
    forms = [form for form in dict.fromkeys(guesses) if form]
    few = texts[:_MAX_GUESSED]  # which most forms do not fit
    forms = [form for form in forms if not np.isnat(parse_format(few, form)).any()]
    fitting = [form for form in forms if not np.isnat(parse_format(texts, form)).any()]
    return tuple(form for form in fitting if "%B" not in form) or tuple(fitting)


def get_format_advice(cells: Sequence[Any], *, is_option: bool = True) -> str:
    """Return which ``time_format`` to give for cells that are not read as times, if any is.

    Where that is no option, it is pandas that reads them.
    """
    formats = infer_time_formats(cells)
    if not formats:
        return ""
    if formats == (ELAPSED,) and not is_option:
        return "If these are elapsed hours and minutes, convert them by pandas.to_timedelta."
    if formats == (ELAPSED,):
        return (
            "If these are elapsed hours and minutes, pass time_format='elapsed' (--time-format "
            "elapsed); join times of day to their dates by pandas.to_datetime(date + ' ' + clock)."
        )
    option = f"time_format={formats[0]!r} (--time-format {shlex.quote(formats[0])})"
    if not is_option:
        option = f"pandas.to_datetime(..., format={formats[0]!r})"
    if len(formats) == 1 and not is_option:
        return f"The column looks like dates of the form {formats[0]!r}: convert it by {option}."
    if len(formats) == 1:
        return f"The column looks like dates of the form {formats[0]!r}: pass {option}."
    forms = " or ".join(map(repr, formats))
    return f"The column looks like dates of the form {forms}; say which, as in {option}."
