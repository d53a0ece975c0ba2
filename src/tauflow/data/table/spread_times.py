"""Times that are spread over several columns, such as month and day."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .column_profile import DATES, INTEGERS, TEXT, ColumnProfile
from .key_candidates import combine_codes, compute_unique_share
from .keys import KeyColumns

_LAST_WORD = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))([A-Za-z]+?)s?$")
_SHORT_NAMES = {"yr": "year", "mnth": "month", "mon": "month", "hr": "hour"}
_RANGES = {
    "year": (0, 9999),
    "month": (1, 12),
    "day": (0, 366),
    "hour": (0, 24),
    "minute": (0, 60),
    "second": (0, 60),
}
"""Units that a column may be named after, the longest first, and the numbers that it may hold."""
_TIMEDELTA_UNITS = {"day": "D", "hour": "h", "minute": "min", "second": "s"}
_MIN_GAIN = 0.1  # of the share of unique rows, for columns to be taken together
_MOSTLY_UNIQUE = 0.9


def describe_spread_time(profiles: Sequence[ColumnProfile], keys: KeyColumns) -> str | None:
    """Return what to do about times that are spread over columns, ``None`` if they are not.

    They are if columns that are named like parts of a date or a clock time together tell more rows
    apart than the one that was taken for the time; or if one of them was taken for the id of dates.

    Args:
        profiles: the columns in ``keys``, and those whose roles are not known.
        keys: the guess.
    """
    by_name = {one.name: one for one in profiles}
    id_ = None if keys.id is None else by_name[keys.id]
    time = None if keys.time is None else by_name[keys.time]
    parts = _find_parts(profiles)
    if time is not None and time.kind == DATES and id_ in parts.values():
        parts = {"date": time, **{unit: one for unit, one in parts.items() if one is id_}}
    elif (time is None or time in parts.values()) and _are_keys(parts.values(), id_, time):
        parts = dict(parts)
    else:
        return None
    names = [repr(one.name) for one in parts.values()]
    formula = _format_pandas(parts)
    how = f", for example with pandas: frame['time'] = {formula}" if formula else ""
    return (
        f"the time is spread over the columns {', '.join(names[:-1])} and {names[-1]}. Join them "
        f"into one column of times{how}. Or name a column that is the time by itself (--time), or "
        "none: --time none."
    )


def _find_parts(profiles: Sequence[ColumnProfile]) -> Mapping[str, ColumnProfile]:
    """Return the first column of each unit, the longest unit first."""
    found: dict[str, ColumnProfile] = {}
    for one in profiles:
        match = _LAST_WORD.search(one.name)
        word = "" if match is None else match[1].lower()
        unit = _SHORT_NAMES.get(word, word)
        if unit not in _RANGES:
            continue
        low, high = _RANGES[unit]
        if one.kind == INTEGERS and one.values is not None:
            fits = bool(low <= np.nanmin(one.values) and np.nanmax(one.values) <= high)
        else:
            fits = unit == "month" and one.kind == TEXT and one.count <= high
        if fits:
            found.setdefault(unit, one)
    return {unit: found[unit] for unit in _RANGES if unit in found}


def _are_keys(
    parts: Iterable[ColumnProfile], id_: ColumnProfile | None, time: ColumnProfile | None
) -> bool:
    """Whether columns together tell more rows apart than the time does."""
    parts = list(parts)
    if len(parts) < 2:
        return False
    together = np.zeros(len(parts[0].codes), np.int64)
    if id_ is not None and id_ not in parts:
        together = combine_codes(together, id_.codes)
    alone = together if time is None else combine_codes(together, time.codes)
    for one in parts:
        together = combine_codes(together, one.codes)
    share = compute_unique_share(together)
    return share > compute_unique_share(alone) + _MIN_GAIN and (
        time is not None or share > _MOSTLY_UNIQUE
    )


def _format_pandas(parts: Mapping[str, ColumnProfile]) -> str | None:
    """Return an expression of pandas that joins columns, ``None`` if there is no simple one."""
    columns = {unit: f"frame[{one.name!r}]" for unit, one in parts.items()}
    if any(one.kind == TEXT for one in parts.values()):
        return None
    terms = [
        f"pandas.to_timedelta({columns[unit]}, {short!r})"
        for unit, short in _TIMEDELTA_UNITS.items()
        if unit in columns
    ]
    if "date" in columns:
        return " + ".join([f"pandas.to_datetime({columns['date']})", *terms])
    if "month" in columns:
        dates = {"year": "2000", "month": "1", "day": "1", **columns}
        fields = ", ".join(f"{unit!r}: {text}" for unit, text in dates.items())
        note = "" if "year" in columns else ", with the right year"
        return f"pandas.to_datetime({{{fields}}}){note}"
    return None if "year" in columns else " + ".join(terms)
