"""From the cells of a table to batches: scaled by the training part, padded, with their masks."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData

from .describe import card_of
from .goal import Goal, feature_columns, goal_of
from .info import GAP_AHEAD, TableInfo
from .options import TableOptions
from .scaling import Scaling, scale_features, scale_targets
from .sequences import Sequences, sequences_of
from .sheet import Bools, Floats, Sheet
from .split import groups_of, split_of
from .targets import Target, check_classes
from .times import read_times


@dataclass(frozen=True)
class Rows:
    """What models see of every row of a table.

    Args:
        x: inputs, (R, I), 0 where missing.
        observed: (R, I).
        y: targets, (R, O), or (R,) of classes.
        known: where there is one, in the shape of y.
        gaps: since the row before, (R,); ``None`` without times.
    """

    x: NDArray[np.float32]
    observed: Bools
    y: NDArray[Any]
    known: Bools
    gaps: NDArray[np.float32] | None


def build(sheet: Sheet, options: TableOptions, *, name: str, source: str) -> TaskData:
    """Turn a table into the three parts of a task.

    Args:
        sheet: the table.
        options: what the user says of it.
        name: of the data.
        source: where they come from.

    Raises:
        ArgumentError, UnknownNameError, DataError, TimeError: see :func:`tauflow.data.from_table`.
    """
    features = feature_columns(sheet, options)
    times = None
    if options.time is not None:
        times = read_times(sheet, options.time, options.time_unit)
    values = np.stack([sheet.numbers(column) for column in features], axis=1)
    sequences = sequences_of(sheet, options.id, options.time, times, sort=options.sort)
    groups = None if options.group is None else groups_of(sheet, options.group, sequences)
    split = split_of(goal_of(sheet, options, features, values, sequences), options, groups)
    goal, parts, otherwise = split.goal, split.parts, options.otherwise
    if goal.is_class:
        target = Target(goal.y, goal.known, goal.outputs)
        check_classes(str(options.target), target, parts, otherwise=otherwise)
    x_scaling = scale_features(
        values, features, split.trained, wanted=options.scale, otherwise=otherwise
    )
    y_scaling = None
    if not goal.is_class:
        y_scaling = scale_targets(goal, parts["train"], x_scaling, wanted=options.scale)
    rows = _rows(goal, values, x_scaling, y_scaling, timed=times is not None)
    said = replace(options, features=features, task=goal.task, per_step=goal.per_step)
    if goal.ahead is not None:
        features = (*features, GAP_AHEAD)
        rows, x_scaling = _with_gap_ahead(rows, goal.ahead, parts["train"], x_scaling)
    seen = rows.observed[np.concatenate(goal.sequences.rows)]
    lengths = {len(one) for one in goal.sequences.rows}
    batches = {
        part: _batch(goal, one, rows, complete=bool(seen.all()), padded=len(lengths) > 1)
        for part, one in parts.items()
        if len(one)
    }
    y_tensors = (None, None) if y_scaling is None else y_scaling.tensors()
    info = TableInfo(
        goal.task,
        {part: one.ids for part, one in parts.items()},
        features,
        *x_scaling.tensors(),
        goal.outputs,
        *y_tensors,
        options=said,
        dated=times is not None and times.dated,
    )
    card = card_of(
        split,
        options,
        info,
        name=name,
        source=source,
        time_unit="row" if times is None else times.unit,
        missing=(int((~seen).sum()), len(seen) * values.shape[1]),
        gap=_median_gap(goal.sequences, rows),
    )
    return TaskData(card, batches["train"], batches.get("valid"), batches["test"], table=info)


def _rows(goal: Goal, values: Floats, x: Scaling, y: Scaling | None, *, timed: bool) -> Rows:
    targets = goal.y
    if y is not None:
        targets = np.where(goal.known, y.of(goal.y), 0.0).astype(np.float32)
    gaps = goal.sequences.gaps(len(values)) if timed else None
    return Rows(*x.inputs_of(values), targets, goal.known, gaps)


def _with_gap_ahead(
    rows: Rows, ahead: Floats, trained: Sequences, scaling: Scaling
) -> tuple[Rows, Scaling]:
    """Make the gap to the row to predict an input, 1 on average."""
    mean = ahead[np.concatenate(trained.rows)].mean()
    x = np.concatenate([rows.x, (ahead / mean)[:, None].astype(np.float32)], axis=1)
    observed = np.concatenate([rows.observed, np.ones((len(x), 1), np.bool_)], axis=1)
    longer = Scaling(np.append(scaling.mean, 0.0), np.append(scaling.scale, mean))
    return replace(rows, x=x, observed=observed), longer


def _batch(
    goal: Goal, sequences: Sequences, rows: Rows, *, complete: bool, padded: bool
) -> SequenceBatch:
    def tensor(values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(sequences.padded(values))

    y_mask = None
    if goal.per_step:
        y = tensor(rows.y)
        if not rows.known[np.concatenate(goal.sequences.rows)].all():
            y_mask = tensor(rows.known)
            if y_mask.ndim == 3 and y_mask.shape[-1] == 1:
                y_mask = y_mask[..., 0]
    else:
        y = torch.from_numpy(replace(goal, y=rows.y).firsts(sequences))
    return SequenceBatch(
        x=tensor(rows.x),
        y=y,
        dt=None if rows.gaps is None else tensor(rows.gaps),
        mask=torch.from_numpy(sequences.valid()) if padded else None,
        observed=None if complete else tensor(rows.observed),
        y_mask=y_mask,
    )


def _median_gap(sequences: Sequences, rows: Rows) -> float | None:
    """Return the median gap between rows, ``None`` if there are no times or no gaps."""
    if rows.gaps is None:
        return None
    gaps = np.concatenate([rows.gaps[one[1:]] for one in sequences.rows])
    return float(np.median(gaps)) if gaps.size else None
