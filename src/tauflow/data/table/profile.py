"""What the columns of a table hold, and how they relate, before their roles are known."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tauflow.errors import TauflowError

from .categorical import Categorical, factorize
from .sequences import Sequences
from .table import BOOLEAN_TEXTS, Bools, Floats, Indices, Table, parse_number
from .time_formats import infer_time_formats, is_date, parse_times
from .times import Times, read_times

EMPTY, DATES, DURATIONS, BOOLEANS = "nothing", "dates", "durations", "booleans"
INTEGERS, FLOATS, TEXT = "whole numbers", "numbers", "text"


_CALENDAR_UNITS = {  # hours, period, and by how much whole numbers may differ
    "year": (8765.8, np.inf, 1.0),
    "month": (730.5, 12.0, 1.0),
    "day": (24.0, 30.44, 3.0),
    "hour": (1.0, 24.0, 1.0),
    "minute": (1 / 60, 60.0, 1.0),
    "second": (1 / 3600, 60.0, 1.0),
}
"""Parts of a date that a column may repeat."""


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
_MIN_GAIN = 0.1  # of the share of unique rows, for columns to be taken together
_MOSTLY_UNIQUE = 0.9


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What a column holds.

    Args:
        name: of the column.
        kind: ``"nothing"``, ``"dates"``, ``"durations"``, ``"booleans"``, ``"whole numbers"``,
            ``"numbers"`` or ``"text"``.
        codes: which of its different values each row holds, (R,), -1 where missing.
        count: number of different values.
        values: numbers that order the rows, (R,), NaN where missing; ``None`` if there is no order.
        time_format: in which it is to be read as a time.
    """

    name: str
    kind: str
    codes: Indices
    count: int
    values: Floats | None = None
    time_format: str | None = None

    @property
    def holds(self) -> str:
        """Words for what the column holds."""
        if self.kind in (EMPTY, DATES, DURATIONS, BOOLEANS):
            return self.kind
        return f"{self.kind}, {self.count} different"

    @cached_property
    def missing(self) -> float:
        """Share of the rows without a value."""
        return compute_share(self.codes < 0)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether all rows of one value follow each other."""
        return int((np.diff(self.codes) != 0).sum()) + 1 == self.count

    @cached_property
    def rising_share(self) -> float:
        """Share of the rows whose value is above that of the row before."""
        return 0.0 if self.values is None else compute_share(np.diff(self.values) > 0)

    @cached_property
    def falling_share(self) -> float:
        """Share of the rows whose value is below that of the row before."""
        return 1.0 if self.values is None else compute_share(np.diff(self.values) < 0)

    @property
    def is_row_number(self) -> bool:
        """Whether the values are 1, 2, 3, ... or the like in the order of the rows."""
        if self.kind != INTEGERS or self.values is None or len(self.values) < 3:
            return False
        return compute_share(np.diff(self.values) == 1) > 0.99 and self.count == len(self.values)


def compute_share(condition: Bools) -> float:
    """Return the share of the places where something holds, 0 of none."""
    return float(condition.mean()) if condition.size else 0.0


def profile_column(table: Table, name: str, time_format: str | None = None) -> ColumnProfile:
    """Return what a column holds.

    Args:
        table: the table.
        name: of the column.
        time_format: in which the column holds times, if that is known.
    """
    column, missing = table.columns[name], table.find_missing(name)
    codes = np.full(len(table), -1)
    there = np.flatnonzero(~missing)
    if not there.size:
        return ColumnProfile(name, EMPTY, codes, 0)
    cells = column[there]
    keys = cells.codes if isinstance(cells, Categorical) else cells
    codes[there] = factorize(keys.view("i8") if keys.dtype.kind in "mM" else keys)[0]
    firsts = np.unique(codes[there], return_index=True)[1]
    rows = there[firsts]
    found = ColumnProfile(name, TEXT, codes, len(rows))
    times = _detect_times(table, name, rows, codes[there], time_format)
    if times is not None:
        return replace(
            found, kind=times[0], values=np.append(times[1], np.nan)[codes], time_format=times[2]
        )
    if isinstance(column, Categorical):
        different = column[rows].tolist()
        numbers = [parse_number(cell) for cell in different]
        is_bool = set(map(str, different)) <= set(BOOLEAN_TEXTS)
        if is_bool or None in numbers:
            return replace(found, kind=BOOLEANS) if is_bool else found
        values = np.array(numbers, np.float64)
    elif column.dtype.kind == "b":
        return replace(found, kind=BOOLEANS)
    else:
        values = column[rows].astype(np.float64)
    kind = INTEGERS if bool((values == np.floor(values)).all()) else FLOATS
    return replace(found, kind=kind, values=np.append(values, np.nan)[codes])


def _detect_times(
    table: Table, name: str, rows: Indices, codes: Indices, form: str | None
) -> tuple[str, Floats, str | None] | None:
    """Return kind, different values and format of the times in a column; ``None`` for others.

    Of several formats it is the one with which most times are later than those of the row before,
    and of these the one with fewer different gaps.
    """
    column = table.columns[name][rows]
    few = replace(table, columns={name: column}, row_numbers=table.row_numbers[rows])
    cells = column.categories if isinstance(column, Categorical) else column.tolist()
    forms: tuple[str | None, ...] = (form,)
    if form is None and (isinstance(column, Categorical) or column.dtype.kind in "iu"):
        first = cells[int(column.codes[0])] if isinstance(column, Categorical) else cells[0]
        forms = infer_time_formats(cells) if infer_time_formats([first]) else forms
        if forms == (None,) and not is_date(str(first)):
            return None
    elif form is None and column.dtype.kind not in "mM":
        return None
    found = [_try_format(few, name, one) for one in forms]
    fits = []
    for one in found:
        gaps = None if one is None else np.diff(one[1][codes])
        fits.append((-1.0, 0) if gaps is None else (compute_share(gaps > 0), -len(np.unique(gaps))))
    if not fits or fits.count(max(fits)) > 1:
        return None  # nothing tells which
    best = fits.index(max(fits))
    times = found[best]
    return None if times is None else (*times, forms[best])


def _try_format(table: Table, name: str, form: str | None) -> tuple[str, Floats] | None:
    """Return kind and values of times in a format, ``None`` if they are written otherwise."""
    try:
        read = table if form is None else parse_times(table, name, form)
        times = read_times(read, name, None)
    except TauflowError:
        return None
    kind = read.columns[name].dtype.kind if times.dated else ""
    return {"m": DURATIONS, "": FLOATS}.get(kind, DATES), times.values


def is_constant_per_group(codes: Indices, group: Indices) -> bool:
    """Whether all rows of a group that have a value have the same, both (R,)."""
    there = np.flatnonzero(codes >= 0)
    first = np.full(int(group.max()) + 1, -1)
    first[group[there[::-1]]] = codes[there[::-1]]
    return bool((codes[there] == first[group[there]]).all())


def is_static(one: ColumnProfile, owners: Indices, firsts: Bools) -> bool:
    """Whether each id has one value of a column, from its first row on."""
    there = one.codes >= 0
    having = np.zeros(int(owners.max()) + 1, np.bool_)
    having[owners[there]] = True
    early = np.zeros_like(having)
    early[owners[there & firsts]] = True
    return bool((early == having).all()) and is_constant_per_group(one.codes, owners)


def is_derived_from_times(one: ColumnProfile, sequences: Sequences, times: Times) -> bool:
    """Whether a column repeats the times: a part of a date, or times from another start."""
    if one.values is None or one.kind != INTEGERS or len(sequences) == len(sequences.rows):
        return False
    gaps = np.delete(sequences.dt(), sequences.starts)
    values = one.values[sequences.rows]
    steps = np.delete(np.diff(values, prepend=0.0), sequences.starts)
    if not times.dated:
        return compute_share(steps == gaps) > 0.999
    words = re.split(r"[\W_]+", one.name.lower())
    unit = next((unit for unit in _CALENDAR_UNITS if unit in words), None)
    if unit is None:
        return False
    hours, period, off = _CALENDAR_UNITS[unit]
    error = steps - gaps / hours
    if np.isfinite(period):
        error = (error + period / 2) % period - period / 2
    return compute_share(np.abs(error) <= off) > 0.95


class Grouping:
    """The rows of a table by an id, in the order of the table."""

    def __init__(self, profile: ColumnProfile | None, rows: int) -> None:
        self.profile = profile
        self.codes: Indices = np.zeros(rows, np.int64) if profile is None else profile.codes
        self.name = None if profile is None else profile.name
        self.in_order = profile is None or profile.is_contiguous
        order = np.arange(rows) if self.in_order else np.argsort(self.codes, kind="stable")
        self.before, self.after = order[:-1], order[1:]
        within = self.codes[self.before] == self.codes[self.after]
        self.first_rows = order[np.append(True, ~within)]
        self.before, self.after = self.before[within], self.after[within]

    def is_constant(self, other: ColumnProfile) -> bool:
        """Whether another column holds one value, and no gap, in all rows of each id."""
        codes = other.codes
        return bool((codes[self.before] == codes[self.after]).all() and (codes >= 0).all())


def combine_codes(first: Indices, second: Indices) -> Indices:
    """Return codes of pairs."""
    return factorize(first * (int(second.max()) + 2) + second + 1)[0]


def compute_unique_share(codes: Indices) -> float:
    """Return how many codes differ, as a share of the rows."""
    return (int(codes.max()) + 1) / len(codes)


def describe_spread_time(
    profiles: Sequence[ColumnProfile], id_: ColumnProfile | None, time: ColumnProfile | None
) -> str | None:
    """Return what to do about times that are spread over columns, ``None`` if they are not.

    They are if columns that are named like parts of a date or a clock time together tell more rows
    apart than the one that was taken for the time; or if one of them was taken for the id of dates.

    Args:
        profiles: the columns that are guessed to be these, and those whose roles are not known.
        id_: the guessed id.
        time: the guessed time.
    """
    parts = _find_parts(profiles)
    if time is not None and time.kind == DATES and id_ in parts.values():
        parts = {"date": time, **{unit: one for unit, one in parts.items() if one is id_}}
    elif (time is None or time in parts.values()) and _are_keys(parts.values(), id_, time):
        parts = dict(parts)
    else:
        return None
    names = [repr(one.name) for one in parts.values()]
    return (
        f"the time is spread over the columns {', '.join(names[:-1])} and {names[-1]}. Join them "
        "into one column of times, for example by pandas.to_datetime, which takes a frame with the "
        "columns year, month, day and hour. Or name a column that is the time by itself (--time), "
        "or none: --time none."
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
