"""Rows of a table put together by id, in the order of time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.errors import DataError, TimeError
from tauflow.resolution import lost_gap

from .sheet import Bools, Floats, Sheet
from .times import Times

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """Which rows belong together.

    Args:
        ids: names of the N sequences, in the order in which they first occur; of pieces of one
            id they are the same.
        rows: for each of them its rows of the table, in the order of time.
        times: for each of them the times of these rows.
    """

    ids: tuple[str, ...]
    rows: tuple[Indices, ...]
    times: tuple[Floats, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def longest(self) -> int:
        """The most rows of a sequence."""
        return max(len(rows) for rows in self.rows)

    def kept(self, keep: Bools) -> "Sequences":
        """Return some of the sequences; ``keep`` is (N,)."""
        which = np.flatnonzero(keep)
        return Sequences(
            tuple(self.ids[i] for i in which),
            tuple(self.rows[i] for i in which),
            tuple(self.times[i] for i in which),
        )

    def cut(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> "Sequences":
        """Return the sequences with the same slice taken of all rows and times."""
        return Sequences(
            self.ids, tuple(map(change, self.rows)), tuple(change(times) for times in self.times)
        )

    def between(self, starts: Indices, stops: Indices) -> "Sequences":
        """Return the sequences with a span of its own taken of each; both are (N,)."""
        spans = [slice(*ends) for ends in zip(starts, stops, strict=True)]
        return Sequences(
            self.ids,
            tuple(rows[span] for rows, span in zip(self.rows, spans, strict=True)),
            tuple(times[span] for times, span in zip(self.times, spans, strict=True)),
        )

    def padded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the table's rows, (R, ...), as (N, longest, ...), zeros at the end."""
        whole = np.zeros((len(self), self.longest, *values.shape[1:]), values.dtype)
        for place, rows in enumerate(self.rows):
            whole[place, : len(rows)] = values[rows]
        return whole

    def gaps(self, count: int) -> NDArray[np.float32]:
        """Return the gap before each row of a table of ``count`` rows, 0 at the first of an id."""
        gaps = np.zeros(count, np.float32)
        for rows, times in zip(self.rows, self.times, strict=True):
            gaps[rows[1:]] = np.diff(times)
        return gaps

    def valid(self) -> Bools:
        """Return which steps of the padded sequences are there, (N, longest)."""
        counts = np.array([len(rows) for rows in self.rows])
        return np.arange(self.longest) < counts[:, None]


def sequences_of(
    sheet: Sheet, id: str, time: str | None, times: Times | None, *, sort: bool
) -> Sequences:
    """Put the rows of each id together; they may be scattered over the table.

    Args:
        sheet: the table.
        id: column of the ids.
        time: column of the times, for messages.
        times: of the rows; by default they are one step apart.
        sort: whether to sort the rows of an id by time, rather than to expect them sorted.

    Raises:
        DataError: a row has no id.
        TimeError: times of an id run backwards, or two of its rows have the same time, or their
            type is too coarse for the gaps between them.
    """
    missing = sheet.missing(id)
    if missing.any():
        raise DataError(
            f"{sheet.cell(int(np.argmax(missing)), id)} is empty, expected an id. Say to which "
            "sequence the row belongs, or remove it."
        )
    names = np.array(sheet.texts(id))
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    appearance = np.argsort(np.argsort(first))[codes]  # 0 for the id of the first row, and so on
    keys = (times.values, appearance) if sort and times is not None else (appearance,)
    order = np.lexsort(keys)  # stable: the order of the table where nothing else decides
    ends = np.cumsum(np.bincount(appearance))[:-1]
    rows = np.split(order, ends)
    if times is None:
        counted = [np.arange(len(one), dtype=np.float64) for one in rows]
    else:
        assert time is not None
        with np.errstate(over="ignore", under="ignore"):  # gaps that are looked for and refused
            if times.dtype is not None:
                _check_resolution(sheet, id, time, times, order, appearance)
            _check_order(sheet, id, time, times.values, order, appearance)
        counted = [times.values[one] for one in rows]
    return Sequences(tuple(names[np.sort(first)].tolist()), tuple(rows), tuple(counted))


def _check_resolution(
    sheet: Sheet, id: str, time: str, times: Times, order: Indices, codes: Indices
) -> None:
    """Refuse times whose type has rounded the gaps away, before it looks like equal times."""
    ordered, gaps = times.values[order], np.diff(times.values[order])
    inner = np.flatnonzero((np.diff(codes[order]) == 0) & (gaps >= 0)) + 1
    rows = torch.from_numpy(codes[order[inner]].astype(np.int64))
    ends, between = torch.from_numpy(ordered[inner]), torch.from_numpy(gaps[inner - 1])
    lost = lost_gap(ends, between, rows, times.dtype)
    if lost is None:
        return
    row = int(order[inner[lost.place]])
    whose = f"times of {id} {sheet.texts(id)[row]!r}"
    raise TimeError(
        f"{sheet.cell(row, time)}: {lost.said(whose, times.dtype)} Give the column as float64, "
        "integers or dates from the start (a later conversion brings nothing back), or subtract a "
        "first time before it is rounded."
    )


def _check_order(
    sheet: Sheet, id: str, time: str, times: Floats, order: Indices, codes: Indices
) -> None:
    same = np.diff(codes[order]) == 0
    gaps = np.diff(times[order])
    held = gaps.astype(np.float32)
    wrong = np.flatnonzero((gaps <= 0) & same)
    lost = np.flatnonzero((gaps > 0) & same & ((held == 0) | ~np.isfinite(held)))
    if not wrong.size and not lost.size:
        return
    if not wrong.size:
        row = int(order[lost[0] + 1])
        raise TimeError(
            f"{sheet.cell(row, time)} holds {sheet.columns[time][row]!s}, {gaps[lost[0]]:.3g} "
            f"after {sheet.row(int(order[lost[0]]))} of the same id, a gap that single "
            "precision cannot hold. Correct it, or give times in another unit."
        )
    place = wrong[np.argmin(order[wrong + 1])]  # the first one in the table
    before, row = int(order[place]), int(order[place + 1])
    whose = f"{id} {sheet.texts(id)[row]!r}"
    text, earlier = sheet.columns[time][row], sheet.columns[time][before]
    if gaps[place] == 0:
        raise TimeError(
            f"{sheet.cell(row, time)} holds {text!s}, the same time as {sheet.row(before)} of "
            f"{whose}. Put what was measured at one time into one row, or remove one of them."
        )
    raise TimeError(
        f"{sheet.cell(row, time)} holds {text!s}, before {earlier!s} of {sheet.row(before)} of "
        f"{whose}: time runs backwards. Sort the rows by time, or pass sort=True (--sort)."
    )


def joined(several: Iterable[Sequences]) -> Sequences:
    """Return all sequences of several, one after the other."""
    found = list(several)
    return Sequences(
        tuple(name for one in found for name in one.ids),
        tuple(rows for one in found for rows in one.rows),
        tuple(times for one in found for times in one.times),
    )


def some(ids: Sequence[str], most: int = 3) -> str:
    """Return a few ids for a message."""
    shown = ", ".join(ids[:most])
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
