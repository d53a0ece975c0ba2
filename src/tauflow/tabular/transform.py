"""Another table as a first one was read: to predict what is not known yet."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_positive
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.errors import ArgumentError, DataError

from .cell_values import Bools, Floats, Indices
from .files import read_table
from .frame import Frame
from .grouping import group_into_sequences
from .inputs import InputColumns, add_future_inputs, build_inputs, compute_lead_times
from .options import FUTURE_NAME_FORMAT, INDICATOR_NAME_FORMAT, LEAD_TIME_INPUT
from .scaling import make_targets, scale_inputs, warn_constant_inputs
from .schema_fields import SchemaFields
from .sequences import Sequences
from .shift import warn_shift
from .split import TableSplits
from .target import Target, build_target
from .task import append_input
from .times import check_zones
from .windows import window_splits

BATCH_SIZE = 512
"""How many sequences go through a model at once."""
_MAX_ELEMENTS = 1 << 22
"""How many numbers the padded inputs of a batch may have, unless it is of one sequence."""


@dataclass(frozen=True, eq=False)
class NewTable:
    """Another table, read as that of a task was.

    Args:
        table: its cells.
        sequences: which of its rows belong together.
        schema: by which it was read.
        columns: features of every row, or their categories, (R,) each, as the table has them.
        x: inputs of every row, (R, I), scaled, in the precision asked for.
        observed: which of them were measured, (R, I).
        gap: how many of the unit of its times a time step of 1 is; ``None`` without times.
        lead_times: of a forecast, how far from each row the one is that is predicted, (R,), in that
            unit.
        flagged: inputs of which a further one says whether they were measured; ``None`` where the
            batches say so by ``observed``.
        fill: what then stands for a missing value.
        target: what was to be predicted, where that is read.
    """

    table: Frame
    sequences: Sequences
    schema: SchemaFields
    columns: tuple[NDArray[Any], ...]
    x: NDArray[Any]
    observed: Bools
    gap: float | None
    lead_times: Floats | None
    flagged: tuple[int, ...] | None = None
    fill: str = IMPUTE_STRATEGIES[0]
    target: Target | None = None

    def plan_batches(self) -> list[tuple[int, int]]:
        """Return where to cut the sequences for batches that are not too large to compute with."""
        cuts, longest = [0], 0
        for place, length in enumerate(self.sequences.lengths.tolist()):
            longest = max(longest, length)
            count = place + 1 - cuts[-1]
            if count > BATCH_SIZE or (
                count > 1 and count * longest * self.x.shape[1] > _MAX_ELEMENTS
            ):
                cuts.append(place)
                longest = length
        return list(pairwise([*cuts, len(self.sequences)]))

    def compare_with_training(self) -> None:
        """Warn of a table that is unlike that of the training; see :func:`warn_shift`."""
        schema, sequences = self.schema, self.sequences
        columns = [column[sequences.rows] for column in self.columns]
        warn_shift(
            schema.summary,
            schema.gap_summary,
            dict(zip(schema.inputs, columns, strict=False)),
            sequences.sequence_index,
            None if self.gap is None else sequences.compute_dt(),
            targets=() if schema.ahead is None else schema.inputs,
            ids=sequences.ids,
            stacklevel=4,
        )

    def batch(self, first: int = 0, last: int | None = None) -> SequenceBatch:
        """Return sequences ``first`` to ``last``, padded; no target is known if none was read."""
        sequences, schema = self.sequences.select_range(first, last), self.schema
        # Times in single precision at least: the model says better which time step is too long.
        dtype = np.float64 if self.x.dtype == np.float64 else np.float32
        valid = torch.from_numpy(sequences.valid)
        if self.target is not None:
            y, y_mask = make_targets(self.target, sequences, schema.target_scaler)
        else:
            size = tuple(valid.shape) if schema.per_step else (len(sequences),)
            size = size if schema.is_class else (*size, len(schema.outputs))
            y = torch.zeros(size, dtype=torch.int64 if schema.is_class else torch.float32)
            y_mask = torch.zeros_like(valid) if schema.per_step else None
        batch = SequenceBatch(
            x=torch.from_numpy(sequences.pad(self.x)),
            y=y,
            dt=None if self.gap is None else torch.from_numpy(sequences.pad_dt(self.gap, dtype)),
            mask=None if bool(valid.all()) else valid,
            observed=torch.from_numpy(sequences.pad(self.observed)),
            y_mask=y_mask,
        )
        if self.flagged is None:
            return batch
        return impute_with_indicators(batch, self.flagged, fill=self.fill)


def transform(
    schema: SchemaFields, table: Any, **options: Any
) -> tuple[tuple[str, ...], SequenceBatch]:
    """Return ids and sequences of a table; see :meth:`tauflow.data.Schema.transform`."""
    if not schema.is_fitted:
        raise ArgumentError(
            "the schema is not fitted, so that no scale is known. Fit it to the table of the "
            "training: schema.fit(table)."
        )
    rows = read_new_table(schema, table, observed=True, **options)
    batch = rows.batch()
    if not schema.observed and rows.observed[rows.sequences.rows].all():
        batch = replace(batch, observed=None)  # for models that do not take it
    return rows.sequences.ids, batch


def read_new_table(
    schema: SchemaFields,
    table: Any,
    *,
    observed: bool,
    dtype: type[np.floating[Any]] = np.float32,
    targets: bool = False,
    lead_time: float | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> NewTable:
    """Read another table as :func:`transform` does, without padding it yet.

    Args:
        schema: by which to read it.
        table: the other one.
        observed: whether the batches say which features are missing, where no inputs do.
        dtype: of the inputs, scaled in double precision.
        targets: whether to read what is to be predicted, too.
        lead_time: see :meth:`tauflow.data.Schema.transform`.
        delimiter: between the cells of a file.
        decimal: sign before the decimals of numbers that are text.
    """
    frame = read_table(
        table,
        schema,
        delimiter=delimiter,
        decimal=decimal,
        variables=schema.variables or None,
        is_strict="features" in schema.decided,
        is_training_data=targets,
    )
    all_sequences = group_into_sequences(
        frame, schema.id, schema.time, schema.unit, sort=schema.sort, dated=schema.dated
    )
    check_zones(all_sequences.zoned, schema.zoned, "this table", "the training table")
    inputs = build_inputs(frame, tuple(schema.features or ()), schema.categories, schema.unseen)
    target = _read_target(frame, schema, inputs, all_sequences) if targets else None
    if lead_time is not None and (schema.known or targets):
        raise ArgumentError("lead_time: the rows to predict say when they are. Leave it out.")
    following = None if target is None else target.lead_times
    if schema.known:
        steps = schema.horizon or 1
        has_lead_times = FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, 1) in schema.inputs
        inputs = add_future_inputs(
            inputs, schema.known, steps, all_sequences, has_lead_times=has_lead_times
        )
        later = compute_lead_times(len(all_sequences.rows), steps, all_sequences)
        following = later if schema.horizon else later[:, 0]
    if target is None:
        sequences = _select_rows_to_predict_from(frame, schema, all_sequences)
    else:
        sequences = target.sequences
    standard = schema.input_scaler
    warn_constant_inputs(standard, inputs.columns, inputs.names, stacklevel=3)
    x, there = scale_inputs(standard, inputs.columns, inputs.names, dtype)
    count = len(inputs.columns)
    if LEAD_TIME_INPUT in schema.inputs[count:]:
        if following is None:
            following = _compute_lead_times(sequences, lead_time)
        ahead = np.nan_to_num(following) / float(schema.x_scale[count])
        x, there = append_input(x, there, ahead)
    elif lead_time is not None:
        raise ArgumentError("lead_time: the model has no input for it. Leave it out.")
    elif following is None and schema.ahead is not None:
        following = np.full(len(x), schema.ahead)
    flagged = None
    if not (observed and len(schema.inputs) == x.shape[1]):
        flagged = _find_indicator_features(schema, there[sequences.rows], frame, sequences.rows)
    return NewTable(
        table=frame,
        sequences=sequences,
        schema=schema,
        columns=inputs.columns,
        x=x,
        observed=there,
        gap=None if schema.time is None else schema.gap,
        lead_times=following,
        flagged=flagged,
        fill=schema.fill,
        target=target,
    )


def _select_rows_to_predict_from(
    table: Frame, schema: SchemaFields, all_sequences: Sequences
) -> Sequences:
    """Return the rows that answers follow from: not those known ahead; the last window of each."""
    sequences = all_sequences
    if schema.known:
        sequences = _drop_rows_to_predict(table, schema, all_sequences, schema.horizon or 1)
    if not schema.horizon or schema.window is None:
        return sequences
    lengths = sequences.lengths
    return sequences.crop(np.maximum(lengths - schema.window, 0), lengths)


def _read_target(
    table: Frame, schema: SchemaFields, inputs: InputColumns, sequences: Sequences
) -> Target:
    """Return what was to be predicted, of a forecast over a horizon from windows."""
    for name in schema.targets:
        table.check_name(name, "target")
    target = build_target(table, schema, inputs, sequences, schema)
    if not target.horizon:
        return target
    split = TableSplits(target, {"table": target.sequences}, target.sequences, "", ())
    return window_splits(split, schema, inputs).target


def _drop_rows_to_predict(
    table: Frame, schema: SchemaFields, sequences: Sequences, steps: int
) -> Sequences:
    """Return the sequences without their last rows, which are those to predict.

    Raises:
        DataError: there are too few rows, or such a row lacks what is known ahead, or holds what is
            to be predicted.
    """
    rows = f"the last {'row' if steps == 1 else format_count(steps, 'row')} of each id"
    short = sequences.lengths <= steps
    if short.any():
        raise DataError(
            f"{table.where}: id {sequences.ids[int(np.argmax(short))]!r} has too few rows: {rows} "
            f"are for what is known ahead ({', '.join(schema.known or ())}), and others come "
            "before them."
        )
    place = np.arange(len(sequences.rows)) - np.repeat(sequences.ends, sequences.lengths)
    ahead = sequences.rows[place >= -steps]
    for column in schema.known or ():
        empty = ahead[table.find_missing(column)[ahead]]
        if empty.size:
            raise DataError(
                f"{table.describe_cell(int(empty[0]), column)} is empty, and known ahead in "
                f"{rows}, which are those to predict. Fill it in."
            )
    other_roles = {*(schema.known or ()), *(schema.static or ()), *dict(schema.categories)}
    outputs = schema.targets or [n for n in schema.features or () if n not in other_roles]
    for column in outputs:
        full = ahead[~table.find_missing(column)[ahead]] if column in table.columns else ahead[:0]
        if full.size:
            raise DataError(
                f"{table.describe_value(int(full[0]), column)}, which is to be predicted: {rows} "
                f"are those to predict, with {', '.join(schema.known or ())} alone. Add such rows."
            )
    return sequences.crop(np.zeros_like(sequences.lengths), sequences.lengths - steps)


def _compute_lead_times(sequences: Sequences, after_last: float | None) -> Floats:
    """Return the time from each row of the table to the next one of its id, (R,)."""
    if after_last is None:
        raise ArgumentError(
            "lead_time must say how long after the last row of each id the row to predict comes: "
            "the model has an input for it."
        )
    following = np.append(sequences.compute_dt()[1:], 0.0)
    following[sequences.ends - 1] = check_positive(lead_time=after_last)
    times_by_row = np.empty(len(following))
    times_by_row[sequences.rows] = following
    return times_by_row


def list_indicator_features(schema: SchemaFields, count: int) -> tuple[int, ...]:
    """Return which of the first inputs, ``count``, a later one says of whether they are there."""
    more = set(schema.inputs[count:])
    names = map(INDICATOR_NAME_FORMAT.format, schema.inputs[:count])
    return tuple(place for place, name in enumerate(names) if name in more)


def _find_indicator_features(
    schema: SchemaFields, observed: Bools, table: Frame, rows: Indices
) -> tuple[int, ...]:
    """Return which inputs of some rows of a table, (R, I), have one that says if they are there."""
    flagged = list_indicator_features(schema, observed.shape[1])
    silent = np.setdiff1d(np.flatnonzero(~observed.all(axis=0)), flagged)
    if silent.size:
        name, row = schema.inputs[silent[0]], int(rows[np.argmin(observed[:, silent[0]])])
        raise ArgumentError(
            f"{table.describe_row(row)}{table.row_number_suffix} of {table.where}: feature "
            f"{name!r} has missing values, and in the other table it had none, so that the model "
            "has no input that says so. Fill them in."
        )
    return flagged
