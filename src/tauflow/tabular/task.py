"""From the cells of a table to batches: scaled by the training split, padded, with their card."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count, format_span
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, DataError

from .cell_values import Bools, Floats
from .frame import Frame
from .grouping import group_into_sequences, make_row_notes
from .inputs import (
    InputColumns,
    add_future_inputs,
    build_inputs,
    list_static_inputs,
    select_feature_columns,
)
from .leaks import make_leak_notes
from .options import AUTO, LEAD_TIME_INPUT, Categories, TableOptions
from .prediction_columns import check_prediction_columns
from .scaling import fit_input_scaler, fit_target_scaler, make_targets, scale_inputs
from .schema_fields import SchemaFields
from .sequences import Sequences, format_names
from .shift import summarise, summarise_gaps
from .split import TableSplits, get_explicit_splits, get_groups, make_splits, read_weights
from .target import Target, build_target
from .times import UNITS, parse_duration
from .windows import window_splits


def build_task(table: Frame, options: SchemaFields, *, name: str, source: str) -> TaskData:
    """Turn a table into the three parts of a task.

    Args:
        table: the table.
        options: what the user says of it.
        name: of the data.
        source: where they come from.

    Raises:
        ArgumentError, UnknownNameError, DataError, TimeError: see :func:`tauflow.data.from_table`.
    """
    inputs, split, features, empty, unseen = _prepare_splits(table, options)
    options = _summarise_training(options, inputs, split)
    variables, dtypes = table.variables, table.describe_dtypes()
    del table  # of which large tables need the room
    target, parts = split.target, split.sequences
    _check_classes(options, target, parts)
    x_scaling = fit_input_scaler(inputs, split, options)
    y_scaling = fit_target_scaler(split, x_scaling, scale=options.scale)
    x, observed = scale_inputs(x_scaling, inputs.columns, inputs.names)
    names, categories = inputs.names, inputs.categories
    del inputs
    seen = observed[target.sequences.rows]
    ahead, lead_times = None, target.lead_times  # of next-step prediction, on average and of rows
    if lead_times is not None:
        ahead = float(lead_times[parts["train"].rows].mean())
        if target.has_uneven_lead_times:
            more = lead_times / ahead  # an input, 1 on average
            (x, observed), names = append_input(x, observed, more), (*names, LEAD_TIME_INPUT)
            x_scaling = x_scaling.append(mean=0.0, scale=ahead)
    trained = split.training_sequences
    median, is_timed = compute_median_dt(trained), options.time is not None
    gap = median if is_timed and options.time_unit == AUTO else 1.0
    shared = None if seen.all() else observed, y_scaling, gap if is_timed else None
    batches = {
        part: _make_batch(target, sequences, x, *shared)
        for part, sequences in parts.items()
        if len(sequences)
    }
    x_mean, x_scale = x_scaling.to_tensors()
    y_mean, y_scale = (None, None) if y_scaling is None else y_scaling.to_tensors()
    schema = replace(
        _decide(options, features=features, task=target.task, per_step=target.per_step),
        dtypes=dtypes,
        ids={part: sequences.ids for part, sequences in parts.items()},
        inputs=names,
        x_mean=x_mean,
        x_scale=x_scale,
        outputs=target.outputs,
        y_mean=y_mean,
        y_scale=y_scale,
        dated=trained.dated,
        zoned=trained.zoned,
        unit=trained.unit,
        gap=gap,
        ahead=median if target.horizon else ahead,
        categories=categories,
        unseen=unseen,
        variables=variables,
        kind=target.kind,
        labels=target.labels,
        observed=not seen.all(),
        groups={name: split.groups[name] for name in parts["test"].ids if name in split.groups},
    )
    season = resolve_season(options, trained)
    notes = _make_notes(split, schema, season, empty, seen)
    notes += make_leak_notes(x, observed, target, parts["train"], schema)
    card = _make_card(split, schema, name=name, source=source, notes=tuple(notes), season=season)
    check_prediction_columns(schema)
    train = split.add_weights(batches["train"])
    return TaskData(card, train, batches.get("valid"), batches["test"], schema=schema)


def _summarise_training(
    options: SchemaFields, inputs: InputColumns, split: TableSplits
) -> SchemaFields:
    """Return the options with what the features are like in the training split."""
    trained, count = split.training_sequences, inputs.number_count - inputs.future_count
    owner = np.unique(trained.ids, return_inverse=True)[1][trained.sequence_index]
    columns = (column[trained.rows] for column in inputs.columns[:count])
    return replace(
        options,
        summary=summarise(inputs.names, columns, owner),
        gap_summary=() if options.time is None else summarise_gaps(trained.compute_dt()),
    )


def _decide(options: SchemaFields, **chosen: Any) -> Any:
    """Return the schema, of its class, with what was chosen, and which options were open."""
    decided = tuple(name for name in chosen if getattr(options, name) is None)
    return replace(options, **chosen, decided=decided)


def _prepare_splits(
    table: Frame, options: TableOptions
) -> tuple[InputColumns, TableSplits, tuple[str, ...], tuple[str, ...], Categories]:
    """Return the inputs of every row, and which rows are in which part.

    And the features; which others have no value in the training split, and so no input; and which
    categories.
    """
    features = select_feature_columns(table, options)
    sequences = group_into_sequences(
        table, options.id, options.time, options.requested_unit, sort=options.sort
    )
    inputs = build_inputs(table, features)
    groups = None if options.group is None else get_groups(table, options.group, sequences)
    if options.has_explicit_split:
        groups = get_explicit_splits(table, options, sequences)
    target = build_target(table, options, inputs, sequences)
    gaps = target.horizon > 0 and target.has_uneven_lead_times
    notes = make_row_notes(table, sequences, options)
    split = window_splits(make_splits(target, options, groups), options, inputs)
    weights = {} if options.weight is None else read_weights(table, options.weight, sequences)
    split = replace(split, notes=(*notes, *split.notes), weights=weights)
    inputs, empty, unseen = inputs.select_learnable(split.training_sequences.rows)
    needed = (*(target.outputs if target.is_next_step else ()), *(options.known or ()))
    wrong = next((name for name in empty if name in needed), None)
    if wrong is not None or not inputs.names:
        raise DataError(
            f"{'no feature' if wrong is None else repr(wrong)} has {'a' if wrong is None else 'no'}"
            " value in the training split, so that nothing can be learned. Check the columns, or "
            f"split {options.resplit_advice}."
        )
    inputs = add_future_inputs(
        inputs, options.known, options.horizon or 1, sequences, has_lead_times=gaps
    )
    features = tuple(name for name in features if name not in empty)
    return inputs, split, features, empty, unseen


def _check_classes(options: TableOptions, target: Target, splits: Mapping[str, Sequences]) -> None:
    """Refuse classes that a model could not learn, as the training split has none of them.

    Raises:
        DataError: a class occurs in the other parts only.
    """
    columns = {options.targets[0]: target} if target.is_class else {}
    for label, y, known in zip(target.labels, target.y.T, target.known.T, strict=False):
        columns[label.name] = replace(target, y=y, known=known, outputs=label.classes)
    for column, classes in columns.items():
        trained = _find_classes(classes, splits["train"])
        for part in [name for name in splits if name != "train"]:
            present = _find_classes(classes, splits[part])
            new = {code: name for code, name in present.items() if code not in trained}
            if new:
                names = [repr(classes.outputs[code]) for code in new]
                raise DataError(
                    f"the {part} split holds classes of {column!r} that the training split lacks: "
                    f"{format_names(names)} (id {next(iter(new.values()))!r}). Split "
                    f"{options.resplit_advice}, join rare classes, or leave those ids out."
                )


def _find_classes(target: Target, sequences: Sequences) -> dict[int, str]:
    """Return each class that occurs with the first id that has it, in the order of the ids."""
    having = target.known[sequences.rows]
    owners, codes = sequences.sequence_index[having], target.y[sequences.rows[having]].astype(int)
    first = np.full(len(target.outputs), -1)
    first[codes[::-1]] = owners[::-1]  # where several would be written, the last one stays
    present = np.flatnonzero(first >= 0)
    order = present[np.argsort(first[present], kind="stable")]  # of one id, the lower class first
    return {int(code): sequences.ids[first[code]] for code in order}


def append_input(x: NDArray[Any], observed: Bools, more: Floats) -> tuple[NDArray[Any], Bools]:
    """Return inputs of rows, (R, I), and where they are observed, with one more that always is."""
    there = np.ones((len(x), 1), np.bool_)
    return (
        np.concatenate([x, more[:, None].astype(x.dtype)], axis=1),
        np.concatenate([observed, there], axis=1),
    )


def compute_median_dt(sequences: Sequences) -> float:
    """Return the median of the time steps above 0, with digits that can be read; 1 without any."""
    gaps = sequences.compute_dt()
    gaps = gaps[gaps > 0]
    return float(f"{np.median(gaps):.12g}") if gaps.size else 1.0


def resolve_season(options: TableOptions, sequences: Sequences) -> int:
    """Return the rows of a season, 0 for none; a span of time is so many median time steps.

    Raises:
        ArgumentError: it is not of whole rows.
        TimeError, UnknownNameError: it is no span of time, or there is no such unit.
    """
    season = options.season
    if not isinstance(season, str):
        return season or 0
    span = parse_duration("season", season)
    if sequences.unit not in UNITS:
        raise ArgumentError(
            f"season={season!r} is a span of time, and nothing says what times are counted in. Say "
            "so (time_unit='hours'), or give the season in rows."
        )
    gap = compute_median_dt(sequences)
    rows = float(span / UNITS[sequences.unit]) / gap
    if round(rows) < 1 or abs(rows - round(rows)) > 0.01 * rows:
        raise ArgumentError(
            f"season={season!r} is {rows:.4g} times the median time step, "
            f"{format_span(gap, sequences.unit)}, and no whole number of rows. Give another one."
        )
    return round(rows)


def _make_batch(
    target: Target,
    sequences: Sequences,
    x: NDArray[np.float32],
    observed: Bools | None,
    scaler: StandardScaler | None,
    dt_unit: float | None,
) -> SequenceBatch:
    tensor, lengths = torch.from_numpy, target.sequences.lengths
    y, y_mask = make_targets(target, sequences, scaler)
    return SequenceBatch(
        x=tensor(sequences.pad(x)),
        y=y,
        dt=None if dt_unit is None else tensor(sequences.pad_dt(dt_unit)),
        mask=tensor(sequences.valid) if (lengths != lengths[0]).any() else None,
        observed=None if observed is None else tensor(sequences.pad(observed)),
        y_mask=y_mask,
    )


def _make_card(
    split: TableSplits,
    schema: SchemaFields,
    *,
    name: str,
    source: str,
    notes: tuple[str, ...],
    season: int,
) -> DatasetCard:
    target, parts = split.target, split.sequences
    task, loss, metric = "regress", "mse", "mse"
    if target.is_class:
        task, loss, metric = "classify", "cross_entropy", "accuracy"
    elif target.labels:
        task, loss, metric = "binary", "bce", "bce"
    return DatasetCard(
        name=name,
        title=name,
        task=task,
        input_size=len(schema.inputs),
        target_size=len(schema.outputs),
        time_unit=schema.unit if schema.gap == 1 else f"{schema.gap:.6g} {schema.unit}",
        sizes=(len(parts["train"]), len(parts["valid"]), len(parts["test"])),
        source=source,
        licence="not stated",
        split=split.description,
        loss=loss,
        metric=metric,
        targets=schema.outputs,
        static_inputs=list_static_inputs(schema),
        per_step=target.per_step,
        forecast=target.is_next_step,
        horizon=target.horizon,
        season=season,
        notes=notes,
    )


def _make_notes(
    split: TableSplits, schema: SchemaFields, season: int, empty: Sequence[str], seen: Bools
) -> list[str]:
    target = split.target
    sequences = target.sequences
    known = target.known[sequences.rows if target.per_step else target.first_rows(sequences)]
    notes = [*target.notes]
    if not target.horizon and not known.all():
        total = format_count(known.size, "target")
        notes.append(f"{(~known).sum()} of {total} are missing and do not count.")
    notes += split.notes
    if season and target.is_next_step:
        notes += _notes_on_season(season, split, schema)
    return [*notes, *_notes_on_inputs(schema, empty), *_notes_on_values(split, schema, seen)]


def _notes_on_season(season: int, split: TableSplits, options: TableOptions) -> list[str]:
    """Say so where no sequence of the test split is long enough to look a season back."""
    target, longest = split.target, int(split.sequences["test"].lengths.max())
    needed = season + 1 - min(target.horizon or 1, season)
    if longest >= needed:
        return []
    advice = "Give longer sequences" if options.window is None else "Take longer windows (--window)"
    return [
        f"Warning: nothing is compared with values of a season, {format_count(season, 'row')}, "
        f"ago: that takes {format_count(needed, 'row')}, and the longest sequence of the test "
        f"split has {longest}. {advice}."
    ]


def _notes_on_inputs(schema: SchemaFields, empty: Sequence[str]) -> list[str]:
    notes = [
        f"Column {name!r} holds categories: an input for each of them, {format_names(texts, 12)}."
        for name, texts in schema.categories
    ]
    if empty:
        notes.append(
            "Warning: no value in the training split, so that nothing can be learned of them, and "
            f"left out of the features: {format_names(empty, 12)}."
        )
    notes += [
        f"Warning: categories of column {name!r} that the training split lacks, and that all its "
        f"inputs are 0 for: {format_names(texts, 12)}."
        for name, texts in schema.unseen
    ]
    constant = [
        name
        for name, scale in zip(schema.inputs, schema.x_scale.tolist(), strict=True)
        if scale == 0
    ]
    if constant:
        notes.append(
            "Constant in the training split, so that nothing is learned of them, and 0 in every "
            f"split: {format_names(constant, 12)}."
        )
    return notes


def _notes_on_values(split: TableSplits, schema: SchemaFields, seen: Bools) -> list[str]:
    """Say how values are scaled, how many are missing, and what a time step of 1 is."""
    notes = []
    if schema.scale:
        scaling = "Features are" if schema.y_scale is None else "Features and targets are"
        scaling += " scaled by mean and standard deviation of the training split"
        if schema.y_scale is not None and len(schema.outputs) == 1:
            scaling += f"; an error of 1 is {float(schema.y_scale):.4g} of {schema.outputs[0]!r}"
        notes.append(f"{scaling}.")
    absent = seen.size - int(seen.sum())
    if absent:
        share = f"{100 * absent / seen.size:.2g} %"
        total = format_count(seen.size, "input value")
        notes.append(f"{absent:,} of {total} ({share}) are missing.")
    if schema.time is None:
        return notes
    if schema.time_unit == AUTO:
        span = format_span(schema.gap, schema.unit)
        scaling = (
            f"A time step of 1 is {span}, the median of the training split (time_unit='auto')."
        )
        return [*notes, scaling]
    return notes
