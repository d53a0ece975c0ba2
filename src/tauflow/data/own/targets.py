"""The target column of a table: what kind of task it asks for, and its values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.checks import one_of
from tauflow.errors import ArgumentError, DataError

from .sequences import Sequences, some
from .sheet import Bools, Floats, Sheet, exact_number, truth

CLASSIFICATION, REGRESSION, NEXT_STEP = "classification", "regression", "next-step"
TASKS = (CLASSIFICATION, REGRESSION, NEXT_STEP)
FEW = 20
"""Whole numbers with at most so many values are classes, unless the task is given."""


@dataclass(frozen=True)
class Target:
    """A target of every row.

    Args:
        values: (R,), integers that stand for classes, or floating point; 0 where not known.
        known: where there is one, (R,).
        classes: name of every class; empty for a regression.
    """

    values: NDArray[np.int64] | Floats
    known: Bools
    classes: tuple[str, ...] = ()


def task_of(sheet: Sheet, target: str | None, task: str | None) -> tuple[str, str]:
    """Return the task, and why it is this one.

    Without a target it is next-step prediction. Text, truth values, and whole numbers with at most
    :data:`FEW` values are classes; other numbers are values of a regression.

    Raises:
        ArgumentError: the task needs a target, and there is none.
        UnknownNameError: no such task.
        DataError: the target has no value in any row, or holds dates or durations.
    """
    if task is not None:
        one_of(TASKS, task=task)
        if target is None and task != NEXT_STEP:
            raise ArgumentError(f"task={task!r} needs a target. Name its column.")
        return task, "as asked for"
    if target is None:
        return NEXT_STEP, "there is no target"
    kind, count = _kind(sheet, target)
    holds = f"{target!r} holds {kind}"
    if kind != "truth values":
        holds += f", {count} different {'one' if count == 1 else 'ones'}"
    if kind in ("texts", "truth values") or (kind == "whole numbers" and count <= FEW):
        return CLASSIFICATION, holds
    return REGRESSION, holds


def _kind(sheet: Sheet, column: str) -> tuple[str, int]:
    """Return what a column holds, and how many different values."""
    sheet.refuse_moments(column)
    pairs = zip(sheet.cells(column), sheet.missing(column), strict=True)
    different = {cell for cell, missing in pairs if not missing}
    if not different:
        raise DataError(
            f"{sheet.where}: column {column!r} is empty in every row. Fill it in, or leave it out."
        )
    truths = {truth(value) for value in different}
    if None not in truths:
        return "truth values", len(truths)
    numbers = {exact_number(value) for value in different}
    if None in numbers:
        return "texts", len(different)
    whole = all(isinstance(number, int) for number in numbers)
    return "whole numbers" if whole else "numbers", len(numbers)


def read_target(sheet: Sheet, column: str, task: str) -> Target:
    """Return the values of a target column.

    Raises:
        DataError: a value of a regression is not a finite number, the values are dates or
            durations, or there is only one class.
    """
    if task == REGRESSION:
        values = sheet.numbers(column)
        return Target(np.nan_to_num(values), ~np.isnan(values))
    missing = sheet.missing(column)
    kind, _ = _kind(sheet, column)
    known = np.flatnonzero(~missing)
    every = sheet.cells(column)
    cells = [every[row] for row in known]
    keys = np.empty(len(cells), object)  # which holds whole numbers of any size
    if kind == "texts":
        every = sheet.texts(column)
        keys[:] = [every[row] for row in known]
    else:
        keys[:] = [_key(cell, kind) for cell in cells]
    different, codes = np.unique(keys, return_inverse=True)
    if len(different) < 2:
        raise DataError(
            f"{sheet.where}: column {column!r} holds {str(cells[0])!r} in every row: there is only "
            "one class, and nothing to learn. Name another target."
        )
    found = np.zeros(len(sheet), np.int64)
    found[known] = codes
    return Target(found, ~missing, tuple(_class_name(value, kind) for value in different))


def _key(cell: Any, kind: str) -> float | None:
    """Return what tells the class of a cell that is no text from the others."""
    return truth(cell) if kind == "truth values" else exact_number(cell)


def _class_name(value: object, kind: str) -> str:
    return str(bool(value)) if kind == "truth values" else str(value)


def is_per_step(
    sheet: Sheet, column: str, target: Target, sequences: Sequences, asked: bool | None
) -> bool:
    """Whether there is one target per row, rather than one per id.

    Args:
        sheet: the table.
        column: of the target.
        target: its values.
        sequences: the rows of each id.
        asked: what the user says; by default there is one per id if no id has two different ones.

    Raises:
        ArgumentError: one target per id was asked for, and an id has two different ones.
    """
    if asked:
        return True
    for place, rows in enumerate(sequences.rows):
        known = rows[target.known[rows]]
        other = known[target.values[known] != target.values[known[:1]]]
        if not other.size:
            continue
        if asked is None:
            return True
        cells = sheet.cells(column)
        raise ArgumentError(
            f"{sheet.cell(int(other[0]), column)} holds {str(cells[other[0]])!r}, but "
            f"{sheet.row(int(known[0]))} of the same id, {sequences.ids[place]!r}, holds "
            f"{str(cells[known[0]])!r}: there is no single target per id. Ask for one per step."
        )
    return False


def check_classes(
    column: str, target: Target, parts: Mapping[str, Sequences], *, otherwise: str
) -> None:
    """Refuse classes that a model could not learn, as the training part has none of them.

    Args:
        column: of the target.
        target: its values.
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
            names = [repr(target.classes[code]) for code in new]
            raise DataError(
                f"the {part} part holds classes of {column!r} that the training part lacks: "
                f"{some(names)} (id {next(iter(new.values()))!r}). Split {otherwise}, join rare "
                "classes, or leave those ids out."
            )


def _classes_in(target: Target, sequences: Sequences) -> dict[int, str]:
    """Return each class that occurs with the first id that has it."""
    found: dict[int, str] = {}
    for name, rows in zip(sequences.ids, sequences.rows, strict=True):
        for code in np.unique(target.values[rows[target.known[rows]]]):
            found.setdefault(int(code), name)
    return found
