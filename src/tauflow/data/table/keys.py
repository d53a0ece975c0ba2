"""Which columns of a table are its ids, its times and, in a long table, variable and value.

Contents decide: an id is a column within which times run forward and no time comes twice. Names of
columns only decide between columns that fit equally well.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tauflow._internal.sanitize import format_count

from .profile import (
    BOOLEANS,
    DATES,
    DURATIONS,
    EMPTY,
    FLOATS,
    INTEGERS,
    TEXT,
    ColumnProfile,
    Grouping,
    combine_codes,
    compute_share,
    compute_unique_share,
)
from .table import Floats, Indices

_MAX_CANDIDATES = 6
"""Number of columns that are tried as ids, and as times."""
_MAX_VARIABLES = 1000
_NEARLY_UNIQUE = 0.99
_MOSTLY_UNIQUE = 0.9


_TIME = re.compile(
    r"(?i:(^|[_\W])((date|chart|obs|visit|sample|event|start)?[_\W]?(time|times|timestamp|date|"
    r"datetime)|ts|hours?|hrs|minutes?|mins|seconds?|secs|days?|weeks?|months?|years?|when|t)"
    r"([_\W](utc|local|h|s|min|hours?|minutes?|seconds?|days?|hour))?$)|[a-z](Time|Date|Day)$"
)
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
_COUNTER = re.compile(r"(?i:(^|[_\W])(visit|period|wave|round|step|seq|index|age|epoch|no)s?$)")
_AGE = re.compile(r"(?i:(^|[_\W])(age|elapsed|exper|experience)$)")
_VARIABLE = re.compile(
    r"(?i:(^|[_\W])(variable|parameter|param|item|itemid|code|what|measure|measurement|test|analyte|"
    r"signal|channel|metric|feature|attribute)(s|name|id|_name|_id)?$)"
)
_VALUE = re.compile(r"(?i:(^|[_\W])(value|val|valuenum|reading|result|amount|level)s?(num)?$)")


@dataclass(frozen=True)
class KeyColumns:
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


@dataclass(frozen=True)
class _KeyCandidate:
    """How a column of times does within a grouping; ``steps`` are its differences within ids."""

    grouping: Grouping
    time: ColumnProfile | None
    unique: float
    forward: float
    long: tuple[ColumnProfile, ColumnProfile] | None = None
    steps: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def values(self) -> Floats:
        """The times."""
        assert self.time is not None
        assert self.time.values is not None
        return self.time.values


class KeySearch:
    """Tries columns as ids and times.

    Args:
        profiles: what each column holds.
        known_options: what is known: names as ``id``, ``time`` and ``long``; ``None`` for no such
            column.
        excluded: names of columns with other roles.
    """

    def __init__(
        self,
        profiles: Sequence[ColumnProfile],
        known_options: Mapping[str, Any],
        excluded: Sequence[str],
    ) -> None:
        self.rows = len(profiles[0].codes)
        self.by_name = {one.name: one for one in profiles}
        self.places = {one.name: place for place, one in enumerate(profiles)}
        self.known_options = known_options
        named = [known_options.get("id"), known_options.get("time")]
        taken = {*excluded, *named, *(known_options.get("long") or ())}
        self.free = [one for one in profiles if one.name not in taken and one.kind != EMPTY]

    def choose(self) -> KeyColumns:
        """Return which columns are ids, times, variable and value."""
        times = self._list_time_candidates()
        whole = self._find_best_candidate(Grouping(None, self.rows), times)
        if "id" in self.known_options:
            name = self.known_options["id"]
            if name is not None:
                whole = self._find_best_candidate(Grouping(self.by_name[name], self.rows), times)
            return self._make_keys(whole, "given")
        best, most = whole, -math.inf
        for profile in self._list_id_candidates():
            pair = self._find_best_candidate(Grouping(profile, self.rows), times)
            score = self._score_id(pair, whole)
            if score is not None and score > most:
                best, most = pair, score
        return self._make_keys(best, None)

    def _list_time_candidates(self) -> list[ColumnProfile | None]:
        """Return the columns that may be times, the likeliest first; ``None`` for none."""
        if "time" in self.known_options:
            name = self.known_options["time"]
            return [None if name is None else self.by_name[name]]
        fitting = []
        for one in self.free:
            is_named = is_time_name(one.name)
            if one.values is None or one.count < 2 or one.missing > 0.02:
                continue
            if one.is_row_number and not is_named:
                continue
            moves = one.rising_share > 0.4 or (one.falling_share < 0.02 and one.count > 4)
            moves = moves and not _is_id_name(one.name)  # numbers of ids in order rise, too
            if one.kind in (DATES, DURATIONS) or is_named or (moves and one.kind != BOOLEANS):
                rank = (one.kind not in (DATES, DURATIONS), not is_named, -one.rising_share)
                fitting.append((rank, self.places[one.name], one))
        return [
            *(one for _, _, one in sorted(fitting, key=lambda f: f[:2])[:_MAX_CANDIDATES]),
            None,
        ]

    def _list_id_candidates(self) -> list[ColumnProfile]:
        """Return the columns that may be ids, the likeliest first."""
        fitting = []
        for one in self.free:
            size = self.rows / one.count
            if one.kind not in (TEXT, INTEGERS, BOOLEANS) or one.missing > 0.01 or one.count < 2:
                continue
            if size < (1.1 if _is_id_name(one.name) else 1.5):
                continue
            rank = (not _is_id_name(one.name), not one.is_contiguous, one.count)
            fitting.append((rank, self.places[one.name], one))
        return [one for _, _, one in sorted(fitting, key=lambda f: f[:2])[:_MAX_CANDIDATES]]

    def _find_best_candidate(
        self, grouping: Grouping, times: Sequence[ColumnProfile | None]
    ) -> _KeyCandidate:
        """Return the best column of times within a grouping."""
        none = _KeyCandidate(grouping, None, 1.0, 1.0 if grouping.in_order else 0.0)
        best, most = none, 0.5
        for time in times:
            if time is None or time.values is None or time is grouping.profile:
                continue
            if "time" not in self.known_options and not _is_possible_time(grouping, time):
                continue
            pair = self._make_candidate(grouping, time)
            score = self._score_time(pair)
            if "time" in self.known_options or (score is not None and score > most):
                best, most = pair, math.inf if score is None else score
        return best

    def _make_candidate(self, grouping: Grouping, time: ColumnProfile) -> _KeyCandidate:
        codes = combine_codes(grouping.codes, time.codes)
        unique = compute_unique_share(codes)
        steps = _compute_steps(grouping, time)
        forward = max(compute_share(steps >= 0), compute_share(steps <= 0))
        long = None
        if self.known_options.get("long"):
            variable, value = self.known_options["long"]
            long = (self.by_name[variable], self.by_name[value])
        elif unique < _NEARLY_UNIQUE and "long" not in self.known_options:
            long = self._find_long_columns(grouping, time, codes)
        if long is not None:
            unique = compute_unique_share(combine_codes(codes, long[0].codes))
        return _KeyCandidate(grouping, time, unique, forward, long, steps)

    def _find_long_columns(
        self, grouping: Grouping, time: ColumnProfile, codes: Indices
    ) -> tuple[ColumnProfile, ColumnProfile] | None:
        """Return columns of variable and value that distinguish the rows."""
        others = [one for one in self.free if one not in (grouping.profile, time)]
        order = np.argsort(codes, kind="stable")
        same = codes[order[:-1]] == codes[order[1:]]
        before, after = order[:-1][same], order[1:][same]
        changing = [one for one in others if not (one.codes[before] == one.codes[after]).all()]
        variables = [
            one
            for one in changing
            if one.kind in (TEXT, INTEGERS)
            and 2 <= one.count <= min(_MAX_VARIABLES, self.rows / 4)
            and one.missing == 0
            and compute_share(one.codes[before] != one.codes[after]) > _MOSTLY_UNIQUE
            and compute_unique_share(combine_codes(codes, one.codes)) > _MOSTLY_UNIQUE
        ]
        variables.sort(
            key=lambda one: (not _VARIABLE.search(one.name), one.kind != TEXT, one.count)
        )
        for variable in variables:
            values = [
                one
                for one in changing
                if one is not variable and not _is_determined_by(one, variable)
            ]
            numbers = [one for one in values if one.kind in (INTEGERS, FLOATS, BOOLEANS)]
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

    def _score_time(self, pair: _KeyCandidate) -> float | None:
        """Return how well a column of times does, ``None`` if it is none."""
        time, steps = pair.time, pair.steps
        assert time is not None
        if not steps.size or compute_share(steps == 0) > (0.98 if pair.long else 0.9):
            return None
        is_date, is_named = time.kind in (DATES, DURATIONS), is_time_name(time.name)
        moves = steps[steps != 0] if pair.long else steps
        strictly = max(compute_share(moves > 0), compute_share(moves < 0))
        if pair.unique < 0.3 and not _is_id_name(pair.grouping.name):
            return None
        if not is_date and not is_named and (strictly < 0.97 or pair.unique < _MOSTLY_UNIQUE):
            return None
        counter = bool(_COUNTER.search(time.name))  # or what counts the rows of an id
        counter |= time.kind == INTEGERS and compute_share(steps == 1) > 0.97
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

    def _score_id(self, pair: _KeyCandidate, whole: _KeyCandidate) -> float | None:
        """Return how well a column does as the id, ``None`` if it is none."""
        profile, time = pair.grouping.profile, pair.time
        assert profile is not None
        is_named = _is_id_name(profile.name)
        points = 2.0 * is_named
        alone = whole.unique if whole.time is not None else 0.0
        if time is None:
            if whole.time is not None or not profile.is_contiguous or profile.kind == BOOLEANS:
                return None
            points += 1 + (profile.kind == INTEGERS and profile.falling_share == 0)
            needed = 3.0
        else:
            if profile.is_contiguous and pair.forward > 0.95:
                firsts = pair.grouping.first_rows[1:]
                restarts = compute_share(pair.values[firsts] < pair.values[firsts - 1]) > 0.5
                points += 2 if alone < _MOSTLY_UNIQUE or restarts else 0
            points += _has_common_start(pair)
            if pair.unique < _MOSTLY_UNIQUE:
                points -= 1 + (pair.unique < 0.5)
            needed = 1.0 if alone < _MOSTLY_UNIQUE else 2.0
            if alone > _NEARLY_UNIQUE and _is_evenly_sampled(whole):
                needed = 4.0
        points += any(
            one.count > 1
            and one is not profile
            and one is not time
            and pair.grouping.is_constant(one)
            for one in self.by_name.values()
        )
        if points < needed:
            return None
        tidy = 0.0 if time is None else 2 * (pair.unique > _NEARLY_UNIQUE) + (pair.unique > 0.95)
        place = self.places[profile.name]
        return points + tidy - 0.1 * math.log10(profile.count) - 0.001 * place

    def _make_keys(self, pair: _KeyCandidate, reason: str | None) -> KeyColumns:
        reasons: dict[str, str] = {}
        profile, time = pair.grouping.profile, pair.time
        if profile is not None:
            within = "" if time is None else f"; {time.name!r} {_describe_course(pair)} within each"
            reasons[profile.name] = f"{format_count(profile.count, 'different value')}{within}"
        if time is not None:
            within = "" if profile is None else f" within each {profile.name!r}"
            reasons[time.name] = f"{_describe_course(pair)}{within}"
        long = pair.long
        if long is not None:
            reasons[long[0].name] = f"{long[0].count} names, of which each row holds one value"
            reasons[long[1].name] = f"the value of each {long[0].name!r}"
        return KeyColumns(
            None if profile is None else profile.name,
            None if time is None else time.name,
            None if long is None else (long[0].name, long[1].name),
            reasons,
            pair.unique,
            1 if profile is None else profile.count,
        )


def find_long_names(profiles: Sequence[ColumnProfile]) -> tuple[str, str] | None:
    """Return two columns that are named like variable and value, and hold such, if there are."""
    variables = [one for one in profiles if one.kind == TEXT and _VARIABLE.search(one.name)]
    values = [one for one in profiles if one.kind in (INTEGERS, FLOATS) and _VALUE.search(one.name)]
    return (variables[0].name, values[0].name) if variables and values else None


def _is_id_name(name: str | None) -> bool:
    return name is not None and bool(_ID.search(name)) and not _NO_ID.search(name)


def _has_common_start(pair: _KeyCandidate) -> bool:
    """Whether nearly all ids begin at the same time."""
    codes = pair.grouping.codes
    there = codes >= 0
    least = np.full(int(codes.max()) + 1, np.inf)
    np.fmin.at(least, codes[there], pair.values[there])
    return compute_share(least == np.median(least)) > _MOSTLY_UNIQUE


def _describe_course(pair: _KeyCandidate) -> str:
    if pair.forward > 0.95:
        forward = (pair.steps > 0).sum() >= (pair.steps < 0).sum()
        return "runs forward" if forward else "runs backward"
    return "tells the rows apart" if pair.unique > _MOSTLY_UNIQUE else "is named like a time"


def _is_evenly_sampled(pair: _KeyCandidate) -> bool:
    """Whether the gaps of a single series are even."""
    gaps = np.diff(np.sort(pair.values[~np.isnan(pair.values)]))
    gaps = gaps[gaps > 0]
    return bool(gaps.size) and compute_share(np.isclose(gaps, np.median(gaps), rtol=1e-3)) > 0.9


def _is_determined_by(one: ColumnProfile, variable: ColumnProfile) -> bool:
    """Whether a column, such as the unit of a value, holds the same for each variable."""
    codes = variable.codes
    firsts = np.full(variable.count, -1)
    firsts[codes[::-1]] = one.codes[::-1]
    return bool((one.codes == firsts[codes]).all())


def _compute_steps(grouping: Grouping, time: ColumnProfile) -> Floats:
    """Return the differences of neighbouring times within ids."""
    assert time.values is not None
    found: Floats = time.values[grouping.after] - time.values[grouping.before]
    return found


def _is_possible_time(grouping: Grouping, time: ColumnProfile) -> bool:
    """Whether a column moves within ids, and in one direction unless name or kind tell a time."""
    steps = _compute_steps(grouping, time)
    steps = steps[steps != 0]
    if time.kind in (DATES, DURATIONS) or is_time_name(time.name):
        return bool(steps.size)
    return max(compute_share(steps > 0), compute_share(steps < 0)) > 0.97


def is_time_name(name: str) -> bool:
    """Whether a column is named like times."""
    return bool(_TIME.search(name))
