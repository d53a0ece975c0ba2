"""From the cells of a table to batches: scaled by the training part, padded, with their card."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import ArgumentError, DataError
from tauflow.resolution import LONG_GAP, SHORT_GAP

from .answer_names import check_answers
from .frames import Sequences, sequences_of, some
from .info import TableInfo
from .inputs import Inputs, feature_columns, inputs_of, with_known
from .notes import notes_on_rows
from .options import AUTO, GAP_AHEAD, Categories, TableOptions
from .sheet import Bools, Floats, Sheet
from .split import Split, groups_of, parts_said, split_of
from .target import Target, check_classes, target_of
from .times import UNITS, Times, read_times, unit_of
from .window import windowed

_ROUNDING = 1e-12  # a column that varies less than this part of its size is constant

_PRECISIONS = {np.float16: "half", np.float32: "single", np.float64: "double"}


@dataclass(frozen=True)
class Scaling:
    """Means and scales of columns, (C,) each."""

    mean: Floats
    scale: Floats

    def inputs_of(
        self,
        columns: Sequence[NDArray[Any]],
        names: Sequence[str],
        dtype: type[np.floating[Any]] = np.float32,
    ) -> tuple[NDArray[Any], Bools]:
        """Return the values of C columns, (R, C), scaled and 0 where NaN, and where they are not.

        Args:
            columns: numbers, (R,) each, or truth values.
            names: of the columns, for messages.
            dtype: of the result; it is computed in double precision.

        Raises:
            DataError: a number is so far from the mean that the dtype cannot hold it.
        """
        observed = np.ones((len(columns[0]), len(columns)), np.bool_)
        scaled = np.zeros(observed.shape, dtype)
        for place, column in enumerate(columns):  # one at a time, as tables may be large
            with np.errstate(over="ignore"):
                scaled[:, place] = (column - self.mean[place]) / self.scale[place]
            far = np.isinf(scaled[:, place])
            if far.any():
                raise DataError(
                    f"{names[place]!r} is {column[int(np.argmax(far))]:.4g} in a row, too far from "
                    f"the {self.mean[place]:.4g} +- {self.scale[place]:.4g} of the training part "
                    f"for {_PRECISIONS[dtype]} precision. Correct it, or leave it empty."
                )
            absent = np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, np.bool_)
            if absent.any():
                observed[:, place], scaled[absent, place] = ~absent, 0.0
        return scaled, observed


def scaling_of(columns: Iterable[Floats], *, wanted: bool) -> Scaling:
    """Return mean and standard deviation of K columns over the entries that are not NaN.

    Args:
        columns: of the training part, (C,) each, with at least one entry.
        wanted: whether to scale at all.
    """
    found = []
    for column in columns:
        known = column[~np.isnan(column)] if wanted else np.zeros(1)
        found.append((known.mean(), known.std()))
    mean, scale = np.array(found).reshape(-1, 2).T
    constant = scale <= _ROUNDING * np.abs(mean)
    return Scaling(mean, np.where(constant, 1.0, scale))


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
    inputs, split, times = _arranged(sheet, options, features)
    variables = sheet.variables
    del sheet  # of which large tables need the room
    target, parts, otherwise = split.target, split.parts, options.otherwise
    if target.is_class:
        check_classes(options.targets[0], target, parts, otherwise=otherwise)
    x_scaling = _of_features(inputs, split, options)
    y_scaling = None if target.is_class else _of_targets(split, x_scaling, wanted=options.scale)
    x, observed = x_scaling.inputs_of(inputs.columns, inputs.names)
    names, categories = inputs.names, inputs.categories
    del inputs
    seen = observed[target.sequences.rows]
    ahead = _mean_ahead(target, parts["train"])
    if ahead is not None and target.ahead is not None and target.ahead_differs:
        x, observed = with_input(x, observed, target.ahead / ahead)  # an input, 1 on average
        names = (*names, GAP_AHEAD)
        x_scaling = Scaling(np.append(x_scaling.mean, 0.0), np.append(x_scaling.scale, ahead))
    automatic = times is not None and options.time_unit == AUTO
    gap = median_gap(split.trained) if automatic else 1.0
    ahead = median_gap(split.trained) if target.horizon else ahead
    seen_or_none, gap_or_none = None if seen.all() else observed, None if times is None else gap
    batches = {
        part: _batch(split, one, x, seen_or_none, y_scaling, gap_or_none)
        for part, one in parts.items()
        if len(one)
    }
    info = TableInfo(
        target.task,
        {part: one.ids for part, one in parts.items()},
        names,
        torch.from_numpy(x_scaling.mean),
        torch.from_numpy(x_scaling.scale),
        target.outputs,
        None if y_scaling is None else torch.from_numpy(y_scaling.mean),
        None if y_scaling is None else torch.from_numpy(y_scaling.scale),
        options=replace(options, features=features, task=target.task, per_step=target.per_step),
        dated=times is not None and times.dated,
        unit="row" if times is None else times.unit,
        gap=gap,
        ahead=ahead,
        categories=categories,
        variables=variables,
        kind=target.kind,
        named=options.features is not None,
    )
    season = season_of(options, times, split.trained)
    notes = (
        *target.notes,
        *_notes_on_targets(target),
        *split.notes,
        *_notes_on_season(season, split, options),
        *_notes_on_categories(categories),
        *_notes_on_missing(seen),
        *_notes_on_scale(info, options),
        *([] if times is None else _notes_on_gaps(target.sequences, info)),
    )
    card = _card(split, info, name=name, source=source, notes=notes, season=season)
    check_answers(info, card)
    return TaskData(card, batches["train"], batches.get("valid"), batches["test"], table=info)


def _arranged(
    sheet: Sheet, options: TableOptions, features: Sequence[str]
) -> tuple[Inputs, Split, Times | None]:
    """Return the inputs of every row, which rows are in which part, and the times."""
    times = None
    if options.time is not None:
        times = read_times(sheet, options.time, options.unit)
    inputs = inputs_of(sheet, features)
    sequences = sequences_of(sheet, options.id, options.time, times, sort=options.sort)
    groups = None if options.group is None else groups_of(sheet, options.group, sequences)
    if options.is_given:
        groups = parts_said(sheet, options, sequences)
    target = target_of(sheet, options, inputs, sequences)
    gaps = target.horizon > 0 and target.ahead_differs
    notes = notes_on_rows(sheet, sequences, options)
    split = windowed(split_of(target, options, groups), options, inputs)
    split = replace(split, notes=(*notes, *split.notes))
    steps = options.horizon or 1
    return with_known(inputs, options.known, steps, sequences, gaps=gaps), split, times


def _mean_ahead(target: Target, trained: Sequences) -> float | None:
    """Return how far ahead of its row a target is on average, of next-step prediction."""
    return None if target.ahead is None else float(target.ahead[trained.rows].mean())


def _of_features(inputs: Inputs, split: Split, options: TableOptions) -> Scaling:
    """Return the scaling of the features that are numbers, by all rows of the training part.

    What rows know of later ones counts in the rows to learn from alone: that of the others is of
    another part.

    Raises:
        DataError: the training part has no value of a feature.
    """
    count, trained = inputs.numbers, split.trained.rows
    learned = np.unique(split.parts["train"].rows) if inputs.later else trained

    def of_training(place: int) -> Floats:  # one at a time, as tables may be large
        rows = trained if place < count - inputs.later else learned
        values: Floats = inputs.columns[place][rows]
        return values

    for place, name in enumerate(inputs.names[:count]):
        if np.isnan(of_training(place)).all():
            nowhere = np.isnan(inputs.columns[place]).all()
            where, otherwise = "the table", ""
            if not nowhere:
                where, otherwise = "the training part", f", or split {options.otherwise}"
            raise DataError(
                f"feature {name!r} has no value in {where}, so that nothing can be learned of it. "
                f"Leave it out of the features{otherwise}."
            )
    found = scaling_of(map(of_training, range(count)), wanted=options.scale)
    plain = len(inputs.names) - count
    return Scaling(np.append(found.mean, np.zeros(plain)), np.append(found.scale, np.ones(plain)))


def _of_targets(split: Split, features: Scaling, *, wanted: bool) -> Scaling:
    """Return the scaling of targets that are not classes; next steps share that of the inputs."""
    target, trained = split.target, split.parts["train"]
    if target.is_next_step:
        times = target.horizon or 1
        count = len(target.outputs) // times
        return Scaling(
            np.tile(features.mean[:count], times), np.tile(features.scale[:count], times)
        )
    if not target.per_step:
        return scaling_of(target.y[target.firsts(trained)].T, wanted=wanted)
    known, y = target.known[trained.rows], target.y[trained.rows]
    return scaling_of(np.where(known, y, np.nan).T, wanted=wanted)


def with_input(x: NDArray[Any], observed: Bools, more: Floats) -> tuple[NDArray[Any], Bools]:
    """Return inputs of rows, (R, I), and where they are observed, with one more that always is."""
    there = np.ones((len(x), 1), np.bool_)
    return (
        np.concatenate([x, more[:, None].astype(x.dtype)], axis=1),
        np.concatenate([observed, there], axis=1),
    )


def median_gap(sequences: Sequences) -> float:
    """Return the median of the gaps above 0, with digits that can be read; 1 if there are none."""
    gaps = sequences.gaps()
    gaps = gaps[gaps > 0]
    return float(f"{np.median(gaps):.12g}") if gaps.size else 1.0


def season_of(options: TableOptions, times: Times | None, sequences: Sequences) -> int:
    """Return the rows of a season, 0 for none; a span of time is so many median gaps.

    Raises:
        ArgumentError: it is no span of time, or not of whole rows.
        UnknownNameError: there is no such unit.
    """
    season = options.season
    if not isinstance(season, str):
        return season or 0
    assert times is not None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", season)
    if found is None or float(found[1]) == 0:
        raise ArgumentError(f"season={season!r} is neither rows, 24, nor a span of time, '24h'.")
    unit = unit_of(found[2], "season")
    if times.unit not in UNITS:
        raise ArgumentError(
            f"season={season!r} is a span of time, and nothing says what times are counted in. Say "
            "so (time_unit='hours'), or give the season in rows."
        )
    gap = median_gap(sequences)
    rows = float(found[1]) * float(UNITS[unit] / UNITS[times.unit]) / gap
    if round(rows) < 1 or abs(rows - round(rows)) > 0.01 * rows:
        raise ArgumentError(
            f"season={season!r} is {rows:.4g} of the median gaps, {gap:.4g} {times.unit}, and no "
            "whole number of rows. Give another one."
        )
    return round(rows)


def gaps_of(
    sequences: Sequences, unit: float, dtype: type[np.floating[Any]] = np.float32
) -> NDArray[Any]:
    """Return the padded gaps before each row, (N, longest), 0 at the first, in a unit of time."""
    valid = sequences.valid()
    gaps = np.zeros(valid.shape, dtype)
    gaps[valid] = sequences.gaps() / unit
    return gaps


def _batch(
    split: Split,
    sequences: Sequences,
    x: NDArray[np.float32],
    observed: Bools | None,
    scaling: Scaling | None,
    gap: float | None,
) -> SequenceBatch:
    target, tensor = split.target, torch.from_numpy
    lengths = target.sequences.lengths
    known, y = target.known, target.y
    y_mask = None
    rows = sequences.rows if target.per_step else target.firsts(sequences)
    if scaling is not None:
        y = np.zeros(y.shape, np.float32)
        y[rows] = np.where(known[rows], (target.y[rows] - scaling.mean) / scaling.scale, 0.0)
    if target.per_step and not known[target.sequences.rows].all():
        mask = known[:, 0] if known.ndim == 2 and known.shape[1] == 1 else known
        y_mask = tensor(sequences.padded(mask))
    return SequenceBatch(
        x=tensor(sequences.padded(x)),
        y=tensor(sequences.padded(y) if target.per_step else y[rows]),
        dt=None if gap is None else tensor(gaps_of(sequences, gap)),
        mask=tensor(sequences.valid()) if (lengths != lengths[0]).any() else None,
        observed=None if observed is None else tensor(sequences.padded(observed)),
        y_mask=y_mask,
    )


def _card(
    split: Split,
    info: TableInfo,
    *,
    name: str,
    source: str,
    notes: tuple[str, ...],
    season: int,
) -> DatasetCard:
    target, parts = split.target, split.parts
    measure = "accuracy" if target.is_class else "mse"
    return DatasetCard(
        name=name,
        title=name,
        task="classify" if target.is_class else "regress",
        input_size=len(info.inputs),
        target_size=len(info.outputs),
        time_unit=info.unit if info.gap == 1 else f"{info.gap:.6g} {info.unit}",
        sizes=(len(parts["train"]), len(parts["valid"]), len(parts["test"])),
        source=source,
        licence="not stated",
        split=split.how,
        loss="cross_entropy" if target.is_class else measure,
        metric=measure,
        targets=info.outputs,
        per_step=target.per_step,
        forecast=target.is_next_step,
        horizon=target.horizon,
        season=season,
        notes=notes,
    )


def _notes_on_targets(target: Target) -> list[str]:
    known = target.known[target.sequences.rows]
    if not target.per_step or known.all():
        return []
    return [f"{(~known).sum()} of {known.size} targets are missing and do not count."]


def _notes_on_season(season: int, split: Split, options: TableOptions) -> list[str]:
    """Say so where no sequence of the test part is long enough to look a season back."""
    target, longest = split.target, int(split.parts["test"].lengths.max())
    if not (season and target.is_next_step):
        return []
    needed = season + 1 - min(target.horizon or 1, season)
    if longest >= needed:
        return []
    advice = "Give longer sequences" if options.window is None else "Take longer windows (--window)"
    return [
        f"Warning: nothing is compared with values of a season, {season} rows, ago: that takes "
        f"{needed} rows, and the longest sequence of the test part has {longest}. {advice}."
    ]


def _notes_on_categories(categories: Categories) -> list[str]:
    return [
        f"Column {name!r} holds categories: an input for each of them, {some(texts, 12)}."
        for name, texts in categories
    ]


def _notes_on_missing(seen: Bools) -> list[str]:
    absent = seen.size - int(seen.sum())
    if not absent:
        return []
    share = f"{100 * absent / seen.size:.2g} %"
    return [f"{absent} of {seen.size} input values ({share}) are missing, and 0 after scaling."]


def _notes_on_scale(info: TableInfo, options: TableOptions) -> list[str]:
    if not options.scale:
        return []
    if info.y_scale is None:
        return ["Features are scaled by mean and standard deviation of the training part."]
    told = "Features and targets are scaled by mean and standard deviation of the training part"
    if len(info.outputs) == 1:
        told += f"; an error of 1 is {float(info.y_scale):.4g} of {info.outputs[0]!r}"
    return [told + "."]


def _notes_on_gaps(sequences: Sequences, info: TableInfo) -> list[str]:
    if info.options.time_unit == AUTO:
        return [
            f"A gap of 1 is {info.gap:.6g} {info.unit}, the median gap of the training part "
            "(time_unit='auto')."
        ]
    gap = median_gap(sequences)
    if SHORT_GAP <= gap <= LONG_GAP:
        return []
    return [
        f"The median gap is {gap:.3g} {info.unit}, far from the time constants of about 1 that "
        "cells begin with: time_unit='auto' would make it 1."
    ]
