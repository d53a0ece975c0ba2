"""Sequences of different lengths, one after the other: what frames, arrays and lists become."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cell_values import Bools, Floats, Indices

NO_TIMES = "row"
"""The unit of sequences without times."""
_OF_SEQUENCES = ("ids", "y", "weight")
_OF_ROWS = ("rows", "times", "values", "dt", "moments", "lead_times", "calendar", "is_query")


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


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Rows of N sequences, R in all, one sequence after the other, each in the order of time.

    Columns of a table stay where they are, and ``rows`` says which of their rows these are.
    Estimators hold the values themselves.

    Args:
        lengths: rows of each sequence, (N,).
        ids: names of the sequences, (N,), in the order in which they first occur; of pieces of one
            id they are the same. ``None`` of arrays.
        rows: numbers of the rows in a table, (R,).
        times: of these rows, (R,), as numbers.
        unsorted: how many rows of the table were earlier than the row before of the same id.
        values: features, (R, I), NaN where missing; or types of events, (R,).
        number_count: how many of the features are numbers, the first ones; the others are 1 where a
            row holds a category, else 0. ``None``: all are numbers.
        dt: time since the row before, (R,), of the first row of a sequence too; ``None`` if X
            came without times, or if only ``times`` say it.
        unit: of ``times``.
        dated: whether the times of X were dates or durations, and not numbers.
        zoned: whether they were dates with a time zone; ``None`` of durations and numbers.
        steps: T of an array, (N, T, I); ``None`` of a list or table.
        source: the table that X is.
        targets: columns of it that y names, (N,) each.
        y: targets, (N, ...), an array if there are any.
        weight: how much each sequence counts, (N,); ``None`` if all count alike.
        is_single: whether they are one sequence that came without an axis for several.
        moments: times of the rows, (R,), as the table has them; of arrays those that are dates.
        lead_times: time from each row to the ones that are to be forecast, (R, H).
        calendar: inputs that follow from the dates of rows, (R, C).
        is_query: which rows ask for a forecast at their time, and are no samples, (R,).
    """

    lengths: Indices
    ids: Any = None
    rows: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Floats = field(default_factory=lambda: np.zeros(0))
    unsorted: int = 0
    values: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0)))
    number_count: int | None = None
    dt: Floats | None = None
    unit: str = NO_TIMES
    dated: bool = False
    zoned: bool | None = None
    steps: int | None = None
    source: SourceTable | None = None
    targets: tuple[NDArray[Any], ...] = ()
    y: Any = None
    weight: Floats | None = None
    is_single: bool = False
    moments: NDArray[Any] | None = None
    lead_times: Floats | None = None
    calendar: Floats | None = None
    is_query: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    # Which rows they are.

    @property
    def starts(self) -> Indices:
        """Which row of each sequence is the first, (N,)."""
        return self.ends - self.lengths

    @property
    def ends(self) -> Indices:
        """Which row comes after the last one of each sequence, (N,)."""
        ends: Indices = np.cumsum(self.lengths)
        return ends

    @property
    def last_rows(self) -> Indices:
        """Which row of each sequence is the last, (N,)."""
        return self.ends - 1

    @property
    def sequence_index(self) -> Indices:
        """Which sequence each row belongs to, (R,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def valid(self) -> Bools:
        """Which steps of the padded sequences are there, (N, longest)."""
        valid: Bools = np.arange(self.lengths.max()) < self.lengths[:, None]
        return valid

    @property
    def counts(self) -> Floats:
        """How much each sequence counts, (N,)."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def first_rows(self, condition: Bools) -> Indices:
        """Return where in ``rows`` each sequence has its first row of which something holds.

        Args:
            condition: of every row of the table, (R,).
        """
        places = np.append(np.flatnonzero(condition[self.rows]), len(self.rows))
        starts: Indices = places[np.searchsorted(places, self.starts)]
        return starts[starts < self.ends]

    def any(self, condition: Bools) -> Bools:
        """Return which sequences have a row of which something holds, (N,); of every row, (R,)."""
        places = np.flatnonzero(condition[self.rows])
        return np.searchsorted(places, self.starts) < np.searchsorted(places, self.ends)

    def find_measured(self) -> Bools:
        """Return which numbers and categories of ``values`` rows hold, (R, I)."""
        measured: Bools = ~np.isnan(self.values)
        if self.number_count is not None:
            measured[:, self.number_count :] &= self.values[:, self.number_count :] != 0
        return measured

    # Times.

    def compute_dt(self) -> Floats:
        """Return the time since the row before by ``times``, (R,), 0 at the first of a sequence."""
        with np.errstate(over="ignore"):  # between sequences, of which nothing is kept
            gaps = np.diff(self.times, prepend=0.0)
        gaps[self.starts[self.lengths > 0]] = 0.0
        return gaps

    @property
    def inner_gaps(self) -> Floats | None:
        """The time steps ``dt`` within sequences; ``None`` without."""
        return None if self.dt is None else np.delete(self.dt, self.starts)

    @property
    def clock(self) -> Floats:
        """Time since the first row of its sequence of each row, (R,), by ``dt``; without, steps."""
        gaps = np.ones(len(self.values)) if self.dt is None else self.dt.copy()
        gaps[self.starts] = 0.0
        # back to 0 at each sequence, so that rounding does not grow with their number
        gaps[self.starts[1:]] -= np.add.reduceat(gaps, self.starts)[:-1]
        clock = np.cumsum(gaps)
        elapsed: Floats = clock - clock[self.starts][self.sequence_index]
        return elapsed

    def with_times(self) -> "Sequences":
        """Return sequences with time steps: of 1, if they came without times."""
        return self if self.dt is not None else replace(self, dt=np.ones(len(self.values)))

    # Parts of them.

    def select(self, which: NDArray[Any]) -> "Sequences":
        """Return some of the sequences: by booleans, (N,), or by numbers in that order."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return self._take(which, np.zeros_like(which), self.lengths[which])

    def select_range(self, first: int, last: int | None) -> "Sequences":
        """Return the sequences from number ``first`` to before ``last``, by default all others."""
        if first == 0 and (last is None or last >= len(self)):
            return self
        return self.select(np.arange(len(self))[first:last])

    def drop_zero_weight(self) -> "Sequences":
        """Return the sequences without those of weight 0."""
        return self if self.weight is None else self.select(self.weight != 0)

    def iter_batches(self, size: int) -> Iterator["Sequences"]:
        """Yield the sequences, so many at a time."""
        for start in range(0, len(self), size):
            yield self.select_range(start, start + size)

    def crop(self, starts: Indices, stops: Indices) -> "Sequences":
        """Return the sequences with another span taken of each; both are (N,)."""
        return self._take(np.arange(len(self)), starts, stops - starts)

    def drop_last(self) -> "Sequences":
        """Return the sequences without the last row of each."""
        return self.crop(np.zeros_like(self.lengths), np.maximum(self.lengths - 1, 0))

    def split_at(self, positions: Indices) -> "Sequences":
        """Return each sequence as two, (2 N), of which the second starts at a row of it, (N,)."""
        first, owners = np.zeros_like(positions), np.arange(len(self)).repeat(2)
        lengths = np.stack([positions, self.lengths - positions], axis=1).ravel()
        return self._take(owners, np.stack([first, positions], axis=1).ravel(), lengths)

    def cut_windows(self, window: int, stride: int, horizon: int = 0) -> "Sequences":
        """Return windows, (M,), in the order of the sequences.

        Without a horizon every row is in a window, so that the last one may be shorter.

        Args:
            window: rows of each at most.
            stride: rows from the begin of one to that of the next.
            horizon: rows that follow each, and that no window of a sequence lacks.
        """
        begins: list[Indices] = []
        for length in self.lengths.tolist():
            last = length - window - horizon if horizon else max(length - 1, 0)
            starts = np.arange(0, last + 1, stride)
            if not horizon:  # the first window that reaches the end is the last one
                starts = starts[: int(np.searchsorted(starts + window, length)) + 1]
            begins.append(starts)
        owners = np.repeat(
            np.arange(len(self)), [len(starts_of_sequence) for starts_of_sequence in begins]
        )
        first = np.concatenate([*begins, np.zeros(0, np.int64)])
        return self._take(owners, first, np.minimum(window, self.lengths[owners] - first))

    def _take(self, owners: Indices, begins: Indices, lengths: Indices) -> "Sequences":
        """Return M pieces: so many rows of a sequence, from a row of it on, (M,) each.

        A piece from the middle of a sequence starts again, with a time step of 0.
        """
        rows = concat_ranges(self.starts[owners] + begins, lengths)
        arrays = {name: getattr(self, name) for name in (*_OF_ROWS, *_OF_SEQUENCES)}
        parts: dict[str, Any] = {"lengths": lengths}
        for name, array in arrays.items():
            if isinstance(array, tuple):
                parts[name] = tuple(array[owner] for owner in owners.tolist())
            elif array is not None and (name in _OF_SEQUENCES or len(array)):
                parts[name] = array[rows if name in _OF_ROWS else owners]
        if self.dt is not None:
            starts = np.cumsum(lengths) - lengths
            parts["dt"][starts[(begins > 0) & (lengths > 0)]] = 0.0
        return replace(self, unsorted=0, source=None, targets=(), **parts)

    # Padding.

    def pad_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the rows, (R, ...), as (N, longest, ...), zeros at the end."""
        if (self.lengths == self.lengths[0]).all():
            return values.reshape(len(self), -1, *values.shape[1:])
        padded = np.zeros((*self.valid.shape, *values.shape[1:]), values.dtype)
        padded[self.valid] = values
        return padded

    def pad(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the table's rows, (R, ...), as (N, longest, ...), zeros at the end."""
        return self.pad_rows(values.take(self.rows, axis=0))

    def pad_dt(self, unit: float, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
        """Return the padded time steps before each row, (N, longest), 0 at the first, in a unit."""
        return self.pad_rows((self.compute_dt() / unit).astype(dtype))


def concat_sequences(several: Iterable[Sequences]) -> Sequences:
    """Return all sequences of tables, one after the other."""
    several_sequences = list(several)
    return replace(
        several_sequences[0],
        ids=tuple(name for sequences in several_sequences for name in sequences.ids),
        lengths=np.concatenate([sequences.lengths for sequences in several_sequences]),
        rows=np.concatenate([sequences.rows for sequences in several_sequences]),
        times=np.concatenate([sequences.times for sequences in several_sequences]),
    )


def concat_ranges(starts: Indices, counts: Indices) -> Indices:
    """Return ``start`` to before ``start + count``, for one pair after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def format_names(ids: Sequence[str], most: int = 3) -> str:
    """Return a few ids for a message."""
    shown = ", ".join(ids[:most])
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
