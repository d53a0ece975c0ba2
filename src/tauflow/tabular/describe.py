"""What a table seems to be: its columns, and a command to start from, printed and never used.

Roles follow from names, dtypes, how many rows columns tell apart, and whether they rise.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import TauflowError

from .cell_values import Floats, Indices
from .column_profile import (
    EMPTY,
    FLOATS,
    INTEGERS,
    TEXT,
    ColumnProfile,
    find_missing_markers,
    profile_column,
    share,
)
from .files import read_table
from .frame import Frame
from .inputs import MAX_CATEGORIES, build_inputs
from .option_names import list_role_columns
from .options import BY_TIME, NEXT_STEP, READ_OPTIONS, TableOptions
from .schema_fields import Role
from .target_kinds import MAX_INTEGER_CLASSES
from .times import read_times

_SUBJECTS = (
    "patient|pat|pt|subject|subj|person|participant|stay|customer|user|animal|station|sensor|site|"
    "machine|series|country|city|item|trial|household|company"
)
_ID = re.compile(
    rf"(?i:(^|[_\W])({_SUBJECTS}|id|uid|key)([_\W]?(id|nr|no|num|number))?$)|[a-z]I[Dd]$|[A-Z]ID$"
)
_NO_ID = re.compile(r"(?i:(type|class|status|category|event|code|weather|item|test)[_\W]?id$)")
_TIME = re.compile(
    r"(?i:(^|[_\W])(\w*time|timestamp|\w*date|ts|hours?|minutes?|seconds?|days?|weeks?|months?|"
    r"years?|when|t)\d?([_\W](utc|hours?|days?|h|s))?$)"
)
_AGE = re.compile(r"(?i:(^|[_\W])(age|elapsed|exper|experience)$)")
_VARIABLE = re.compile(
    r"(?i:(^|[_\W])(variable|parameter|param|item|code|test|signal|feature)(id|_name)?$)"
)
_VALUE = re.compile(r"(?i:(^|[_\W])(value|val|valuenum|numeric_value|reading|result)$)")
_TARGETS = ("target", "label", "class", "outcome", "died", "death", "mortality", "status", "y")
_TARGET = re.compile(rf"(?i:(?:^|[_\W])({'|'.join(_TARGETS)})s?$)")
_MAX_IDS, _FEW_IDS, _LONG, _WINDOW = 6, 10, 1000, 100
_MAX_MERGED = 0.05
"""Share of the rows that a suggestion may merge into others."""


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
        problem: why the table cannot be read so.
        lengths: how many different times each id has.
        gaps: time steps between these, in hours if they are dates, in rows without times.
    """

    columns: Mapping[str, ColumnDescription]
    options: Mapping[str, Any]
    frame: Frame = field(repr=False)
    problem: str | None
    lengths: Indices
    gaps: Floats

    @property
    def roles(self) -> dict[str, Role]:
        """What each column seems to be for."""
        return {name: column.role for name, column in self.columns.items()}


class _Keys(NamedTuple):
    """Names of the columns of ids and times, and the share of the rows that they tell apart."""

    id: str | None
    time: str | None
    unique: float = 1.0
    points: float = -math.inf


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
        self.profiles = {n: profile_column(frame, n, forms.get(n)) for n in frame.columns}
        pandas = require("pandas", extra="tables")
        self.codes = pandas.DataFrame({name: p.codes for name, p in self.profiles.items()})

    def describe(self) -> Description:
        self._take_long()
        keys = self._choose_keys()
        self._take_keys(keys)
        problem = self._explain_keys(keys)
        forecast = any(self.known.get(name) for name in ("horizon", "season", "known"))
        if not ("target" in self.known or forecast or self.known.get("task") == NEXT_STEP):
            self._take_target()
        group = np.zeros(len(self.frame), np.int64)
        if keys.id is not None:
            group = np.unique(self.profiles[keys.id].codes, return_inverse=True)[1]
        times: Floats = np.arange(len(self.frame), dtype=np.float64)
        if keys.time is not None and (values := self.profiles[keys.time].values) is not None:
            times = values
        order = np.lexsort((times, group))
        new = (np.diff(group[order]) != 0) | (np.diff(times[order]) != 0)
        rows = order[np.append(True, new)]
        lengths = np.bincount(group[rows])
        if problem is None:
            self._take_order(keys, group, times)
            is_constant = self._find_constant(group)
            self._take_features(keys, is_constant, group, rows)
            self._choose_windows(is_constant, lengths)
        columns = {
            name: ColumnDescription(profile, self.roles.get(name, Role("feature")))
            for name, profile in self.profiles.items()
        }
        gaps = np.diff(times[rows])[np.diff(group[rows]) == 0]
        return Description(columns, self.options, self.frame, problem, lengths, gaps)

    # Ids and times.

    def _list_free(self) -> dict[str, ColumnProfile]:
        """Return the columns with values that have no role yet."""
        of_all = self.profiles.items()
        return {name: p for name, p in of_all if name not in self.roles and p.kind != EMPTY}

    def _take_long(self) -> None:
        """Say which columns hold variables and values, by their names."""
        if "long" in self.known:
            return
        free = self._list_free().items()
        variables = [n for n, p in free if p.kind in (TEXT, INTEGERS) and _VARIABLE.search(n)]
        values = [n for n, p in free if p.kind in (INTEGERS, FLOATS) and _VALUE.search(n)]
        if not variables or len(values) != 1:
            return
        if 2 <= self.profiles[variables[0]].count <= len(self.frame) / 4:
            self.options["long"] = (variables[0], values[0])
            self.roles |= {variables[0]: Role("variable"), values[0]: Role("value")}

    def _choose_keys(self) -> _Keys:
        """Return the columns that most look like ids and times."""
        free = self._list_free()
        ids: list[Any] = [None, *sorted(filter(self._may_be_id, free), key=self._rank_id)]
        times: list[Any] = [None, *(name for name, p in free.items() if p.values is not None)]
        ids = [self.known["id"]] if "id" in self.known else ids[: _MAX_IDS + 1]
        times = [self.known["time"]] if "time" in self.known else times
        return max((self._rate(*pair) for pair in product(ids, times)), key=lambda k: k.points)

    def _may_be_id(self, name: str) -> bool:
        profile = self.profiles[name]
        is_repeated = profile.count * (1.1 if is_id_name(name) else 1.5) <= len(self.frame)
        fits = profile.kind in (TEXT, INTEGERS) and profile.missing <= 0.01 and profile.count > 1
        return fits and is_repeated and not profile.is_row_number

    def _rank_id(self, name: str) -> tuple[bool, bool, int]:
        profile = self.profiles[name]
        return not is_id_name(name), not profile.is_contiguous, profile.count

    def _rate(self, id_: str | None, time: str | None) -> _Keys:
        """Return a pair of an id and a time with its points."""
        points = 0.0 if id_ is None else 3 * is_id_name(id_) - 1.5
        codes = np.zeros(len(self.frame), np.int64) if id_ is None else self.profiles[id_].codes
        if time is None:  # an id alone has its rows in one piece
            is_whole = id_ is not None and self.profiles[id_].is_contiguous
            is_whole = is_whole and not _TIME.search(id_ or "")
            return _Keys(id_, None, points=points + 4 * is_whole + 2 * (id_ is None))
        keys, profile = (
            [*filter(None, (id_, time)), *self.options.get("long", ())[:1]],
            self.profiles[time],
        )
        unique = 1 - share(self.codes.duplicated(keys).to_numpy())
        order = np.argsort(codes, kind="stable")
        assert profile.values is not None
        steps = np.diff(profile.values[order])[np.diff(codes[order]) == 0]
        steps = steps[steps != 0] if "long" in self.options else steps
        rises = max(share(steps > 0), share(steps < 0))
        named = bool(_TIME.search(time))
        is_no_time = profile.missing > 0.02 or unique < 0.3 or share(steps == 0) > 0.9
        if not (named or profile.is_time):
            is_odd = rises < 0.97 or unique < 0.9 or is_id_name(time) or profile.is_row_number
            is_no_time = is_no_time or is_odd
        if is_no_time and "time" not in self.known:
            return _Keys(id_, time, unique)
        points += 4.0 * profile.is_time + 3 * named + 2 * bool(_AGE.search(time))
        points += (rises > 0.95) + 4 * unique + (unique == 1)
        if id_ is not None and not is_id_name(id_):
            points -= 3 * (unique < 0.9 or bool(_TIME.search(id_)))
        return _Keys(id_, time, unique, points)

    def _take_keys(self, keys: _Keys) -> None:
        """Say which columns are id and time, and how times are written."""
        for role, name in {"id": keys.id, "time": keys.time}.items():
            if name is not None and role not in self.known:
                self.options[role] = name
                count = format_count(self.profiles[name].count, "different value")
                self.roles[name] = Role(role, count)
        formats = () if keys.time is None else self.profiles[keys.time].formats
        if formats and keys.time is not None and "time_format" not in self.known:
            self.options["time_format"] = formats[0]
            if len(formats) > 1:
                why = f"in the form {' or '.join(map(repr, formats))}: --time-format says which"
                self.roles[keys.time] = Role("time", why)

    def _explain_keys(self, keys: _Keys) -> str | None:
        """Say why times or ids that columns are named after cannot be read so."""
        free = self._list_free().items()
        unread = [name for name, p in free if p.kind == TEXT and _TIME.search(name)]
        if unread and keys.time is None and "time" not in self.known:
            why = "Say its form: --time-format."
            try:
                read_times(self.frame, unread[0], None)
            except TauflowError as error:
                why = str(error)
            return (
                f"column {unread[0]!r} is named like a time, and cannot be read as one: "
                f"{why} Or name another column (--time), or none: --time none."
            )
        if "duplicates" not in self.known and keys.unique < 1 - _MAX_MERGED:
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
        for name, profile in self._list_free().items():
            match = _TARGET.search(name)
            most = MAX_CATEGORIES if profile.kind == TEXT else MAX_INTEGER_CLASSES
            if match and 2 <= profile.count <= most and not profile.is_time:
                fitting.append((_TARGETS.index(match[1].lower()), name))
        if fitting:
            name = min(fitting)[1]
            self.options["target"] = (name,)
            self.roles[name] = Role("target", "by its name")

    def _take_order(self, keys: _Keys, group: Indices, times: Floats) -> None:
        """Say whether to merge or to sort rows."""
        if "duplicates" not in self.known and keys.unique < 1:
            numbers = any(p.kind in (INTEGERS, FLOATS) for p in self.profiles.values())
            self.options["duplicates"] = "mean" if numbers else "last"
        order = np.argsort(group, kind="stable")
        is_back = (np.diff(times[order]) < 0) & (np.diff(group[order]) == 0)
        if is_back.any() and not {"long", "duplicates"} & self.options.keys():
            self.options.setdefault("sort", True)

    def _find_constant(self, group: Indices) -> set[str]:
        """Return the columns that have one value in each group of rows, (R,), as far as any."""
        counts = self.codes.where(self.codes >= 0).groupby(group).nunique().max()
        return {name for name, count in counts.items() if count <= 1}

    def _take_features(
        self, keys: _Keys, is_constant: set[str], group: Indices, rows: Indices
    ) -> None:
        """Say which columns are inputs, and which of these have one value per id."""
        if "long" in self.options:
            at_once = self.codes.groupby([*filter(None, keys[:2])]).ngroup().to_numpy()
            differing = self.profiles.keys() - self._find_constant(at_once)
        else:
            differing = set()
        first = rows[np.unique(group[rows], return_index=True)[1]]
        for name, profile in self.profiles.items():
            if name in self.roles:
                continue
            role = Role("static", "one value per id" if "id" in self.options else "one value")
            absent = profile.codes < 0
            is_late = np.isin(group[first[absent[first]]], group[~absent]).any()
            if (reason := self._find_reason(name)) is not None:
                role = Role("left out", reason)
            elif name in differing:
                role = Role("left out", "differs between values of one time")
            elif is_late or name not in is_constant:
                role = Role("feature")
            self.roles[name] = role
        listed = [n for n in self.options.get("features") or self.profiles if n in self.roles]
        names = {r: [n for n in listed if self.roles[n].name == r] for r in ("feature", "static")}
        is_part = "left out" in {role.name for role in self.roles.values()}
        if "long" in self.options:
            variable, value = self.options["long"]
            texts, codes = self.frame.texts(variable)
            filled = np.unique(codes[self.profiles[value].codes >= 0])
            names["feature"][:0] = [texts[code] for code in filled]
            is_part |= len(filled) < len(texts)
        if is_part and "features" not in self.known and any(names.values()):
            self.options["features"] = (*names["feature"], *names["static"])
        if names["static"] and "static" not in self.known:
            self.options["static"] = tuple(names["static"])

    def _find_reason(self, name: str) -> str | None:
        """Return why a column is no feature for what it holds, ``None`` if it may be one."""
        profile = self.profiles[name]
        if profile.kind == EMPTY or profile.is_time:
            return f"holds {profile.kind}"
        if profile.is_row_number:
            return "numbers the rows"
        try:
            build_inputs(self.frame, [name])
        except TauflowError as error:
            return str(error)
        return None

    def _choose_windows(self, is_constant: set[str], lengths: Indices) -> None:
        """Say how to split and cut few or long sequences."""
        options = TableOptions(**self.options)
        if options.id is not None and not options.is_forecast and {*options.targets} <= is_constant:
            return
        if {"window", "stride", "horizon", "season"} & self.known.keys():
            return
        usual = np.median(lengths)
        is_cut = options.id is not None and len(lengths) < _FEW_IDS and usual > _WINDOW
        if is_cut and not {"split", "split_by", "group", "split_column"} & self.known.keys():
            self.options["split_by"] = BY_TIME
        if options.id is None or "split_by" in self.options or usual > _LONG:
            self.options["window"] = _WINDOW


def is_id_name(name: str) -> bool:
    """Whether a column is named like ids."""
    return bool(_ID.search(name)) and not _NO_ID.search(name)
