"""A look at a table before anything is said of it: what its columns seem to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tauflow.errors import TauflowError

from .categorical import Categorical
from .leaks import LEAK_NOTE
from .load import load_table
from .roles import RoleGuess, guess_roles
from .table import Floats, Table
from .times import DEFAULT_UNIT, UNITS

Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class TableProfile:
    """What a table seems to be.

    Args:
        guess: what to say of it, and how many rows go.
        columns: of each its name, role, words for what it holds, the share of its cells without a
            value, and of its few values, the most frequent first, the share of each.
        problem: why the table cannot be read so, if it cannot.
        leak_notes: warnings of features that predict the target by themselves.
    """

    guess: RoleGuess
    columns: tuple[tuple[str, str, str, float, Shares], ...]
    problem: str | None = None
    leak_notes: tuple[str, ...] = ()


def profile_table(path: Path, known_options: Mapping[str, Any]) -> TableProfile:
    """Guess what a table is, and read it so.

    Args:
        path: of a file that :func:`tauflow.data.from_table` reads.
        known_options: fields of :class:`tauflow.data.TableOptions` that are known, see
            :func:`tauflow.data.table.roles.guess_roles`.

    Raises:
        UnknownNameError: there is no such column, or decimal sign.
        DataNotFoundError, DataError, ArgumentError: the file is no table.
    """
    guess = guess_roles(path, known_options)
    problem = guess.problem
    leaks: Sequence[str] = ()
    if problem is None:
        try:
            data = load_table(path, guess.schema)
            leaks = [note for note in data.card.notes if note.startswith(LEAK_NOTE)]
        except TauflowError as error:
            problem = str(error)
    columns = []
    for one in guess.profiles:
        role, shares = guess.roles[one.name].name, _compute_value_shares(guess.table, one.name)
        columns.append((one.name, role, one.holds, one.missing, shares))
    return TableProfile(guess, tuple(columns), problem, tuple(leaks))


def measure_sequences(guess: RoleGuess) -> tuple[Floats, Floats, str]:
    """Return rows of each sequence, the gaps between them, and their unit."""
    sequences, times = guess.sequences, guess.times
    if sequences is None:
        return np.array([float(len(guess.table))]), np.zeros(0), "rows"
    lengths, gaps = sequences.lengths.astype(np.float64), sequences.dt()
    gaps = np.delete(gaps, sequences.starts)
    if times is None or not times.dated or not gaps.size:
        return lengths, gaps, "rows" if times is None else times.unit
    hours = {name: unit / UNITS[DEFAULT_UNIT] for name, unit in UNITS.items()}
    # The longest unit that the median is not below.
    fitting = [name for name, span in hours.items() if np.median(gaps) >= 0.999 * span]
    unit = max(fitting, key=hours.__getitem__, default="milliseconds")
    return lengths, gaps / float(hours[unit]), unit


def _compute_value_shares(table: Table, name: str, most: int = 10) -> Shares:
    cells = table.columns[name][~table.find_missing(name)]
    if not isinstance(cells, Categorical):
        cells = Categorical.from_formatted(cells)
    texts, codes = cells.factorize_by(str)
    if not 1 <= len(texts) <= most:
        return ()
    counts = np.bincount(codes)
    order = sorted(range(len(texts)), key=lambda one: (-counts[one], texts[one]))
    return tuple((texts[one], float(counts[one] / counts.sum())) for one in order)
