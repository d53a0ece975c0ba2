"""The card of a user's own table: what its parts are, in words too."""

import numpy as np

from tauflow.data.card import DatasetCard

from .goal import Goal
from .info import TableInfo
from .options import TableOptions
from .split import Split

_LOW, _HIGH = 0.01, 100.0  # cells begin with time constants of about 1


def card_of(
    split: Split,
    options: TableOptions,
    info: TableInfo,
    *,
    name: str,
    source: str,
    time_unit: str,
    missing: tuple[int, int],
    gap: float | None,
) -> DatasetCard:
    """Return the card.

    Args:
        split: what is predicted, and the sequences of each part.
        options: what the user says of the table.
        info: inputs, outputs and their scaling.
        name: of the data.
        source: where they come from.
        time_unit: of the gaps.
        missing: how many values of features are missing, and how many there could be.
        gap: the median gap.
    """
    goal, parts = split.goal, split.parts
    measure = "accuracy" if goal.is_class else "mse"
    return DatasetCard(
        name=name,
        title=name,
        task="classify" if goal.is_class else "regress",
        input_size=len(info.inputs),
        target_size=len(info.outputs),
        time_unit=time_unit,
        sizes=(len(parts["train"]), len(parts["valid"]), len(parts["test"])),
        source=source,
        licence="not stated",
        split=split.how,
        loss="cross_entropy" if goal.is_class else measure,
        metric=measure,
        targets=info.outputs,
        per_step=goal.per_step,
        forecast=goal.is_next_step,
        notes=(
            *goal.notes,
            *_notes_on_targets(goal),
            *split.notes,
            *_notes_on_missing(missing),
            *_notes_on_scale(goal, info, options),
            *_notes_on_gaps(gap, time_unit),
        ),
    )


def _notes_on_targets(goal: Goal) -> list[str]:
    known = np.concatenate([goal.known[rows] for rows in goal.sequences.rows])
    if not goal.per_step or known.all():
        return []
    return [f"{(~known).sum()} of {known.size} targets are missing and do not count."]


def _notes_on_missing(missing: tuple[int, int]) -> list[str]:
    absent, all_of_them = missing
    if not absent:
        return []
    share = f"{100 * absent / all_of_them:.2g} %"
    return [f"{absent} of {all_of_them} input values ({share}) are missing, and 0 after scaling."]


def _notes_on_scale(goal: Goal, info: TableInfo, options: TableOptions) -> list[str]:
    if not options.scale:
        return []
    if goal.is_class:
        return ["Features are scaled by mean and standard deviation of the training part."]
    told = "Features and targets are scaled by mean and standard deviation of the training part"
    if info.y_scale is not None and len(info.outputs) == 1:
        told += f"; an error of 1 is {float(info.y_scale):.4g} of {info.outputs[0]!r}"
    return [told + "."]


def _notes_on_gaps(gap: float | None, time_unit: str) -> list[str]:
    if gap is None or _LOW <= gap <= _HIGH:
        return []
    return [
        f"The median gap is {gap:.3g} {time_unit}, far from the time constants of about 1 that "
        "cells begin with: another unit of time may train better."
    ]
