"""What the columns of a table hold, before anything is said of them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import TauflowError

from .cell_values import (
    BOOLEAN_TEXTS,
    LIKELY_MISSING,
    Bools,
    Floats,
    Indices,
    factorize,
    parse_number,
)
from .files import find_placeholder
from .frame import Frame
from .time_formats import ELAPSED, infer_time_formats
from .times import parse_times, parses_as_date, read_times

EMPTY, DATES, DURATIONS, CLOCK, BOOLEANS = (
    "nothing",
    "dates",
    "durations",
    "times of day",
    "booleans",
)
INTEGERS, FLOATS, TEXT = "whole numbers", "numbers", "text"
_HOURS_OF_DAY = 24.0
_SINCE_1970 = 1e8
"""Seconds that times have at least which are counted since 1970."""
_HALF_DAY = re.compile(r"(?i:\d{1,2}(:\d\d){0,2} ?[ap]m)")
_CODES = (-1.0, -9.0, 99.0, 999.0, 9999.0)


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What a column holds.

    Args:
        name: of the column.
        kind: ``"nothing"``, ``"dates"``, ``"durations"``, ``"times of day"``, ``"booleans"``,
            ``"whole numbers"``, ``"numbers"`` or ``"text"``.
        codes: which of its different values each row holds, (R,), -1 where missing.
        count: number of different values.
        values: numbers that order the rows, (R,), NaN where missing; ``None`` if there is no order.
        formats: in which it may be read as times, ``()`` if it needs none.
    """

    name: str
    kind: str
    codes: Indices
    count: int
    values: Floats | None = None
    formats: tuple[str, ...] = ()

    @property
    def holds(self) -> str:
        """Words for what the column holds."""
        if self.kind in (EMPTY, DATES, DURATIONS, CLOCK, BOOLEANS):
            return self.kind
        return f"{self.kind}, {self.count} different"

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return self.kind in (INTEGERS, FLOATS)

    @property
    def is_time(self) -> bool:
        """Whether it holds dates or durations."""
        return self.kind in (DATES, DURATIONS)

    @cached_property
    def missing(self) -> float:
        """Share of the rows without a value."""
        return share(self.codes < 0)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether all rows of one value follow each other."""
        return int((np.diff(self.codes) != 0).sum()) + 1 == self.count

    @cached_property
    def is_row_number(self) -> bool:
        """Whether the values are 1, 2, 3, ... or the like in the order of the rows."""
        if self.kind != INTEGERS or self.values is None or len(self.values) < 3:
            return False
        return share(np.diff(self.values) == 1) > 0.99 and self.count == len(self.values)

    @cached_property
    def is_whole_day(self) -> bool:
        """Whether dates have no time of day."""
        assert self.values is not None
        return bool(np.allclose(self.values[self.codes >= 0] % _HOURS_OF_DAY, 0.0))

    def is_constant_in(self, group: Indices) -> bool:
        """Whether all rows of a group that have a value have the same; group is (R,)."""
        there = np.flatnonzero(self.codes >= 0)
        first = np.full(int(group.max()) + 1, -1)
        first[group[there[::-1]]] = self.codes[there[::-1]]
        return bool((self.codes[there] == first[group[there]]).all())


def share(condition: Bools) -> float:
    """Return the share of the places where something holds, 0 of none."""
    return float(condition.mean()) if condition.size else 0.0


def profile_column(frame: Frame, name: str, time_format: str | None = None) -> ColumnProfile:
    """Return what a column holds.

    Args:
        frame: the table.
        name: of the column.
        time_format: in which the column holds times, if that is known.
    """
    values = frame.columns[name]
    codes, cells = factorize(values)
    profile = ColumnProfile(name, TEXT, codes, len(cells))
    if not cells:
        return replace(profile, kind=EMPTY)
    times = _read_as_times(values, codes, cells, time_format)
    if times is not None:
        return replace(profile, **times)
    if values.dtype.kind == "O":
        if set(map(str, cells)) <= set(BOOLEAN_TEXTS):
            return replace(profile, kind=BOOLEANS)
        numbers = [parse_number(cell) for cell in cells]
        if None in numbers:
            is_clock = all(_HALF_DAY.fullmatch(str(cell)) for cell in cells)
            return replace(profile, kind=CLOCK) if is_clock else profile
        values = np.append(np.array(numbers, np.float64), math.nan)[codes]
    elif values.dtype.kind == "b":
        return replace(profile, kind=BOOLEANS)
    values = values.astype(np.float64)
    there = values[codes >= 0]
    kind = INTEGERS if bool((there == np.floor(there)).all()) else FLOATS
    return replace(profile, kind=kind, values=values)


def _read_as_times(
    values: NDArray[Any], codes: Indices, cells: Sequence[Any], form: str | None
) -> dict[str, Any] | None:
    """Return kind, values and formats of a column of times; ``None`` of others.

    Of several formats those come first with which most times are later than those of the row
    before, and of these those with fewer different time steps; of equal ones all stay.
    """
    forms: tuple[str | None, ...] = (form,)
    if form is None and values.dtype.kind in "Oiu":
        forms = infer_time_formats(cells) if infer_time_formats(cells[:1]) else (None,)
        if forms == (None,) and not parses_as_date(str(cells[0])):
            return None
    elif form is None and values.dtype.kind not in "mM":
        return None
    firsts = np.unique(codes[codes >= 0], return_index=True)[1]
    few = Frame("", {"t": values[codes >= 0][firsts]}, firsts)
    fits = list[tuple[tuple[float, int], str | None, Floats, str]]()
    for written in forms:
        try:
            read = few if written is None else parse_times(few, "t", written)
            times = read_times(read, "t", None)
        except TauflowError:
            continue
        if times.dated:
            kind = DURATIONS if read.columns["t"].dtype.kind == "m" else DATES
            rows = np.append(times.values, math.nan)[codes]
            steps = np.diff(rows[codes >= 0])
            fits.append(((-share(steps > 0), len(np.unique(steps))), written, rows, kind))
    if not fits:
        return None
    best, _, best_times, kind = min(fits, key=lambda fit: fit[0])
    there = best_times[codes >= 0]
    of_day = forms == (ELAPSED,) and there.min() >= 0 and there.max() < _HOURS_OF_DAY
    if of_day and (np.diff(there) < 0).any():  # turns back, as no elapsed time does
        kind = CLOCK
    return {
        "kind": kind,
        "values": best_times,
        "formats": tuple(f for rank, f, *_ in fits if f and rank == best),
    }


def find_missing_markers(frame: Frame) -> tuple[str, ...]:
    """Return the texts that seem to mean a missing value, for ``na_values``, sorted.

    They are words such as ``nil`` or ``-`` in columns whose other cells are all numbers, more
    different ones than there are such words.
    """
    all_words: set[str] = set()
    for name, values in frame.columns.items():
        if values.dtype.kind != "O":
            continue
        cells = frame.list_cells(name)
        words = {c for c in cells if isinstance(c, str) and c.lower() in LIKELY_MISSING}
        others = [cell for cell in cells if not (isinstance(cell, str) and cell in words)]
        if len(others) > len(words) and None not in map(parse_number, others):
            all_words |= words
    return tuple(sorted(all_words))


def describe_codes(profiles: Sequence[ColumnProfile]) -> list[str]:
    """Return hints on numbers that may mean "missing", far outside the rest or alone below 0."""
    names_by_code: dict[float, list[str]] = {}
    for column in profiles:
        if not column.is_number or column.values is None or column.count < 3:
            continue
        values = column.values[column.codes >= 0]
        code = find_placeholder(values)
        for other in _CODES if code is None else ():
            rest = values[values != other]
            beyond = other < 0 <= rest.min() or (np.ptp(rest) > 0 and rest.max() < other / 3)
            if rest.size < values.size and beyond:
                code = other
        if code is not None:
            names_by_code.setdefault(code, []).append(column.name)
    return [
        f"{code:.0f} in {', '.join(map(repr, names))} may mean that a value is missing: "
        f"--missing={code:.0f} says so."
        for code, names in names_by_code.items()
    ]


def describe_units(column: ColumnProfile | None) -> list[str]:
    """Return a hint on times in seconds beside some in milliseconds."""
    if column is None or not column.is_number or column.values is None:
        return []
    low, high = np.nanmin(column.values), np.nanmax(column.values)
    if not (low > _SINCE_1970 and high > 300 * low):
        return []
    return [
        f"{column.name!r} holds {low:.0f} and {high:.0f}: seconds beside milliseconds? Bring them "
        "to one unit."
    ]


def share_of_values(column: ColumnProfile, frame: Frame, most: int = 10) -> list[tuple[str, float]]:
    """Return the few values of a column, the most frequent first, each with its share; or none."""
    if not 1 <= column.count <= most:
        return []
    texts, codes = frame.texts(column.name)
    counts = np.bincount(codes[codes >= 0])
    order = sorted(range(len(texts)), key=lambda n: (-counts[n], texts[n]))
    return [(texts[n], float(counts[n] / counts.sum())) for n in order]
