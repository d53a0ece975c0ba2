"""Predictions as rows of a data frame: ids and times in front."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.data.table.options import BOOLEAN_LABELS, FLOAT_LABELS, INTEGER_LABELS
from tauflow.data.table.prediction_columns import check_distinct_columns, list_key_columns
from tauflow.data.table.schema import Schema
from tauflow.data.table.table import Floats, Indices
from tauflow.data.table.times import UNITS
from tauflow.data.table.transform import NewTable

from .answer_form import Answer, AnswerForm, make_tidy_frame

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS, _DIGITS_OF_DOUBLE = 7, 15
"""How many digits of a number of single precision, and of double, are its own."""
_MAX_PLACES = 300
"""Places to which a number cannot be rounded: ten to that power is about the largest of all."""


def make_prediction_frame(
    answer: Answer,
    new_table: NewTable,
    schema: Schema,
    first: int,
    last: int,
    form: AnswerForm,
) -> "DataFrame":
    """Return the answers for sequences ``first`` to before ``last`` of a table.

    Args:
        answer: classes, probabilities or values, and what goes with them.
        new_table: the table.
        schema: what is known of the one that the model was trained on.
        first: number of the first sequence.
        last: number after that of the last one.
        form: what was asked for.

    Raises:
        ArgumentError: two columns would have one name, of a table that an older version learned.
    """
    pandas = require("pandas", extra="tables")
    part = new_table.sequences.select_range(first, last)
    # A forecast over a horizon is said to be from the last row of its window.
    places = part.ends - 1 if schema.horizon else part.starts
    rows = part.rows if schema.per_step else part.rows[places]
    before: list[Any] = []
    if schema.id is not None:
        before.append(new_table.table.get_original(schema.id, rows))
    told = None if answer.decisions is None else answer.decisions.numpy()
    columns = [answer.values.numpy(), *(values.numpy() for _, values in answer.extras)]
    if schema.per_step:
        before.append(_get_times(new_table, schema.time, rows, part.times))
        columns = [values[part.valid] for values in columns]
        told = None if told is None else told[part.valid]
    elif schema.horizon:
        before.append(_get_times(new_table, schema.time, rows, part.times[places]))
    if new_table.lead_times is not None and schema.horizon:
        latest, ahead = before[-1], new_table.lead_times[rows]
        for step in range(1, schema.horizon + 1):
            later = step * ahead if ahead.ndim == 1 else ahead[:, step - 1]
            before.append(_add_lead_time(latest, later, schema))
    elif new_table.lead_times is not None:
        before.append(_add_lead_time(before[-1], new_table.lead_times[rows], schema))
    is_class, shows_all = schema.y_scale is None, form.proba or form.tidy
    names: tuple[str, ...] = schema.outputs
    if is_class and not shows_all:
        names, predicted = schema.targets[:1], [get_classes(schema)[columns[0]]]
    else:
        digits = _DIGITS_OF_DOUBLE if new_table.x.dtype == np.float64 else _DIGITS
        shown = [one if is_class else _round_to_precision(one, schema, digits) for one in columns]
        predicted = [one[:, place] for place in range(len(names)) for one in shown]
        words = ["", *(f" {word}" for word, _ in answer.extras)]
        names = tuple(f"{name}{word}" for name in names for word in words)
    in_front = list_key_columns(schema, has_lead_times=new_table.lead_times is not None)
    check_distinct_columns(in_front, names)
    frame = pandas.DataFrame(dict(enumerate([*before, *predicted])))
    frame = frame.set_axis([*in_front, *names], axis=1)
    if not form.tidy:
        return frame
    return make_tidy_frame(frame, in_front, schema, form.interval, told)


def round_to_scale(values: Floats, scale: float) -> Floats:
    """Return inputs, scaled and scaled back in single precision, without the digits this costs."""
    if scale <= 0:
        return values
    places = _DIGITS - 1 - int(np.floor(np.log10(scale)))
    rounded: Floats = values.round(min(_MAX_PLACES, places)) + 0.0  # not -0.0
    return rounded


def _round_to_precision(values: NDArray[Any], schema: Schema, digits: int) -> Floats:
    """Return values, (..., O), without the digits that the model's precision cannot mean."""
    assert schema.y_scale is not None
    places = digits - np.floor(np.log10(schema.y_scale.numpy())).astype(int)
    rounded = [
        np.round(one, place) if place < _MAX_PLACES else one
        for one, place in zip(values.T, places.tolist(), strict=True)
    ]
    return np.stack(rounded, axis=-1)


def get_classes(schema: Schema) -> NDArray[Any]:
    """Return the classes, (C,), as what they are in the table.

    Raises:
        ValueError: the name of one cannot be read as that.
    """
    if schema.kind == BOOLEAN_LABELS:
        return np.array([("False", "True").index(name) for name in schema.outputs], np.bool_)
    if schema.kind == FLOAT_LABELS:
        return np.array(schema.outputs, np.float64)
    if schema.kind == INTEGER_LABELS:
        numbers = [int(name) for name in schema.outputs]
        fit = all(abs(number) <= np.iinfo(np.int64).max for number in numbers)
        return np.array(numbers, np.int64 if fit else object)
    return np.array(schema.outputs, object)


def _get_times(new_table: NewTable, time: str | None, rows: Indices, positions: Floats) -> Any:
    """Return the times of rows as the table has them, or which of its id each is."""
    return positions.astype(np.int64) if time is None else new_table.table.get_original(time, rows)


def _add_lead_time(times: Any, lead_times: Floats, schema: Schema) -> Any:
    """Return times that are so far ahead of those of a table, to the microsecond if dates."""
    if not schema.dated:
        whole = times.dtype.kind in "iu" and bool((lead_times == np.round(lead_times)).all())
        if whole:
            return times + lead_times.astype(np.int64)
        return times.astype(np.float64) + lead_times
    pandas = require("pandas", extra="tables")
    steps = np.round(lead_times * (UNITS[schema.unit] / np.timedelta64(1, "us"))).astype(
        "timedelta64[us]"
    )
    if times.dtype.kind in "mM":
        return times + steps
    moments = [pandas.Timestamp(time) + step for time, step in zip(times, steps, strict=True)]
    return [moment.isoformat() for moment in moments] if isinstance(times[0], str) else moments
