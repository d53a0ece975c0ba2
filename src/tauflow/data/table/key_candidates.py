"""Columns that may be the id or the time of a table."""

import re
from dataclasses import dataclass

import numpy as np

from .categorical import factorize
from .column_profile import (
    DATES,
    DURATIONS,
    ColumnProfile,
    compute_share,
)
from .table import Floats, Indices

_TIME = re.compile(
    r"(?i:(^|[_\W])((date|chart|obs|visit|sample|event|start)?[_\W]?(time|times|timestamp|date|"
    r"datetime)|ts|hours?|hrs|minutes?|mins|seconds?|secs|days?|weeks?|months?|years?|when|t)"
    r"([_\W](utc|local|h|s|min|hours?|minutes?|seconds?|days?|hour))?$)|[a-z](Time|Date|Day)$"
)


class Grouping:
    """The rows of a table by an id, in the order of the table."""

    def __init__(self, profile: ColumnProfile | None, rows: int) -> None:
        self.profile = profile
        self.codes: Indices = np.zeros(rows, np.int64) if profile is None else profile.codes
        self.name = None if profile is None else profile.name
        self.in_order = profile is None or profile.is_contiguous
        order = np.arange(rows) if self.in_order else np.argsort(self.codes, kind="stable")
        self.before, self.after = order[:-1], order[1:]
        within = self.codes[self.before] == self.codes[self.after]
        self.first_rows = order[np.append(True, ~within)]
        self.before, self.after = self.before[within], self.after[within]

    def is_constant(self, other: ColumnProfile) -> bool:
        """Whether another column holds one value, and no gap, in all rows of each id."""
        codes = other.codes
        return bool((codes[self.before] == codes[self.after]).all() and (codes >= 0).all())


@dataclass(frozen=True)
class KeyCandidate:
    """How a column of times does within a grouping."""

    grouping: Grouping
    time: ColumnProfile | None
    unique: float
    forward: float
    long: tuple[ColumnProfile, ColumnProfile] | None = None


def is_possible_time(grouping: Grouping, time: ColumnProfile) -> bool:
    """Whether a column moves within ids, and in one direction unless name or kind tell a time."""
    assert time.values is not None
    steps = compute_steps(grouping, time.values)
    steps = steps[steps != 0]
    if time.kind in (DATES, DURATIONS) or is_time_name(time.name):
        return bool(steps.size)
    return max(compute_share(steps > 0), compute_share(steps < 0)) > 0.97


def compute_steps(grouping: Grouping, values: Floats) -> Floats:
    """Return the differences of neighbouring values within ids."""
    found: Floats = values[grouping.after] - values[grouping.before]
    return found


def combine_codes(first: Indices, second: Indices) -> Indices:
    """Return codes of pairs."""
    return factorize(first * (int(second.max()) + 2) + second + 1)[0]


def compute_unique_share(codes: Indices) -> float:
    """Return how many codes differ, as a share of the rows."""
    return (int(codes.max()) + 1) / len(codes)


def is_time_name(name: str) -> bool:
    """Whether a column is named like times."""
    return bool(_TIME.search(name))
