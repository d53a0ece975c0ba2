"""Sequences of different lengths, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.data.table.sequences import RowGroups

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


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
        target: of each sequence, (N,), where y names a column of the table.
        names: of the features of a table.
        variables: of a table of one variable per row.
        is_single: whether they are one sequence that came without an axis for several.
        lead_times: time from each row to the ones that are to be forecast, (R, H).
        times: of the rows of a table, as the table has them, (R,); ``None`` without.
        is_query: which rows ask for a forecast at their time, and are no samples, (R,).
    """

    values: Floats
    lengths: Indices
    dt: Floats | None = None
    dated: bool = False
    steps: int | None = None
    ids: NDArray[Any] | None = None
    source: SourceTable | None = None
    target: NDArray[Any] | None = None
    names: tuple[str, ...] | None = None
    variables: tuple[str, ...] = ()
    is_single: bool = False
    lead_times: Floats | None = None
    times: NDArray[Any] | None = None
    is_query: NDArray[np.bool_] | None = None

    @property
    def ends(self) -> Indices:
        """Which row of each sequence is the last, (N,)."""
        ends: Indices = np.cumsum(self.lengths) - 1
        return ends

    def select(self, indices: Indices) -> "RaggedSequences":
        """Return some of the sequences, in that order."""
        lengths = self.lengths[indices]
        first = np.repeat(self.starts[indices] - (np.cumsum(lengths) - lengths), lengths)
        rows = first + np.arange(lengths.sum())
        return replace(
            self,
            values=self.values[rows],
            lengths=lengths,
            dt=None if self.dt is None else self.dt[rows],
            ids=None if self.ids is None else self.ids[indices],
            source=None,
            target=None if self.target is None else self.target[indices],
            lead_times=None if self.lead_times is None else self.lead_times[rows],
            times=None if self.times is None else self.times[rows],
            is_query=None if self.is_query is None else self.is_query[rows],
        )

    def cut_to_size(self, size: int) -> tuple["RaggedSequences", Indices]:
        """Return pieces of so many rows at most, and which sequence each is of.

        Each starts again, with a first gap of 0.
        """
        counts = -(-self.lengths // size)
        of = np.repeat(np.arange(len(self)), counts)
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        lengths = np.minimum(self.lengths[of] - number * size, size)
        cut = replace(self, lengths=lengths, ids=None, target=None)
        if cut.dt is not None:
            gaps = cut.dt.copy()
            gaps[cut.starts[number > 0]] = 0.0
            cut = replace(cut, dt=gaps)
        return cut, of

    def split_at(self, positions: Indices) -> "RaggedSequences":
        """Return each sequence as two, (2 N), of which the second starts at a row of it, (N,).

        That row has a gap of 0.
        """
        gaps = None if self.dt is None else self.dt.copy()
        if gaps is not None:
            gaps[(self.starts + positions)[positions < self.lengths]] = 0.0
        lengths = np.stack([positions, self.lengths - positions], axis=1).ravel()
        return replace(self, lengths=lengths, dt=gaps, ids=None, target=None)

    def iter_batches(self, size: int) -> Iterator["RaggedSequences"]:
        """Yield the sequences, so many at a time."""
        for start in range(0, len(self), size):
            yield self.select(np.arange(start, min(start + size, len(self))))
