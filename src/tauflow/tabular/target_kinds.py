"""What each target of a table is: a value, a class, or a class with an order; and its codes."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from tauflow._internal.sanitize import format_count
from tauflow._internal.targets import CLASS, MULTIOUTPUT, ORDINAL, VALUE, TargetSpec
from tauflow.errors import ArgumentError, DataError

from .cell_values import (
    Bools,
    Floats,
    Indices,
    check_no_datetimes,
    factorize,
    parse_boolean,
    parse_exact_number,
)
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
from .schema_fields import SchemaFields
from .sequences import format_names

MAX_INTEGER_CLASSES = 20
"""Whole numbers with at most so many values are classes, unless the task is given."""
_ZERO_PADDED = re.compile(r"[+-]?0\d+")
_KINDS = {VALUE: "a value", CLASS: "a class", ORDINAL: "a class with an order"}


def infer_task(table: Frame, options: TableOptions) -> tuple[str, str]:
    """Return what task the targets are of, which are no forecast's, and why.

    Several targets that are all values are those of a regression.

    Raises:
        DataError: there is no value of a target, it holds dates, or numbers that cannot be read.
    """
    names, task = options.targets, options.task
    if len(names) == 1 and not options.ordinal and task != MULTIOUTPUT:
        return _infer_single_task(table, options)
    if task == MULTIOUTPUT:
        return task, "as asked for"
    kinds = infer_target_kinds(table, options)
    if set(kinds.values()) == {VALUE}:
        return REGRESSION, "several targets"
    return MULTIOUTPUT, ", ".join(f"{name!r} is {_KINDS[kind]}" for name, kind in kinds.items())


def infer_target_kinds(table: Frame, options: TableOptions) -> dict[str, str]:
    """Return what each target is, of :data:`tauflow._internal.targets.TARGET_KINDS`."""
    fitted = get_fitted_specs(options)
    if fitted:
        return {spec.name: spec.kind for spec in fitted}
    found = {}
    for name in options.targets:
        task = None if options.task == MULTIOUTPUT else options.task
        single = replace(options, target=name, ordinal=None, task=task)
        if name in options.class_orders:
            found[name] = ORDINAL
        elif _infer_single_task(table, single)[0] == CLASSIFICATION:
            found[name] = CLASS
        else:
            found[name] = VALUE
    return found


def get_fitted_specs(options: TableOptions) -> tuple[TargetSpec, ...]:
    """Return the targets that a fitted schema knows."""
    is_fitted = isinstance(options, SchemaFields) and options.is_fitted
    return options.target_specs if is_fitted else ()  # type: ignore[attr-defined]


def encode_targets(
    table: Frame, options: TableOptions
) -> tuple[Floats, Bools, tuple[TargetSpec, ...]]:
    """Return values and places of classes of each target, (R, S), which are known, and what it is.

    Raises:
        ArgumentError: an ordinal target holds text, and nothing says its order.
        DataError: a target has no value, only one class, or one that is not known.
    """
    fitted = {spec.name: spec for spec in get_fitted_specs(options)}
    values: list[Floats] = []
    known, specs = [], []
    for name, kind in infer_target_kinds(table, options).items():
        if kind == VALUE:
            column = table.numbers(name)
            there = ~np.isnan(column)
            if not there.any():
                raise DataError(
                    f"{table.where}: column {name!r} is empty in every row. Fill it in."
                )
            spec = TargetSpec(name)
            values.append(np.nan_to_num(column))
        else:
            there = ~table.find_missing(name)
            order = options.class_orders.get(name, ())
            labels = infer_kind(table, name)[0] if name not in fitted else fitted[name].labels
            if kind == ORDINAL and not order and labels == TEXT_LABELS and name not in fitted:
                raise ArgumentError(
                    f"{table.where}: column {name!r} is ordinal and holds text, whose order nothing"
                    f" says. Write its classes in their order: --ordinal '{name}=low<medium<high'."
                )
            classes = fitted[name].classes if name in fitted else order
            rows = np.flatnonzero(there)
            codes, classes, labels = encode_classes(table, name, rows, labels, classes)
            spec = TargetSpec(name, kind, classes, labels)
            values.append(codes.astype(np.float64))
        known.append(there)
        specs.append(spec)
    return np.stack(values, axis=1), np.stack(known, axis=1), tuple(specs)


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
    whole = all(isinstance(number, int) for number in numbers)
    if whole and any(map(_ZERO_PADDED.fullmatch, map(str, different))):
        return TEXT_LABELS, len(different)
    return INTEGER_LABELS if whole else FLOAT_LABELS, len(numbers)


def encode_classes(
    table: Frame, column: str, rows: Indices, kind: str, classes: tuple[str, ...] = ()
) -> tuple[Indices, tuple[str, ...], str]:
    """Return the class of every row, (R,), 0 where there is none; the names of classes; their kind.

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
    codes, cells = factorize(table.columns[column][rows])
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(key(cell), len(places)) for cell in cells])[codes]
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
    found = np.zeros(len(table), np.int64)
    found[rows] = np.array([numbers[name] for name in names], np.int64)[codes]
    return found, classes, kind
