"""Tables of events as streams of them, each with the time of its observation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError, TimeError
from tauflow.tabular.cell_values import Bools, Floats
from tauflow.tabular.frame import Frame
from tauflow.tabular.from_frame import read_frame
from tauflow.tabular.grouping import get_ids, group_into_sequences
from tauflow.tabular.sequence_tables import is_table
from tauflow.tabular.sequences import Sequences


def read_event_streams(
    X: Any, columns: Mapping[str, str], start: Any, end: Any, ids: Any = None, *, is_new: bool
) -> Sequences:
    """Return the events of a table, streams in the order in which their ids first occur.

    ``times`` count from the begin of the observation of a stream, ``values`` are the types, as the
    table has them, and ``y`` is the end of the observations.

    Args:
        X: the table.
        columns: those of ``"id"``, ``"time"`` and ``"type"``.
        start: when the observation of each stream began, see
            :meth:`tauflow.estimators.SequenceHawkes.fit`.
        end: when it ended.
        ids: further streams, in which nothing happened if the table has no row of them.
        is_new: whether it is another table than that of the training.
    """
    if not is_table(X):
        raise ArgumentError(
            f"X must be a table with a row for each event, got a {type(X).__name__}. Give a data "
            "frame with the columns of ids, times and types."
        )
    table = replace(read_frame(X), is_training_data=False, arguments=tuple(columns))
    for role, name in columns.items():
        table.check_name(name, role)
    id, time, kind = columns["id"], columns["time"], columns["type"]
    is_empty = table.find_missing(time) & table.find_missing(kind)
    more = [] if ids is None else _list_absent(table, id, ids)
    if more and any(isinstance(value, str) and value in table.columns for value in (start, end)):
        raise ArgumentError(
            f"ids names {more[0]!r}, of which X has no row that says its start and end. Give both "
            "as a time for all."
        )
    if is_empty.any() or more:
        table = _fill_empty_rows(table, columns, is_empty, more)
        is_empty = np.append(is_empty, np.ones(len(more), np.bool_))
    table.check_filled(kind, "a type", "Say what happened, or remove the row.", DataError)
    sequences = group_into_sequences(
        table, id, time, "seconds", sort=False, allow_equal=True, skip_date_check=is_new
    )
    without = sequences.any(is_empty)
    if without.any() and (start is None or end is None):
        name = sequences.ids[int(np.argmax(without))]
        raise TimeError(
            f"{id} {name!r} has no event. Give start and end (or now): when it was observed."
        )
    firsts, lasts = sequences.starts, sequences.last_rows
    first, last = sequences.times[firsts], sequences.times[lasts]
    bound = _Bound(table, sequences, time)
    begin, until = bound.read("start", start, first), bound.read("end", end, last)
    first, last = np.where(without, begin, first), np.where(without, begin, last)
    for message, early, late in (
        ("start is after the first event", begin, first),
        ("end, or now, is before the last event or the start", last, until),
    ):
        wrong = np.flatnonzero(early > late)
        if len(wrong):
            raise TimeError(f"{message} of {id} {sequences.ids[wrong[0]]!r}. Correct it.")
    since = sequences.times - begin[sequences.sequence_index]
    types = np.asarray(table.columns[kind])[sequences.rows]
    is_event = ~np.repeat(without, sequences.lengths)
    return Sequences(
        lengths=np.where(without, 0, sequences.lengths),
        ids=np.asarray(table.get_original(id, sequences.rows[firsts])),
        times=since[is_event],
        values=types[is_event],
        y=until - begin,
        dated=sequences.dated,
        zoned=sequences.zoned,
    )


def _list_absent(table: Frame, id: str, ids: Any) -> list[Any]:
    """Return those of some ids of which a table has no row."""
    there = set(table.texts(id)[0])
    return [id_ for id_ in dict.fromkeys(np.asarray(ids).tolist()) if str(id_) not in there]


def _fill_empty_rows(
    table: Frame, columns: Mapping[str, str], is_empty: Bools, more: list[Any]
) -> Frame:
    """Return the table with some event in rows without one, so that their bounds can be read.

    Streams ``more``, which have no row, get one.
    """
    if is_empty.all():
        raise DataError("no row has a time and a type, but at least one stream must have an event.")
    names, codes = get_ids(table, columns["id"])
    several = is_empty & (np.bincount(codes)[codes] > 1)
    if several.any():
        raise DataError(
            f"{columns['id']} {names[codes[np.argmax(several)]]!r} has a row without time and "
            "type, and another row. Such a row says that nothing happened: remove one of them."
        )
    event = int(np.argmin(is_empty))
    rows = np.append(np.arange(len(table)), np.full(len(more), event))
    columns_of_streams = {name: cells[rows] for name, cells in table.columns.items()}
    rows[: len(table)][is_empty] = event
    columns_of_streams |= {
        name: table.columns[name][rows] for name in (columns["time"], columns["type"])
    }
    if more:
        columns_of_streams[columns["id"]] = np.append(table.columns[columns["id"]], more)
    return replace(table, columns=columns_of_streams, row_numbers=table.row_numbers[rows])


class _Bound(NamedTuple):
    """Reads the begin and the end of observations, on the clock of the sequences."""

    table: Frame
    sequences: Sequences
    time: str

    def read(self, name: str, value: Any, default: Floats) -> Floats:
        """Return a time for each stream, (N,): of a column, or one for all."""
        if value is None:
            return default
        table, sequences = self.table, self.sequences
        if isinstance(value, str) and value in table.columns:
            both = table.get_original(value, np.arange(len(table)))
        else:
            both = np.repeat(np.asarray(value), len(sequences.rows))
        row_times = table.get_original(self.time, np.arange(len(table)))
        try:
            if sequences.dated:
                moments = require("pandas", extra="tables").to_datetime
                apart = (moments(both) - moments(row_times)) / np.timedelta64(1, "s")
            else:
                apart = both.astype(np.float64) - row_times.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TimeError(
                f"{name}={value!r} is neither a column nor a time like those of {self.time!r} "
                f"({error})."
            ) from error
        bounds = sequences.times + np.asarray(apart, np.float64)[sequences.rows]
        firsts: Floats = bounds[sequences.starts]
        spread = np.abs(bounds - firsts[sequences.sequence_index]) > 1e-6 * (1 + np.abs(bounds))
        if not np.isfinite(bounds).all() or spread.any():
            raise TimeError(f"{name}={value!r} must be one time for all events of a stream.")
        return firsts
