"""Which columns of a table may be its ids, its times and, in a long table, variable and value.

Contents decide: an id is a column within which times run forward and no time comes twice. Names of
columns decide between columns that fit equally well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cell_values import Floats, Indices
from .column_profile import (
    BOOLEANS,
    CLOCK,
    DATES,
    EMPTY,
    INTEGERS,
    TEXT,
    ColumnProfile,
    combine_codes,
    is_whole_day,
    share,
    unique_share,
)
from .sequences import NO_TIMES, Sequences

_SUBJECTS = (
    *("patient", "pat", "pt", "subject", "subj", "person", "participant", "stay", "admission"),
    *("customer", "user", "client", "animal", "record", "station", "device", "sensor", "site"),
    *("machine", "vehicle", "series", "sequence", "country", "city", "store", "location"),
    *("item", "trial", "experiment", "run", "group", "case", "household", "firm", "company"),
)
_ID = re.compile(
    rf"(?i:(^|[_\W])(id|uid|uuid|key|pid|sid|(unit|{'|'.join(_SUBJECTS)})s?[_\W]?"
    rf"(id|nr|no|num|number|code|name)|({'|'.join(_SUBJECTS)})s?)$|(rand|pt|sub|pat)(id|num|no)$"
    r"|^id[_\W])|[a-z]ID$|[a-z]Id$"
)
_NO_ID = re.compile(
    r"(?i:(type|class|status|category|event|code|label|weather|reason|test|unit|item)[_\W]?id$)"
)
_TIME = re.compile(
    r"(?i:(^|[_\W])((date|chart|obs|visit|sample|event|start)?[_\W]?(time|times|timestamp|date|"
    r"datetime)|ts|hours?|hrs|minutes?|mins|seconds?|secs|days?|weeks?|months?|years?|when|t)\d?"
    r"([_\W](utc|local|h|s|ms|min|hours?|minutes?|seconds?|days?|hour))?$)|[a-z](Time|Date|Day)$"
)
_AGE = re.compile(r"(?i:(^|[_\W])(age|elapsed|exper|experience)$)")
_COUNTER = re.compile(r"(?i:(^|[_\W])(visit|period|wave|round|step|seq|index|age|epoch|no)s?$)")
_VARIABLE = re.compile(
    r"(?i:(^|[_\W])(variable|parameter|param|item|itemid|code|what|measure|measurement|test|analyte|"
    r"signal|channel|metric|feature|attribute)(s|name|id|_name|_id)?$)"
)
_VALUE = re.compile(
    r"(?i:(^|[_\W])(value|val|valuenum|numeric_value|reading|result|amount|level)s?(num)?$)"
)
PARTS = {
    "year": (0, 9999),
    "month": (1, 12),
    "day": (0, 366),
    "hour": (0, 24),
    "minute": (0, 60),
    "second": (0, 60),
}
"""Parts of a date that columns may be named after, and the numbers that they may hold."""
PART = re.compile(
    r"(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))(year|yr|month|mnth|mon|day|hour|hr|minute|min|second|sec)s?$",
    re.I,
)
SHORT_PARTS = {"yr": "year", "mnth": "month", "mon": "month", "hr": "hour", "min": "minute"}
_MAX_CANDIDATES = 6
_PERIODS = {"year": 8765.8, "month": 730.5, "day": 24.0, "hour": 1.0, "minute": 1 / 60}


@dataclass(frozen=True)
class Keys:
    """Columns of ids and times, and how well they tell the rows apart."""

    id: ColumnProfile | None
    time: ColumnProfile | None
    unique: float
    steps: Floats
    long: tuple[str, str] | None = None


class KeySearch:
    """Tries columns as ids and times.

    Args:
        profiles: what each column holds.
        known: what is known: names as ``id``, ``time`` and ``long``; ``None`` for no such column.
        taken: names of columns with other roles.
    """

    def __init__(
        self, profiles: Sequence[ColumnProfile], known: Mapping[str, Any], taken: Sequence[str]
    ) -> None:
        self.profiles, self.known = profiles, known
        self.by_name = {one.name: one for one in profiles}
        self.rows = len(profiles[0].codes)
        self.free = [one for one in profiles if one.name not in taken and one.kind != EMPTY]

    def choose(self) -> Keys:
        """Return which columns are ids, times, variable and value."""
        ids: list[ColumnProfile | None] = [None]
        if self.known.get("id") is not None:
            ids = [self.by_name[self.known["id"]]]
        elif "id" not in self.known:
            ids += self._list_ids()
        whole = self._pair_with_time(ids[0])
        if whole.long is not None and len(ids) > 1:  # a unit is no id
            variable = self.by_name[whole.long[0]].codes
            ids = [one for one in ids if one is None or not one.is_constant_in(variable)]
        found = [whole, *map(self._pair_with_time, ids[1:])]
        scores = [self._score_id(one, found[0]) for one in found]
        return found[int(np.argmax(scores))]

    def _list_ids(self) -> list[ColumnProfile]:
        rows, fitting = self.rows, []
        for place, one in enumerate(self.free):
            named = is_id_name(one.name)
            fits = one.kind in (TEXT, INTEGERS, BOOLEANS) and one.missing <= 0.01 and one.count > 1
            if not fits or one.is_row_number or (_VARIABLE.search(one.name) and not named):
                continue
            if rows / one.count >= (1.1 if named else 1.5):
                fitting.append(((not named, not one.is_contiguous, one.count), place, one))
        return [one for _, _, one in sorted(fitting, key=lambda f: f[:2])[:_MAX_CANDIDATES]]

    def _pair_with_time(self, id_: ColumnProfile | None) -> Keys:
        group = np.zeros(self.rows, np.int64) if id_ is None else id_.codes
        none = Keys(id_, None, unique_share(group), np.zeros(0))
        if "time" in self.known:
            name = self.known["time"]
            times = [] if name is None else [self.by_name[name]]
        else:
            times = [one for one in self.free if self._may_be_time(one) and one is not id_]
        best, most = none, 0.5
        for one in times:
            pair = self._pair(id_, group, one)
            score = self._score_time(pair)
            if "time" in self.known or (score is not None and score > most):
                best, most = pair, score if score is not None else 0.0
        return best

    def _may_be_time(self, one: ColumnProfile) -> bool:
        named = is_time_name(one.name)
        if one.values is None or one.count < 2 or one.missing > 0.02 or one.kind == CLOCK:
            return False
        if one.is_row_number and not named:
            return False
        moves = one.rising > 0.4 or (one.falling < 0.02 and one.count > 4)
        return one.is_time or named or (moves and one.kind != BOOLEANS and not is_id_name(one.name))

    def _pair(self, id_: ColumnProfile | None, group: Indices, time: ColumnProfile) -> Keys:
        assert time.values is not None
        order = np.argsort(group, kind="stable")
        inner = group[order[1:]] == group[order[:-1]]
        steps = (time.values[order[1:]] - time.values[order[:-1]])[inner]
        unique, long = unique_share(group, time.codes), None
        if self.known.get("long"):
            long = tuple(self.known["long"])
        elif unique < 0.99 and "long" not in self.known:
            long = self._find_long(id_, time, combine_codes(group, time.codes))
        if long is not None:
            unique = unique_share(group, time.codes, self.by_name[long[0]].codes)
        return Keys(id_, time, unique, steps, long)

    def _find_long(
        self, id_: ColumnProfile | None, time: ColumnProfile, codes: Indices
    ) -> tuple[str, str] | None:
        """Return columns of variable and value that tell rows of one time apart."""
        others = [one for one in self.free if one not in (id_, time)]
        others = [one for one in others if not one.is_constant_in(codes) and not one.is_row_number]
        variables = [
            one
            for one in others
            if (one.kind == TEXT or (one.kind == INTEGERS and _VARIABLE.search(one.name)))
            and 2 <= one.count <= min(1000, len(codes) / 4)
            and one.missing == 0
            and (id_ is not None or _VARIABLE.search(one.name))
            and unique_share(codes, one.codes) > 0.9
        ]
        variables.sort(key=lambda one: (not _VARIABLE.search(one.name), one.count))
        for variable in variables:
            values = [
                one
                for one in others
                if one is not variable and not one.is_constant_in(variable.codes)
            ]
            numbers = [one for one in values if one.is_number]
            named = [one for one in numbers if _VALUE.search(one.name)]
            numbers = named if len(numbers) > 1 else numbers
            if len(numbers) == 1 and (len(values) == 1 or _VARIABLE.search(variable.name)):
                return variable.name, numbers[0].name
        return None

    def _score_time(self, pair: Keys) -> float | None:
        """Return how well a column does as the times of an id, ``None`` if it is none."""
        time, steps = pair.time, pair.steps
        assert time is not None
        named = is_time_name(time.name)
        if not steps.size or share(steps == 0) > (0.98 if pair.long else 0.9):
            return None
        moves = steps[steps != 0] if pair.long else steps
        strictly = max(share(moves > 0), share(moves < 0))
        if pair.unique < 0.3 and not (pair.id is not None and is_id_name(pair.id.name)):
            return None
        if not time.is_time and not named and (strictly < 0.97 or pair.unique < 0.9):
            return None
        counter = bool(_COUNTER.search(time.name)) or (
            time.kind == INTEGERS and share(steps == 1) > 0.97
        )
        if not time.is_time and not named and counter and pair.id is None:
            return None
        return (
            4 * time.is_time
            + 3 * named
            + 2 * bool(_AGE.search(time.name))  # beside what else grows, such as a height
            - counter
            + (strictly > 0.95)
            + 4 * pair.unique
            + (pair.unique == 1)
            - 2 * (time.missing > 0)
        )

    def _score_id(self, pair: Keys, whole: Keys) -> float:
        """Return how well a column does as the id, 0 without one, below 0 if it is none."""
        one, time = pair.id, pair.time
        if one is None:
            return 0.0
        if "id" in self.known:
            return 1.0
        named = is_id_name(one.name)
        points = 2.0 * named
        alone = whole.unique if whole.time is not None else 0.0
        if time is None:
            if whole.time is not None or (not one.is_contiguous and not named):
                return -1.0
            points += 1 + (one.kind == INTEGERS and one.falling == 0) - 2.5
        else:
            forward = max(share(pair.steps >= 0), share(pair.steps <= 0))
            if one.is_contiguous and forward > 0.95:
                points += 2 if alone < 0.9 or self._restarts(one, time) else 0
            points += self._starts_together(one, time)
            points -= (1 + (pair.unique < 0.5)) * (pair.unique < 0.9)
            needed = 1.0 if alone < 0.9 else 2.0
            if alone > 0.99 and _is_even(whole):
                needed = 4.0
            points -= needed - 0.01
        points += any(
            other.count > 1 and other not in (one, time) and other.is_constant_in(one.codes)
            for other in self.profiles
        )
        if points < 0:
            return -1.0
        tidy = 0.0 if time is None else 2 * (pair.unique > 0.99) + (pair.unique > 0.95)
        return float(points + tidy - 0.1 * np.log10(one.count) + 0.5)

    @staticmethod
    def _restarts(one: ColumnProfile, time: ColumnProfile) -> bool:
        assert time.values is not None
        firsts = np.flatnonzero(np.diff(one.codes, prepend=-2) != 0)[1:]
        return share(time.values[firsts] < time.values[firsts - 1]) > 0.5

    @staticmethod
    def _starts_together(one: ColumnProfile, time: ColumnProfile) -> bool:
        assert time.values is not None
        least = np.full(int(one.codes.max()) + 1, np.inf)
        np.fmin.at(least, one.codes[one.codes >= 0], time.values[one.codes >= 0])
        return share(least == np.median(least)) > 0.9

    def find_spread_time(self, keys: Keys) -> list[str] | None:
        """Return the columns that hold parts of the times, if they are several."""
        chosen = keys.time
        if chosen is not None and chosen.kind == DATES and not is_whole_day(chosen):
            return None
        free = [one for one in dict.fromkeys([*self.free, keys.id, chosen]) if one is not None]
        days = [one for one in free if one.kind == DATES and is_whole_day(one)]
        parts: dict[str, ColumnProfile] = {}
        for one in free:
            found = PART.search(one.name)
            part = "" if found is None else found[1].lower()
            part = SHORT_PARTS.get(part, part)
            low, high = PARTS.get(part, (0, 0))
            fits = part == "month" and one.kind == TEXT and one.count <= high
            if one.kind == INTEGERS and one.values is not None:
                fits = low <= np.nanmin(one.values) and np.nanmax(one.values) <= high
            if fits and part in PARTS:
                parts.setdefault(part, one)
        clocks = [one for one in free if one.kind == CLOCK]
        clocks += [parts[name] for name in ("hour", "minute", "second") if name in parts]
        dated = [parts[name] for name in ("year", "month", "day") if name in parts]
        names: list[ColumnProfile] = [*dated, *clocks]
        if days and clocks:
            names = [days[0], *clocks]
        elif (len(dated) < 2 and not (chosen is None or chosen in names)) or chosen in days:
            return None
        if len(names) < 2:
            return None
        group = np.zeros(self.rows, np.int64)
        if keys.id is not None and keys.id not in names:
            group = keys.id.codes
        alone = unique_share(group) if chosen is None else unique_share(group, chosen.codes)
        together = unique_share(group, *(one.codes for one in names))
        if chosen is not None and chosen not in names and alone > 0.99:
            return None
        return [one.name for one in names] if together > alone + 0.01 or chosen is None else None


def is_time_name(name: str) -> bool:
    """Whether a column is named like times."""
    return bool(_TIME.search(name))


def is_id_name(name: str) -> bool:
    """Whether a column is named like ids."""
    return bool(_ID.search(name)) and not _NO_ID.search(name)


def _is_even(pair: Keys) -> bool:
    """Whether the time steps of a single series are even."""
    assert pair.time is not None
    assert pair.time.values is not None
    steps = np.diff(np.sort(pair.time.values[~np.isnan(pair.time.values)]))
    steps = steps[steps > 0]
    return bool(steps.size) and share(np.isclose(steps, np.median(steps), rtol=1e-3)) > 0.9


def repeats_times(one: ColumnProfile, sequences: Sequences) -> bool:
    """Whether a column repeats the times: a part of a date, or times from another start."""
    if one.values is None or one.kind != INTEGERS or sequences.unit == NO_TIMES:
        return False
    if len(sequences) == len(sequences.rows):
        return False
    gaps = np.delete(sequences.compute_dt(), sequences.starts)
    values = one.values[sequences.rows]
    steps = np.delete(np.diff(values, prepend=0.0), sequences.starts)
    if not sequences.dated:
        return share(steps == gaps) > 0.999
    found = PART.search(one.name)
    unit = "" if found is None else found[1].lower()
    unit = SHORT_PARTS.get(unit, unit)
    if unit not in _PERIODS:
        return False
    period = {"month": 12.0, "day": 30.44, "hour": 24.0, "minute": 60.0}.get(unit, np.inf)
    error = steps - gaps / _PERIODS[unit]
    if np.isfinite(period):
        error = (error + period / 2) % period - period / 2
    return share(np.abs(error) <= (3.0 if unit == "day" else 1.0)) > 0.95
