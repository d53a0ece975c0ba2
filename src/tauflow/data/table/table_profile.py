"""A look at a table before anything is said of it: what its columns seem to be."""

from pathlib import Path

import numpy as np

from tauflow.errors import TauflowError

from .categorical import Categorical
from .leaks import LEAK_NOTE
from .load import load_table
from .roles import RoleGuess
from .table import Floats, Table
from .times import DEFAULT_UNIT, UNITS


def find_problem(path: Path, guess: RoleGuess) -> tuple[str | None, list[str]]:
    """Return why a table cannot be read as it was guessed to be, if it cannot.

    And warnings of features that predict the target by themselves.
    """
    if guess.problem is not None:
        return guess.problem, []
    try:
        notes = load_table(path, guess.schema).card.notes
    except TauflowError as error:
        return str(error), []
    return None, [note for note in notes if note.startswith(LEAK_NOTE)]


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


def compute_value_shares(table: Table, name: str, most: int = 10) -> list[tuple[str, float]]:
    """Return the few values of a column, the most frequent first, each with its share; or none."""
    cells = table.columns[name][~table.find_missing(name)]
    if not isinstance(cells, Categorical):
        cells = Categorical.from_formatted(cells)
    texts, codes = cells.factorize_by(str)
    if not 1 <= len(texts) <= most:
        return []
    counts = np.bincount(codes)
    order = sorted(range(len(texts)), key=lambda one: (-counts[one], texts[one]))
    return [(texts[one], float(counts[one] / counts.sum())) for one in order]
