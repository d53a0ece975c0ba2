"""What each target of a table is, a value or a class, and its codes."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .cell_values import (
    Bools,
    Floats,
    Indices,
    check_no_datetimes,
    parse_boolean,
    parse_exact_number,
)
from .fitted_schema import FittedSchema, Label
from .frame import Frame
from .options import (
    BOOLEAN_LABELS,
    CLASSIFICATION,
    FLOAT_LABELS,
    INTEGER_LABELS,
    REGRESSION,
    TEXT_LABELS,
    TableOptions,
)
from .sequences import format_names

MAX_INTEGER_CLASSES = 20
"""Whole numbers with at most so many values are classes, unless the task is given."""
_ZERO_PADDED = re.compile(r"[+-]?0\d+")


def infer_task(table: Frame, options: TableOptions) -> tuple[str, str]:
    """Return what task the targets are of, which are no forecast's, and why.

    Several targets are all values, or all have two classes.

    Raises:
        ArgumentError: several targets are neither.
        DataError: there is no value of a target, it holds dates, or numbers that cannot be read.
    """
    if options.task is not None or len(options.targets) == 1:
        return _infer_single_task(table, options)
    kinds = [_infer_single_task(table, replace(options, target=name)) for name in options.targets]
    if len({task for task, _ in kinds}) > 1:
        listed = ", ".join(
            f"{name!r} is {'a class' if task == CLASSIFICATION else 'a value'}"
            for name, (task, _) in zip(options.targets, kinds, strict=True)
        )
        raise ArgumentError(
            f"several targets are all values, or all have two classes, and of these {listed}. "
            "Train a model for each, or say task='regression' (--task) if all are numbers."
        )
    return kinds[0][0], "several targets"


def encode_labels(
    table: Frame, options: TableOptions, fitted: FittedSchema | None = None
) -> tuple[Floats, Bools, tuple[Label, ...]]:
    """Return each target as 0 or 1, (R, S), which are known, and what these are.

    Raises:
        ArgumentError: a target has more than two classes.
        DataError: a target has no value, only one class, or one that is not known.
    """
    known_labels = {} if fitted is None else {label.name: label for label in fitted.labels}
    values, known, labels = [], [], []
    for name in options.targets:
        there = ~table.find_missing(name)
        kind = known_labels[name].kind if known_labels else infer_kind(table, name)[0]
        of_training = known_labels[name].classes if known_labels else ()
        codes, classes, kind = encode_classes(table, name, np.flatnonzero(there), kind, of_training)
        if len(classes) != 2:
            count = format_count(len(classes), "class", "classes")
            raise ArgumentError(
                f"{table.where}: column {name!r} holds {count}, and "
                "each of several targets is a value or has two. Train a model for each "
                "target, or say task='regression' (--task) if all are numbers."
            )
        values.append(codes.astype(np.float64))
        known.append(there)
        labels.append(Label(name, classes, kind))
    return np.stack(values, axis=1), np.stack(known, axis=1), tuple(labels)


def _infer_single_task(table: Frame, options: TableOptions) -> tuple[str, str]:
    """Return what task a single target is of, and why."""
    names, task = options.targets, options.task
    if task is not None:
        return task, "as asked for"
    kind, count = infer_kind(table, names[0])
    if names[0] in table.categorical:
        return CLASSIFICATION, f"{names[0]!r} is categorical: {format_count(count, 'text')}"
    if kind == TEXT_LABELS:
        table.check_unparsed_numbers(names[0])
    few = kind == INTEGER_LABELS and count <= MAX_INTEGER_CLASSES
    why = f"{names[0]!r} holds {kind}"
    if kind != BOOLEAN_LABELS:
        why += f", {count} different {'one' if count == 1 else 'ones'}"
    return CLASSIFICATION if few or kind in (TEXT_LABELS, BOOLEAN_LABELS) else REGRESSION, why


def infer_kind(table: Frame, column: str) -> tuple[str, int]:
    """Return what a column holds, and how many different values.

    Text that reads as numbers or booleans is text, but for that of a file of nothing else. Even
    there 01 is text: as a number it would be the same class as 1.

    Args:
        table: the table.
        column: its name.
    """
    check_no_datetimes(f"{table.where}, column {column!r}", table.columns[column].dtype)
    table.check_no_containers(column)
    different = set(table.list_cells(column))
    if not different:
        raise DataError(
            f"{table.where}: column {column!r} is empty in every row. Fill it in, or leave it out."
        )
    if not table.is_file and any(isinstance(value, str) for value in different):
        return TEXT_LABELS, len({str(value) for value in different})
    truths = {parse_boolean(value) for value in different}
    if None not in truths:
        return BOOLEAN_LABELS, len(truths)
    numbers = {parse_exact_number(value) for value in different}
    if None in numbers:
        return TEXT_LABELS, len(different)
    is_whole = all(isinstance(number, int) for number in numbers)
    if is_whole and any(map(_ZERO_PADDED.fullmatch, map(str, different))):
        return TEXT_LABELS, len(different)
    return INTEGER_LABELS if is_whole else FLOAT_LABELS, len(numbers)


def encode_classes(
    table: Frame, column: str, rows: Indices, kind: str, classes: tuple[str, ...] = ()
) -> tuple[Indices, tuple[str, ...], str]:
    """Return the class of every row, (R,), 0 where it is missing; the names of classes; their kind.

    Args:
        table: the table.
        column: its name.
        rows: those that have a class.
        kind: what the column holds, of :func:`infer_kind`.
        classes: those that are known, in their order; by default all that occur, sorted.

    Raises:
        DataError: there is one class only, or one that is not known.
    """
    key: Any = parse_boolean if kind == BOOLEAN_LABELS else parse_exact_number
    if kind == TEXT_LABELS:
        table.texts(column)  # which refuses what cannot be printed
        key = str
    codes, cells = table.factorize(column)
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(key(cell), len(places)) for cell in cells])[codes[rows]]
    different: list[Any] = list(places)
    is_bool = kind == BOOLEAN_LABELS and None not in different
    names = list(map(str, map(bool, different) if is_bool else different))
    if classes:
        unknown = next((place for place, name in enumerate(names) if name not in classes), None)
        if unknown is not None:
            row = int(rows[int(np.argmax(codes == unknown))])
            raise DataError(
                f"{table.describe_value(row, column)}, a class that is not known, as the table of "
                f"the training had not: {format_names(classes, 12)}. Correct it, or remove that id."
            )
    elif len(different) < 2:
        raise DataError(
            f"{table.where}: column {column!r} holds {table.format_value(int(rows[0]), column)!r} "
            "in every row: there is only one class, and nothing to learn. Name another target."
        )
    elif order := table.categorical.get(column):  # a categorical dtype says it
        classes = tuple(name for name in order if name in names)
    else:
        classes = tuple(names[place] for place in np.argsort(np.array(different, object)))
    numbers = {name: number for number, name in enumerate(classes)}
    codes_of_rows = np.zeros(len(table), np.int64)
    codes_of_rows[rows] = np.array([numbers[name] for name in names], np.int64)[codes]
    return codes_of_rows, classes, kind
