"""What the columns of a table seem to be: one guess, with reasons, for ``inspect`` and ``run``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow.errors import TauflowError

from .files import read_table
from .inputs import MAX_CATEGORIES, build_inputs
from .keys import KeyColumns, KeySearch, find_long_names, is_time_name
from .na_values import find_missing_markers
from .option_names import list_role_columns
from .options import BY_TIME, DUPLICATES, NEXT_STEP, READ_OPTIONS, TableOptions
from .pivot import pivot_long
from .profile import (
    DATES,
    DURATIONS,
    EMPTY,
    FLOATS,
    INTEGERS,
    TEXT,
    ColumnProfile,
    combine_codes,
    compute_share,
    describe_spread_time,
    is_constant_per_group,
    is_derived_from_times,
    is_static,
    profile_column,
)
from .schema_fields import Role, SchemaFields
from .sequences import Sequences, group_into_sequences, make_row_notes
from .table import MAX_INTEGER_CLASSES, Indices, Table
from .time_formats import get_format_advice
from .times import Times, read_times

_TARGET_NAMES = (
    *("target", "label", "class", "outcome", "died", "dead", "death", "mortality", "survived"),
    *("survival", "diagnosis", "status", "y"),
)
"""Names of targets, the clearest first."""
_TARGET_PATTERN = re.compile(rf"(?i:(?:^|[_\W])({'|'.join(_TARGET_NAMES)})s?$)")
_ROW_NUMBER = re.compile(r"(?i:(^|[_\W])(id|index|idx|row|rows|rownames?|unnamed|obs|x|nr|no|n)\b)")
_FEW_IDS = 10
"""With fewer ids than these, each is cut by time, if it is long enough."""
_LONG_SEQUENCE = 1000
"""Sequences that are longer in the median are cut into windows."""
_DEFAULT_WINDOW = 100
_FORECASTS = {1.0: {"window": 168, "horizon": 24}, 24.0: {"window": 28, "horizon": 7}}
_SEASONS = {1.0: "24h", 24.0: "7 days"}
"""Of a single series with even gaps of so many hours: how to cut it, and its season."""


@dataclass(frozen=True, eq=False)
class RoleGuess:
    """What a table seems to be.

    Args:
        option_values: the options of a :class:`tauflow.data.Schema`, those that were given among
            them.
        roles: what each column is for.
        profiles: what each column holds.
        table: the table as it is.
        merged_table: with one row for each time of each id; ``None`` if there is a problem.
        sequences: rows of each id; ``None`` if there is a problem.
        times: of the rows.
        problem: why the table cannot be read so.
    """

    option_values: Mapping[str, Any]
    roles: Mapping[str, Role]
    profiles: Sequence[ColumnProfile]
    table: Table = field(repr=False)
    merged_table: Table | None = field(default=None, repr=False)
    sequences: Sequences | None = None
    times: Times | None = None
    problem: str | None = None

    @property
    def schema(self) -> SchemaFields:
        """What to say of the table, with the reasons."""
        dtypes = {one.name: one.holds for one in self.profiles}
        return SchemaFields(**self.option_values, dtypes=dtypes, guesses=self.roles)

    def notes(self) -> tuple[str, ...]:
        """Return how many rows are merged, and how many are out of order."""
        assert self.merged_table is not None
        assert self.sequences is not None
        return make_row_notes(self.merged_table, self.sequences, self.schema)


def guess_roles(table: Any, known_options: Mapping[str, Any]) -> RoleGuess:
    """Guess which column of a table is what, by what the columns hold.

    Args:
        table: as :func:`tauflow.data.table.files.read_table` takes it.
        known_options: fields of :class:`TableOptions` that are known, and not guessed. ``None`` as
            ``id``, ``time``, ``target`` or ``long`` says that there is none.

    Raises:
        TauflowError: the file is no table, or has no such column.
    """
    return _RoleGuesser(table, known_options).guess()


def guess_keys(table: Any, known_options: Mapping[str, Any]) -> KeyColumns:
    """Guess ids, times, variable and value of a table alone, see :func:`guess_roles`."""
    return _RoleGuesser(table, known_options).find_keys()


class _RoleGuesser:
    """Makes a guess, role by role; what seems to mean a missing value is one of the first."""

    def __init__(self, file: Any, known_options: Mapping[str, Any]) -> None:
        said = {name: known_options[name] for name in READ_OPTIONS if name in known_options}
        table = read_table(file, TableOptions(**said))
        if "na_values" not in known_options and (markers := find_missing_markers(table)):
            said["na_values"] = markers
            table = read_table(file, TableOptions(**said))
        self.table, self.known_options = table, {**known_options, **said}
        known_options = self.known_options
        self.option_values: dict[str, Any] = {
            k: v for k, v in known_options.items() if v is not None
        }
        self.roles = _roles_from_options(table, known_options)
        self.problem: str | None = None
        formats = {known_options.get("time"): known_options.get("time_format")}
        self.profiles = [profile_column(table, name, formats.get(name)) for name in table.columns]
        self.by_name = {one.name: one for one in self.profiles}

    def find_keys(self) -> KeyColumns:
        """Return which columns tell the rows apart."""
        barred = [name for name, role in self.roles.items() if role.name not in ("id", "time")]
        keys = KeySearch(self.profiles, self.known_options, barred).choose()
        if "time" in self.known_options or keys.long is not None:
            return keys
        free = [one for one in self.profiles if one.name not in barred]
        self.problem = describe_spread_time(
            free, self.by_name.get(keys.id or ""), self.by_name.get(keys.time or "")
        )
        if self.problem is not None:
            keys = replace(keys, id=self.known_options.get("id"), time=None)
        return keys

    def guess(self) -> RoleGuess:
        """Return the guess."""
        keys = self.find_keys()
        self._assign_keys(keys)
        known = self.known_options
        forecast = any(known.get(name) for name in ("horizon", "season", "known"))
        if not ("target" in known or forecast or known.get("task") == NEXT_STEP):
            self._assign_target()
        self._check_times(keys)
        whole, sequences, times = self._read_merged(keys)
        if sequences is not None:
            self._assign_features(whole, sequences, times)
            self._choose_windows(whole, sequences, times)
        return RoleGuess(
            option_values=self.option_values,
            roles={name: self.roles.get(name, Role("feature")) for name in self.table.columns},
            profiles=self.profiles,
            table=self.table,
            merged_table=None if sequences is None else whole,
            sequences=sequences,
            times=times,
            problem=self.problem,
        )

    def _assign_keys(self, keys: KeyColumns) -> None:
        """Take the columns that tell the rows apart."""
        roles: dict[str, str | None] = {"id": keys.id, "time": keys.time}
        if keys.long is not None and "long" not in self.known_options:
            self.option_values["long"] = keys.long
            roles["variable"], roles["value"] = keys.long
        for role, name in roles.items():
            if name is not None and role not in self.known_options:
                if role in ("id", "time"):
                    self.option_values[role] = name
                self.roles[name] = Role(role, keys.reasons[name])
        time = self.option_values.get("time")
        form = None if time is None else self.by_name[time].time_format
        if form is not None:
            self.option_values["time_format"] = form

    def _assign_target(self) -> None:
        """Take the column with the clearest name of a target, if it can be one."""
        fitting = []
        for place, one in enumerate(self.profiles):
            found = _TARGET_PATTERN.search(one.name)
            if one.name in self.roles or found is None or one.is_row_number:
                continue
            word = found[1].lower()
            if word == "y" and {"x", "z"} <= {name.lower() for name in self.by_name}:
                continue
            may_be_numbers = word in ("target", "outcome", "y", "label")
            few = one.count <= (MAX_INTEGER_CLASSES if one.kind != TEXT else MAX_CATEGORIES)
            numbers = one.kind in (INTEGERS, FLOATS)
            if one.count >= 2 and one.kind != DATES and (few or (numbers and may_be_numbers)):
                fitting.append((_TARGET_NAMES.index(word), place, one))
        if fitting:
            one = min(fitting, key=lambda found: found[:2])[2]
            self.option_values["target"] = (one.name,)  # as the command line has it
            self.roles[one.name] = Role(
                "target", f"by its name; {format_count(one.count, 'different value')}"
            )

    def _check_times(self, keys: KeyColumns) -> None:
        """Note what looks like times that cannot be read, and a long table without times."""
        if self.problem is not None or keys.time is not None or "time" in self.known_options:
            return
        free = [one for one in self.profiles if one.name not in self.roles]
        unread = next((one for one in free if one.kind == TEXT and is_time_name(one.name)), None)
        dates = [one for one in free if one.kind in (DATES, DURATIONS) and one.count > 1]
        if keys.id is not None:
            ids = self.by_name[keys.id].codes
            dates = [one for one in dates if not is_constant_per_group(one.codes, ids)]
        if unread is not None:
            self.problem = (
                f"column {unread.name!r} is named like a time, and cannot be read as one: "
                f"{_explain_unread_times(self.table, unread.name)} Or name another column "
                "(--time), or none: --time none."
            )
        elif dates:
            self.problem = (
                f"column {dates[0].name!r} holds {dates[0].kind}, and many rows of one sequence "
                "share one. Join date and time of day into one column, name the column of times "
                "(--time), or none: --time none."
            )
        names = "long" not in self.known_options and find_long_names(free)
        if names and not self.problem:
            self.problem = (
                f"columns {names[0]!r} and {names[1]!r} look like those of a long table, and no "
                "column looks like its times. Name one (--time), or pass --long none."
            )

    def _read_merged(self, keys: KeyColumns) -> tuple[Table, Sequences | None, Times | None]:
        """Return the table with one row for each time of each id, its sequences and times."""
        self._exclude_varying_columns()
        unread = self.problem
        ways: tuple[str, ...] = DUPLICATES
        if "duplicates" in self.known_options:
            ways = (self.known_options["duplicates"],)
        elif "time" not in self.option_values:
            ways = DUPLICATES[:1]
        elif keys.unique < 1:
            free = [one for one in self.profiles if one.name not in self.roles]
            free += [self.by_name[name] for name in self.option_values.get("long", ())[1:]]
            have_mean = any(one.kind in (INTEGERS, FLOATS) for one in free)
            ways = DUPLICATES[1:] if have_mean else DUPLICATES[2:]
        for way in ways:
            said = {name: value for name, value in self.option_values.items() if name != "static"}
            if way != DUPLICATES[0]:
                said["duplicates"] = way
            try:
                whole = pivot_long(self.table, TableOptions(**said))
                times = read_times(whole, said["time"], None) if "time" in said else None
                found = group_into_sequences(
                    whole, said.get("id"), said.get("time"), times, sort=True
                )
            except TauflowError as error:
                self.problem = self.problem or str(error)
                continue
            self.problem = unread
            if way != DUPLICATES[0]:
                self.option_values["duplicates"] = way
            if found.unsorted:
                self.option_values.setdefault("sort", True)
            return whole, found, times
        return self.table, None, None

    def _exclude_varying_columns(self) -> None:
        """Leave out columns of a long table that differ within one time, such as units."""
        if "long" not in self.option_values or "features" in self.known_options:
            return
        group = np.zeros(len(self.table), np.int64)
        for role in ("id", "time"):
            if role in self.option_values:
                group = combine_codes(group, self.by_name[self.option_values[role]].codes)
        others = [one for one in self.profiles if one.name not in self.roles]
        differing = [one for one in others if not is_constant_per_group(one.codes, group)]
        for one in differing:
            self.roles[one.name] = Role("left out", "differs between values of one time")
        if differing:
            variables = self.table.texts(self.option_values["long"][0]).categories
            kept = [one.name for one in others if one not in differing]
            self.option_values["features"] = (*variables, *kept)

    def _assign_features(self, whole: Table, sequences: Sequences, times: Times | None) -> None:
        """Take static columns, those known ahead, and features."""
        is_same = whole.merged_count == 0 and "long" not in self.option_values
        owners = _map_rows_to_sequences(sequences)
        firsts = np.zeros(len(whole), np.bool_)
        firsts[sequences.rows[sequences.starts]] = True
        free = ("feature", "static", "known")
        used = [name for name, role in self.roles.items() if role.name not in free]
        features: Sequence[str]
        features = self.option_values.get("features") or [
            one for one in whole.columns if one not in used
        ]
        kept: dict[str, list[str]] = {"feature": [], "static": [], "known": []}
        if not TableOptions(**self.option_values).is_forecast:
            times = None  # which columns may repeat
        for name in features:
            whole.check_name(name, "feature")
            one = self.by_name[name] if is_same else profile_column(whole, name)
            role = self._find_special_role(whole, one, sequences, times)
            if role is None and is_static(one, owners, firsts):
                role = Role(
                    "static", "one value per id" if "id" in self.option_values else "one value"
                )
            role = self.roles.setdefault(name, role or Role("feature"))
            if role.name != "left out":
                kept.setdefault(role.name, []).append(name)
        if not any(kept.values()):
            self.problem = self.problem or "no column is left that could be a feature."
        elif "features" not in self.known_options and sum(map(len, kept.values())) < len(features):
            self.option_values["features"] = tuple(one for names in kept.values() for one in names)
        for place in ("static", "known"):
            if kept[place] and place not in self.known_options:
                self.option_values[place] = tuple(kept[place])

    def _find_special_role(
        self, whole: Table, one: ColumnProfile, sequences: Sequences, times: Times | None
    ) -> Role | None:
        """Return the role of a column that is no plain feature, nor static."""
        if one.kind == EMPTY:
            return Role("left out", "holds nothing")
        if one.kind in (DATES, DURATIONS):
            return Role(
                "left out", f"holds {one.kind}; times are in {self.option_values.get('time')!r}"
            )
        if one.is_row_number and _ROW_NUMBER.search(one.name):
            return Role("left out", "numbers the rows")
        try:
            build_inputs(whole, [one.name])
        except TauflowError as error:
            return Role("left out", str(error))
        if times is not None and is_derived_from_times(one, sequences, times):
            return Role("known", f"repeats {self.option_values['time']!r}")
        return None

    def _choose_windows(self, whole: Table, sequences: Sequences, times: Times | None) -> None:
        """Say how to split and cut few or long sequences."""
        said, given = self.option_values, self.known_options
        options = TableOptions(**said)
        owners = _map_rows_to_sequences(sequences)
        per_id = not options.is_forecast and "id" in said
        per_id = per_id and all(
            is_constant_per_group(profile_column(whole, n).codes, owners) for n in options.targets
        )
        if per_id or any(name in given for name in ("window", "stride", "horizon", "season")):
            return
        parted = any(name in given for name in ("split", "split_by", "group", "split_column"))
        usual = np.median(sequences.lengths)
        by_time = (
            "id" in said and len(sequences) < _FEW_IDS and usual > _DEFAULT_WINDOW and not parted
        )
        if by_time:
            said["split_by"] = BY_TIME
        if "id" not in said or by_time or usual > _LONG_SEQUENCE:
            said["window"] = _DEFAULT_WINDOW
        gaps = np.delete(sequences.dt(), sequences.starts)
        dated = times is not None and times.dated and gaps.size > 0
        if not dated or "id" in said or not options.is_forecast:
            return
        gap = float(np.median(gaps))
        forecast = _FORECASTS.get(gap)
        is_even = compute_share(gaps == gap) > 0.99
        if forecast and is_even and len(whole) > 10 * sum(forecast.values()):
            said.update(forecast, season=_SEASONS[gap])


def _roles_from_options(table: Table, known_options: Mapping[str, Any]) -> dict[str, Role]:
    """Return the roles that are given.

    Raises:
        UnknownNameError: there is no such column.
    """
    named = list_role_columns(known_options)
    if known_options.get("long"):  # of a long table they may be variables
        del named["static"], named["known"]
    roles: dict[str, Role] = {}
    for role, names in named.items():
        for name in names:
            roles.setdefault(table.check_name(name, role), Role(role, "as given"))
    return roles


def _explain_unread_times(table: Table, name: str) -> str:
    """Return why a column cannot be read as times."""
    try:
        read_times(table, name, None)
    except TauflowError as error:
        return str(error)
    return get_format_advice(table, name)  # of several that fit


def _map_rows_to_sequences(sequences: Sequences) -> Indices:
    """Return which sequence each row of the table belongs to, (R,)."""
    owners = np.empty(len(sequences.rows), np.int64)
    owners[sequences.rows] = sequences.sequence_index
    return owners
