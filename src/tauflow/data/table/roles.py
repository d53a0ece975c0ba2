"""What the columns of a table seem to be: one guess for ``inspect``, ``run`` and ``tune``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tauflow.errors import TauflowError

from .content import agrees, is_static, repeats_times
from .files import read_table
from .frames import Sequences, sequences_of
from .inputs import MOST, inputs_of
from .keys import Keys, is_time_name, joined_codes, keys_of, long_names
from .missing import likely_missing
from .notes import notes_on_rows
from .options import BY_TIME, DUPLICATES, NEXT_STEP, READING, TableOptions
from .profile import DATES, DURATIONS, EMPTY, NUMBERS, TEXT, WHOLE, Profile, profile_of, share
from .sheet import FEW, Indices, Sheet
from .tidy import tidied
from .time_formats import advice_on_format
from .times import Times, read_times

_TARGETS = (
    *("target", "label", "class", "outcome", "died", "dead", "death", "mortality", "survived"),
    *("survival", "diagnosis", "status", "y"),
)
"""Names of targets, the clearest first."""
_TARGET = re.compile(rf"(?i:(?:^|[_\W])({'|'.join(_TARGETS)})s?$)")
_ROW_NUMBER = re.compile(r"(?i:(^|[_\W])(id|index|idx|row|rows|rownames?|unnamed|obs|x|nr|no|n)\b)")
_FEW_IDS = 10
"""With fewer ids than these, each is cut by time, if it is long enough."""
_LONG = 1000
"""Sequences that are longer in the median are cut into windows."""
_WINDOW = 100
_FORECASTS = {1.0: {"window": 168, "horizon": 24}, 24.0: {"window": 28, "horizon": 7}}
_SEASONS = {1.0: "24h", 24.0: "7 days"}
"""Of a single series with even gaps of so many hours: how to cut it, and its season."""
_NO_FEATURES = ("id", "time", "group", "part", "target", "variable", "value", "left out")


@dataclass(frozen=True)
class Role:
    """What a column is for.

    Args:
        name: id, time, variable, value, target, feature, static, known, or left out.
        reason: why.
    """

    name: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class RoleGuess:
    """What a table seems to be.

    Args:
        said: the fields of :class:`TableOptions` to give, those that were given among them.
        roles: what each column is for.
        profiles: what each column holds.
        sheet: the table as it is.
        whole: with one row for each time of each id; ``None`` if there is a problem.
        sequences: rows of each id; ``None`` if there is a problem.
        times: of the rows.
        problem: why the table cannot be read so.
    """

    said: Mapping[str, Any]
    roles: Mapping[str, Role]
    profiles: Sequence[Profile]
    sheet: Sheet = field(repr=False)
    whole: Sheet | None = field(default=None, repr=False)
    sequences: Sequences | None = None
    times: Times | None = None
    problem: str | None = None

    @property
    def options(self) -> TableOptions:
        """What to say of the table."""
        return TableOptions(**self.said)

    def reasons(self) -> tuple[str, ...]:
        """Return why columns have roles other than that of a feature, a line for each role."""
        lines = []
        names = dict.fromkeys(role.name for role in self.roles.values() if role.name != "feature")
        for role in names:
            found = {n: one.reason for n, one in self.roles.items() if one.name == role}
            same = len(set(found.values())) == 1
            each = [repr(n) if same else f"{n!r} ({why})" for n, why in found.items()]
            why = f" ({next(iter(found.values()))})" if same and any(found.values()) else ""
            lines.append(f"{role[:1].upper()}{role[1:]}: {', '.join(each)}{why}.")
        return tuple(lines)

    def notes(self) -> tuple[str, ...]:
        """Return how many rows are merged, and how many are out of order."""
        assert self.whole is not None
        assert self.sequences is not None
        return notes_on_rows(self.whole, self.sequences, self.options)


def guess_roles(table: Any, given: Mapping[str, Any]) -> RoleGuess:
    """Guess which column of a table is what, by what the columns hold.

    Args:
        table: as :func:`tauflow.data.table.files.read_table` takes it.
        given: fields of :class:`TableOptions` that are known, and not guessed. ``None`` as ``id``,
            ``time``, ``target`` or ``long`` says that there is none.

    Raises:
        TauflowError: the file is no table, or has no such column.
    """
    return _Guess(*_read(table, given)).found()


def guess_keys(table: Any, given: Mapping[str, Any]) -> Keys:
    """Guess ids, times, variable and value of a table alone, see :func:`guess_roles`."""
    return _Guess(*_read(table, given)).keys()


def _read(table: Any, given: Mapping[str, Any]) -> tuple[Sheet, Mapping[str, Any]]:
    """Return the table, and what is known of it with what seems to mean a missing value."""
    said = {name: given[name] for name in READING if name in given}
    sheet = read_table(table, TableOptions(**said))
    if "na_values" not in given and (markers := likely_missing(sheet)):
        said["na_values"] = markers
        sheet = read_table(table, TableOptions(**said))
    return sheet, {**given, **said}


class _Guess:
    """Makes a guess, role by role."""

    def __init__(self, sheet: Sheet, given: Mapping[str, Any]) -> None:
        self.sheet, self.given = sheet, given
        self.said: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        self.roles = _given_roles(sheet, given)
        self.problem: str | None = None
        formats = {given.get("time"): given.get("time_format")}
        self.profiles = [profile_of(sheet, name, formats.get(name)) for name in sheet.columns]
        self.by_name = {one.name: one for one in self.profiles}

    def keys(self) -> Keys:
        """Return which columns tell the rows apart."""
        barred = [name for name, role in self.roles.items() if role.name not in ("id", "time")]
        return keys_of(self.profiles, self.given, barred=barred)

    def found(self) -> RoleGuess:
        """Return the guess."""
        keys = self.keys()
        self._take(keys)
        forecast = any(self.given.get(name) for name in ("horizon", "season", "known"))
        if "target" not in self.given and not forecast and self.given.get("task") != NEXT_STEP:
            self._take_target()
        self._check_times(keys)
        whole, sequences, times = self._read(keys)
        if sequences is not None:
            self._take_others(whole, sequences, times)
            self._take_windows(whole, sequences, times)
        return RoleGuess(
            said=self.said,
            roles={name: self.roles.get(name, Role("feature")) for name in self.sheet.columns},
            profiles=self.profiles,
            sheet=self.sheet,
            whole=None if sequences is None else whole,
            sequences=sequences,
            times=times,
            problem=self.problem,
        )

    def _take(self, keys: Keys) -> None:
        """Take the columns that tell the rows apart."""
        roles: dict[str, str | None] = {"id": keys.id, "time": keys.time}
        if keys.long is not None and "long" not in self.given:
            self.said["long"] = keys.long
            roles["variable"], roles["value"] = keys.long
        for role, name in roles.items():
            if name is not None and role not in self.given:
                if role in ("id", "time"):
                    self.said[role] = name
                self.roles[name] = Role(role, keys.reasons[name])
        time = self.said.get("time")
        form = None if time is None else self.by_name[time].time_format
        if form is not None:
            self.said["time_format"] = form

    def _take_target(self) -> None:
        """Take the column with the clearest name of a target, if it can be one."""
        fitting = []
        for place, one in enumerate(self.profiles):
            word = _word_of_target(one.name)
            if one.name in self.roles or word is None or one.numbers_rows:
                continue
            if word == "y" and {"x", "z"} <= {name.lower() for name in self.by_name}:
                continue
            may_be_numbers = word in ("target", "outcome", "y", "label")
            few = one.count <= (FEW if one.kind != TEXT else MOST)
            numbers = one.kind in (WHOLE, NUMBERS)
            if one.count >= 2 and one.kind != DATES and (few or (numbers and may_be_numbers)):
                fitting.append((_TARGETS.index(word), place, one))
        if fitting:
            one = min(fitting, key=lambda found: found[:2])[2]
            self.said["target"] = (one.name,)  # as the command line has it
            self.roles[one.name] = Role("target", f"by its name; {one.count} different values")

    def _check_times(self, keys: Keys) -> None:
        """Note what looks like times that cannot be read, and a long table without times."""
        if keys.time is not None or "time" in self.given:
            return
        free = [one for one in self.profiles if one.name not in self.roles]
        unread = next((one for one in free if one.kind == TEXT and is_time_name(one.name)), None)
        dates = [one for one in free if one.kind in (DATES, DURATIONS) and one.count > 1]
        if keys.id is not None:
            dates = [one for one in dates if not agrees(one.codes, self.by_name[keys.id].codes)]
        if unread is not None:
            row = int(np.argmax(unread.codes >= 0))
            advice = advice_on_format(self.sheet, unread.name) or "Name its format (--time-format)."
            self.problem = (
                f"{self.sheet.holds(row, unread.name)}, which is named like a time, and is neither "
                f"a number nor a date in a known format. {advice} Or name another column (--time), "
                "or none: --time none."
            )
        elif dates:
            self.problem = (
                f"column {dates[0].name!r} holds {dates[0].kind}, and many rows of one sequence "
                "share one. Join date and time of day into one column, name the column of times "
                "(--time), or none: --time none."
            )
        names = "long" not in self.given and long_names(free)
        if names and not self.problem:
            self.problem = (
                f"columns {names[0]!r} and {names[1]!r} look like those of a long table, and no "
                "column looks like its times. Name one (--time), or pass --long none."
            )

    def _read(self, keys: Keys) -> tuple[Sheet, Sequences | None, Times | None]:
        """Return the table with one row for each time of each id, its sequences and times."""
        self._name_features_of_long()
        unread = self.problem
        ways: tuple[str, ...] = DUPLICATES
        if "duplicates" in self.given:
            ways = (self.given["duplicates"],)
        elif "time" not in self.said:
            ways = DUPLICATES[:1]
        elif keys.unique < 1:
            ways = DUPLICATES[1:] if self._has_numbers() else DUPLICATES[2:]
        for way in ways:
            said = {name: value for name, value in self.said.items() if name != "static"}
            if way != DUPLICATES[0]:
                said["duplicates"] = way
            try:
                whole = tidied(self.sheet, TableOptions(**said))
                times = None
                if "time" in said:
                    times = read_times(whole, said["time"], None)
                found = sequences_of(whole, said.get("id"), said.get("time"), times, sort=True)
            except TauflowError as error:
                self.problem = self.problem or str(error)
                continue
            self.problem = unread
            if way != DUPLICATES[0]:
                self.said["duplicates"] = way
            if found.unsorted:
                self.said.setdefault("sort", True)
            return whole, found, times
        return self.sheet, None, None

    def _has_numbers(self) -> bool:
        """Whether a column with a mean is left for the features."""
        free = [one for one in self.profiles if one.name not in self.roles]
        free += [self.by_name[name] for name in (self.said.get("long") or ())[1:]]
        return any(one.kind in (WHOLE, NUMBERS) for one in free)

    def _name_features_of_long(self) -> None:
        """Leave out columns of a long table that differ within one time, such as units."""
        if "long" not in self.said or "features" in self.given:
            return
        keys = [self.by_name[self.said[role]] for role in ("id", "time") if role in self.said]
        group = np.zeros(len(self.sheet), np.int64)
        for one in keys:
            group = joined_codes(group, one.codes)
        others = [one for one in self.profiles if one.name not in self.roles]
        differing = [one for one in others if not agrees(one.codes, group)]
        for one in differing:
            self.roles[one.name] = Role("left out", "differs between values of one time")
        if differing:
            variables = self.sheet.texts(self.said["long"][0]).different
            kept = [one.name for one in others if one not in differing]
            self.said["features"] = (*variables, *kept)

    def _take_others(self, whole: Sheet, sequences: Sequences, times: Times | None) -> None:
        """Take static columns, those known ahead, and features."""
        is_same = whole.merged == 0 and "long" not in self.said
        owners = _owners(sequences)
        firsts = np.zeros(len(whole), np.bool_)
        firsts[sequences.rows[sequences.starts]] = True
        used = [role for role, one in self.roles.items() if one.name in _NO_FEATURES]
        features: Sequence[str]
        features = self.said.get("features") or [one for one in whole.columns if one not in used]
        kept: dict[str, list[str]] = {"feature": [], "static": [], "known": []}
        for name in features:
            whole.check_name(name, "feature")
            one = self.by_name[name] if is_same else profile_of(whole, name)
            role = self._role(whole, one, sequences, times)
            if role is None and is_static(one, owners, firsts):
                role = Role("static", "one value per id" if "id" in self.said else "one value")
            role = self.roles.setdefault(name, role or Role("feature"))
            if role.name != "left out":
                kept.setdefault(role.name, []).append(name)
        if not any(kept.values()):
            self.problem = self.problem or "no column is left that could be a feature."
        elif "features" not in self.given and sum(map(len, kept.values())) < len(features):
            self.said["features"] = tuple(one for names in kept.values() for one in names)
        for place in ("static", "known"):
            if kept[place] and place not in self.given:
                self.said[place] = tuple(kept[place])

    def _role(
        self, whole: Sheet, one: Profile, sequences: Sequences, times: Times | None
    ) -> Role | None:
        """Return the role of a column that is no plain feature, nor static."""
        if one.kind == EMPTY:
            return Role("left out", "holds nothing")
        if one.kind in (DATES, DURATIONS):
            return Role("left out", f"holds {one.kind}; times are in {self.said.get('time')!r}")
        if one.numbers_rows and _ROW_NUMBER.search(one.name):
            return Role("left out", "numbers the rows")
        try:
            inputs_of(whole, [one.name])
        except TauflowError as error:
            return Role("left out", str(error))
        forecast = TableOptions(**self.said).is_forecast
        if forecast and times is not None and repeats_times(one, sequences, times):
            return Role("known", f"repeats {self.said['time']!r}")
        return None

    def _take_windows(self, whole: Sheet, sequences: Sequences, times: Times | None) -> None:
        """Say how to split and cut few or long sequences."""
        said, given = self.said, self.given
        options = TableOptions(**said)
        owners = _owners(sequences)
        per_id = not options.is_forecast and "id" in said
        per_id = per_id and all(agrees(profile_of(whole, n).codes, owners) for n in options.targets)
        if per_id or any(name in given for name in ("window", "stride", "horizon", "season")):
            return
        parted = any(name in given for name in ("split", "split_by", "group", "split_column"))
        usual = np.median(sequences.lengths)
        by_time = "id" in said and len(sequences) < _FEW_IDS and usual > _WINDOW and not parted
        if by_time:
            said["split_by"] = BY_TIME
        if "id" not in said or by_time or usual > _LONG:
            said["window"] = _WINDOW
        gaps = np.delete(sequences.gaps(), sequences.starts)
        dated = times is not None and times.dated and gaps.size > 0
        if not dated or "id" in said or not options.is_forecast:
            return
        gap = float(np.median(gaps))
        forecast = _FORECASTS.get(gap)
        is_even = share(gaps == gap) > 0.99
        if forecast and is_even and len(whole) > 10 * sum(forecast.values()):
            said.update(forecast, season=_SEASONS[gap])


def _given_roles(sheet: Sheet, given: Mapping[str, Any]) -> dict[str, Role]:
    """Return the roles that are given.

    Raises:
        UnknownNameError: there is no such column.
    """
    target, long = given.get("target"), given.get("long") or ()
    named: dict[str, Sequence[str]] = {
        **{role: [given[role]] for role in ("id", "time", "group") if given.get(role)},
        "part": [given["split_column"]] if given.get("split_column") else [],
        "target": [target] if isinstance(target, str) else target or (),
        "variable": long[:1],
        "value": long[1:],
    }
    if not long:  # of a long table they may be variables
        named |= {role: given.get(role) or () for role in ("static", "known")}
    roles: dict[str, Role] = {}
    for role, names in named.items():
        for name in names:
            roles.setdefault(sheet.check_name(name, role), Role(role, "as given"))
    return roles


def _word_of_target(name: str) -> str | None:
    """Return the word for a target that a name is, or ends in."""
    found = _TARGET.search(name)
    return None if found is None else found[1].lower()


def _owners(sequences: Sequences) -> Indices:
    """Return which sequence each row of the table belongs to, (R,)."""
    owners = np.empty(len(sequences.rows), np.int64)
    owners[sequences.rows] = sequences.owners
    return owners
