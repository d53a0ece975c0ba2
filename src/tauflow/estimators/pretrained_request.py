"""What a pretrained forecaster is asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tauflow.errors import ArgumentError, TimeError
from tauflow.pretraining.inference import Series
from tauflow.tabular.cell_values import Floats, Indices, to_seconds
from tauflow.tabular.schema import Schema
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import to_moments

from .forecast_queries import Queries, read_query_table
from .forecast_targets import read_lead_times, resolve_columns
from .reading import get_table_options

NO_FEATURES: Indices = np.arange(0)


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        rows: the past.
        clock: time of each of its rows on a clock that all sequences share, (R,).
        targets: features that are forecast, (O,).
        names: of these.
        queries: what is asked for, on the clock of each sequence.
        schema: how the past was read.
    """

    rows: Sequences
    clock: Floats
    targets: Indices
    names: list[Any]
    queries: Queries
    schema: Schema

    def collect_series(self, target: int) -> list[Series]:
        """Return times and values of each sequence that are known of a target."""
        values = self.rows.values[:, self.targets[target]]
        series: list[Series] = []
        for start, length in zip(self.rows.starts, self.rows.lengths, strict=True):
            part = slice(start, start + length)
            is_known = ~np.isnan(values[part])
            series.append((self.clock[part][is_known], values[part][is_known]))
        return series

    def order_members(self, series: list[Series]) -> list[int]:
        """Return the sequences that have values, by their ids: not as they stand in the table."""
        ids = self.rows.ids
        order = range(len(series)) if ids is None else np.argsort(ids, kind="stable").tolist()
        return [n for n in order if len(series[n][0])]

    @property
    def times(self) -> Floats:
        """Time of each query on :attr:`clock`, (Q,)."""
        origin = self.queries.origin
        times: Floats = self.clock[origin] + (self.queries.time - self.rows.clock[origin])
        return times


def read_request(
    rows: Sequences, at: Any, targets: Any, schema: Schema, names: list[Any]
) -> Request:
    """Return what is asked for.

    Args:
        rows: the past, with times.
        at: see :meth:`tauflow.estimators.PretrainedForecaster.forecast`; ``None`` is for nothing.
        targets: likewise.
        schema: of the rows.
        names: of their columns.

    Raises:
        ArgumentError, TimeError, UnknownNameError: of what is asked for.
    """
    if targets is None:
        numbers = np.arange(len(schema.list_number_columns()))
        chosen = np.setdiff1d(numbers, resolve_columns("static", schema.static or (), schema))
    else:
        chosen = resolve_columns("targets", targets, schema)
    clock = rows.clock
    if rows.moments is not None:
        moments = to_moments(rows.moments, dated=rows.dated)
        start = np.zeros(1, moments.dtype)  # of all tables the same, as fitted ones keep times
        clock = to_seconds(moments - start)
    if at is None:
        sequence, lead = NO_FEATURES, np.empty(0)
    elif hasattr(at, "columns"):
        columns = get_table_options(schema)
        if rows.moments is None or "id" not in columns:
            raise ArgumentError(
                "a table of queries goes with a table X that has ids and times. Give times after "
                "the last sample instead."
            )
        sequence, lead = read_query_table(at, columns["id"], columns["time"], rows, NO_FEATURES)
    else:
        each = read_lead_times("at", at, rows)
        if not (each > 0).all():
            raise TimeError(f"at must be times above 0 after the last sample, got {at!r}.")
        sequence, lead = np.repeat(np.arange(len(rows)), each.shape[1]), each.ravel()
    last = rows.last_rows[sequence]
    queries = Queries(sequence, rows.clock[last] + lead, last, last, np.full(len(lead), -1))
    return Request(rows, clock, chosen, [names[number] for number in chosen], queries, schema)
