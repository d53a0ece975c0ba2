"""Answers of a predictor: what is asked for, and frames with ids and times in front."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.optional_deps import require
from tauflow.batch import SequenceBatch, promote_to_float32
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.evaluation.certainty import Certainty
from tauflow.evaluation.conformal import check_level
from tauflow.evaluation.outputs import compute_probabilities, predict_quantiles, predict_spread
from tauflow.evaluation.thresholds import Threshold
from tauflow.evaluation.tidy import make_tidy_frame
from tauflow.tabular.cell_values import Floats, Indices
from tauflow.tabular.options import FUTURE_NAME_FORMAT
from tauflow.tabular.prediction_columns import check_distinct_columns, list_key_columns
from tauflow.tabular.schema import Schema
from tauflow.tabular.shift import compute_excess
from tauflow.tabular.times import UNITS
from tauflow.tabular.transform import NewTable

from .decode import (
    DIGITS,
    DIGITS_OF_DOUBLE,
    get_classes,
    list_targets,
    round_to_precision,
)

if TYPE_CHECKING:
    from pandas import DataFrame

LOW, HIGH, SPREAD = "low", "high", "std"
"""What stands after the name of a value for the ends of its interval, and its spread."""


@dataclass(frozen=True)
class AnswerForm:
    """What is asked for of a predictor.

    Args:
        proba: probabilities of all classes, rather than the class.
        interval: share of the targets that intervals are to hold; ``None`` for none.
        spread: standard deviations over the members of an ensemble.
        tidy: one row for each value, or class.
    """

    proba: bool = False
    interval: float | None = None
    spread: bool = False
    tidy: bool = False

    def check(self, card: DatasetCard, certainty: Certainty) -> None:
        """Raise :class:`ArgumentError` unless a predictor can answer so."""
        is_value = card.task == "regress"
        if self.proba and is_value:
            raise ArgumentError(
                f"the targets of {card.name!r} are values and no classes, so that there are "
                "no probabilities of them. Call predict (leave out --proba)."
            )
        if self.spread and not (self.proba or self.tidy or is_value):
            raise ArgumentError(
                "the spread of classes is that of their probabilities. Call predict_proba "
                "(--proba)."
            )
        if self.interval is None:
            return
        check_level(self.interval)
        if not is_value:
            raise ArgumentError(
                f"intervals are of values, and the targets of {card.name!r} are classes. Call "
                "predict_proba (--proba), which says how sure each is."
            )
        if certainty.conformal is None:
            raise ArgumentError(
                "this predictor has no intervals: it was made without validation data to learn "
                "them from. Train again ('tauflow run' learns them), or make it by "
                "Predictor.from_data(model, data, intervals=True)."
            )


@dataclass(frozen=True)
class Answer:
    """What is predicted of a batch.

    Args:
        values: classes, (B,) or (B, T); probabilities of them, or values, (B, O) or (B, T, O).
        extras: what goes with probabilities or values, by name, in their shape.
        decisions: beside probabilities, the predicted class, (B,) or (B, T); of several labels
            (..., S).
    """

    values: Tensor
    extras: Sequence[tuple[str, Tensor]] = ()
    decisions: Tensor | None = None

    def stack(self) -> Tensor:
        """Return all in one tensor: along a last axis if there are extras."""
        if not self.extras:
            return self.values
        return torch.stack([self.values, *(value for _, value in self.extras)], -1)


def make_class_answer(
    logits: Tensor,
    extras: Sequence[tuple[str, Tensor]],
    form: AnswerForm,
    task: str,
    threshold: Threshold | None,
) -> Answer:
    """Return probabilities or classes of logits, (..., C), or (..., S) of labels."""
    logits = logits.to(promote_to_float32(logits.dtype))  # probabilities have more digits than half
    probabilities = compute_probabilities(logits, task)
    if threshold is not None:
        is_told = probabilities[..., threshold.positive].double() >= threshold.value
        decisions = torch.where(is_told, threshold.positive, 1 - threshold.positive)
    else:
        decisions = (logits > 0).long() if task == "binary" else logits.argmax(-1)
    if decisions.ndim == logits.ndim and logits.shape[-1] == 1:
        decisions = decisions.squeeze(-1)
    if form.proba or form.tidy:
        return Answer(probabilities, extras, decisions)
    return Answer(decisions)


def compute_extras(
    model: Any,
    batch: SequenceBatch,
    prediction: Tensor,
    form: AnswerForm,
    task: str,
    certainty: Certainty,
    schema: Schema | None,
) -> list[tuple[str, Tensor]]:
    """Return what goes with predictions, (..., O), on the CPU: tensors in their shape and scale.

    The model is in evaluation mode, and the batch on its device.
    """
    extras: list[tuple[str, Tensor]] = []
    if form.interval is not None:
        conformal, quantiles = certainty.conformal, None
        assert conformal is not None  # as the form was checked
        if conformal.levels:
            quantiles = predict_quantiles(model, batch).cpu().double().numpy()
        outside = None if schema is None else _find_outside(schema, batch, prediction)
        ends = conformal.interval(prediction.double().numpy(), form.interval, quantiles, outside)
        extras += zip((LOW, HIGH), map(torch.from_numpy, ends), strict=True)
    if form.spread:
        extras.append((SPREAD, predict_spread(model, batch, task).cpu()))
    return extras


def _find_outside(schema: Schema, batch: SequenceBatch, prediction: Tensor) -> NDArray[np.bool_]:
    """Return whether inputs lie outside the range of the training, in the shape of predictions.

    That is where a feature to forecast does, or any other one by more than one standard deviation.
    """
    x = schema.unscale_inputs(batch.x).cpu().double().numpy()
    excess = compute_excess(schema.summary, schema.inputs, x)
    outside = (excess > 1).any(axis=-1, keepdims=True)
    if schema.ahead is not None:  # targets are the first inputs
        count = len(schema.outputs) // (schema.horizon or 1)
        outside = np.tile(outside | (excess[..., :count] > 0), schema.horizon or 1)
    outside = np.logical_or.accumulate(outside, axis=1)
    outside = outside if prediction.ndim == 3 else outside[:, -1]
    return np.broadcast_to(outside, prediction.shape)


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
    rows, positions = part.rows[places], part.times[places]
    shown = [answer.values.numpy(), *(values.numpy() for _, values in answer.extras)]
    decisions = None if answer.decisions is None else answer.decisions.numpy()
    if schema.per_step:
        rows, positions = part.rows, part.times
        shown = [values[part.valid] for values in shown]
        decisions = None if decisions is None else decisions[part.valid]
    before = list(get_keys(new_table, rows, positions).values())
    if not (schema.per_step or schema.horizon):
        del before[-1]
    elif new_table.lead_times is not None:
        latest, ahead = before[-1], new_table.lead_times[rows]
        for step in range(1, (schema.horizon or 1) + 1):
            later = step * ahead if ahead.ndim == 1 else ahead[:, step - 1]
            before.append(_add_lead_time(latest, later, schema))
    keys = list_key_columns(schema, has_lead_times=new_table.lead_times is not None)
    digits = DIGITS_OF_DOUBLE if new_table.x.dtype == np.float64 else DIGITS
    names, columns = _make_columns(shown, answer, schema, form, digits)
    check_distinct_columns(keys, names)
    if form.tidy:
        columns, names = [], ()
    frame = pandas.DataFrame(dict(enumerate([*before, *columns])), index=range(len(rows)))
    frame = frame.set_axis([*keys, *names], axis=1)
    return _make_tidy(frame, shown, schema, form, decisions) if form.tidy else frame


def _make_columns(
    shown: list[NDArray[Any]], answer: Answer, schema: Schema, form: AnswerForm, digits: int
) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Return names and columns of answers; values among these are rounded, in ``shown`` too."""
    names, is_value = schema.outputs, not (schema.is_class or schema.labels)
    if not (is_value or form.proba or form.tidy):
        targets = list_targets(schema)
        codes = shown[0].reshape(-1, len(targets)).T
        columns = [
            get_classes(target.kind, target.classes)[code]
            for target, code in zip(targets, codes, strict=True)
        ]
        return schema.targets, columns
    if schema.labels:
        names = tuple(f"{label.name} {text}" for label in schema.labels for text in label.classes)
    if is_value:
        shown[:] = [round_to_precision(values, schema, digits) for values in shown]
    columns = [values[:, place] for place in range(len(names)) for values in shown]
    words = ["", *(f" {word}" for word, _ in answer.extras)]
    return tuple(f"{name}{word}" for name in names for word in words), columns


def _make_tidy(
    front: "DataFrame",
    shown: list[NDArray[Any]],
    schema: Schema,
    form: AnswerForm,
    decisions: Any,
) -> "DataFrame":
    """Return one row for each value, of intervals for each quantile, or for each class.

    Args:
        front: id and times, R rows.
        shown: values or probabilities, (R, O), their ends and their spread, as was asked for.
        schema: what is known of the table.
        form: what was asked for.
        decisions: of classes, the number of the predicted one, (R,); of several labels (R, S).
    """
    pandas = require("pandas", extra="tables")
    time, names = schema.time or "row", schema.outputs
    later = [key for key in front if key not in (schema.id, time)]
    cases = front[[] if schema.id is None else [schema.id]].copy()
    dates = {key: _to_dates(front[key], schema) for key in (time, *later) if key in front}
    if dates:
        cases[time] = dates[later[0] if later else time]
    if later or schema.horizon:
        cases["from"] = dates[time]
    steps = np.arange(len(names)) // (len(names) // (schema.horizon or 1))
    std = shown.pop() if form.spread else None
    if schema.is_class or schema.labels:
        pairs = [(label.name, text) for label in list_targets(schema) for text in label.classes]
        columns: dict[str, Any] = {
            "target": [name for name, _ in pairs],
            "class": [text for _, text in pairs],
        }
        frame = make_tidy_frame(cases, columns, shown, name="probability")
        classes = np.arange(2 if schema.labels else len(names))
        frame["predicted"] = (classes == decisions[..., None]).ravel()
        return frame if std is None else frame.assign(**{SPREAD: std.ravel()})
    columns = {"target": names}
    if schema.horizon:
        endings = (FUTURE_NAME_FORMAT.format("", step + 1) for step in steps)
        plain = [name.removesuffix(end) for name, end in zip(names, endings, strict=True)]
        columns = {"step": steps + 1, "target": plain}
    frame = make_tidy_frame(cases, columns, shown, interval=form.interval, std=std)
    if schema.horizon and later:
        each = len(frame) // (len(front) * len(names))
        of_steps = pandas.concat([dates[key] for key in later], ignore_index=True)
        places = np.arange(len(front))[:, None] + len(front) * steps
        frame[time] = of_steps.iloc[np.repeat(places.ravel(), each)].array
    return frame


def get_keys(new_table: NewTable, rows: Indices, positions: Floats) -> dict[str, Any]:
    """Return ids, if there are any, and times of rows as the table has them, by column.

    Without times it is which row of its id each is, which its position says.
    """
    schema, table = new_table.schema, new_table.table
    keys = {name: table.get_original(name, rows) for name in (schema.id, schema.time) if name}
    return keys if schema.time else {**keys, "row": positions.astype(np.int64)}


def _add_lead_time(times: Any, lead_times: Floats, schema: Schema) -> Any:
    """Return times that are so far ahead of those of a table, to the microsecond if dates."""
    if not schema.dated:
        are_whole = times.dtype.kind in "iu" and bool((lead_times == np.round(lead_times)).all())
        if are_whole:
            # int64 beside uint64 would become float64, which has fewer digits.
            return times + lead_times.astype(np.uint64 if times.dtype.kind == "u" else np.int64)
        return times.astype(np.float64) + lead_times
    pandas = require("pandas", extra="tables")
    steps = np.round(lead_times * (UNITS[schema.unit] / np.timedelta64(1, "us"))).astype(
        "timedelta64[us]"
    )
    if times.dtype.kind in "mM":
        return times + steps
    moments = [pandas.Timestamp(time) + step for time, step in zip(times, steps, strict=True)]
    return [moment.isoformat() for moment in moments] if isinstance(times[0], str) else moments


def _to_dates(times: Any, schema: Schema) -> Any:
    """Return times of dates as such, however a table writes them; others as they are."""
    if not schema.dated or times.dtype.kind in "mM" or hasattr(times.dtype, "tz"):
        return times
    return require("pandas", extra="tables").to_datetime(times, format="ISO8601")
