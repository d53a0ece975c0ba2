"""What is to be predicted from the rows of a table, and which rows it is predicted from."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .cell_values import Bools, Floats, Indices
from .fitted_schema import FittedSchema, Label
from .frame import Frame
from .inputs import InputColumns, format_uneven_note, is_unevenly_sampled
from .options import (
    CLASSIFICATION,
    NEXT_STEP,
    REGRESSION,
    TEXT_LABELS,
    TableOptions,
)
from .sequences import Sequences, format_names
from .target_kinds import encode_classes, encode_labels, infer_kind, infer_task


@dataclass(frozen=True)
class Target:
    """Targets by row, whether there is one per row or one per id.

    Args:
        task: of :data:`tauflow.tabular.options.TABLE_TASKS`.
        sequences: the rows to predict from; none is without a target.
        all_rows: the same sequences with all their rows.
        y: (R, O) floating point, or (R,) of integers that stand for classes; 0 where not known.
        known: where there is a target, in the shape of y.
        per_step: whether there is one per row, or one per id, its first.
        outputs: name of every target value, or of every class.
        lead_times: of next-step prediction, time from each row to the one that is predicted, (R,).
        has_uneven_lead_times: whether that differs.
        horizon: rows to predict at once from a window, the last row of which has the targets, those
            of the first row to predict first; 0 for none.
        notes: what a reader must know.
        kind: what classes are in the table, see :class:`tauflow.data.Schema`.
        labels: of several targets with two classes each, what these are.
    """

    task: str
    sequences: Sequences
    all_rows: Sequences
    y: NDArray[Any]
    known: Bools
    per_step: bool
    outputs: tuple[str, ...]
    lead_times: Floats | None = None
    has_uneven_lead_times: bool = False
    horizon: int = 0
    notes: tuple[str, ...] = ()
    kind: str = TEXT_LABELS
    labels: tuple[Label, ...] = ()

    @property
    def is_class(self) -> bool:
        """Whether targets are classes."""
        return self.y.ndim == 1

    @property
    def is_next_step(self) -> bool:
        """Whether targets are later values of the inputs."""
        return self.task == NEXT_STEP

    @property
    def has_target(self) -> Bools:
        """Which rows have a target, or a part of one, (R,)."""
        return np.asarray(self.known.reshape(len(self.known), -1).any(axis=1))

    def broadcast_to_all_rows(self) -> "Target":
        """Return the targets, which are one per id, in all its rows, and not in the first alone."""
        rows, owners = self.sequences.rows, self.sequences.sequence_index
        firsts = self.first_rows(self.sequences)[owners]
        y, known = self.y.copy(), self.known.copy()
        y[rows], known[rows] = self.y[firsts], self.known[firsts]
        return replace(self, y=y, known=known)

    def first_rows(self, sequences: Sequences) -> Indices:
        """Return the row of the first target of each sequence, which has one, (N,)."""
        if self.horizon:
            return sequences.rows[sequences.ends - 1]
        return sequences.rows[sequences.first_rows(self.has_target)]


def build_target(
    table: Frame,
    options: TableOptions,
    inputs: InputColumns,
    sequences: Sequences,
    fitted: FittedSchema | None = None,
) -> Target:
    """Return what is to be predicted.

    Without a target it is next-step prediction. Text, booleans, and whole numbers with at most
    :data:`~tauflow.tabular.target_kinds.MAX_INTEGER_CLASSES` values are classes; other numbers are
    values of a regression. Several targets are all values, or all have two classes.

    Args:
        table: the table.
        options: what the user says of it.
        inputs: of every row.
        sequences: the rows of every id.
        fitted: what is known of the classes, of a table like that of the training.

    Raises:
        ArgumentError: the task needs a target, and has no such column; one target per id was
            asked for, and an id has two different ones.
        DataError: the target has no value, only one class, or in a regression something else than
            finite numbers; or nothing can be predicted.
    """
    names = options.targets
    if not names and options.task not in (None, NEXT_STEP):
        raise ArgumentError(f"task={options.task!r} needs a target. Name its column.")
    if options.is_forecast:
        return _build_forecast_target(options, inputs, sequences)
    name = names[0]
    task, why = infer_task(table, options)
    y: NDArray[Any]
    classes, kind, labels = tuple[str, ...](), TEXT_LABELS, tuple[Label, ...]()
    if task == CLASSIFICATION and len(names) > 1:
        y, known, labels = encode_labels(table, options, fitted)
    elif task == REGRESSION:
        y = np.stack([table.numbers(name) for name in names], axis=1)
        y, known = np.nan_to_num(y), ~np.isnan(y)
        if not known.any(axis=0).all():
            name = names[int(np.argmin(known.any(axis=0)))]
            raise DataError(f"{table.where}: column {name!r} is empty in every row. Fill it in.")
    else:
        known = ~table.find_missing(name)
        kind = infer_kind(table, name)[0] if fitted is None else fitted.kind
        of_training = () if fitted is None else fitted.outputs
        rows = np.flatnonzero(known)
        y, classes, kind = encode_classes(table, name, rows, kind, of_training)
    of_each = [(name, y, known)] if classes else list(zip(names, y.T, known.T, strict=True))
    several = [
        _is_per_step(table, name, values, there, sequences, options.per_step)
        for name, values, there in of_each
    ]
    per_step = any(several)
    if not per_step and len(of_each) > 1:
        y, known = _spread_over_ids(y, known, sequences)
    notes = [f"Task: {task}, one target per {'row' if per_step else 'id'} ({why})."]
    named = [(label.name, label.classes) for label in labels] or [(name, classes)]
    notes += [f"Classes of {name!r}: {format_names(of, 12)}." for name, of in named if of]
    target = Target(
        task=task,
        sequences=sequences,
        all_rows=sequences,
        y=y,
        known=known,
        per_step=per_step,
        outputs=classes or names,
        notes=tuple(notes),
        kind=kind,
        labels=labels,
    )
    return _drop_without_target(target, sequences, sequences)


def _spread_over_ids(
    y: NDArray[Any], known: Bools, sequences: Sequences
) -> tuple[NDArray[Any], Bools]:
    """Return targets of which there is one per id, (R, S), in all rows of it, as far as known."""
    moved, there = np.zeros_like(y), np.zeros_like(known)
    rows, owners = sequences.rows, sequences.sequence_index
    for place, is_known in enumerate(known.T):
        has_any = sequences.any(is_known)
        firsts = np.zeros(len(sequences), np.int64)
        firsts[has_any] = rows[sequences.first_rows(is_known)]
        moved[rows, place] = np.where(has_any, y[firsts, place], 0)[owners]
        there[rows, place] = has_any[owners]
    return moved, there


def _is_per_step(
    table: Frame,
    column: str,
    y: NDArray[Any],
    is_known: Bools,
    sequences: Sequences,
    requested: bool | None,
) -> bool:
    """Whether there is one target per row, rather than one per id.

    Args:
        table: the table.
        column: of the target.
        y: its values, (R,).
        is_known: where there are any, (R,).
        sequences: the rows of each id.
        requested: what the user says; by default there is one per id if no id has two different
            ones.

    Raises:
        ArgumentError: one target per id was asked for, and an id has two different ones.
    """
    if requested:
        return True
    firsts = np.zeros(len(sequences), np.int64)
    firsts[sequences.any(is_known)] = sequences.rows[sequences.first_rows(is_known)]
    owners = sequences.sequence_index
    differ = (y[sequences.rows] != y[firsts][owners]) & is_known[sequences.rows]
    others = np.flatnonzero(differ)
    if not others.size or requested is None:
        return bool(others.size)
    row, before = int(sequences.rows[others[0]]), int(firsts[owners[others[0]]])
    raise ArgumentError(
        f"{table.describe_cell(row, column)} holds {table.format_value(row, column)!r}, but "
        f"{table.describe_row(before)} of the same id, {sequences.ids[owners[others[0]]]!r}, holds "
        f"{table.format_value(before, column)!r}: there is no single target per id. Ask for one "
        "per step."
    )


def _select_forecast_features(options: TableOptions, inputs: InputColumns) -> tuple[str, ...]:
    """Return the features whose later values are predicted."""
    numbers = inputs.names[: inputs.number_count]
    fixed = {*(options.static or ()), *(options.known or ())}
    changing = tuple(name for name in numbers if name not in fixed)
    outputs = options.targets or changing
    among = set(numbers)
    text = next((name for name in outputs if name not in among), None)
    if text is not None or not outputs:
        raise ArgumentError(
            f"a forecast is of numbers, and {'no feature' if text is None else repr(text)} holds "
            f"{'any that change' if text is None else 'text'}. Name another target."
        )
    return outputs


def _build_forecast_target(
    options: TableOptions, inputs: InputColumns, sequences: Sequences
) -> Target:
    if options.per_step is False and options.horizon is None:
        raise ArgumentError(
            "next-step prediction has a target at every step. Leave per_step out, or name a target."
        )
    outputs = _select_forecast_features(options, inputs)
    values = inputs.stack_first(len(outputs))
    differ = options.time is not None and is_unevenly_sampled(sequences)
    if options.horizon is not None:  # of windows, which are cut when the parts are known
        target = Target(
            task=NEXT_STEP,
            sequences=sequences,
            all_rows=sequences,
            y=np.zeros((len(values), len(outputs))),
            known=~np.isnan(values),
            per_step=True,
            outputs=outputs,
            horizon=options.horizon,
            has_uneven_lead_times=differ,
            notes=(format_uneven_note(has_lead_times=bool(options.known)),) if differ else (),
        )
        return _drop_without_target(target, sequences, sequences)
    long = sequences.select(sequences.lengths > 1)
    if not len(long):
        raise DataError(
            "no id has two rows, so that there is no next step to predict. Check that the id is "
            "that of a sequence, not of a row."
        )
    cut = long.drop_last()
    later = np.delete(np.arange(len(long.rows)), long.starts)
    y = np.zeros((len(values), len(outputs)))
    known, ahead = np.zeros(y.shape, np.bool_), np.zeros(len(values))
    following = values[long.rows[later]]
    known[cut.rows], y[cut.rows] = ~np.isnan(following), np.nan_to_num(following)
    ahead[cut.rows] = long.compute_dt()[later]
    why = "as asked for" if options.task else "there is no target"
    named = outputs if options.known else options.targets
    what = ", ".join(map(repr, named)) or "all features"
    notes = [f"Task: {NEXT_STEP}, of {what} at the time of the next row ({why})."]
    if differ:
        notes.append("Time steps differ, so that the time to the row to predict is one more input.")
    target = Target(
        task=NEXT_STEP,
        sequences=cut,
        all_rows=long,
        y=y,
        known=known,
        per_step=True,
        outputs=outputs,
        lead_times=ahead,
        has_uneven_lead_times=differ,
        notes=tuple(notes),
    )
    return _drop_without_target(target, cut, sequences)


def _drop_without_target(target: Target, sequences: Sequences, all_sequences: Sequences) -> Target:
    """Leave out the sequences without any target, and say so."""
    keep = sequences.any(target.has_target)
    if not keep.any():
        raise DataError("no row has a target. Check the column of the target.")
    left = sequences.select(keep)
    remaining, notes = set(left.ids), list(target.notes)
    dropped = [name for name in all_sequences.ids if name not in remaining]
    if dropped:
        notes.append(
            f"Left out: {format_count(len(dropped), 'id')} without a target: "
            f"{format_names(dropped)}."
        )
    complete = left if target.all_rows is sequences else target.all_rows.select(keep)
    return replace(target, sequences=left, all_rows=complete, notes=tuple(notes))
