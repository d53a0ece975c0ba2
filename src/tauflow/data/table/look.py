"""A look at a table before anything is said of it: what its columns seem to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tauflow.errors import TauflowError

from .coded import Coded
from .files import read_table
from .options import READING, TEXTS, TableOptions
from .profile import TEXT
from .read import load_table
from .roles import RoleGuess, guess_roles
from .sheet import FEW, Floats, Sheet
from .target import kind_of
from .times import DEFAULT_UNIT, UNITS


@dataclass(frozen=True)
class Column:
    """What a column seems to be.

    Args:
        name: of the column.
        holds: words for what is in it.
        missing: share of its cells without a value.
        role: id, time, variable, value, target, feature, static, known or left out.
        shares: of each of its few values, the most frequent first.
    """

    name: str
    holds: str
    missing: float
    role: str
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Look:
    """What a table seems to be.

    Args:
        path: of its file.
        rows: how many it has.
        columns: what each seems to be.
        guess: what to say of it, and how many rows go.
        lengths: rows of each sequence, (N,); of a long table, times.
        gaps: between them, in ``unit``.
        unit: of the gaps.
        problem: why the table cannot be read so, if it cannot.
    """

    path: Path
    rows: int
    columns: tuple[Column, ...]
    guess: RoleGuess
    lengths: Floats
    gaps: Floats = field(repr=False)
    unit: str
    problem: str | None = None


def look_at(path: Path, given: Mapping[str, Any]) -> Look:
    """Guess what a table is, and read it so.

    Args:
        path: of a file that :func:`tauflow.data.from_table` reads.
        given: fields of :class:`TableOptions` that are known, see
            :func:`tauflow.data.table.roles.guess_roles`.

    Raises:
        UnknownNameError: there is no such column, or decimal sign.
        DataNotFoundError, DataError, ArgumentError: the file is no table.
    """
    guess = guess_roles(path, given)
    sheet, problem = guess.sheet, guess.problem
    labels: Sheet | None = None
    if problem is None:
        try:
            load_table(path, guess.options)
            labels = _with_labels(path, guess)
        except TauflowError as error:
            problem = str(error)
    columns = []
    for one in guess.profiles:
        role, holds, table = guess.roles[one.name].name, one.holds, sheet
        if labels is not None and role == "target":
            table, holds = labels, f"{TEXT}, {kind_of(labels, one.name)[1]} different"
        shares = _shares(table, one.name)
        columns.append(Column(one.name, holds, one.missing, role, shares))
    lengths, gaps, unit = _sequences(guess)
    return Look(path, len(sheet), tuple(columns), guess, lengths, gaps, unit, problem)


def _with_labels(path: Path, guess: RoleGuess) -> Sheet | None:
    """Return the table with its target as training reads it if 01 and 1 are two classes."""
    targets = guess.options.targets
    if len(targets) != 1 or guess.options.is_forecast:
        return None
    said = {name: guess.said[name] for name in READING if name in guess.said}
    sheet = read_table(path, TableOptions(**said, target=targets[0]))
    return sheet if kind_of(sheet, targets[0], most=FEW)[0] == TEXTS else None


def _sequences(guess: RoleGuess) -> tuple[Floats, Floats, str]:
    """Return rows of each sequence, the gaps between them, and their unit."""
    sequences, times = guess.sequences, guess.times
    if sequences is None:
        return np.array([float(len(guess.sheet))]), np.zeros(0), "rows"
    lengths, gaps = sequences.lengths.astype(np.float64), sequences.gaps()
    gaps = np.delete(gaps, sequences.starts)
    if times is None or not times.dated or not gaps.size:
        return lengths, gaps, "rows" if times is None else times.unit
    unit = _unit(float(np.median(gaps)))
    return lengths, gaps * float(UNITS[DEFAULT_UNIT] / UNITS[unit]), unit


def _unit(hours: float) -> str:
    """Return the unit in which a gap is a number near 1 or above it."""
    span = {name: unit / UNITS[DEFAULT_UNIT] for name, unit in UNITS.items()}
    fitting = [name for name in span if hours >= 0.999 * span[name]]
    return max(fitting, key=span.__getitem__, default="milliseconds")


def _shares(sheet: Sheet, name: str, most: int = 10) -> tuple[tuple[str, float], ...]:
    cells = sheet.columns[name][~sheet.missing(name)]
    if not isinstance(cells, Coded):
        cells = Coded.plain(cells)
    texts, codes = cells.numbered_by(str)
    if not 1 <= len(texts) <= most:
        return ()
    counts = np.bincount(codes)
    order = sorted(range(len(texts)), key=lambda one: (-counts[one], texts[one]))
    return tuple((texts[one], float(counts[one] / counts.sum())) for one in order)
