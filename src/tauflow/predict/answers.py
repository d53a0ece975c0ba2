"""Predictions as rows of a data frame: ids and times in front."""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tauflow.data.table.like import NewTable
from tauflow.data.table.options import TableInfo
from tauflow.extras import require

if TYPE_CHECKING:
    from pandas import DataFrame


def answers_of(
    found: Tensor, read: NewTable, info: TableInfo, first: int, last: int, *, proba: bool
) -> "DataFrame":
    """Return the answers for sequences ``first`` to before ``last`` of a table.

    Args:
        found: classes, (B,) or (B, T); or chances of them, or values, (B, O) or (B, T, O).
        read: the table.
        info: what is known of the one that the model was trained on.
        first: number of the first sequence.
        last: number after that of the last one.
        proba: whether ``found`` says how likely each class is.
    """
    pandas = require("pandas", extra="tables")
    part, options = read.sequences.among(first, last), info.options
    rows = part.rows if read.card.per_step else part.rows[part.starts]
    columns: list[tuple[str, Any]] = [(options.id, read.sheet.columns[options.id][rows])]
    values = found.numpy()
    if read.card.per_step:
        columns.append(_times(read, info, rows, part.times))
        values = values[part.valid()]
    if info.y_scale is None and not proba:
        columns.append((str(options.target), np.array(info.outputs, object)[values]))
    else:
        columns += zip(info.outputs, values.T, strict=True)
    frame = pandas.DataFrame(dict(enumerate(column for _, column in columns)))
    return frame.set_axis([name for name, _ in columns], axis=1)


def _times(read: NewTable, info: TableInfo, rows: Any, counted: Any) -> tuple[str, Any]:
    """Return the times of rows as the table has them, or which of its id each is."""
    if info.options.time is None:
        return "row", counted.astype(np.int64)
    return info.options.time, read.sheet.columns[info.options.time][rows]
