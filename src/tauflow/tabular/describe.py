"""What a table seems to be: its columns, and a command to start from, printed and never used."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow.errors import TauflowError

from .cell_values import Floats, Indices
from .column_profile import (
    CLOCK,
    DURATIONS,
    EMPTY,
    INTEGERS,
    TEXT,
    ColumnProfile,
    describe_codes,
    describe_units,
    find_missing_markers,
    profile_column,
    share,
)
from .files import read_table
from .frame import Frame
from .inputs import MAX_CATEGORIES, build_inputs
from .keys import PARTS, Keys, KeySearch, find_part, is_id_name, is_time_name
from .option_names import list_role_columns
from .options import BY_TIME, NEXT_STEP, READ_OPTIONS, TableOptions
from .schema_fields import Role
from .sequences import format_names
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
_LEAD_TIMES = {1.0: "24h", 24.0: "7 days"}
"""How far ahead a single series with even time steps of so many hours is forecast."""


class ColumnDescription(NamedTuple):
    """A column: what it holds, and what it seems to be for."""

    profile: ColumnProfile
    role: Role


@dataclass(frozen=True, eq=False)
class Description:
    """What a table seems to be.

    Args:
        columns: each column, by its name.
        options: what to say of the table, fields of :class:`tauflow.data.TableOptions`.
        frame: the table as it is.
        hints: sentences on what a reader should look at.
        problem: why the table cannot be read so.
        lengths: how many different times each id has.
        gaps: time steps between these, in hours if they are dates, in rows without times.
        lead_time: how far ahead to forecast a single series of hours or days that is no long table;
            ``None`` of others.
    """

    columns: Mapping[str, ColumnDescription]
    options: Mapping[str, Any]
    frame: Frame = field(repr=False)
    hints: Sequence[str]
    problem: str | None
    lengths: Indices
    gaps: Floats
    lead_time: str | None

    @property
    def roles(self) -> dict[str, Role]:
        """What each column seems to be for."""
        return {name: column.role for name, column in self.columns.items()}


def describe_table(table: Any, known: Mapping[str, Any]) -> Description:
    """Describe the columns of a table, and suggest what to say of it.

    Args:
        table: as :func:`tauflow.data.from_table` takes it.
        known: fields of :class:`tauflow.data.TableOptions` that are known. ``None`` as ``id``,
            ``time``, ``target`` or ``long`` says that no column has that role.

    Raises:
        TauflowError: the file is no table, or has no such column.
    """
    return _Describer(table, known).describe()


class _Describer:
    """Suggests one role after the other."""

    def __init__(self, table: Any, known: Mapping[str, Any]) -> None:
        options = {name: known[name] for name in READ_OPTIONS if known.get(name) is not None}
        frame = read_table(table, TableOptions(**options))
        if "na_values" not in options and (markers := find_missing_markers(frame)):
            options["na_values"] = markers
            frame = read_table(table, TableOptions(**options))
        self.frame, self.known = frame, {**known, **options}
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
        self.by_name = {column.name: column for column in self.profiles}
        self.hints: list[str] = []
        self.problem: str | None = None

    def _free(self) -> list[ColumnProfile]:
        return [
            column
            for column in self.profiles
            if column.name not in self.roles and column.kind != EMPTY
        ]

    def describe(self) -> Description:
        barred = [name for name, role in self.roles.items() if role.name not in ("id", "time")]
        search = KeySearch(self.profiles, self.known, barred)
        keys = search.choose()
        self._take_keys(keys)
        self.problem = self._explain_spread(keys, search) or self._explain_keys(keys)
        forecast = any(self.known.get(name) for name in ("horizon", "season", "known"))
        if not ("target" in self.known or forecast or self.known.get("task") == NEXT_STEP):
            self._take_target()
        self._leave_out(search)
        group = np.zeros(len(self.frame), np.int64)
        if keys.id is not None:
            group = np.unique(keys.id.codes, return_inverse=True)[1]
        rows, gaps = self._order_rows(group, keys)
        lengths, lead_time = np.bincount(group[rows]), None
        if self.problem is None:
            self._take_features(group, rows, gaps)
            lead_time = self._choose_windows(group, lengths, gaps)
        if keys.id is not None and "id" in self.options and not keys.id.is_contiguous:
            self.hints.append(
                f"Rows of an id ({keys.id.name!r}) are not next to each other: they are put "
                "together by --id."
            )
        others = [column for column in self.profiles if column not in (keys.id, keys.time)]
        self.hints += [*describe_units(keys.time), *describe_codes(others)]
        columns = {
            n: ColumnDescription(p, self.roles.get(n, Role("feature")))
            for n, p in self.by_name.items()
        }
        return Description(
            *(columns, self.options, self.frame, self.hints, self.problem),
            *(lengths, gaps, lead_time),
        )

    # Ids and times.

    def _take_keys(self, keys: Keys) -> None:
        for role, column in {"id": keys.id, "time": keys.time}.items():
            if column is not None and role not in self.known:
                self.options[role] = column.name
                self.roles[column.name] = Role(role, format_count(column.count, "different value"))
        if keys.time is not None and keys.time.kind == CLOCK:  # which never turns back in an id
            self.by_name[keys.time.name] = replace(keys.time, kind=DURATIONS)
        if keys.long is not None and "long" not in self.known:
            self.options["long"] = keys.long
            self.roles |= dict(zip(keys.long, (Role("variable"), Role("value")), strict=True))
        if keys.time is not None and keys.time.formats and "time_format" not in self.known:
            self.options["time_format"] = keys.time.formats[0]
            if len(keys.time.formats) > 1:
                self.hints.append(
                    f"{keys.time.name!r} may be in the form "
                    f"{' or '.join(map(repr, keys.time.formats))}: nothing tells which; "
                    "--time-format says so."
                )

    def _explain_spread(self, keys: Keys, search: KeySearch) -> str | None:
        """Say which columns hold parts of the time, and how to join them."""
        spread = None if "time" in self.known else search.find_spread_time(keys)
        if spread is None:
            return None
        parts = [*spread, *([] if keys.time is None else [keys.time.name])]
        for role in {"id", "time"} - self.known.keys():
            if self.options.get(role) in parts:
                del self.roles[self.options.pop(role)]
        if "time" not in self.options and "time_format" not in self.known:
            self.options.pop("time_format", None)
        lower = [name.lower() for name in spread]
        if {"year", "month", "day"} <= {*lower} <= {*PARTS}:
            renamed = "" if lower == spread else ".rename(columns=str.lower)"
            joined = f"frame[{spread!r}]{renamed}"
        else:
            joined = " + ' ' + ".join(f"frame[{name!r}].astype(str)" for name in spread)
        return (
            f"the time is spread over the columns {format_names([*map(repr, spread)], 6)}. Join "
            f"them into one column of times: frame['when'] = pandas.to_datetime({joined}). Or name "
            "a column that is the time by itself (--time), or none: --time none."
        )

    def _explain_keys(self, keys: Keys) -> str | None:
        """Say why times or ids that columns are named after cannot be read so."""
        for column in self._free():
            unread = column.kind == TEXT and is_time_name(column.name)
            if unread and keys.time is None and "time" not in self.known:
                why = "Say its form: --time-format."
                try:
                    read_times(self.frame, column.name, None)
                except TauflowError as error:
                    why = str(error)
                return (
                    f"column {column.name!r} is named like a time, and cannot be read as one: "
                    f"{why} Or name another column (--time), or none: --time none."
                )
            is_id = (
                is_id_name(column.name)
                and column.kind in (TEXT, INTEGERS)
                and not column.is_row_number
            )
            single = is_id and column.count > 0.9 * len(self.frame)
            is_named = keys.id is not None and is_id_name(keys.id.name)
            if single and not is_named and "id" not in self.known:
                return (
                    f"each value of {column.name!r} has one row, and one row per id is no "
                    "sequence. Name a column whose values come in several rows (--id), or --id "
                    "none if all rows are one series."
                )
        if "duplicates" not in self.known and keys.time and keys.unique < 1 - _MAX_MERGED:
            return (
                f"{format_count(round((1 - keys.unique) * len(self.frame)), 'row')} of "
                f"{len(self.frame):,} have the time of another one"
                f"{'' if keys.id is None else ' of their id'}. Name the column that tells "
                "them apart (--id), another time (--time), or say how to merge them: "
                "--duplicates mean."
            )
        return None

    # Everything else.

    def _take_target(self) -> None:
        fitting = []
        for column in self._free():
            match = _TARGET.search(column.name)
            if match is None or column.is_row_number or column.count < 2 or column.is_time:
                continue
            word = match[1].lower()
            few = column.count <= (MAX_CATEGORIES if column.kind == TEXT else MAX_INTEGER_CLASSES)
            if few or word in ("target", "outcome", "y", "label"):
                fitting.append((_TARGETS.index(word), column.name))
        if fitting:
            name = min(fitting, key=lambda f: f[0])[1]
            self.options["target"] = (name,)
            self.roles[name] = Role("target", "by its name")

    def _leave_out(self, search: KeySearch) -> None:
        """Leave out what is no feature for what it holds."""
        group = None
        if "long" in self.options:
            group = search.combine([self.options.get("id"), self.options.get("time")])
        for column in self.profiles:
            reason = None if column.name in self.roles else self._find_reason(column)
            differs = group is not None and not column.is_constant_in(group)
            if reason is None and differs and column.name not in self.roles:
                reason = "differs between values of one time"
            if reason is not None:
                self.roles[column.name] = Role("left out", reason)

    def _find_reason(self, column: ColumnProfile) -> str | None:
        """Return why a column is no feature, ``None`` if it may be one."""
        if column.kind in (EMPTY, CLOCK) or column.is_time:
            return f"holds {column.kind}"
        if column.is_row_number:
            return "numbers the rows"
        try:
            build_inputs(self.frame, [column.name])
        except TauflowError as error:
            return str(error)
        return None

    def _order_rows(self, group: Indices, keys: Keys) -> tuple[Indices, Floats]:
        """Return the first row of each time of each id, in their order, and the time between."""
        values = np.arange(len(self.frame)) * 1.0
        if keys.time is not None and keys.time.values is not None:
            values = keys.time.values
        if keys.time is not None and self.problem is None:
            if "duplicates" not in self.known and keys.unique < 1:
                numbers = any(column.is_number for column in self.profiles)
                self.options["duplicates"] = "mean" if numbers else "last"
            order = np.argsort(group, kind="stable")
            back = (np.diff(values[order]) < 0) & (np.diff(group[order]) == 0)
            if back.any() and "long" not in self.options and "duplicates" not in self.options:
                self.options.setdefault("sort", True)
        order = np.lexsort((values, group))
        new = (np.diff(group[order]) != 0) | (np.diff(values[order]) != 0)
        rows = order[np.append(True, new)]
        return rows, np.diff(values[rows])[np.diff(group[rows]) == 0]

    def _take_features(self, group: Indices, rows: Indices, gaps: Floats) -> None:
        """Say which columns are inputs, and which of these have one value per id."""
        forecast = TableOptions(**self.options).is_forecast
        for column in self.profiles:
            if column.name not in self.roles:
                self.roles[column.name] = self._decide_role(column, group, rows)
                if forecast and self._repeats_times(column, group, rows, gaps):
                    self.roles[column.name] = Role("known", f"repeats {self.options['time']!r}")
        listed = self.options.get("features") or self.by_name
        names_by_role = {
            role: [name for name in listed if name in self.roles and self.roles[name].name == role]
            for role in ("feature", "static", "known")
        }
        is_part = "left out" in {role.name for role in self.roles.values()}
        if "long" in self.options:
            variable, value = self.options["long"]
            names, codes = self.frame.texts(variable)
            filled = np.unique(codes[self.by_name[value].codes >= 0])
            names_by_role["feature"][:0] = [names[code] for code in filled]
            is_part |= len(filled) < len(names)
        if not any(names_by_role.values()):
            self.problem = "no column is left that could be a feature."
        elif is_part and "features" not in self.known:
            self.options["features"] = tuple(
                name for names in names_by_role.values() for name in names
            )
        for role in ("static", "known"):
            if names_by_role[role] and role not in self.known:
                self.options[role] = tuple(names_by_role[role])

    def _decide_role(self, column: ColumnProfile, group: Indices, rows: Indices) -> Role:
        """Return the role of a column whose id and time are known."""
        there = column.codes >= 0
        first = np.unique(group[rows], return_index=True)[1]
        late = np.bincount(group[there], minlength=len(first))[~there[rows[first]]].any()
        if late or not column.is_constant_in(group):
            return Role("feature")
        is_number = column.kind == INTEGERS and column.count > 0.9 * len(first) > 9
        if is_number and column.values is not None and np.nanmin(np.abs(column.values)) >= 100:
            return Role("left out", "another number of the id, by its values")
        return Role("static", "one value per id" if "id" in self.options else "one value")

    def _repeats_times(
        self, column: ColumnProfile, group: Indices, rows: Indices, gaps: Floats
    ) -> bool:
        """Whether a column repeats the times: a part of a date, or times from another start."""
        time = self.by_name.get(self.options.get("time", ""))
        if time is None or column.kind != INTEGERS or column.values is None:
            return False
        if time.is_time:
            return bool(find_part(column)) and column.is_constant_in(time.codes)
        steps = np.diff(column.values[rows])[np.diff(group[rows]) == 0]
        return share(steps == gaps) > 0.999

    def _choose_windows(self, group: Indices, lengths: Indices, gaps: Floats) -> str | None:
        """Say how to split and cut few or long sequences; return how far ahead to forecast one."""
        options = TableOptions(**self.options)
        per_id = options.id is not None and not options.is_forecast
        per_id = per_id and all(self.by_name[n].is_constant_in(group) for n in options.targets)
        if per_id or {"window", "stride", "horizon", "season"} & self.known.keys():
            return None
        usual = np.median(lengths)
        by_time = options.id is not None and len(lengths) < _FEW_IDS and usual > _WINDOW
        if by_time and not {"split", "split_by", "group", "split_column"} & self.known.keys():
            self.options["split_by"] = BY_TIME
        if options.id is None or "split_by" in self.options or usual > _LONG:
            self.options["window"] = _WINDOW
        dated = options.time is not None and self.by_name[options.time].is_time
        is_single = options.id is None and options.long is None
        if not (dated and gaps.size and is_single and options.is_forecast):
            return None
        even = share(gaps == np.median(gaps)) > 0.99
        return _LEAD_TIMES.get(float(np.median(gaps))) if even else None
