"""Predictions as rows of a data frame: ids and times in front."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tauflow.data.table.answer_names import names_before, refuse_same
from tauflow.data.table.info import TableInfo
from tauflow.data.table.like import NewTable
from tauflow.data.table.options import NUMBERS, TRUTHS, WHOLE
from tauflow.data.table.sheet import Floats, Indices
from tauflow.data.table.times import UNITS
from tauflow.extras import require

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS, _DIGITS_OF_DOUBLE = 7, 15
"""How many digits of a number of single precision, and of double, are its own."""
_MOST = 300
"""Places to which a number cannot be rounded: ten to that power is about the largest of all."""


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

    Raises:
        ArgumentError: two columns would have one name, of a table that an older version learned.
    """
    pandas = require("pandas", extra="tables")
    part, options = read.sequences.among(first, last), info.options
    # A forecast over a horizon is said to be from the last row of its window.
    places = part.ends - 1 if read.card.horizon else part.starts
    rows = part.rows if read.card.per_step else part.rows[places]
    before: list[Any] = []
    if options.id is not None:
        before.append(read.sheet.given(options.id, rows))
    values = found.numpy()
    if read.card.per_step:
        before.append(_times(read, options.time, rows, part.times))
        values = values[part.valid()]
    elif read.card.horizon:
        before.append(_times(read, options.time, rows, part.times[places]))
    if read.ahead is not None and read.card.horizon:
        latest, ahead = before[-1], read.ahead[rows]
        for step in range(1, read.card.horizon + 1):
            later = step * ahead if ahead.ndim == 1 else ahead[:, step - 1]
            before.append(_later(latest, later, info))
    elif read.ahead is not None:
        before.append(_later(before[-1], read.ahead[rows], info))
    if info.y_scale is None and not proba:
        names: tuple[str, ...] = options.targets[:1]
        predicted = [classes_of(info)[values]]
    else:
        digits = _DIGITS_OF_DOUBLE if read.x.dtype == np.float64 else _DIGITS
        names = info.outputs
        predicted = list(values.T if proba else _plain(values, info, digits).T)
    in_front = names_before(options, read.card, ahead=read.ahead is not None)
    refuse_same(in_front, names)
    frame = pandas.DataFrame(dict(enumerate([*before, *predicted])))
    return frame.set_axis([*in_front, *names], axis=1)


def _plain(values: NDArray[Any], info: TableInfo, digits: int) -> Floats:
    """Return values, (..., O), without the digits that the model's precision cannot mean."""
    assert info.y_scale is not None
    places = digits - np.floor(np.log10(info.y_scale.numpy())).astype(int)
    rounded = [
        np.round(one, place) if place < _MOST else one
        for one, place in zip(values.T, places.tolist(), strict=True)
    ]
    return np.stack(rounded, axis=-1)


def classes_of(info: TableInfo) -> NDArray[Any]:
    """Return the classes, (C,), as what they are in the table.

    Raises:
        ValueError: the name of one cannot be read as that.
    """
    if info.kind == TRUTHS:
        return np.array([("False", "True").index(name) for name in info.outputs], np.bool_)
    if info.kind == NUMBERS:
        return np.array(info.outputs, np.float64)
    if info.kind == WHOLE:
        numbers = [int(name) for name in info.outputs]
        fit = all(abs(number) <= np.iinfo(np.int64).max for number in numbers)
        return np.array(numbers, np.int64 if fit else object)
    return np.array(info.outputs, object)


def _times(read: NewTable, time: str | None, rows: Indices, counted: Floats) -> Any:
    """Return the times of rows as the table has them, or which of its id each is."""
    return counted.astype(np.int64) if time is None else read.sheet.given(time, rows)


def _later(times: Any, ahead: Floats, info: TableInfo) -> Any:
    """Return times that are so far ahead of those of a table, to the microsecond if dates."""
    if not info.dated:
        whole = times.dtype.kind in "iu" and bool((ahead == np.round(ahead)).all())
        if whole:
            return times + ahead.astype(np.int64)
        return times.astype(np.float64) + ahead
    pandas = require("pandas", extra="tables")
    steps = np.round(ahead * (UNITS[info.unit] / np.timedelta64(1, "us"))).astype("timedelta64[us]")
    if times.dtype.kind in "mM":
        return times + steps
    moments = [pandas.Timestamp(time) + step for time, step in zip(times, steps, strict=True)]
    return [moment.isoformat() for moment in moments] if isinstance(times[0], str) else moments
