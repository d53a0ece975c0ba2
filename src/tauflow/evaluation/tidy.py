"""Answers as tidy frames: one row for each case and output, and of intervals for each quantile."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame


def make_tidy_frame(
    cases: "DataFrame",
    outputs: Mapping[str, Sequence[Any]],
    values: Sequence[NDArray[Any]],
    *,
    interval: float | None = None,
    std: NDArray[Any] | None = None,
    name: str = "value",
) -> "DataFrame":
    """Return columns of cases and outputs, ``quantile`` of intervals, the value, and ``std``.

    Args:
        cases: columns that say what each of R answers is for.
        outputs: columns that say what each of O outputs is, (O,) each.
        values: answers, (R, O), and of intervals the lower and the upper ends.
        interval: share that intervals are to hold; ``None`` without. The quantile of the answer
            itself is empty.
        std: standard deviations, (R, O).
        name: of the column of values.
    """
    levels, order = [np.nan], [0]
    if interval is not None:
        levels, order = [(1 - interval) / 2, np.nan, (1 + interval) / 2], [1, 0, 2]
    (count, size), height = values[0].shape, len(levels)
    frame = cases.iloc[np.repeat(np.arange(count), size * height)].reset_index(drop=True)
    for column, column_values in outputs.items():
        frame[column] = np.tile(np.repeat(np.array(column_values), height), count)
    if interval is not None:
        frame["quantile"] = np.tile(np.round(levels, 6), count * size)
    frame[name] = np.stack([values[place] for place in order], -1).ravel()
    if std is not None:
        frame["std"] = np.repeat(std.ravel(), height)
    return frame
