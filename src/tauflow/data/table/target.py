"""What is to be predicted from the rows of a table, and which rows it is predicted from."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError
from tauflow.plain_text import counted

from .coded import Coded, different_in, numbered
from .frames import Sequences, some
from .inputs import Inputs, gaps_differ, note_on_gaps
from .options import (
    CLASSIFICATION,
    NEXT_STEP,
    NUMBERS,
    REGRESSION,
    TEXTS,
    TRUTHS,
    WHOLE,
    TableOptions,
)
from .sheet import FEW, Bools, Floats, Indices, Sheet, exact_number, truth
from .unread import refuse_unread_numbers

_PADDED = re.compile(r"[+-]?0\d+")


@dataclass(frozen=True)
class Target:
    """Targets by row, whether there is one per row or one per id.

    Args:
        task: of :data:`tauflow.data.table.options.TASKS`.
        sequences: the rows to predict from; none is without a target.
        whole: the same sequences with all their rows.
        y: (R, O) floating point, or (R,) of integers that stand for classes; 0 where not known.
        known: where there is a target, in the shape of y.
        per_step: whether there is one per row, or one per id, its first.
        outputs: name of every target value, or of every class.
        ahead: of next-step prediction, time from each row to the one that is predicted, (R,).
        ahead_differs: whether that differs.
        horizon: rows to predict at once from a window, the last row of which has the targets, those
            of the first row to predict first; 0 for none.
        notes: what a reader must know.
        kind: what classes are in the table, see :class:`tauflow.data.TableInfo`.
    """

    task: str
    sequences: Sequences
    whole: Sequences
    y: NDArray[Any]
    known: Bools
    per_step: bool
    outputs: tuple[str, ...]
    ahead: Floats | None = None
    ahead_differs: bool = False
    horizon: int = 0
    notes: tuple[str, ...] = ()
    kind: str = TEXTS

    @property
    def is_class(self) -> bool:
        """Whether targets are classes."""
        return self.y.ndim == 1

    @property
    def is_next_step(self) -> bool:
        """Whether targets are later values of the inputs."""
        return self.task == NEXT_STEP

    @property
    def there(self) -> Bools:
        """Which rows have a target, or a part of one, (R,)."""
        return np.asarray(self.known.reshape(len(self.known), -1).any(axis=1))

    def in_all_rows(self) -> "Target":
        """Return the targets, which are one per id, in all its rows, and not in the first alone."""
        rows, owners = self.sequences.rows, self.sequences.owners
        firsts = self.firsts(self.sequences)[owners]
        y, known = self.y.copy(), self.known.copy()
        y[rows], known[rows] = self.y[firsts], self.known[firsts]
        return replace(self, y=y, known=known)

    def firsts(self, sequences: Sequences) -> Indices:
        """Return the row of the first target of each sequence, which has one, (N,)."""
        if self.horizon:
            return sequences.rows[sequences.ends - 1]
        return sequences.rows[sequences.firsts(self.there)]


def target_of(
    sheet: Sheet,
    options: TableOptions,
    inputs: Inputs,
    sequences: Sequences,
) -> Target:
    """Return what is to be predicted.

    Without a target it is next-step prediction. Text, truth values, and whole numbers with at most
    :data:`FEW` values are classes; other numbers are values of a regression.

    Args:
        sheet: the table.
        options: what the user says of it.
        inputs: of every row.
        sequences: the rows of every id.

    Raises:
        ArgumentError: the task needs a target, and there is none; one target per id was asked for,
            and an id has two different ones.
        DataError: the target has no value, only one class, or in a regression something else than
            finite numbers; nothing can be predicted; an id has some of its targets only.
    """
    names = options.targets
    if not names and options.task not in (None, NEXT_STEP):
        raise ArgumentError(f"task={options.task!r} needs a target. Name its column.")
    if options.is_forecast:
        return _next_rows(options, inputs, sequences)
    name = names[0]
    task, why = task_of(sheet, options)
    y: NDArray[Any]
    classes: tuple[str, ...] = ()
    if task == REGRESSION:
        y = np.stack([sheet.numbers(one) for one in names], axis=1)
        y, known = np.nan_to_num(y), ~np.isnan(y)
        if not known.any(axis=0).all():
            name = names[int(np.argmin(known.any(axis=0)))]
            raise DataError(f"{sheet.where}: column {name!r} is empty in every row. Fill it in.")
    else:
        known = ~sheet.missing(name)
        y, classes = _classes(sheet, name, np.flatnonzero(known))
    of_each = [(name, y, known)] if classes else list(zip(names, y.T, known.T, strict=True))
    several = [
        _is_per_step(sheet, one, values, there, sequences, options.per_step)
        for one, values, there in of_each
    ]
    per_step = any(several)
    notes = [f"Task: {task}, one target per {'row' if per_step else 'id'} ({why})."]
    if classes:
        notes.append(f"Classes of {name!r}: {some(classes, 12)}.")
    target = Target(
        task=task,
        sequences=sequences,
        whole=sequences,
        y=y,
        known=known,
        per_step=per_step,
        outputs=classes or names,
        notes=tuple(notes),
        kind=kind_of(sheet, name)[0] if classes else TEXTS,
    )
    return _whole_ids(sheet.where, _with_targets(target, sequences, sequences))


def task_of(sheet: Sheet, options: TableOptions) -> tuple[str, str]:
    """Return what task the targets are of, which are no forecast's, and why.

    Raises:
        ArgumentError: several targets are to be classes.
        DataError: there is no value of the target, it holds dates, or numbers that cannot be read.
    """
    names, task = options.targets, options.task
    if len(names) > 1:
        if task == CLASSIFICATION:
            raise ArgumentError(
                f"several targets, {', '.join(names)}, are for a regression. Name a single column "
                "of classes."
            )
        return REGRESSION, "several targets"
    if task is not None:
        return task, "as asked for"
    kind, count = kind_of(sheet, names[0], most=FEW)
    if names[0] in sheet.categorical:
        return CLASSIFICATION, f"{names[0]!r} is categorical, with {count} categories"
    if kind == TEXTS:
        refuse_unread_numbers(sheet, names[0])
    few = kind == WHOLE and count <= FEW
    why = f"{names[0]!r} holds {kind}"
    if kind != TRUTHS:
        why += f", {count} different {'one' if count == 1 else 'ones'}"
    return CLASSIFICATION if few or kind in (TEXTS, TRUTHS) else REGRESSION, why


def _whole_ids(where: str, target: Target) -> Target:
    """Refuse ids that have some of several targets only: a missing one would be learned as 0."""
    if target.per_step or target.is_class:
        return target
    rows = target.firsts(target.sequences)
    lacking = ~target.known[rows]
    if lacking.any():
        at = int(np.argmax(lacking.any(axis=1)))
        name = target.outputs[int(np.argmax(lacking[at]))]
        raise DataError(
            f"{where}: id {target.sequences.ids[at]!r} has no {name!r} where its other targets are "
            "first given. Write all targets of an id into one row, or leave out such ids."
        )
    return target


def kind_of(sheet: Sheet, column: str, *, most: float = math.inf) -> tuple[str, int]:
    """Return what a column holds, and how many different values.

    Text that reads as numbers or truth values is text, but for that of a file of nothing else. Even
    there 01 is text: as a number it would be the same class as 1, and be called so in answers.

    Args:
        sheet: the table.
        column: its name.
        most: with more different numbers, 01 is one of them.
    """
    sheet.refuse_moments(column)
    different = set(different_in(sheet.columns[column][~sheet.missing(column)]))
    if not different:
        raise DataError(
            f"{sheet.where}: column {column!r} is empty in every row. Fill it in, or leave it out."
        )
    if not sheet.untyped and any(isinstance(value, str) for value in different):
        return TEXTS, len({str(value) for value in different})
    truths = {truth(value) for value in different}
    if None not in truths:
        return TRUTHS, len(truths)
    numbers = {exact_number(value) for value in different}
    if None in numbers:
        return TEXTS, len(different)
    whole = all(isinstance(number, int) for number in numbers)
    if whole and len(numbers) <= most and any(map(_PADDED.fullmatch, map(str, different))):
        return TEXTS, len(different)
    return WHOLE if whole else NUMBERS, len(numbers)


def _classes(sheet: Sheet, column: str, rows: Indices) -> tuple[Indices, tuple[str, ...]]:
    """Return the class of every row, (R,), 0 where there is none, and the names of the classes."""
    kind, _ = kind_of(sheet, column)
    key = truth if kind == TRUTHS else exact_number
    cells = sheet.texts(column) if kind == TEXTS else sheet.columns[column]
    chosen = cells[rows]
    different: list[Any]
    if isinstance(chosen, Coded):
        different, codes = chosen.numbered_by(str if kind == TEXTS else key)
    else:
        codes, numbers = numbered(chosen)
        different = [key(number) for number in numbers.tolist()]
    if len(different) < 2:
        raise DataError(
            f"{sheet.where}: column {column!r} holds {sheet.said(int(rows[0]), column)!r} in every "
            "row: there is only one class, and nothing to learn. Name another target."
        )
    order = sorted(range(len(different)), key=different.__getitem__)
    found = np.zeros(len(sheet), np.int64)
    found[rows] = np.argsort(order)[codes]
    names = [different[place] for place in order]
    return found, tuple(str(bool(name) if kind == TRUTHS else name) for name in names)


def _is_per_step(
    sheet: Sheet,
    column: str,
    y: NDArray[Any],
    known: Bools,
    sequences: Sequences,
    asked: bool | None,
) -> bool:
    """Whether there is one target per row, rather than one per id.

    Args:
        sheet: the table.
        column: of the target.
        y: its values, (R,).
        known: where there are any, (R,).
        sequences: the rows of each id.
        asked: what the user says; by default there is one per id if no id has two different ones.

    Raises:
        ArgumentError: one target per id was asked for, and an id has two different ones.
    """
    if asked:
        return True
    firsts = np.zeros(len(sequences), np.int64)
    firsts[sequences.any(known)] = sequences.rows[sequences.firsts(known)]
    owners = sequences.owners
    differ = (y[sequences.rows] != y[firsts][owners]) & known[sequences.rows]
    others = np.flatnonzero(differ)
    if not others.size or asked is None:
        return bool(others.size)
    row, before = int(sequences.rows[others[0]]), int(firsts[owners[others[0]]])
    raise ArgumentError(
        f"{sheet.cell(row, column)} holds {sheet.said(row, column)!r}, but {sheet.row(before)} of "
        f"the same id, {sequences.ids[owners[others[0]]]!r}, holds "
        f"{sheet.said(before, column)!r}: there is no single target per id. Ask for one per step."
    )


def _forecast(options: TableOptions, inputs: Inputs) -> tuple[str, ...]:
    """Return the features whose later values are predicted."""
    numbers = inputs.names[: inputs.numbers]
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


def _next_rows(options: TableOptions, inputs: Inputs, sequences: Sequences) -> Target:
    if options.per_step is False:
        raise ArgumentError(
            "next-step prediction has a target at every step. Leave per_step out, or name a target."
        )
    outputs = _forecast(options, inputs)
    values = inputs.first(len(outputs))
    differ = options.time is not None and gaps_differ(sequences)
    if options.horizon is not None:  # of windows, which are cut when the parts are known
        target = Target(
            task=NEXT_STEP,
            sequences=sequences,
            whole=sequences,
            y=np.zeros((len(values), len(outputs))),
            known=~np.isnan(values),
            per_step=True,
            outputs=outputs,
            horizon=options.horizon,
            ahead_differs=differ,
            notes=(note_on_gaps(told=bool(options.known)),) if differ else (),
        )
        return _with_targets(target, sequences, sequences)
    long = sequences.kept(sequences.lengths > 1)
    if not len(long):
        raise DataError(
            "no id has two rows, so that there is no next step to predict. Check that the id is "
            "that of a sequence, not of a row."
        )
    cut = long.without_last()
    later = np.delete(np.arange(len(long.rows)), long.starts)
    y = np.zeros((len(values), len(outputs)))
    known, ahead = np.zeros(y.shape, np.bool_), np.zeros(len(values))
    following = values[long.rows[later]]
    known[cut.rows], y[cut.rows] = ~np.isnan(following), np.nan_to_num(following)
    ahead[cut.rows] = long.gaps()[later]
    why = "as asked for" if options.task else "there is no target"
    named = outputs if options.known else options.targets
    what = ", ".join(map(repr, named)) or "all features"
    notes = [f"Task: {NEXT_STEP}, of {what} at the time of the next row ({why})."]
    if differ:
        notes.append("Gaps differ, so that the gap to the row to predict is one more input.")
    target = Target(
        task=NEXT_STEP,
        sequences=cut,
        whole=long,
        y=y,
        known=known,
        per_step=True,
        outputs=outputs,
        ahead=ahead,
        ahead_differs=differ,
        notes=tuple(notes),
    )
    return _with_targets(target, cut, sequences)


def _with_targets(target: Target, sequences: Sequences, given: Sequences) -> Target:
    """Leave out the sequences without any target, and say so."""
    keep = sequences.any(target.there)
    if not keep.any():
        raise DataError("no row has a target. Check the column of the target.")
    left = sequences.kept(keep)
    remaining, notes = set(left.ids), list(target.notes)
    dropped = [name for name in given.ids if name not in remaining]
    if dropped:
        notes.append(f"Left out: {counted(len(dropped), 'id')} without a target: {some(dropped)}.")
    whole = left if target.whole is sequences else target.whole.kept(keep)
    return replace(target, sequences=left, whole=whole, notes=tuple(notes))


def check_classes(
    column: str, target: Target, parts: Mapping[str, Sequences], *, otherwise: str
) -> None:
    """Refuse classes that a model could not learn, as the training part has none of them.

    Args:
        column: of the target.
        target: its classes.
        parts: sequences of each part.
        otherwise: how to split otherwise, for the message.

    Raises:
        DataError: a class occurs in the other parts only.
    """
    trained = _classes_in(target, parts["train"])
    for part, sequences in parts.items():
        found = _classes_in(target, sequences)
        new = {code: name for code, name in found.items() if code not in trained}
        if new:
            names = [repr(target.outputs[code]) for code in new]
            raise DataError(
                f"the {part} part holds classes of {column!r} that the training part lacks: "
                f"{some(names)} (id {next(iter(new.values()))!r}). Split {otherwise}, join rare "
                "classes, or leave those ids out."
            )


def _classes_in(target: Target, sequences: Sequences) -> dict[int, str]:
    """Return each class that occurs with the first id that has it, in the order of the ids."""
    having = target.known[sequences.rows]
    owners, codes = sequences.owners[having], target.y[sequences.rows[having]]
    first = np.full(len(target.outputs), -1)
    first[codes[::-1]] = owners[::-1]  # where several would be written, the last one stays
    present = np.flatnonzero(first >= 0)
    order = present[np.argsort(first[present], kind="stable")]  # of one id, the lower class first
    return {int(code): sequences.ids[first[code]] for code in order}
