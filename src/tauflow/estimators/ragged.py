"""Sequences of different lengths, one after the other: what X is once it is read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.tabular.sequences import RowGroups

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_OF_SEQUENCES = ("ids", "y", "weight")
_OF_ROWS = ("values", "dt", "times", "lead_times", "calendar", "is_query")


@dataclass(frozen=True)
class SourceTable:
    """The table that sequences come from.

    Args:
        id: its column of the ids.
        sequence_index: which sequence each of its rows belongs to.
        index: of a data frame of pandas.
    """

    id: str
    sequence_index: Indices
    index: Any


@dataclass(frozen=True)
class RaggedSequences(RowGroups):
    """Sequences one after the other.

    Args:
        values: features, (R, I), NaN where missing.
        lengths: rows of each sequence, (N,), at least 1.
        dt: time since the row before, (R,), of the first row of a sequence too; ``None`` if X
            came without times.
        dated: whether the times were dates or durations, and not numbers.
        steps: T of an array, (N, T, I); ``None`` of a list or table.
        ids: of a table, the id of each sequence, (N,), as the table has it.
        source: the table itself.
        targets: columns of a table that y names, (N,) each.
        y: targets, (N, ...).
        weight: how much each sequence counts, (N,); ``None`` if all count alike.
        is_single: whether they are one sequence that came without an axis for several.
        times: of the rows of a table, as the table has them, (R,); ``None`` without.
        lead_times: time from each row to the ones that are to be forecast, (R, H).
        calendar: inputs that follow from the dates of rows, (R, C).
        is_query: which rows ask for a forecast at their time, and are no samples, (R,).
    """

    values: Floats
    lengths: Indices
    dt: Floats | None = None
    dated: bool = False
    steps: int | None = None
    ids: NDArray[Any] | None = None
    source: SourceTable | None = None
    targets: tuple[NDArray[Any], ...] = ()
    y: NDArray[Any] | None = None
    weight: Floats | None = None
    is_single: bool = False
    times: NDArray[Any] | None = None
    lead_times: Floats | None = None
    calendar: Floats | None = None
    is_query: NDArray[np.bool_] | None = None

    @property
    def ends(self) -> Indices:
        """Which row of each sequence is the last, (N,)."""
        ends: Indices = np.cumsum(self.lengths) - 1
        return ends

    @property
    def clock(self) -> Floats:
        """Time since the first row of its sequence of each row, (R,); without times, steps."""
        gaps = np.ones(len(self.values)) if self.dt is None else self.dt.copy()
        gaps[self.starts] = 0.0
        clock = np.cumsum(gaps)
        elapsed: Floats = clock - clock[self.starts][self.sequence_index]
        return elapsed

    def with_times(self) -> "RaggedSequences":
        """Return sequences with time steps: of 1, if they came without times."""
        return self if self.dt is not None else replace(self, dt=np.ones(len(self.values)))

    def select(self, indices: Indices) -> "RaggedSequences":
        """Return some of the sequences, in that order."""
        lengths = self.lengths[indices]
        rows = concat_ranges(self.starts[indices], lengths)
        places = dict.fromkeys(_OF_ROWS, rows) | dict.fromkeys(_OF_SEQUENCES, indices)
        whole = {name: getattr(self, name) for name in places}
        parts = {name: one[places[name]] for name, one in whole.items() if one is not None}
        return replace(self, lengths=lengths, targets=(), source=None, **parts)

    @property
    def counts(self) -> Floats:
        """How much each sequence counts, (N,)."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def drop_zero_weight(self) -> "RaggedSequences":
        """Return the sequences without those of weight 0."""
        if self.weight is None or self.weight.all():
            return self
        return self.select(np.flatnonzero(self.weight))

    def cut_to_size(self, size: int) -> "RaggedSequences":
        """Return pieces of so many rows at most, with weights, but without ids and targets.

        Each starts again, with a first gap of 0.
        """
        counts = -(-self.lengths // size)
        of = np.repeat(np.arange(len(self)), counts)
        first = size * (np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts))
        cut = self._cut(np.minimum(self.lengths[of] - first, size), first > 0)
        return cut if self.weight is None else replace(cut, weight=self.weight[of])

    def split_at(self, positions: Indices) -> "RaggedSequences":
        """Return each sequence as two, (2 N), of which the second starts at a row of it, (N,).

        That row has a gap of 0.
        """
        lengths = np.stack([positions, self.lengths - positions], axis=1).ravel()
        return self._cut(lengths, (np.arange(len(lengths)) % 2 > 0) & (lengths > 0))

    def _cut(self, lengths: Indices, starts_anew: NDArray[np.bool_]) -> "RaggedSequences":
        """Return the rows as other sequences, of which some have a first gap of 0."""
        cut = replace(self, lengths=lengths, ids=None, targets=(), y=None, weight=None)
        if cut.dt is None:
            return cut
        gaps = cut.dt.copy()
        gaps[cut.starts[starts_anew]] = 0.0
        return replace(cut, dt=gaps)

    def iter_batches(self, size: int) -> Iterator["RaggedSequences"]:
        """Yield the sequences, so many at a time."""
        for start in range(0, len(self), size):
            yield self.select(np.arange(start, min(start + size, len(self))))


def concat_ranges(starts: Indices, counts: Indices) -> Indices:
    """Return ``start`` to before ``start + count``, for one pair after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
