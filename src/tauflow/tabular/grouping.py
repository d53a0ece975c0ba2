"""Rows of a table as sequences: put together by id, in the order of their times."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from tauflow._internal.sanitize import format_count
from tauflow._internal.time_precision import find_precision_loss, is_precise_enough
from tauflow.errors import DataError, TimeError

from .cell_values import Indices
from .frame import Frame
from .options import TableOptions
from .sequences import Sequences
from .times import read_times

ROW_NOTES = ("Merged: ", "Sorted by time")
"""How notes on merged and sorted rows begin."""
SINGLE_SEQUENCE_ID = "all rows"
"""The id of a table without ids."""


def group_into_sequences(
    table: Frame,
    id: str | None,
    time: str | None,
    unit: str | None = None,
    *,
    sort: bool,
    allow_equal: bool = False,
    skip_date_check: bool = False,
    dated: bool | None = None,
) -> Sequences:
    """Put the rows of each id together; with times they may be scattered over the table.

    Args:
        table: the table.
        id: column of the ids; ``None`` if all rows are one sequence.
        time: column of the times; by default rows are one step apart.
        unit: of the times, see :func:`tauflow.tabular.times.read_times`.
        sort: whether to sort the rows of an id by time, rather than to expect them sorted.
        allow_equal: whether rows of an id may have the same time, as events may.
        skip_date_check: whether numbers are known to be no dates.
        dated: whether times are dates, as those of another table say.

    Raises:
        DataError: a row has no id, or there are no times, and an id is in several pieces.
        TimeError: a row has no time; times of an id run backwards, or two of its rows have the same
            time, or their type is too coarse for the time steps between them.
    """
    for role, name in {"id": id, "time": time}.items():
        if name is not None:
            table.check_name(name, role)
    times = None
    if time is not None:
        skip_date_check |= dated is False
        times = read_times(table, time, unit, skip_date_check=skip_date_check)
        if dated is not None and times.dated is not dated:
            kinds = ("dates", "numbers") if times.dated else ("numbers", "dates")
            raise TimeError(
                f"{table.where}: times of column {time!r} are {kinds[0]}, but {kinds[1]} in the "
                "other table. Write them alike."
            )
    names, codes = get_ids(table, id)
    order, in_order, unsorted = np.arange(len(codes)), True, 0
    if (np.diff(codes) < 0).any():
        order, in_order = np.argsort(codes, kind="stable"), False
    if sort and times is not None:
        unsorted = int(np.sum((np.diff(times.values[order]) < 0) & (np.diff(codes[order]) == 0)))
        if unsorted:
            order, in_order = np.lexsort((times.values, codes)), False  # stable
    lengths = np.bincount(codes)
    if times is None:
        _check_contiguous(table, id, names, codes)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        counted = (np.arange(len(order)) - starts).astype(np.float64)
        return Sequences(ids=tuple(names), lengths=lengths, rows=order, times=counted)
    assert time is not None
    ordered = times.values if in_order else times.values[order]
    sequences = Sequences(
        ids=tuple(names),
        lengths=lengths,
        rows=order,
        times=ordered,
        unsorted=unsorted,
        unit=times.unit,
        dated=times.dated,
        zoned=times.zoned,
    )
    with np.errstate(over="ignore", under="ignore"):  # such time steps are refused below
        if times.dtype is not None:
            _check_precision(table, id, time, sequences, times.dtype)
        _check_order(table, id, time, sequences, allow_equal)
    return sequences


def get_ids(table: Frame, id: str | None) -> tuple[list[str], Indices]:
    """Return the ids in the order in which they first occur, and which one each row has, (R,).

    Raises:
        DataError: a row has none.
    """
    if table.lengths is not None:
        count = len(table.lengths)
        names = [f"{table.where}[{place}]" for place in range(count)]
        return names, np.repeat(np.arange(count), table.lengths)
    if id is None:
        return [SINGLE_SEQUENCE_ID], np.zeros(len(table), np.int64)
    table.check_filled(
        id, "an id", "Say to which sequence the row belongs, or remove it.", DataError
    )
    return table.texts(id)


def _check_contiguous(table: Frame, id: str | None, names: Sequence[str], codes: Indices) -> None:
    """Refuse rows of an id that others lie between: without times nothing says they belong so."""
    back = np.flatnonzero((np.diff(codes) != 0) & (codes[1:] <= np.maximum.accumulate(codes)[:-1]))
    if back.size:
        assert id is not None
        row = int(back[0]) + 1
        before = int(np.flatnonzero(codes[:row] == codes[row])[-1])
        raise DataError(
            f"{table.describe_cell(row, id)} holds {names[codes[row]]!r} again, after "
            f"{table.describe_row(before)} and rows of others: an id in two pieces, and no times "
            "to say how they follow each other. Name the column of the times, put the rows of an "
            "id together, or give the pieces separate ids."
        )


def _check_precision(
    table: Frame, id: str | None, time: str, sequences: Sequences, dtype: torch.dtype
) -> None:
    """Refuse times whose type has rounded time steps away, before they look like equal times."""
    owners, gaps = sequences.sequence_index, np.diff(sequences.times)
    least = gaps[(np.diff(owners) == 0) & (gaps > 0)].min(initial=math.inf)
    if math.isfinite(least) and is_precise_enough(
        dtype, float(np.abs(sequences.times).max()), least
    ):
        return
    inner = np.flatnonzero((np.diff(owners) == 0) & (gaps >= 0)) + 1
    ends, between = torch.from_numpy(sequences.times[inner]), torch.from_numpy(gaps[inner - 1])
    lost = find_precision_loss(ends, between, torch.from_numpy(owners[inner]), dtype)
    if lost is None:
        return
    place = inner[lost.place]
    whose = f"times of {_format_id(id, sequences.ids[owners[place]])}"
    advice = (
        "Give the column as float64, integers or dates from the start (a later conversion brings "
        "nothing back), or subtract a first time before it is rounded."
    )
    if sequences.dated:
        advice = (
            "Dates are counted from the earliest: bring those of all sequences near each other."
        )
    raise TimeError(
        f"{table.describe_cell(int(sequences.rows[place]), time)}: {lost.describe(whose, dtype)} "
        f"{advice}"
    )


def _check_order(
    table: Frame, id: str | None, time: str, sequences: Sequences, allow_equal: bool
) -> None:
    rows, owners, gaps = sequences.rows, sequences.sequence_index, np.diff(sequences.times)
    same, held = np.diff(owners) == 0, gaps.astype(np.float32)
    wrong = np.flatnonzero(((gaps < 0) if allow_equal else (gaps <= 0)) & same)
    lost = np.flatnonzero((gaps > 0) & same & ((held == 0) | ~np.isfinite(held)))
    if not wrong.size and not lost.size:
        return
    # Of the wrong ones, the first one in the table.
    place = int(wrong[np.argmin(rows[wrong + 1])] if wrong.size else lost[0])
    before, row = int(rows[place]), int(rows[place + 1])
    distance, holds = (
        table.describe_row(before),
        f"{table.describe_cell(row, time)} holds {table.format_value(row, time)}",
    )
    whose = _format_id(id, sequences.ids[owners[place]])
    several = ""
    if not id and (table.is_training_data or "id" in table.arguments):
        flag = " (--id)" if table.is_training_data else "='...'"
        several = (
            f" If rows are of several sequences, name the column that tells them apart: id{flag}."
        )
    if not wrong.size:
        raise TimeError(
            f"{holds}, {gaps[place]:.3g} after {distance} of the same id, a time step that "
            "single precision cannot hold. Correct it, or give times in another unit."
        )
    if gaps[place] == 0:
        merging = table.format_option_advice("duplicates", "'mean' or 'last'", "--duplicates")
        raise TimeError(
            f"{holds}, the same time as {distance} of {whose}. Put what was measured at one time "
            f"into one row{merging}.{several}"
        )
    raise TimeError(
        f"{holds}, before {table.format_value(before, time)} of {distance} of {whose}: time runs "
        "backwards. "
        f"Sort the rows by time{table.format_option_advice('sort', 'True', '--sort')}.{several}"
    )


def _format_id(id: str | None, name: str) -> str:
    if id is None:
        return "the table" if name == SINGLE_SEQUENCE_ID else name
    return f"{id} {name!r}"


def make_row_notes(table: Frame, sequences: Sequences, options: TableOptions) -> tuple[str, ...]:
    """Return notes on how cells were read, and how many rows were merged and out of order.

    Args:
        table: the table after merging.
        sequences: its rows by id, after sorting.
        options: what the user says of it.
    """
    notes = list(table.notes)
    if table.merged_count:
        keys = "time" if options.id is None else "id and time"
        what, total = "row", len(table) + table.merged_count
        if options.long is not None:
            keys, what = f"{keys.replace(' and', ',')} and variable", "value"
            total = table.merged_count + sum(
                int((~table.find_missing(v)).sum()) for v in table.variables
            )
        notes.append(
            f"{ROW_NOTES[0]}{table.merged_count:,} of {format_count(total, what)}, with the same "
            f"{keys} as an earlier one (duplicates={options.duplicates!r})."
        )
    if sequences.unsorted:
        whose = "" if options.id is None else " of the same id"
        notes.append(
            f"{ROW_NOTES[1]} (sort=True): {sequences.unsorted:,} of "
            f"{format_count(len(sequences.rows), 'row')} came earlier than the row before{whose}."
        )
    return tuple(notes)
