"""What a table seems to be: its columns, and a command to start from, printed and never used."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow.errors import TauflowError

from .cell_values import Indices
from .column_profile import (
    CLOCK,
    EMPTY,
    INTEGERS,
    TEXT,
    ColumnProfile,
    combine_codes,
    describe_codes,
    find_missing_markers,
    is_static,
    join_advice,
    profile_column,
    share,
)
from .files import read_table
from .frame import Frame
from .grouping import group_into_sequences, make_row_notes
from .inputs import MAX_CATEGORIES, build_inputs
from .keys import Keys, KeySearch, is_id_name, is_time_name, repeats_times
from .option_names import list_role_columns
from .options import BY_TIME, DUPLICATES, NEXT_STEP, READ_OPTIONS, TableOptions
from .reshape import reshape
from .schema_fields import Role
from .sequences import Sequences, format_names
from .target_kinds import MAX_INTEGER_CLASSES
from .times import read_times

_TARGETS = (
    *("target", "label", "class", "outcome", "died", "dead", "death", "mortality", "survived"),
    *("survival", "diagnosis", "status", "y"),
)
_TARGET = re.compile(rf"(?i:(?:^|[_\W])({'|'.join(_TARGETS)})s?$)")
_MAX_MERGED = 0.05
"""Share of the rows that a suggestion may merge into others."""
_FEW_IDS, _LONG, _WINDOW = 10, 1000, 100
_FORECASTS = {1.0: {"window": 168, "horizon": 24}, 24.0: {"window": 28, "horizon": 7}}
_SEASONS = {1.0: "24h", 24.0: "7 days"}
"""Of a single series with even time steps of so many hours: how to cut it, and its season."""


@dataclass(frozen=True)
class ColumnDescription:
    """A column: what it holds, and what it seems to be for."""

    profile: ColumnProfile
    role: Role

    @property
    def name(self) -> str:
        """Its name."""
        return self.profile.name


@dataclass(frozen=True, eq=False)
class Description:
    """What a table seems to be.

    Args:
        columns: each column.
        options: what to say of the table, fields of :class:`tauflow.data.TableOptions`.
        frame: the table as it is.
        hints: sentences on what a reader should look at.
        problem: why the table cannot be read so.
        sequences: rows of each id; ``None`` if there is a problem.
        notes: on rows that are merged or sorted.
        lead_time: how far ahead to forecast a single series of hours or days; ``None`` of others.
    """

    columns: Sequence[ColumnDescription]
    options: Mapping[str, Any]
    frame: Frame = field(repr=False)
    hints: Sequence[str] = ()
    problem: str | None = None
    sequences: Sequences | None = None
    notes: Sequence[str] = ()
    lead_time: str | None = None

    @property
    def roles(self) -> dict[str, Role]:
        """What each column seems to be for."""
        return {one.name: one.role for one in self.columns}


def describe_table(table: Any, known: Mapping[str, Any]) -> Description:
    """Describe the columns of a table, and suggest what to say of it.

    Args:
        table: as :func:`tauflow.data.from_table` takes it.
        known: fields of :class:`tauflow.data.TableOptions` that are known. ``None`` as ``id``,
            ``time``, ``target`` or ``long`` says that there is none.

    Raises:
        TauflowError: the file is no table, or has no such column.
    """
    return _Describer(table, known).describe()


class _Describer:
    """Suggests one role after the other."""

    def __init__(self, table: Any, known: Mapping[str, Any]) -> None:
        said = {name: known[name] for name in READ_OPTIONS if known.get(name) is not None}
        frame = read_table(table, TableOptions(**said))
        if "na_values" not in said and (markers := find_missing_markers(frame)):
            said["na_values"] = markers
            frame = read_table(table, TableOptions(**said))
        self.frame, self.known = frame, {**known, **said}
        self.options = {k: v for k, v in self.known.items() if v is not None}
        self.roles: dict[str, Role] = {}
        named = list_role_columns(self.known)
        if self.options.get("long"):  # of which they may be variables
            del named["static"], named["known"]
        for role, names in named.items():
            for name in names:
                self.roles.setdefault(frame.check_name(name, role), Role(role, "as given"))
        forms = {known.get("time"): known.get("time_format")}
        self.profiles = [profile_column(frame, name, forms.get(name)) for name in frame.columns]
        self.by_name = {one.name: one for one in self.profiles}
        self.hints: list[str] = []
        self.problem: str | None = None
        self.lead_time: str | None = None

    def _free(self) -> list[ColumnProfile]:
        return [one for one in self.profiles if one.name not in self.roles and one.kind != EMPTY]

    def describe(self) -> Description:
        barred = [name for name, role in self.roles.items() if role.name not in ("id", "time")]
        search = KeySearch(self.profiles, self.known, barred)
        keys = search.choose()
        self._take_keys(keys)
        self._check_keys(keys, None if "time" in self.known else search.find_spread_time(keys))
        forecast = any(self.known.get(name) for name in ("horizon", "season", "known"))
        if not ("target" in self.known or forecast or self.known.get("task") == NEXT_STEP):
            self._take_target()
        self._leave_out()
        merged = self._merge(keys)
        notes: tuple[str, ...] = ()
        if merged is not None:
            self._take_features(*merged)
            self._choose_windows(*merged)
            notes = make_row_notes(*merged, TableOptions(**self.options))
        keyed = {one.name for one in (keys.id, keys.time) if one is not None}
        self.hints += describe_codes([one for one in self.profiles if one.name not in keyed])
        return Description(
            columns=[
                ColumnDescription(one, self.roles.get(one.name, Role("feature")))
                for one in self.profiles
            ],
            options=self.options,
            frame=self.frame,
            hints=self.hints,
            problem=self.problem,
            sequences=None if merged is None else merged[1],
            notes=notes,
            lead_time=self.lead_time,
        )

    def _take_keys(self, keys: Keys) -> None:
        for role, one in {"id": keys.id, "time": keys.time}.items():
            if one is not None and role not in self.known:
                self.options[role] = one.name
                self.roles[one.name] = Role(role, format_count(one.count, "different value"))
        if keys.long is not None and "long" not in self.known:
            self.options["long"] = keys.long
            for role, name in zip(("variable", "value"), keys.long, strict=True):
                self.roles[name] = Role(role)
        time = keys.time
        if time is not None and time.formats and "time_format" not in self.known:
            self.options["time_format"] = time.formats[0]
            if len(time.formats) > 1:
                self.hints.append(
                    f"{time.name!r} may be in the form {' or '.join(map(repr, time.formats))}: "
                    "nothing tells which; --time-format says so."
                )

    def _check_keys(self, keys: Keys, spread: list[str] | None) -> None:
        """Say where times or ids are spread over columns, cannot be read, or were left out."""
        if spread is not None:
            names = format_names([repr(one) for one in spread], 6)
            for role in {"id", "time"} - self.known.keys():
                if self.options.get(role) in {*spread, _name(keys.time)} - {None}:
                    del self.roles[self.options.pop(role)]
            self.problem = (
                f"the time is spread over the columns {names}. Join them into one column of times: "
                f"{join_advice(spread)}. Or name a column that is the time by itself (--time), or "
                "none: --time none."
            )
            return
        unread = [one for one in self._free() if one.kind == TEXT and is_time_name(one.name)]
        if keys.time is None and "time" not in self.known and unread:
            self.problem = self._explain_unread(unread[0])
            return
        if "id" not in self.known and keys.id is None:
            single = next((one for one in self._free() if self._is_single_row_id(one)), None)
            if single is not None:
                self.problem = (
                    f"each value of {single.name!r} has one row, and one row per id is no "
                    "sequence. Name a column whose values come in several rows (--id), or --id "
                    "none if all rows are one series."
                )
        if keys.id is not None and not keys.id.is_contiguous:
            self.hints.append(
                f"Rows of an id ({keys.id.name!r}) are not next to each other: they are put "
                "together by --id."
            )

    def _is_single_row_id(self, one: ColumnProfile) -> bool:
        fits = is_id_name(one.name) and one.kind in (TEXT, INTEGERS) and not one.is_row_number
        return fits and one.count > 0.9 * len(self.frame)

    def _explain_unread(self, one: ColumnProfile) -> str:
        try:
            read_times(self.frame, one.name, None)
            why = "Say its form: --time-format."
        except TauflowError as error:
            why = str(error)
        return (
            f"column {one.name!r} is named like a time, and cannot be read as one: {why} Or name "
            "another column (--time), or none: --time none."
        )

    # Everything else.

    def _take_target(self) -> None:
        fitting = []
        for place, one in enumerate(self._free()):
            found = _TARGET.search(one.name)
            if found is None or one.is_row_number or one.count < 2 or one.is_time:
                continue
            word = found[1].lower()
            if word == "y" and {"x", "z"} <= {name.lower() for name in self.by_name}:
                continue
            few = one.count <= (MAX_CATEGORIES if one.kind == TEXT else MAX_INTEGER_CLASSES)
            if few or (one.is_number and word in ("target", "outcome", "y", "label")):
                fitting.append((_TARGETS.index(word), place, one))
        if fitting:
            one = min(fitting, key=lambda f: f[:2])[2]
            self.options["target"] = (one.name,)
            self.roles[one.name] = Role("target", "by its name")

    def _leave_out(self) -> None:
        """Leave out what is no feature for what it holds."""
        group = None
        if "long" in self.options:
            keys = [self.options[n] for n in ("id", "time") if n in self.options]
            group = combine_codes(*(self.by_name[name].codes for name in keys))
        for one in self.profiles:
            reason = None if one.name in self.roles else self._find_reason(one, group)
            if reason is not None:
                self.roles[one.name] = Role("left out", reason)
        left_out = any(role.name == "left out" for role in self.roles.values())
        if group is not None and left_out and "features" not in self.known:
            variables = self.frame.texts(self.options["long"][0])[0]
            self.options["features"] = (*variables, *(one.name for one in self._free()))

    def _find_reason(self, one: ColumnProfile, group: Indices | None) -> str | None:
        """Return why a column is no feature, ``None`` if it may be one."""
        if one.kind == EMPTY:
            return "holds nothing"
        if one.kind == CLOCK or one.is_time:
            return f"holds {one.kind}"
        if one.is_row_number:
            return "numbers the rows"
        if group is not None and not one.is_constant_in(group):
            return "differs between values of one time"
        try:
            build_inputs(self.frame, [one.name])
        except TauflowError as error:
            return str(error)
        return None

    def _merge(self, keys: Keys) -> tuple[Frame, Sequences] | None:
        """Return the table with one row for each time of each id, and its sequences."""
        ways: tuple[str, ...] = DUPLICATES[:1]
        if "duplicates" in self.known:
            ways = (self.known["duplicates"],)
        elif "time" in self.options and keys.unique < 1:
            ways = DUPLICATES[1:] if any(p.is_number for p in self.profiles) else DUPLICATES[2:]
            if keys.unique < 1 - _MAX_MERGED and self.problem is None:
                self.problem = (
                    f"{format_count(round((1 - keys.unique) * len(self.frame)), 'row')} of "
                    f"{len(self.frame):,} have the time of another one"
                    f"{'' if keys.id is None else ' of their id'}. Name the column that tells "
                    "them apart (--id), another time (--time), or say how to merge them: "
                    "--duplicates mean."
                )
        if self.problem is not None:
            return None
        error: TauflowError | None = None
        for way in ways:
            said = {name: value for name, value in self.options.items() if name != "static"}
            said["duplicates"] = way
            try:
                frame = reshape(self.frame, TableOptions(**said))
                id, time = said.get("id"), said.get("time")
                found = group_into_sequences(frame, id, time, sort=time is not None)
            except TauflowError as caught:
                error = error or caught
                continue
            if way != DUPLICATES[0]:
                self.options["duplicates"] = way
            if found.unsorted:
                self.options.setdefault("sort", True)
            return frame, found
        self.problem = str(error)
        return None

    def _take_features(self, frame: Frame, sequences: Sequences) -> None:
        is_same = frame.merged_count == 0 and "long" not in self.options
        owners = np.empty(len(sequences.rows), np.int64)
        owners[sequences.rows] = sequences.sequence_index
        is_forecast = TableOptions(**self.options).is_forecast
        kept: dict[str, list[str]] = {"feature": [], "static": [], "known": []}
        names = self.options.get("features") or [
            name
            for name in frame.columns
            if self.roles.get(name, Role("feature")).name in ("feature", "static", "known")
        ]
        for name in names:
            one = (
                self.by_name[name]
                if is_same
                else profile_column(frame, frame.check_name(name, "feature"))
            )
            role = self.roles.get(name)
            if role is None:
                role = self._decide_role(one, sequences, owners, is_forecast=is_forecast)
            self.roles.setdefault(name, role)
            if role.name in kept:
                kept[role.name].append(name)
        left_out = [name for name, role in self.roles.items() if role.name == "left out"]
        if not any(kept.values()):
            self.problem = "no column is left that could be a feature."
        elif left_out and "features" not in self.known:
            self.options["features"] = tuple(name for names in kept.values() for name in names)
        for role_name in ("static", "known"):
            if kept[role_name] and role_name not in self.known:
                self.options[role_name] = tuple(kept[role_name])

    def _decide_role(
        self, one: ColumnProfile, sequences: Sequences, owners: Indices, *, is_forecast: bool
    ) -> Role:
        """Return the role of a column whose id and time are known."""
        firsts = np.zeros(len(owners), np.bool_)
        firsts[sequences.rows[sequences.starts]] = True
        if one.kind == EMPTY:  # a variable without a value
            return Role("left out", "holds nothing")
        if is_forecast and repeats_times(one, sequences):
            return Role("known", f"repeats {self.options['time']!r}")
        if not is_static(one, owners, firsts):
            return Role("feature")
        is_number = one.kind == INTEGERS and one.count > 0.9 * len(sequences) > 9
        if is_number and one.values is not None and np.nanmin(np.abs(one.values)) >= 100:
            return Role("left out", "another number of the id, by its values")
        return Role("static", "one value per id" if "id" in self.options else "one value")

    def _choose_windows(self, frame: Frame, sequences: Sequences) -> None:
        """Say how to split and cut few or long sequences."""
        said, known = self.options, self.known
        options = TableOptions(**said)
        owners = np.empty(len(sequences.rows), np.int64)
        owners[sequences.rows] = sequences.sequence_index
        per_id = not options.is_forecast and "id" in said
        per_id = per_id and all(
            profile_column(frame, name).is_constant_in(owners) for name in options.targets
        )
        if per_id or any(name in known for name in ("window", "stride", "horizon", "season")):
            return
        parted = any(name in known for name in ("split", "split_by", "group", "split_column"))
        usual = np.median(sequences.lengths)
        by_time = "id" in said and len(sequences) < _FEW_IDS and usual > _WINDOW and not parted
        if by_time:
            said["split_by"] = BY_TIME
        if "id" not in said or by_time or usual > _LONG:
            said["window"] = _WINDOW
        gaps = np.delete(sequences.compute_dt(), sequences.starts)
        dated = sequences.dated and gaps.size > 0
        if not dated or "id" in said or not options.is_forecast:
            return
        gap = float(np.median(gaps))
        forecast = _FORECASTS.get(gap)
        if forecast and share(gaps == gap) > 0.99 and len(frame) > 10 * sum(forecast.values()):
            said.update(forecast, season=_SEASONS[gap])
            self.lead_time = _SEASONS[gap]


def _name(one: ColumnProfile | None) -> str | None:
    return None if one is None else one.name
