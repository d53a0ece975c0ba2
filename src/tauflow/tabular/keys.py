"""Which columns of a table may be its ids, its times and, in a long table, variable and value.

Every pair of an id and a time gets points: an id is a column within which no time comes twice and
times run forward. Names of columns decide between pairs that fit equally well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tauflow._internal.optional_deps import require

from .cell_values import Bools, Indices
from .column_profile import CLOCK, DATES, EMPTY, INTEGERS, TEXT, ColumnProfile, share

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
_PART = re.compile(
    r"(?:^|[\W_]|(?<=[a-z])(?=[A-Z]))(year|yr|month|mnth|mon|day|hour|hr|minute|min|second|sec)s?$",
    re.I,
)
_SHORT = {"yr": "year", "mnth": "month", "mon": "month", "hr": "hour", "min": "minute"}
_MAX_IDS = 6


@dataclass(frozen=True)
class Keys:
    """Columns of ids and times, and the share of the rows that they tell apart."""

    id: ColumnProfile | None
    time: ColumnProfile | None
    unique: float
    long: tuple[str, str] | None = None
    points: float = 0.0


class KeySearch:
    """Tries columns as ids and times.

    Args:
        profiles: what each column holds.
        known: what is known: names as ``id``, ``time`` and ``long``; ``None`` for no such column.
        barred: names of columns with other roles.
    """

    def __init__(
        self, profiles: Sequence[ColumnProfile], known: Mapping[str, Any], barred: Sequence[str]
    ) -> None:
        pandas = require("pandas", extra="tables")
        self.known, self.rows = known, len(profiles[0].codes)
        self.by_name = {column.name: column for column in profiles}
        self.factorize = pandas.factorize
        self.free = [
            column for column in profiles if column.name not in barred and column.kind != EMPTY
        ]

    def count_unique(self, *columns: ColumnProfile | None) -> float:
        """Return how many rows differ in some columns, as a share of all."""
        return (
            int(self.combine([None if column is None else column.name for column in columns]).max())
            + 1
        ) / self.rows

    def combine(self, names: Sequence[str | None]) -> Indices:
        """Return codes of rows that are alike in all of some columns."""
        combined = np.zeros(self.rows, np.int64)
        for name in names:
            if name is not None:
                column = self.by_name[name]
                combined = self.factorize(combined * (column.count + 1) + column.codes + 1)[0]
        return combined

    def choose(self) -> Keys:
        """Return which columns are ids, times, variable and value."""
        has_dates = any(column.kind == DATES for column in self.free)
        times = [
            column
            for column in self.free
            if column.values is not None
            and (is_time_name(column.name) or not column.is_row_number)
            and not (column.kind == CLOCK and has_dates)
        ]
        if "time" in self.known:
            times = [self.by_name[self.known["time"]]] if self.known["time"] else []
        if "id" in self.known:
            ids = [self.by_name[self.known["id"]] if self.known["id"] else None]
        else:
            ids = [None, *self._list_ids()]
        candidates = self._pair_with_times(ids[0], times)
        if candidates[-1].long and len(ids) > 1:  # a unit is no id
            variable = self.by_name[candidates[-1].long[0]].codes
            ids = [
                column for column in ids if column is None or not column.is_constant_in(variable)
            ]
        for column in ids[1:]:
            candidates += self._pair_with_times(column, times)
        return max(candidates, key=lambda keys: keys.points)

    def _list_ids(self) -> list[ColumnProfile]:
        fitting = []
        for column in self.free:
            named = is_id_name(column.name)
            fits = column.kind in (TEXT, INTEGERS) and column.missing <= 0.01 and column.count > 1
            if not fits or column.is_row_number:
                continue
            if self.rows / column.count >= (1.1 if named else 1.5):
                fitting.append(column)
        fitting.sort(key=lambda o: (not is_id_name(o.name), not o.is_contiguous, o.count))
        return fitting[:_MAX_IDS]

    def _pair_with_times(
        self, id_: ColumnProfile | None, times: Sequence[ColumnProfile]
    ) -> list[Keys]:
        """Return an id without times, and with each column that may be its times, the best last."""
        points = 0.0
        if id_ is not None:
            points = 2.5 * is_id_name(id_.name) + id_.is_contiguous - 2.0
            points += 2 * (id_.is_contiguous and self._has_static_column(id_))
        candidates = [Keys(id_, None, self.count_unique(id_), points=points)]
        group = np.zeros(self.rows, np.int64) if id_ is None else id_.codes
        order = np.argsort(group, kind="stable")
        inner = np.diff(group[order]) == 0
        pairs = [self._pair(id_, column, order, inner) for column in times if column is not id_]
        return candidates + sorted((p for p in pairs if p), key=lambda keys: keys.points)

    def _has_static_column(self, id_: ColumnProfile) -> bool:
        """Whether another column has one value for each of at least ten ids."""
        if id_.count < 10 or is_time_name(id_.name):
            return False
        others = (column for column in self.free if column is not id_ and column.count > 1)
        return any(column.is_constant_in(id_.codes) for column in others)

    def _pair(
        self, id_: ColumnProfile | None, time: ColumnProfile, order: Indices, inner: Bools
    ) -> Keys | None:
        """Return an id and a time with their points; ``None`` if they are no key."""
        assert time.values is not None
        steps = np.diff(time.values[order])[inner]
        named, is_said = is_time_name(time.name), "time" in self.known
        is_plain = not (named or time.is_time)
        if is_plain and not is_said and is_id_name(time.name):
            return None
        if time.kind == CLOCK and not is_said and (id_ is None or (steps < 0).any()):
            return None  # a time of day; what never turns back within an id has elapsed
        unique, long = self.count_unique(id_, time), None
        if self.known.get("long"):
            long = tuple(self.known["long"])
        elif unique < 0.99 and "long" not in self.known:
            long = self._find_long(id_, time)
        if long is not None:
            unique = self.count_unique(id_, time, self.by_name[long[0]])
        moves = steps[steps != 0] if long else steps
        strictly = max(share(moves > 0), share(moves < 0))
        stands = not steps.size or share(steps == 0) > (0.98 if long else 0.9)
        few = unique < 0.3 and not (id_ is not None and is_id_name(id_.name))
        alone = is_plain and (strictly < 0.97 or unique < 0.9)
        if not is_said and (stands or few or alone or time.missing > 0.02):
            return None
        points = 4.0 * time.is_time + 3 * named + 2 * bool(_AGE.search(time.name))
        points += (strictly > 0.95) + 4 * unique + (unique == 1)
        needed = 0.9 if strictly > 0.95 else 1.0
        if id_ is not None:
            fits = unique >= needed and not is_time_name(id_.name)
            points += 3 if is_id_name(id_.name) else -3 * (not fits)
            points += 2 * self._restarts(id_, time, order) - 1.5
        return Keys(id_, time, unique, long, points)

    @staticmethod
    def _restarts(id_: ColumnProfile, time: ColumnProfile, order: Indices) -> bool:
        """Whether times start again, earlier, with each block of rows of one id."""
        assert time.values is not None
        first = np.flatnonzero(np.diff(id_.codes[order], prepend=-2) != 0)[1:]
        starts, ends = time.values[order][first], time.values[order][first - 1]
        return id_.is_contiguous and share(starts <= ends) > 0.5

    def _find_long(self, id_: ColumnProfile | None, time: ColumnProfile) -> tuple[str, str] | None:
        """Return columns of variable and value that tell rows of one time apart."""
        keys = self.combine([None if id_ is None else id_.name, time.name])
        others = [
            column for column in self.free if column not in (id_, time) and not column.is_row_number
        ]
        others = [column for column in others if not column.is_constant_in(keys)]
        variables = [
            column
            for column in others
            if (column.kind == TEXT or (column.kind == INTEGERS and _VARIABLE.search(column.name)))
            and 2 <= column.count <= min(1000, self.rows / 4)
            and column.missing == 0
            and (id_ is not None or _VARIABLE.search(column.name))
            and self.count_unique(id_, time, column) > 0.9
        ]
        for variable in sorted(variables, key=lambda o: (not _VARIABLE.search(o.name), o.count)):
            values = [
                column
                for column in others
                if column is not variable and not column.is_constant_in(variable.codes)
            ]
            numbers = [column for column in values if column.is_number]
            named = [column for column in numbers if _VALUE.search(column.name)]
            numbers = named if len(numbers) > 1 else numbers
            if len(numbers) == 1 and (len(values) == 1 or _VARIABLE.search(variable.name)):
                return variable.name, numbers[0].name
        return None

    def find_spread_time(self, keys: Keys) -> list[str] | None:
        """Return the columns that hold parts of the times, if they are several."""
        chosen = keys.time
        if chosen is not None and chosen.kind == DATES and not chosen.is_whole_day:
            return None
        free = [
            column for column in dict.fromkeys([*self.free, keys.id, chosen]) if column is not None
        ]
        days = [column for column in free if column.kind == DATES and column.is_whole_day][:1]
        parts = {part: column for column in reversed(free) if (part := find_part(column))}
        clocks = [column for column in free if column.kind == CLOCK]
        clocks += [parts[name] for name in ("hour", "minute", "second") if name in parts]
        dated = [parts[name] for name in ("year", "month", "day") if name in parts]
        names = [*(days if days and clocks else dated), *clocks]
        beside = chosen is not None and chosen not in names
        if len(names) < 2 or (beside and (len(dated) < 2 or chosen in days)):
            return None
        owner = None if keys.id in names else keys.id
        alone = self.count_unique(owner, chosen)
        if beside and alone > 0.99:
            return None
        together = self.count_unique(owner, *names)
        if chosen is None or together > alone + 0.01 or self._turns_back(owner, chosen):
            return [column.name for column in names]
        return None

    @staticmethod
    def _turns_back(owner: ColumnProfile | None, time: ColumnProfile) -> bool:
        """Whether times run backwards in the rows of an id."""
        assert time.values is not None
        codes = np.zeros(len(time.codes), np.int64) if owner is None else owner.codes
        order = np.argsort(codes, kind="stable")
        return bool(((np.diff(time.values[order]) < 0) & (np.diff(codes[order]) == 0)).any())


def find_part(column: ColumnProfile) -> str:
    """Return the part of a date that a column holds by its name and its values."""
    match = _PART.search(column.name)
    name = "" if match is None else match[1].lower()
    part = _SHORT.get(name, name)
    low, high = PARTS.get(part, (0, 0))
    if column.kind == INTEGERS and column.values is not None:
        fits = bool(low <= np.nanmin(column.values) and np.nanmax(column.values) <= high)
    else:
        fits = part == "month" and column.kind == TEXT and column.count <= high
    return part if fits and part in PARTS else ""


def is_time_name(name: str) -> bool:
    """Whether a column is named like times."""
    return bool(_TIME.search(name))


def is_id_name(name: str) -> bool:
    """Whether a column is named like ids."""
    return bool(_ID.search(name)) and not _NO_ID.search(name)
