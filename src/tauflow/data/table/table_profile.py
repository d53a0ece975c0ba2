"""A look at a table before anything is said of it: what its columns seem to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tauflow.errors import TauflowError

from .categorical import Categorical
from .files import read_table
from .leaks import make_leak_notes
from .load import load_table
from .options import READ_OPTIONS, TEXT_LABELS, TableOptions
from .profile import TEXT
from .roles import RoleGuess, guess_roles
from .table import MAX_INTEGER_CLASSES, Floats, Table
from .target_kinds import infer_kind
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
        known_options: fields of :class:`TableOptions` that are known, see
            :func:`tauflow.data.table.roles.guess_roles`.

    Raises:
        UnknownNameError: there is no such column, or decimal sign.
        DataNotFoundError, DataError, ArgumentError: the file is no table.
    """
    guess = guess_roles(path, known_options)
    problem = guess.problem
    labels: Table | None = None
    leaks: Sequence[str] = ()
    if problem is None:
        try:
            data = load_table(path, guess.schema)
            assert data.schema is not None
            leaks = make_leak_notes(data.train, data.card, data.schema)
            labels = _read_text_target(path, guess)
        except TauflowError as error:
            problem = str(error)
    columns = []
    for one in guess.profiles:
        role, holds, table = guess.roles[one.name].name, one.holds, guess.table
        if labels is not None and role == "target":
            table, holds = labels, f"{TEXT}, {infer_kind(labels, one.name)[1]} different"
        columns.append((one.name, role, holds, one.missing, _compute_value_shares(table, one.name)))
    return TableProfile(guess, tuple(columns), problem, tuple(leaks))


def _read_text_target(path: Path, guess: RoleGuess) -> Table | None:
    """Return the table with its target as training reads it if 01 and 1 are two classes."""
    targets = guess.schema.targets
    if len(targets) != 1 or guess.schema.is_forecast:
        return None
    said = {name: guess.option_values[name] for name in READ_OPTIONS if name in guess.option_values}
    table = read_table(path, TableOptions(**said, target=targets[0]))
    is_text = infer_kind(table, targets[0], most=MAX_INTEGER_CLASSES)[0] == TEXT_LABELS
    return table if is_text else None


def measure_sequences(guess: RoleGuess) -> tuple[Floats, Floats, str]:
    """Return rows of each sequence, the gaps between them, and their unit."""
    sequences, times = guess.sequences, guess.times
    if sequences is None:
        return np.array([float(len(guess.table))]), np.zeros(0), "rows"
    lengths, gaps = sequences.lengths.astype(np.float64), sequences.dt()
    gaps = np.delete(gaps, sequences.starts)
    if times is None or not times.dated or not gaps.size:
        return lengths, gaps, "rows" if times is None else times.unit
    unit = _choose_unit(float(np.median(gaps)))
    return lengths, gaps * float(UNITS[DEFAULT_UNIT] / UNITS[unit]), unit


def _choose_unit(hours: float) -> str:
    """Return the unit in which a gap is a number near 1 or above it."""
    span = {name: unit / UNITS[DEFAULT_UNIT] for name, unit in UNITS.items()}
    fitting = [name for name in span if hours >= 0.999 * span[name]]
    return max(fitting, key=span.__getitem__, default="milliseconds")


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
