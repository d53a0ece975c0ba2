"""Sequences of different lengths, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """The table that sequences come from.

    Args:
        id: its column of the ids.
        owners: which sequence each of its rows belongs to.
        index: of a data frame of pandas.
    """

    id: str
    owners: Indices
    index: Any


@dataclass(frozen=True)
class Rows:
    """Sequences one after the other.

    Args:
        values: features, (R, I), NaN where missing.
        lengths: rows of each sequence, (N,), at least 1.
        gaps: time since the row before, (R,), of the first row of a sequence too; ``None`` if X
            came without times.
        dated: whether the times were dates or durations, and not numbers.
        steps: T of an array, (N, T, I); ``None`` of a list or table.
        ids: of a table, the id of each sequence, (N,), as the table has it.
        source: the table itself.
        target: of each sequence, (N,), where y names a column of the table.
        names: of the features of a table.
        variables: of a table of one variable per row.
        single: whether they are one sequence that came without an axis for several.
        ahead: time from each row to the ones that are to be forecast, (R, H).
    """

    values: Floats
    lengths: Indices
    gaps: Floats | None = None
    dated: bool = False
    steps: int | None = None
    ids: NDArray[Any] | None = None
    source: Source | None = None
    target: NDArray[Any] | None = None
    names: tuple[str, ...] | None = None
    variables: tuple[str, ...] = ()
    single: bool = False
    ahead: Floats | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Indices:
        """Where each sequence starts, (N,)."""
        starts: Indices = np.cumsum(self.lengths) - self.lengths
        return starts

    @property
    def ends(self) -> Indices:
        """Which row of each sequence is the last, (N,)."""
        ends: Indices = np.cumsum(self.lengths) - 1
        return ends

    @property
    def owners(self) -> Indices:
        """Which sequence each row belongs to, (R,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which steps of the padded sequences are there, (N, longest)."""
        valid: NDArray[np.bool_] = np.arange(self.lengths.max()) < self.lengths[:, None]
        return valid

    def chosen(self, which: Indices) -> "Rows":
        """Return some of the sequences, in that order."""
        lengths = self.lengths[which]
        first = np.repeat(self.starts[which] - (np.cumsum(lengths) - lengths), lengths)
        rows = first + np.arange(lengths.sum())
        return replace(
            self,
            values=self.values[rows],
            lengths=lengths,
            gaps=None if self.gaps is None else self.gaps[rows],
            ids=None if self.ids is None else self.ids[which],
            source=None,
            target=None if self.target is None else self.target[which],
            ahead=None if self.ahead is None else self.ahead[rows],
        )

    def cut(self, size: int) -> tuple["Rows", Indices]:
        """Return pieces of so many rows at most, and which sequence each is of.

        Each starts anew, with a first gap of 0.
        """
        counts = -(-self.lengths // size)
        of = np.repeat(np.arange(len(self)), counts)
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        lengths = np.minimum(self.lengths[of] - number * size, size)
        cut = replace(self, lengths=lengths, ids=None, target=None)
        if cut.gaps is not None:
            gaps = cut.gaps.copy()
            gaps[cut.starts[number > 0]] = 0.0
            cut = replace(cut, gaps=gaps)
        return cut, of

    def cut_at(self, places: Indices) -> "Rows":
        """Return each sequence as two, (2 N), of which the second starts at a row of it, (N,).

        That row has a gap of 0.
        """
        gaps = None if self.gaps is None else self.gaps.copy()
        if gaps is not None:
            gaps[(self.starts + places)[places < self.lengths]] = 0.0
        lengths = np.stack([places, self.lengths - places], axis=1).ravel()
        return replace(self, lengths=lengths, gaps=gaps, ids=None, target=None)

    def pieces(self, size: int) -> Iterator["Rows"]:
        """Yield the sequences, so many at a time."""
        for start in range(0, len(self), size):
            yield self.chosen(np.arange(start, min(start + size, len(self))))

    def padded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the rows, (R, ...), as (N, longest, ...), zeros at the end."""
        whole = np.zeros((*self.valid.shape, *values.shape[1:]), values.dtype)
        whole[self.valid] = values
        return whole
