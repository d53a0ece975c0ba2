"""Forecasts at times that are asked for: windows of samples, each followed by its queries."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError, TimeError, UnknownNameError
from tauflow.tabular.cell_values import (
    SPACING,
    Floats,
    Indices,
    compute_slack,
    to_durations,
    to_seconds,
)
from tauflow.tabular.from_frame import read_frame
from tauflow.tabular.sequences import Sequences, concat_ranges
from tauflow.tabular.times import check_zones, format_span, read_times, to_moments

from .seasons import encode_calendar, read_seconds

MAX_ORIGINS = 8192
"""Origins of training at most, unless a forecaster says how many rows are between them."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Times at which sequences are to be forecast, Q in all.

    Args:
        sequence: of each, (Q,).
        time: of each, on the clock of :attr:`Sequences.clock`, (Q,).
        origin: last row of which anything but features known in advance may be read, (Q,).
        base: last row before the time, (Q,); rows from the origin to it tell of known features.
        row: the row at that time, (Q,), -1 without one.
    """

    sequence: Indices
    time: Floats
    origin: Indices
    base: Indices
    row: Indices

    def __len__(self) -> int:
        return len(self.sequence)

    def select(self, chosen: NDArray[Any]) -> "Queries":
        """Return some of them."""
        columns = (self.sequence, self.time, self.origin, self.base, self.row)
        return Queries(*(column[chosen] for column in columns))


def plan_training(
    rows: Sequences,
    targets: Indices,
    known: Indices,
    known_features: Indices,
    longest: float,
    origin_step: int | None,
) -> Queries:
    """Return all rows with a target that come within some time of moving origins.

    Args:
        rows: the sequences.
        targets: features to forecast.
        known: features that are known in advance.
        given: see :func:`find_last_samples`: with known features, the origins are such rows.
        longest: lead time, above 0.
        origin_step: rows from one origin to the next, counted from the last; by default every row
            is one, or 8192 that are drawn if there are more.
    """
    owner, clock = rows.sequence_index, rows.clock
    apart = clock + _separate(rows, clock, longest)[owner]
    slack = compute_slack(apart[-1], longest)
    first = np.searchsorted(apart, apart + slack, "right")
    stop = np.searchsorted(apart, apart + longest + slack, "right")
    has_target: NDArray[np.bool_] = np.any(~np.isnan(rows.values[:, targets]), axis=1)
    targets_before = np.concatenate([[0], np.cumsum(has_target)])
    is_usable = targets_before[stop] > targets_before[first]
    if len(known):
        is_start = np.isin(np.arange(len(owner)), rows.starts)
        is_usable &= _find_samples(rows, known_features) | is_start
    usable = np.flatnonzero(is_usable)
    if origin_step is None:
        # Drawn, as a fixed step would meet the same hours of each day.
        drawn = np.random.default_rng(0).permutation(len(usable))[:MAX_ORIGINS]
        origins = usable[np.sort(drawn)]
    else:
        last = np.searchsorted(owner[usable], owner[usable], "right") - 1
        origins = usable[(last - np.arange(len(usable))) % origin_step == 0]
    counts = stop[origins] - first[origins]
    later = concat_ranges(first[origins], counts)
    origin = np.repeat(origins, counts)[has_target[later]]
    later = later[has_target[later]]
    base = origin
    if len(known):
        base = np.searchsorted(apart, apart[later] - slack, "left") - 1
    return Queries(owner[later], clock[later], origin, base, later)


def select_last_blocks(rows: Sequences, queries: Queries, longest: float) -> Queries:
    """Return the queries whose origins are one, two ... lead times before the last rows.

    Where there is no such row, the one before it is the origin.

    Args:
        rows: the sequences, with times.
        queries: to select from.
        longest: lead time.
    """
    origins = np.unique(queries.origin)
    back = rows.clock[rows.last_rows][rows.sequence_index[origins]] - rows.clock[origins]
    block = np.floor(back / longest + SPACING)
    owner = rows.sequence_index[origins]
    is_last = np.append((np.diff(block) != 0) | (np.diff(owner) != 0), True)
    return queries.select(np.isin(queries.origin, origins[is_last & (block > 0)]))


def plan_next_rows(rows: Sequences, longest: float) -> Queries:
    """Return a query for each row that comes so soon after the one before, from that one."""
    assert rows.dt is not None
    clock, origin = rows.clock, np.setdiff1d(np.arange(len(rows.values)), rows.last_rows)
    lead_time, slack = rows.dt[origin + 1], compute_slack(rows.dt.sum(), longest)
    origin = origin[(lead_time > 0) & (lead_time <= longest + slack)]
    return Queries(rows.sequence_index[origin], clock[origin + 1], origin, origin, origin + 1)


def find_longest_lead_time(
    rows: Sequences, queries: Queries, longest: float, *, warns: bool
) -> float:
    """Return how far ahead forecasts are learned: the longest lead time of training.

    It is at most one median time step more, so that ``longest`` itself can be asked for where
    times are irregular. If that is still shorter, there may be a warning.
    """
    timed_rows = rows.with_times()
    lead_time = queries.time - timed_rows.clock[queries.origin]
    assert timed_rows.dt is not None
    gaps = np.delete(timed_rows.dt, timed_rows.starts)
    gaps = gaps[gaps > 0]
    learned = float(min(longest, lead_time.max() + (np.median(gaps) if len(gaps) else 0.0)))
    if warns and learned < longest:
        asked, known = (format_span(t, dated=rows.dated) for t in (longest, learned))
        warnings.warn(
            f"no sample comes {asked} after another one of its sequence, so that forecasts are "
            f"learned for up to {known} ahead. Give longer sequences to forecast further.",
            UserWarning,
            stacklevel=7,
        )
    return learned


def plan_forecast(
    rows: Sequences,
    known_features: Indices,
    longest: float,
    sequence: Indices,
    lead_time: Floats,
    *,
    name: str = "at",
) -> Queries:
    """Return queries, (Q,), so long after the last sample of their sequences, (Q,).

    Rows after it that hold nothing but known features tell of these; for the other arguments see
    :func:`plan_training`. Messages say that ``name`` asks.

    Raises:
        TimeError: there is no lead time, or one is not finite, not above 0, or too long.
    """
    if not (lead_time.size and np.isfinite(lead_time).all() and (lead_time > 0).all()):
        raise TimeError(
            "at must hold times after the last sample of each sequence: at least one, finite, and "
            "above 0."
        )
    if (lead_time > longest * (1 + SPACING)).any():
        asked, known = (format_span(t, dated=rows.dated) for t in (lead_time.max(), longest))
        raise TimeError(
            f"{name} asks for {asked} after the last sample, and the forecaster was trained for up "
            f"to {known}. Ask for earlier times, or fit it with a longer horizon or max_lead_time, "
            "and sequences that are as long."
        )
    clock, owner = rows.clock, rows.sequence_index
    last = find_last_samples(rows, known_features)[sequence]
    time = clock[last] + lead_time
    offset = _separate(rows, clock, longest)
    apart, wanted = clock + offset[owner], time + offset[sequence]
    slack = compute_slack(apart[-1], longest)
    base = np.searchsorted(apart, wanted - slack, "left") - 1
    row = base + 1
    same = (row < len(apart)) & (np.abs(apart[np.minimum(row, len(apart) - 1)] - wanted) <= slack)
    return Queries(sequence, time, last, base, np.where(same, row, -1))


def _separate(rows: Sequences, clock: Floats, longest: float) -> Floats:
    """Return what to add to the clock of each sequence, (N,), so that none reaches another."""
    spans = clock[rows.last_rows] + 3 * longest
    offsets: Floats = np.cumsum(spans) - spans
    return offsets


def find_last_samples(rows: Sequences, known_features: Indices) -> Indices:
    """Return the last row of each sequence, (N,), that holds more than given features.

    These are the ones that are known in advance, and static ones; none if none is known. It is the
    first row, if no row does.
    """
    if not len(known_features):
        return rows.last_rows
    measured = np.where(_find_samples(rows, known_features), np.arange(len(rows.values)), -1)
    last_rows: Indices = np.maximum(np.maximum.accumulate(measured)[rows.last_rows], rows.starts)
    return last_rows


def _find_samples(rows: Sequences, known_features: Indices) -> NDArray[np.bool_]:
    """Return which rows hold more than given features, (R,)."""
    others = np.setdiff1d(np.arange(rows.values.shape[1]), known_features)
    is_sample: NDArray[np.bool_] = np.any(rows.find_measured()[:, others], axis=1)
    return is_sample


def make_windows(
    rows: Sequences,
    queries: Queries,
    known: Indices,
    window: int,
    cycles: tuple[float, ...] = (),
) -> tuple[Sequences, Indices]:
    """Return windows of so many samples at most, each followed by the queries that share it.

    Args:
        rows: the sequences.
        queries: what is asked for.
        known: features that are known in advance.
        window: samples at most.
        cycles: of the calendar, of which inputs tell, see :mod:`tauflow.estimators.seasons`.

    Returns:
        The windows, with times, and which of their rows each query is, (Q,).
    """
    pairs = np.stack([queries.origin, queries.base], 1)
    distinct, of_query = np.unique(pairs, axis=0, return_inverse=True)
    of_query = of_query.reshape(-1)
    origin, base = distinct.T
    first = np.maximum(rows.starts[rows.sequence_index[base]], base - window + 1)
    counts = base - first + 1
    place = concat_ranges(first, counts)
    of_sample = np.repeat(np.arange(len(distinct)), counts)
    values = rows.values[place]
    is_known = np.isin(np.arange(values.shape[1]), known)
    hidden = place > origin[of_sample]
    values[hidden[:, None] & ~is_known] = np.nan
    there = ~(hidden & np.isnan(values).all(1))
    place, of_sample, values = place[there], of_sample[there], values[there]
    known_values = rows.values[queries.row].copy()
    known_values[(queries.row < 0)[:, None] | ~is_known] = np.nan

    clock = rows.clock
    owner = np.concatenate([of_sample, of_query])
    time = np.concatenate([clock[place], queries.time])
    is_query = np.repeat([False, True], [len(place), len(queries)])
    order = np.lexsort((time, is_query, owner))
    lengths = np.bincount(owner, minlength=len(distinct))
    dt = np.diff(time[order], prepend=0.0)
    dt[np.cumsum(lengths) - lengths] = 0.0
    calendar = None
    if cycles:
        seconds = read_seconds(rows)
        asked = seconds[queries.origin] + queries.time - clock[queries.origin]
        calendar = encode_calendar(np.concatenate([seconds[place], asked])[order], cycles)
    windows = Sequences(
        values=np.concatenate([values, known_values])[order],
        lengths=lengths,
        dt=dt,
        dated=rows.dated,
        zoned=rows.zoned,
        calendar=calendar,
        is_query=is_query[order],
    )
    where = np.empty(len(order), np.int64)
    where[order] = np.arange(len(order))
    return windows, where[len(place) :]


def compute_lead_time(windows: Sequences) -> Floats:
    """Return the time since the last sample of its window of each row, (R,); of samples below 0."""
    assert windows.is_query is not None
    clock, owner = windows.clock, windows.sequence_index
    samples = np.bincount(owner, ~windows.is_query, len(windows)).astype(np.int64)
    elapsed: Floats = clock - clock[windows.starts + samples - 1][owner]
    return elapsed


def read_query_table(
    at: Any, id: str, time: str, rows: Sequences, known_features: Indices
) -> tuple[Indices, Floats]:
    """Return the sequence and the lead time of each row of a table of ids and times, (Q,) each.

    Raises:
        UnknownNameError: there is no such column or id.
        ArgumentError: there are other columns.
        TimeError: times are dates and the others numbers, or with a time zone and the others
            without, or the reverse.
    """
    table = replace(read_frame(at), where="at", is_training_data=False)
    for role, name in {"id": id, "time": time}.items():
        table.check_name(name, role)
    others = [name for name in table.columns if name not in (id, time)]
    if others:
        raise ArgumentError(
            f"at has the columns {', '.join(others)} beside {id!r} and {time!r}. Leave them out; "
            "what is known in advance stands in rows of X."
        )
    assert rows.ids is not None
    assert rows.moments is not None
    places = {key: place for place, key in enumerate(np.asarray(rows.ids).tolist())}
    keys = np.asarray(at[id]).tolist()
    unknown = [key for key in keys if key not in places]
    if unknown:
        raise UnknownNameError(
            f"at asks for the id {unknown[0]!r}, and X has no rows of it, so that nothing is known "
            "to forecast from."
        )
    sequence = np.array([places[key] for key in keys], np.int64)
    last = rows.moments[find_last_samples(rows, known_features)[sequence]]
    wanted = to_moments(table.columns[time], dated=rows.dated)
    zoned = read_times(table, time, "seconds", skip_date_check=True).zoned
    check_zones(zoned, rows.zoned, "at", "X")
    lead_time = to_seconds(wanted - to_moments(last, dated=rows.dated))
    early = lead_time <= 0
    if early.any():
        row = int(np.argmax(early))
        raise TimeError(
            f"at asks for {keys[row]!r} at {table.get_original(time, np.array([row]))[0]}, which "
            f"is not after its last sample, at {last[row]}."
        )
    return sequence, lead_time


def describe_queries(
    rows: Sequences, queries: Queries, known_features: Indices, columns: dict[str, Any], at: Any
) -> dict[str, Any]:
    """Return the columns in front of tidy forecasts: of which sequence, and when.

    Columns of ids and times are called as in the table. Arrays have the number of the sequence, and
    the time if theirs are dates; else how long after the last sample it is. Times of a table of
    queries come back as they stand there.
    """
    clock, last = rows.clock, find_last_samples(rows, known_features)[queries.sequence]
    lead_time = queries.time - clock[last]
    front: dict[str, Any] = {}
    if rows.ids is not None:
        front[columns["id"]] = rows.ids[queries.sequence]
    elif "time" not in columns:
        front["sequence"] = queries.sequence
    if rows.moments is None:
        return {**front, "lead_time": to_durations(lead_time, dated=rows.dated)}
    if hasattr(at, "columns"):
        table, time = read_frame(at), columns["time"]
        return {**front, time: table.get_original(time, np.arange(len(table)))}
    name, before = columns.get("time", "time"), to_moments(rows.moments[last], dated=rows.dated)
    if not rows.dated:
        return {**front, name: before + lead_time}
    moments = before + to_durations(lead_time, dated=True)
    pandas = require("pandas", extra="tables")
    first = rows.moments[0]
    first = pandas.to_datetime(first, format="ISO8601") if isinstance(first, str) else first
    if (zone := getattr(first, "tzinfo", None)) is not None:
        moments = pandas.DatetimeIndex(moments).tz_localize("UTC").tz_convert(zone)
    return {**front, name: moments}


def check_any_query(queries: Queries, longest: float, *, dated: bool) -> Queries:
    """Return queries, or raise :class:`DataError` without any."""
    if not len(queries):
        raise DataError(
            "nothing to learn: no sample with a target follows another one within "
            f"max_lead_time={format_span(longest, dated=dated)}. Give a longer one, or longer "
            "sequences."
        )
    return queries
