"""How the values of a column relate to ids and times."""

import re

import numpy as np

from .column_profile import INTEGERS, ColumnProfile, compute_share
from .sequences import Sequences
from .table import Bools, Indices
from .times import Times

_CALENDAR_UNITS = {  # hours, period, and by how much whole numbers may differ
    "year": (8765.8, np.inf, 1.0),
    "month": (730.5, 12.0, 1.0),
    "day": (24.0, 30.44, 3.0),
    "hour": (1.0, 24.0, 1.0),
    "minute": (1 / 60, 60.0, 1.0),
    "second": (1 / 3600, 60.0, 1.0),
}
"""Parts of a date that a column may repeat."""


def is_constant_per_group(codes: Indices, group: Indices) -> bool:
    """Whether all rows of a group that have a value have the same, both (R,)."""
    there = np.flatnonzero(codes >= 0)
    first = np.full(int(group.max()) + 1, -1)
    first[group[there[::-1]]] = codes[there[::-1]]
    return bool((codes[there] == first[group[there]]).all())


def is_static(one: ColumnProfile, owners: Indices, firsts: Bools) -> bool:
    """Whether each id has one value of a column, from its first row on."""
    there = one.codes >= 0
    having = np.zeros(int(owners.max()) + 1, np.bool_)
    having[owners[there]] = True
    early = np.zeros_like(having)
    early[owners[there & firsts]] = True
    return bool((early == having).all()) and is_constant_per_group(one.codes, owners)


def is_derived_from_times(one: ColumnProfile, sequences: Sequences, times: Times) -> bool:
    """Whether a column repeats the times: a part of a date, or times from another start."""
    if one.values is None or one.kind != INTEGERS or len(sequences) == len(sequences.rows):
        return False
    gaps = np.delete(sequences.dt(), sequences.starts)
    values = one.values[sequences.rows]
    steps = np.delete(np.diff(values, prepend=0.0), sequences.starts)
    if not times.dated:
        return compute_share(steps == gaps) > 0.999
    words = re.split(r"[\W_]+", one.name.lower())
    unit = next((unit for unit in _CALENDAR_UNITS if unit in words), None)
    if unit is None:
        return False
    hours, period, off = _CALENDAR_UNITS[unit]
    error = steps - gaps / hours
    if np.isfinite(period):
        error = (error + period / 2) % period - period / 2
    return compute_share(np.abs(error) <= off) > 0.95
