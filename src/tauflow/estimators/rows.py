"""What users call X, arrays, lists of arrays and long tables, as rows of sequences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.checks import one_of
from tauflow.data.table.frames import read_times, sequences_of
from tauflow.data.table.sheet import sheet_of
from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError
from tauflow.resolution import float_type, lost_gap

LAYOUTS = ("BTI", "BIT")
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Sequences one after the other.

    Args:
        values: features, (R, I), NaN where missing.
        lengths: rows of each sequence, (N,), at least 1.
        gaps: time since the row before, (R,), of the first row of a sequence too; ``None`` if X
            came without times.
        steps: T of an array, (N, T, I); ``None`` of a list or table.
        order: of a table, where each of ``values`` stands in it.
        names: of the features of a table.
    """

    values: Floats
    lengths: Indices
    gaps: Floats | None = None
    steps: int | None = None
    order: Indices | None = None
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Indices:
        """Where each sequence starts, (N,)."""
        starts: Indices = np.cumsum(self.lengths) - self.lengths
        return starts

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
            order=None if self.order is None else self.order[rows],
        )

    def pieces(self, size: int) -> Iterator["Rows"]:
        """Yield the sequences, so many at a time."""
        for start in range(0, len(self), size):
            yield self.chosen(np.arange(start, min(start + size, len(self))))

    def padded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the rows, (R, ...), as (N, longest, ...), zeros at the end."""
        whole = np.zeros((*self.valid.shape, *values.shape[1:]), values.dtype)
        whole[self.valid] = values
        return whole


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") or hasattr(X, "keys")


def rows_of_arrays(X: Any, *, layout: str, lengths: Any) -> tuple[Any, Indices | None, int | None]:
    """Return the rows of arrays, how many each sequence has, and T where all are padded to it.

    Args:
        X: (B, I), one step per sequence; (B, T, I); or a list of (T_i, I).
        layout: ``"BTI"``, or ``"BIT"`` if time is the last axis.
        lengths: steps of each sequence of an array that is padded at its end, (B,).

    Returns:
        Rows, (R, I), to be checked yet; lengths, (N,), ``None`` for one row each; and T.

    Raises:
        ShapeError: arrays of a list do not fit each other, or X has more than three axes.
        ArgumentError: lengths are no such numbers, or are given for a list.
        UnknownNameError: there is no such layout.
    """
    one_of(LAYOUTS, layout=layout)
    if _is_list(X):
        if lengths is not None:
            raise ArgumentError("lengths are for padded arrays; those of a list say their own.")
        return _rows_of_list(X, layout)
    if getattr(X, "ndim", 2) < 3:
        if lengths is not None:
            raise ArgumentError("lengths are for sequences of several steps, and X has one each.")
        return X, None, 1
    array = np.asarray(X)
    if array.ndim > 3:
        raise ShapeError(
            f"X has shape {array.shape}, found array with dim {array.ndim}, expected (B, T, I) or "
            "(B, I). Make one axis of the features."
        )
    array = array.swapaxes(1, 2) if layout == "BIT" else array
    count, steps, features = array.shape
    if lengths is None:
        return array.reshape(-1, features), np.full(count, steps), steps
    counts = _checked_lengths(lengths, count, steps)
    return array[np.arange(steps) < counts[:, None]], counts, steps


def _is_list(X: Any) -> bool:
    """Whether X is several arrays of two axes, and not one."""
    if isinstance(X, np.ndarray):
        several = X.dtype == object and X.ndim == 1
    else:
        several = isinstance(X, list | tuple)
    if not several or len(X) == 0:
        return False
    first = X[0]
    if isinstance(first, list | tuple):  # whose entries may be of different lengths
        return len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return bool(getattr(first, "ndim", 0) == 2)


def _rows_of_list(X: Sequence[Any], layout: str) -> tuple[Any, Indices, None]:
    parts = [np.asarray(part) for part in X]
    for number, part in enumerate(parts):
        if part.ndim != 2:
            raise ShapeError(
                f"X[{number}] has shape {part.shape}, expected (T, I) as all sequences of the list."
            )
    parts = [part.T for part in parts] if layout == "BIT" else parts
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ShapeError(
                f"X[{number}] has {part.shape[1]} features, and X[0] has {parts[0].shape[1]}. Give "
                "all sequences the same ones, NaN where they were not measured."
            )
        if not len(part):
            raise DataError(f"X[{number}] has no steps. Leave out such sequences.")
    return np.concatenate(parts), np.array([len(part) for part in parts]), None


def _checked_lengths(lengths: Any, count: int, steps: int) -> Indices:
    found = np.asarray(lengths)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be {count} whole numbers, one per sequence, got {found.dtype} of shape "
            f"{found.shape}."
        )
    if count and not (found.min() >= 1 and found.max() <= steps):
        wrong = int(np.argmax((found < 1) | (found > steps)))
        raise ArgumentError(
            f"lengths must lie between 1 and T = {steps}, and that of sequence {wrong} is "
            f"{found[wrong]}."
        )
    return found.astype(np.int64)


def rows_of_table(
    X: Any, *, id: str, time: str | None, features: Sequence[str] | None, besides: Sequence[str]
) -> Rows:
    """Return the sequences of a long table, one row per sample; ids in the order of their rows.

    Args:
        X: a data frame, or a mapping of names to columns.
        id: column that says which sequence a row belongs to.
        time: column of the times, numbers or dates; without one rows are one step apart.
        features: columns of the features; by default all others.
        besides: columns that are no features, though nobody says what they are.

    Raises:
        UnknownNameError: there is no such column.
        DataError, TimeError: a cell does not hold what it should, or times run backwards.
    """
    sheet = sheet_of(X)
    for role, column in {"id": id, "time": time}.items():
        if column is not None:
            sheet.check_name(column, role)
    if features is None:
        features = [name for name in sheet.columns if name not in (id, time, *besides)]
    names = [sheet.check_name(name, "feature") for name in features]
    if not names:
        raise DataError("the table has no features beside its ids, times and target.")
    times = None if time is None else read_times(sheet, time, None)
    found = sequences_of(sheet, id, time, times, sort=False)
    values = np.stack([sheet.numbers(name) for name in names], axis=1)[found.rows]
    gaps = None if time is None else found.gaps()
    return Rows(values, found.lengths, gaps, order=found.rows, names=tuple(names))


def with_times(rows: Rows, *, dt: Any, t: Any) -> Rows:
    """Return sequences with their gaps.

    Args:
        rows: of arrays or of a list.
        dt: time since the sample before: a number, or as ``t``.
        t: times of the samples: numbers, or ``datetime64`` for gaps in seconds; (B, T) of an array,
            (T_i,) each of a list. The first gap is 0.

    Raises:
        ArgumentError: both are given.
        ShapeError: they do not fit X.
        TimeError: gaps are negative or not finite, times run backwards, or are too coarse.
    """
    if dt is not None and t is not None:
        raise ArgumentError("dt and t are two ways to say the same; give one of them.")
    if dt is not None:
        return replace(rows, gaps=_checked_gaps(rows, dt))
    return rows if t is None else replace(rows, gaps=_gaps_between(rows, t))


def _checked_gaps(rows: Rows, dt: Any) -> Floats:
    single = np.isscalar(dt) or getattr(dt, "ndim", 1) == 0
    gaps = np.full(len(rows.values), dt) if single else _companion(rows, "dt", dt)
    if gaps.dtype.kind == "M":
        raise TimeError("dt holds dates, expected numbers or durations. Give dates as t.")
    gaps = _in_seconds(gaps)
    good = np.isfinite(gaps) & (gaps >= 0)
    if not good.all():
        row = int(np.argmin(good))
        raise TimeError(
            f"dt is {gaps[row]:g} at {_place(rows, row)}, expected a finite number of 0 or more."
        )
    return gaps


def _gaps_between(rows: Rows, t: Any) -> Floats:
    times = _companion(rows, "t", t)
    bad = np.isnat(times) if times.dtype.kind in "mM" else ~np.isfinite(times)
    if bad.any():
        place = _place(rows, int(np.argmax(bad)))
        raise TimeError(f"t is not finite at {place}; remove samples without a time.")
    if times.dtype.kind == "u":
        times = times.astype(np.int64)  # differences of unsigned numbers wrap around
    between = _in_seconds(np.diff(times, prepend=times[:1]))
    between[rows.starts] = 0.0
    if (between < 0).any():
        place = _place(rows, int(np.argmax(between < 0)))
        raise TimeError(f"t runs backwards at {place}. Sort the samples of a sequence by time.")
    dtype, inner = float_type(times.dtype), np.ones(len(times), np.bool_)
    inner[rows.starts] = False
    if dtype is not None and inner.any():
        ends, gaps = (torch.from_numpy(a[inner].astype(np.float64)) for a in (times, between))
        lost = lost_gap(ends, gaps, torch.from_numpy(rows.owners[inner]), dtype)
        if lost is not None:
            raise TimeError(
                f"{lost.said('the times t', times.dtype)} Give them as float64, integers or dates "
                "from the start, or subtract a first time before they are rounded."
            )
    return between


def _in_seconds(values: NDArray[Any]) -> Floats:
    second = np.timedelta64(1, "s")
    return (values / second if values.dtype.kind == "m" else values).astype(np.float64)


def _companion(rows: Rows, name: str, given: Any) -> NDArray[Any]:
    """Return one value per row, (R,), of what comes in the shape of X."""
    if rows.steps is not None:
        values = np.asarray(given)
        shape = (len(rows), rows.steps)
        fits = values.shape in (shape, (*shape, 1)) or (
            rows.steps == 1 and values.shape == shape[:1]
        )
        if not fits:
            raise ShapeError(
                f"{name} has shape {values.shape}, expected {shape}: one for each step of X."
            )
        return _numeric(name, values.reshape(shape)[np.arange(rows.steps) < rows.lengths[:, None]])
    parts = [np.asarray(part).reshape(-1) for part in given]
    found = [len(part) for part in parts]
    if found != rows.lengths.tolist():
        if len(parts) != len(rows):
            raise ShapeError(f"{name} has {len(parts)} sequences, and X has {len(rows)}.")
        wrong = int(np.argmax(np.array(found) != rows.lengths))
        raise ShapeError(
            f"{name}[{wrong}] has {found[wrong]} entries, and X[{wrong}] has {rows.lengths[wrong]} "
            "steps."
        )
    return _numeric(name, np.concatenate(parts))


def _numeric(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "iufmM":
        raise TimeError(f"{name} must be numbers or datetime64, got {values.dtype}. Convert them.")
    return values


def _place(rows: Rows, row: int) -> str:
    owner = int(rows.owners[row])
    return f"sequence {owner}, step {row - int(rows.starts[owner])}"
