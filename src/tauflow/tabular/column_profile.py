"""What the columns of a table hold, before anything is said of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tauflow.errors import TauflowError

from .cell_values import BOOLEAN_TEXTS, LIKELY_MISSING, Bools, Floats, Indices, parse_number
from .frame import Frame
from .time_formats import infer_time_formats
from .times import parse_times, parses_as_date, read_times

DATES, DURATIONS = "dates", "durations"
EMPTY, BOOLEANS, INTEGERS, FLOATS, TEXT = "nothing", "booleans", "whole numbers", "numbers", "text"
_MAX_SHOWN = 10
"""Different values of a column whose shares are shown."""


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What a column holds.

    Args:
        kind: ``"nothing"``, ``"dates"``, ``"durations"``, ``"booleans"``, ``"whole numbers"``,
            ``"numbers"`` or ``"text"``.
        codes: which of its different values each row holds, (R,), -1 where missing.
        count: number of different values.
        values: numbers that order the rows, (R,), NaN where missing; ``None`` if there is no order.
        formats: in which it may be read as times, ``()`` if it needs none.
    """

    kind: str
    codes: Indices
    count: int
    values: Floats | None = None
    formats: tuple[str, ...] = ()

    @property
    def holds(self) -> str:
        """Words for what the column holds."""
        is_counted = self.kind in (INTEGERS, FLOATS, TEXT)
        return f"{self.kind}, {self.count} different" if is_counted else self.kind

    @property
    def is_time(self) -> bool:
        """Whether it holds dates or durations."""
        return self.kind in (DATES, DURATIONS)

    @property
    def missing(self) -> float:
        """Share of the rows without a value."""
        return share(self.codes < 0)

    @property
    def is_contiguous(self) -> bool:
        """Whether all rows of one value follow each other."""
        return int((np.diff(self.codes) != 0).sum()) + 1 == self.count

    @property
    def is_row_number(self) -> bool:
        """Whether the values are 1, 2, 3, ... in the order of the rows."""
        is_key = self.kind == INTEGERS and self.count == len(self.codes) > 2
        return is_key and self.values is not None and share(np.diff(self.values) == 1) > 0.99


def profile_column(frame: Frame, name: str, time_format: str | None = None) -> ColumnProfile:
    """Return what a column holds; of times the format may be known."""
    codes, cells = frame.factorize(name)
    profile = ColumnProfile(TEXT, codes, len(cells))
    if not cells:
        return replace(profile, kind=EMPTY)
    if (times := _profile_times(frame, name, profile, time_format)) is not None:
        return times
    if {*map(str, cells)} <= {*BOOLEAN_TEXTS}:
        return replace(profile, kind=BOOLEANS)
    numbers = list(map(parse_number, cells))
    if None in numbers:
        return profile
    different = np.array(numbers, np.float64)
    kind = INTEGERS if bool((different == np.floor(different)).all()) else FLOATS
    return replace(profile, kind=kind, values=np.append(different, math.nan)[codes])


def _profile_times(
    frame: Frame, name: str, profile: ColumnProfile, form: str | None
) -> ColumnProfile | None:
    """Return a column of times, of several formats those with which most rows are later."""
    cells, dtype = frame.list_cells(name), frame.columns[name].dtype
    forms: tuple[str | None, ...] = (form,)
    if form is None and dtype.kind in "Oiu":
        forms = infer_time_formats(cells) if infer_time_formats(cells[:1]) else (None,)
        if forms == (None,) and not parses_as_date(str(cells[0])):
            return None
    elif form is None and dtype.kind not in "mM":
        return None
    there = np.flatnonzero(profile.codes >= 0)
    rows = Frame("", {"t": frame.columns[name][there]}, there)
    fits = list[tuple[float, str | None, ColumnProfile]]()
    for written in forms:
        try:
            read = rows if written is None else parse_times(rows, "t", written)
            times = read_times(read, "t", None)
        except TauflowError:
            continue
        if times.dated:
            hours = np.full(len(profile.codes), math.nan)
            hours[there] = times.values
            kind = DURATIONS if read.columns["t"].dtype.kind == "m" else DATES
            rises = share(np.diff(times.values) > 0)
            fits.append((rises, written, replace(profile, kind=kind, values=hours)))
    if not fits:
        return None
    best = max(fits, key=lambda fit: fit[0])
    formats = tuple(written for rises, written, _ in fits if written and rises == best[0])
    return replace(best[2], formats=formats)


def find_missing_markers(frame: Frame) -> tuple[str, ...]:
    """Return words such as ``nil`` that stand in columns of numbers, for ``na_values``, sorted."""
    markers: set[str] = set()
    for name, values in frame.columns.items():
        cells = frame.list_cells(name) if values.dtype.kind == "O" else []
        texts = {cell for cell in cells if isinstance(cell, str)}
        words = {text for text in texts if text.lower() in LIKELY_MISSING}
        if len(cells) > 2 * len(words) and None not in map(parse_number, texts - words):
            markers |= words
    return tuple(sorted(markers))


def share_of_values(profile: ColumnProfile, cells: Sequence[Any]) -> list[tuple[str, float]]:
    """Return the few values of a column, the most frequent first, each with its share; or none."""
    counts = np.bincount(profile.codes[profile.codes >= 0], minlength=len(cells))
    if not 1 <= len(cells) <= _MAX_SHOWN:
        return []
    shares = zip(map(str, cells), (counts / counts.sum()).tolist(), strict=True)
    return sorted(shares, key=lambda pair: (-pair[1], pair[0]))


def share(condition: Bools) -> float:
    """Return the share of the places where something holds, 0 of none."""
    return float(condition.mean()) if condition.size else 0.0
