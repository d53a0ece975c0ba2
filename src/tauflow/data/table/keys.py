"""Which columns of a table are its ids, its times and, in a long table, variable and value.

Contents decide: an id is a column within which times run forward and no time comes twice. Names of
columns only decide between columns that fit equally well.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .coded import numbered
from .profile import BOOLEANS, DATES, DURATIONS, EMPTY, NUMBERS, TEXT, WHOLE, Profile, share
from .sheet import Floats, Indices

_MOST = 6
"""Number of columns that are tried as ids, and as times."""
_MOST_VARIABLES = 1000
_NEARLY = 0.99
_UNIQUE = 0.9


_SUBJECTS = (
    *("patient", "pat", "pt", "subject", "subj", "person", "participant", "stay", "admission"),
    *("customer", "user", "client", "animal", "record", "station", "device", "sensor", "site"),
    *("unit", "machine", "vehicle", "series", "sequence", "country", "city", "store", "location"),
    *("item", "trial", "experiment", "run", "group", "case", "household", "firm", "company"),
)
_ID = re.compile(
    rf"(?i:(^|[_\W])(id|uid|uuid|key|pid|sid|({'|'.join(_SUBJECTS)})s?[_\W]?"
    r"(id|nr|no|num|number|code|name)?)$|(rand|pt|sub|pat)(id|num|no)$|^id[_\W])|[a-z]ID$|[a-z]Id$"
)
_NO_ID = re.compile(
    r"(?i:(type|class|status|category|event|code|label|weather|reason|test|unit)[_\W]?id$)"
)
_TIME = re.compile(
    r"(?i:(^|[_\W])((date|chart|obs|visit|sample|event|start)?[_\W]?(time|times|timestamp|date|"
    r"datetime)|ts|hours?|hrs|minutes?|mins|seconds?|secs|days?|weeks?|months?|years?|when|t)"
    r"([_\W](utc|local|h|s|min|hours?|minutes?|seconds?|days?|hour))?$)|[a-z](Time|Date|Day)$"
)
_COUNTER = re.compile(r"(?i:(^|[_\W])(visit|period|wave|round|step|seq|index|age|epoch|no)s?$)")
_AGE = re.compile(r"(?i:(^|[_\W])(age|elapsed|exper|experience)$)")
_VARIABLE = re.compile(
    r"(?i:(^|[_\W])(variable|parameter|param|item|itemid|code|what|measure|measurement|test|analyte|"
    r"signal|channel|metric|feature|attribute)(s|name|id|_name|_id)?$)"
)
_VALUE = re.compile(r"(?i:(^|[_\W])(value|val|valuenum|reading|result|amount|level)s?(num)?$)")


@dataclass(frozen=True)
class Keys:
    """Which columns tell the rows of a table apart.

    Args:
        id: column of the ids, ``None`` for a single sequence.
        time: column of the times.
        long: columns of variable and value.
        reasons: why each of these columns is that, in words, by name.
        unique: share of the rows that remain if one row of each id, time and variable is kept.
        count: number of ids, 1 without any.
    """

    id: str | None
    time: str | None
    long: tuple[str, str] | None
    reasons: Mapping[str, str]
    unique: float
    count: int


class _Grouping:
    """The rows of a table by an id, in the order of the table."""

    def __init__(self, profile: Profile | None, rows: int) -> None:
        self.profile = profile
        self.codes: Indices = np.zeros(rows, np.int64) if profile is None else profile.codes
        self.name = None if profile is None else profile.name
        self.in_order = profile is None or profile.is_contiguous
        order = np.arange(rows) if self.in_order else np.argsort(self.codes, kind="stable")
        self.before, self.after = order[:-1], order[1:]
        within = self.codes[self.before] == self.codes[self.after]
        self.firsts = order[np.append(True, ~within)]
        self.before, self.after = self.before[within], self.after[within]

    def constant(self, other: Profile) -> bool:
        """Whether another column holds one value, and no gap, in all rows of each id."""
        codes = other.codes
        return bool((codes[self.before] == codes[self.after]).all() and (codes >= 0).all())


@dataclass(frozen=True)
class _Pair:
    """How a column of times does within a grouping."""

    grouping: _Grouping
    time: Profile | None
    unique: float
    forward: float
    long: tuple[Profile, Profile] | None = None


def _may_be_time(grouping: _Grouping, time: Profile) -> bool:
    """Whether a column moves within ids, and in one direction unless name or kind tell a time."""
    assert time.values is not None
    steps = _steps(grouping, time.values)
    steps = steps[steps != 0]
    if time.kind in (DATES, DURATIONS) or is_time_name(time.name):
        return bool(steps.size)
    return max(share(steps > 0), share(steps < 0)) > 0.97


def _steps(grouping: _Grouping, values: Floats) -> Floats:
    found: Floats = values[grouping.after] - values[grouping.before]
    return found


def joined_codes(first: Indices, second: Indices) -> Indices:
    """Return codes of pairs."""
    return numbered(first * (int(second.max()) + 2) + second + 1)[0]


def _unique(codes: Indices) -> float:
    return (int(codes.max()) + 1) / len(codes)


def keys_of(
    profiles: Sequence[Profile], given: Mapping[str, Any], *, barred: Sequence[str] = ()
) -> Keys:
    """Return which columns are ids, times, variable and value.

    Args:
        profiles: what each column holds.
        given: what is known: names as ``id``, ``time`` and ``long``; ``None`` for no such column.
        barred: names of columns with other roles.
    """
    return _Choice(profiles, given, barred).keys()


class _Choice:
    """Tries columns as ids and times."""

    def __init__(
        self, profiles: Sequence[Profile], given: Mapping[str, Any], barred: Sequence[str]
    ) -> None:
        self.rows = len(profiles[0].codes)
        self.by_name = {one.name: one for one in profiles}
        self.places = {one.name: place for place, one in enumerate(profiles)}
        self.given = given
        taken = {*barred, given.get("id"), given.get("time"), *(given.get("long") or ())}
        self.free = [one for one in profiles if one.name not in taken and one.kind != EMPTY]

    def keys(self) -> Keys:
        """Return the best choice."""
        times = self._times()
        whole = self._best_pair(_Grouping(None, self.rows), times)
        if "id" in self.given:
            name = self.given["id"]
            if name is not None:
                whole = self._best_pair(_Grouping(self.by_name[name], self.rows), times)
            return self._found(whole, "given")
        best, most = whole, -math.inf
        for profile in self._ids():
            pair = self._best_pair(_Grouping(profile, self.rows), times)
            score = self._score(pair, whole)
            if score is not None and score > most:
                best, most = pair, score
        return self._found(best, None)

    def _times(self) -> list[Profile | None]:
        """Return the columns that may be times, the likeliest first; ``None`` for none."""
        if "time" in self.given:
            name = self.given["time"]
            return [None if name is None else self.by_name[name]]
        fitting = []
        for one in self.free:
            is_named = is_time_name(one.name)
            if one.values is None or one.count < 2 or one.missing > 0.02:
                continue
            if one.numbers_rows and not is_named:
                continue
            moves = one.rises > 0.4 or (one.falls < 0.02 and one.count > 4)
            moves = moves and not _is_id(one.name)  # numbers of ids in order rise, too
            if one.kind in (DATES, DURATIONS) or is_named or (moves and one.kind != BOOLEANS):
                rank = (one.kind not in (DATES, DURATIONS), not is_named, -one.rises)
                fitting.append((rank, self.places[one.name], one))
        return [*(one for _, _, one in sorted(fitting, key=lambda f: f[:2])[:_MOST]), None]

    def _ids(self) -> list[Profile]:
        """Return the columns that may be ids, the likeliest first."""
        fitting = []
        for one in self.free:
            size = self.rows / one.count
            if one.kind not in (TEXT, WHOLE, BOOLEANS) or one.missing > 0.01 or one.count < 2:
                continue
            if size < (1.1 if _is_id(one.name) else 1.5):
                continue
            rank = (not _is_id(one.name), not one.is_contiguous, one.count)
            fitting.append((rank, self.places[one.name], one))
        return [one for _, _, one in sorted(fitting, key=lambda f: f[:2])[:_MOST]]

    def _best_pair(self, grouping: _Grouping, times: Sequence[Profile | None]) -> _Pair:
        """Return the best column of times within a grouping."""
        none = _Pair(grouping, None, 1.0, 1.0 if grouping.in_order else 0.0)
        best, most = none, 0.5
        for time in times:
            if time is None or time.values is None or time is grouping.profile:
                continue
            if "time" not in self.given and not _may_be_time(grouping, time):
                continue
            pair = self._pair(grouping, time)
            score = self._score_time(pair)
            if "time" in self.given or (score is not None and score > most):
                best, most = pair, math.inf if score is None else score
        return best

    def _pair(self, grouping: _Grouping, time: Profile) -> _Pair:
        codes = joined_codes(grouping.codes, time.codes)
        unique = _unique(codes)
        assert time.values is not None
        steps = _steps(grouping, time.values)
        forward = max(share(steps >= 0), share(steps <= 0))
        long = None
        if self.given.get("long"):
            variable, value = self.given["long"]
            long = (self.by_name[variable], self.by_name[value])
        elif unique < _NEARLY and "long" not in self.given:
            long = self._long(grouping, time, codes)
        if long is not None:
            unique = _unique(joined_codes(codes, long[0].codes))
        return _Pair(grouping, time, unique, forward, long)

    def _long(
        self, grouping: _Grouping, time: Profile, codes: Indices
    ) -> tuple[Profile, Profile] | None:
        """Return columns of variable and value that distinguish the rows."""
        others = [one for one in self.free if one not in (grouping.profile, time)]
        order = np.argsort(codes, kind="stable")
        same = codes[order[:-1]] == codes[order[1:]]
        before, after = order[:-1][same], order[1:][same]
        changing = [one for one in others if not (one.codes[before] == one.codes[after]).all()]
        variables = [
            one
            for one in changing
            if one.kind in (TEXT, WHOLE)
            and 2 <= one.count <= min(_MOST_VARIABLES, self.rows / 4)
            and one.missing == 0
            and share(one.codes[before] != one.codes[after]) > _UNIQUE
            and _unique(joined_codes(codes, one.codes)) > _UNIQUE
        ]
        variables.sort(
            key=lambda one: (not _VARIABLE.search(one.name), one.kind != TEXT, one.count)
        )
        for variable in variables:
            values = [
                one for one in changing if one is not variable and not _follows(one, variable)
            ]
            numbers = [one for one in values if one.kind in (WHOLE, NUMBERS, BOOLEANS)]
            if len(numbers) > 1:
                numbers = [one for one in numbers if _VALUE.search(one.name)]
            is_named = bool(_VARIABLE.search(variable.name))
            if not is_named and variable.kind != TEXT:
                continue  # numbers of trials, not of variables
            if len(numbers) == 1 and (len(values) == 1 or is_named):
                if grouping.profile is None and not is_named:
                    continue  # it may be the id as well
                return variable, numbers[0]
        return None

    def _score_time(self, pair: _Pair) -> float | None:
        """Return how well a column of times does, ``None`` if it is none."""
        time = pair.time
        assert time is not None
        assert time.values is not None
        steps = _steps(pair.grouping, time.values)
        if not steps.size or share(steps == 0) > (0.98 if pair.long else 0.9):
            return None
        is_date, is_named = time.kind in (DATES, DURATIONS), is_time_name(time.name)
        moves = steps[steps != 0] if pair.long else steps
        strictly = max(share(moves > 0), share(moves < 0))
        if pair.unique < 0.3 and not _is_id(pair.grouping.name):
            return None
        if not is_date and not is_named and (strictly < 0.97 or pair.unique < _UNIQUE):
            return None
        counter = bool(_COUNTER.search(time.name)) or _counts(steps, time)
        if not is_date and not is_named and counter and pair.grouping.profile is None:
            return None
        return (
            4 * is_date
            + 3 * is_named
            + 2 * bool(_AGE.search(time.name))  # beside what else grows, such as a height
            - counter
            + (strictly > 0.95)
            + 4 * pair.unique
            - 2 * (time.missing > 0)
        )

    def _score(self, pair: _Pair, whole: _Pair) -> float | None:
        """Return how well a column does as the id, ``None`` if it is none."""
        profile, time = pair.grouping.profile, pair.time
        assert profile is not None
        is_named = _is_id(profile.name)
        points = 2.0 * is_named
        alone = whole.unique if whole.time is not None else 0.0
        if time is None:
            if whole.time is not None or not profile.is_contiguous or profile.kind == BOOLEANS:
                return None
            points += 1 + (profile.kind == WHOLE and profile.falls == 0)
            needed = 3.0
        else:
            if profile.is_contiguous and pair.forward > 0.95:
                points += 2 if alone < _UNIQUE or self._restarts(pair) else 0
            points += self._starts_alike(pair)
            if pair.unique < _UNIQUE:
                points -= 1 + (pair.unique < 0.5)
            needed = 1.0 if alone < _UNIQUE else 2.0
            if alone > _NEARLY and _is_even(whole):
                needed = 4.0
        points += any(
            one.count > 1 and one is not profile and one is not time and pair.grouping.constant(one)
            for one in self.by_name.values()
        )
        if points < needed:
            return None
        tidy = 0.0 if time is None else 2 * (pair.unique > _NEARLY) + (pair.unique > 0.95)
        place = self.places[profile.name]
        return points + tidy - 0.1 * math.log10(profile.count) - 0.001 * place

    def _restarts(self, pair: _Pair) -> bool:
        """Whether time runs back where the next id begins."""
        assert pair.time is not None
        assert pair.time.values is not None
        firsts = pair.grouping.firsts[1:]
        values = pair.time.values
        return share(values[firsts] < values[firsts - 1]) > 0.5

    def _starts_alike(self, pair: _Pair) -> bool:
        """Whether nearly all ids begin at the same time."""
        time, codes = pair.time, pair.grouping.codes
        assert time is not None
        assert time.values is not None
        there = codes >= 0
        least = np.full(int(codes.max()) + 1, np.inf)
        np.fmin.at(least, codes[there], time.values[there])
        return share(least == np.median(least)) > _UNIQUE

    def _found(self, pair: _Pair, how: str | None) -> Keys:
        reasons: dict[str, str] = {}
        profile, time = pair.grouping.profile, pair.time
        if profile is not None:
            within = "" if time is None else f"; {time.name!r} {_course(pair)} within each"
            reasons[profile.name] = f"{profile.count} different values{within}"
        if time is not None:
            reasons[time.name] = (
                f"{_course(pair)}{'' if profile is None else f' within each {profile.name!r}'}"
            )
        long = pair.long
        if long is not None:
            reasons[long[0].name] = f"{long[0].count} names, of which each row holds one value"
            reasons[long[1].name] = f"the value of each {long[0].name!r}"
        return Keys(
            None if profile is None else profile.name,
            None if time is None else time.name,
            None if long is None else (long[0].name, long[1].name),
            reasons,
            pair.unique,
            1 if profile is None else profile.count,
        )


def is_time_name(name: str) -> bool:
    """Whether a column is named like times."""
    return bool(_TIME.search(name))


def long_names(profiles: Sequence[Profile]) -> tuple[str, str] | None:
    """Return two columns that are named like variable and value, and hold such, if there are."""
    variables = [one for one in profiles if one.kind == TEXT and _VARIABLE.search(one.name)]
    values = [one for one in profiles if one.kind in (WHOLE, NUMBERS) and _VALUE.search(one.name)]
    return (variables[0].name, values[0].name) if variables and values else None


def _is_id(name: str | None) -> bool:
    return name is not None and bool(_ID.search(name)) and not _NO_ID.search(name)


def _course(pair: _Pair) -> str:
    assert pair.time is not None
    assert pair.time.values is not None
    if pair.forward > 0.95:
        steps = _steps(pair.grouping, pair.time.values)
        return "runs forward" if (steps > 0).sum() >= (steps < 0).sum() else "runs backward"
    return "tells the rows apart" if pair.unique > _UNIQUE else "is named like a time"


def _counts(steps: Floats, time: Profile) -> bool:
    """Whether times only count the rows of an id."""
    return time.kind == WHOLE and share(steps == 1) > 0.97


def _is_even(pair: _Pair) -> bool:
    """Whether the gaps of a single series are even."""
    assert pair.time is not None
    assert pair.time.values is not None
    gaps = np.diff(np.sort(pair.time.values[~np.isnan(pair.time.values)]))
    gaps = gaps[gaps > 0]
    return bool(gaps.size) and share(np.isclose(gaps, np.median(gaps), rtol=1e-3)) > 0.9


def _follows(one: Profile, variable: Profile) -> bool:
    """Whether a column, such as the unit of a value, holds the same for each variable."""
    codes = variable.codes
    firsts = np.full(variable.count, -1)
    firsts[codes[::-1]] = one.codes[::-1]
    return bool((one.codes == firsts[codes]).all())
