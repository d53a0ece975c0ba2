"""What is to be predicted from the rows of a table, and which rows it is predicted from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError

from .options import TableOptions
from .sequences import Sequences, some
from .sheet import Bools, Floats, Sheet
from .targets import NEXT_STEP, is_per_step, read_target, task_of


@dataclass(frozen=True)
class Goal:
    """Targets by row, whether there is one per row or one per id.

    Args:
        task: of :data:`tauflow.data.own.targets.TASKS`.
        sequences: the rows to predict from; none is without a target.
        whole: the same sequences with all their rows.
        y: (R, O) floating point, or (R,) of integers that stand for classes.
        known: where there is a target, in the shape of y.
        per_step: whether there is one per row, or one per id, its first.
        outputs: name of every target value, or of every class.
        ahead: time from each row to the one that is predicted, (R,), if that differs.
        notes: what a reader must know.
    """

    task: str
    sequences: Sequences
    whole: Sequences
    y: NDArray[Any]
    known: Bools
    per_step: bool
    outputs: tuple[str, ...]
    ahead: Floats | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_class(self) -> bool:
        """Whether targets are classes."""
        return self.y.ndim == 1

    @property
    def is_next_step(self) -> bool:
        """Whether targets are later values of the inputs."""
        return self.task == NEXT_STEP

    def firsts(self, sequences: Sequences) -> NDArray[Any]:
        """Return the first target of each id, (N, ...)."""
        found: NDArray[Any] = np.stack(
            [
                self.y[rows[np.argmax(self.known[rows].reshape(len(rows), -1).any(1))]]
                for rows in sequences.rows
            ]
        )
        return found


def feature_columns(sheet: Sheet, options: TableOptions) -> tuple[str, ...]:
    """Return the columns of the inputs; what next-step prediction predicts comes first.

    Raises:
        UnknownNameError: there is no such column.
        ArgumentError: a column has two roles that exclude each other.
    """
    sheet.check_name(options.id, "id")
    for role in ("time", "target", "group"):
        name = getattr(options, role)
        if name is not None and sheet.check_name(name, role) == options.id:
            raise ArgumentError(f"column {name!r} is named as id and as {role}. Name another one.")
    if options.time is not None and options.time == options.target:
        raise ArgumentError(f"column {options.time!r} is named as time and as target.")
    if options.group is not None and options.group in (options.time, options.target):
        role = "time" if options.group == options.time else "target"
        raise ArgumentError(
            f"column {options.group!r} is named as {role} and as group. Name as group the column "
            "of what ids belong to."
        )
    used = {options.id, options.time, options.target, options.group}
    names = [name for name in sheet.columns if name not in used]
    if options.features is not None:
        names = [sheet.check_name(name, "feature") for name in options.features]
        twice = [name for name in names if names.count(name) > 1]
        if options.id in names or twice:
            raise ArgumentError(
                f"features: column {twice[0] if twice else options.id!r} is "
                f"{'named twice' if twice else 'the id'}. Leave it out."
            )
    if options.target is not None and options.task == NEXT_STEP:
        names = [options.target, *(name for name in names if name != options.target)]
    elif options.target in names:
        raise ArgumentError(
            f"features: column {options.target!r} is the target; a model would read off the "
            "answer. Leave it out, or ask for next-step prediction."
        )
    if not names:
        raise ArgumentError(
            f"{sheet.where} has no column left for features: all are id, time, target or group. "
            "Add one."
        )
    return tuple(names)


def goal_of(
    sheet: Sheet,
    options: TableOptions,
    features: Sequence[str],
    values: Floats,
    sequences: Sequences,
) -> Goal:
    """Return what is to be predicted.

    Args:
        sheet: the table.
        options: what the user says of it.
        features: names of the inputs.
        values: the inputs of every row, (R, I), NaN where missing.
        sequences: the rows of every id.

    Raises:
        ArgumentError, DataError: see :mod:`tauflow.data.own.targets`; nothing can be predicted.
    """
    task, why = task_of(sheet, options.target, options.task)
    if task == NEXT_STEP:
        return _next_rows(options, features, values, sequences)
    assert options.target is not None
    target = read_target(sheet, options.target, task)
    per_step = is_per_step(sheet, options.target, target, sequences, options.per_step)
    notes = [f"Task: {task}, one target per {'row' if per_step else 'id'} ({why})."]
    if target.classes:
        notes.append(f"Classes of {options.target!r}: {some(target.classes, 12)}.")
    column = (slice(None), None)
    y, known = target.values, target.known
    goal = Goal(
        task=task,
        sequences=sequences,
        whole=sequences,
        y=y if target.classes else y[column],
        known=known if target.classes else known[column],
        per_step=per_step,
        outputs=target.classes or (options.target,),
        notes=tuple(notes),
    )
    return _with_targets(goal, sequences, sequences)


def _next_rows(
    options: TableOptions, features: Sequence[str], values: Floats, sequences: Sequences
) -> Goal:
    if options.per_step is False:
        raise ArgumentError(
            "next-step prediction has a target at every step. Leave per_step out, or name a target."
        )
    outputs = tuple(features) if options.target is None else (options.target,)
    y = np.zeros((len(values), len(outputs)))
    known, ahead = np.zeros(y.shape, np.bool_), np.zeros(len(values))
    for rows, times in zip(sequences.rows, sequences.times, strict=True):
        following = values[rows[1:], : len(outputs)]
        known[rows[:-1]] = ~np.isnan(following)
        y[rows[:-1]] = np.nan_to_num(following)
        ahead[rows[:-1]] = np.diff(times)
    why = "as asked for" if options.task else "there is no target"
    what = "all features" if options.target is None else repr(options.target)
    notes = [f"Task: {NEXT_STEP}, of {what} at the time of the next row ({why})."]
    long = sequences.kept(np.array([len(rows) > 1 for rows in sequences.rows]))
    if not len(long):
        raise DataError(
            "no id has two rows, so that there is no next step to predict. Check that the id is "
            "that of a sequence, not of a row."
        )
    cut = long.cut(lambda rows: rows[:-1])
    differ = options.time is not None and _gaps_differ(cut, ahead)
    if differ:
        notes.append("Gaps differ, so that the gap to the row to predict is one more input.")
    goal = Goal(
        task=NEXT_STEP,
        sequences=cut,
        whole=long,
        y=y,
        known=known,
        per_step=True,
        outputs=outputs,
        ahead=ahead if differ else None,
        notes=tuple(notes),
    )
    return _with_targets(goal, cut, sequences)


def _gaps_differ(sequences: Sequences, gaps: Floats) -> bool:
    """Whether gaps differ by more than rounding of the times makes them differ.

    Nothing absolute may be allowed for: of times in days, a millisecond is 1.2e-8.
    """
    ahead = np.concatenate([gaps[rows] for rows in sequences.rows])
    latest = max(float(np.abs(times).max()) for times in sequences.times)
    return not np.allclose(ahead, ahead[0], rtol=1e-6, atol=4 * np.spacing(latest))


def _with_targets(goal: Goal, sequences: Sequences, given: Sequences) -> Goal:
    """Leave out the sequences without any target, and say so."""
    keep = np.array([bool(goal.known[rows].any()) for rows in sequences.rows])
    if not keep.any():
        raise DataError("no row has a target. Check the column of the target.")
    left = sequences.kept(keep)
    remaining = set(left.ids)
    dropped = [name for name in given.ids if name not in remaining]
    notes = list(goal.notes)
    if dropped:
        notes.append(f"{len(dropped)} ids have no target and are left out: {some(dropped)}.")
    return replace(goal, sequences=left, whole=goal.whole.kept(keep), notes=tuple(notes))
