"""What is asked for beside a prediction: intervals, the spread of an ensemble, tidy rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.optional_deps import require
from tauflow.batch import SequenceBatch, promote_to_float32
from tauflow.data.card import DatasetCard
from tauflow.data.table.options import FUTURE_NAME_FORMAT
from tauflow.data.table.schema import Schema
from tauflow.errors import ArgumentError
from tauflow.evaluation.certainty import Certainty
from tauflow.evaluation.conformal import check_level
from tauflow.evaluation.outputs import compute_probabilities, predict_quantiles, predict_spread
from tauflow.evaluation.thresholds import Threshold

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
                "the spread of classes is that of their probabilities. Call predict_proba (--proba)"
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
        decisions: beside probabilities, the predicted class, (B,) or (B, T).
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
    """Return probabilities or classes of logits, (..., C) or (..., 1)."""
    logits = logits.to(promote_to_float32(logits.dtype))  # probabilities have more digits than half
    probabilities = compute_probabilities(logits, task)
    if threshold is not None:
        is_told = probabilities[..., threshold.positive].double() >= threshold.value
        decisions = torch.where(is_told, threshold.positive, 1 - threshold.positive)
    else:
        decisions = (logits[..., 0] > 0).long() if task == "binary" else logits.argmax(-1)
    if form.proba or form.tidy:
        return Answer(probabilities, extras, decisions)
    return Answer(decisions)


def compute_extras(
    model: Any,
    batch: SequenceBatch,
    prediction: Tensor,
    form: AnswerForm,
    task: str,
    rest: Certainty,
) -> list[tuple[str, Tensor]]:
    """Return what goes with predictions, by name: tensors in their shape and scale.

    Args:
        model: in evaluation mode.
        batch: on the device of the model.
        prediction: of the model, on the CPU, (..., O).
        form: what is asked for.
        task: of the data.
        rest: the predictor's :class:`Certainty`.
    """
    extras: list[tuple[str, Tensor]] = []
    if form.interval is not None:
        conformal = rest.conformal
        assert conformal is not None
        learned = predict_quantiles(model, batch).cpu().double() if conformal.levels else None
        ends = conformal.interval(
            prediction.double().numpy(),
            form.interval,
            None if learned is None else learned.numpy(),
        )
        extras += zip((LOW, HIGH), map(torch.from_numpy, ends), strict=True)
    if form.spread:
        extras.append((SPREAD, predict_spread(model, batch, task).cpu()))
    return extras


def make_tidy_frame(
    wide: "DataFrame",
    keys: tuple[str, ...],
    schema: Schema,
    level: float | None,
    decisions: Any,
) -> "DataFrame":
    """Return one row for each value of a frame, or for each class.

    Of intervals there are three rows for each value, with the ``quantile`` that each is, which is
    empty of the prediction itself.

    Args:
        wide: keys in front, then columns of values, ``"x"``, ``"x low"``, ``"x high"``,
            ``"x std"``, or of probabilities of classes.
        keys: names of the columns in front.
        schema: what is known of the table.
        level: of intervals, if there are any.
        decisions: of classes, the number of the predicted one, (R,).
    """
    pandas = require("pandas", extra="tables")
    id = [] if schema.id is None else [schema.id]
    time = schema.time or "row"
    later = [key for key in keys if key not in (*id, time)]
    parts: list[DataFrame] = []
    names = schema.outputs
    size = len(names) // (schema.horizon or 1)
    for place, name in enumerate(names):
        part = wide[id].copy()
        if time in keys:
            own = later[place // size] if schema.horizon and later else (later or [time])[0]
            part[time] = _to_dates(wide[own], schema)
        if later or schema.horizon:
            part["from"] = _to_dates(wide[time], schema)
        target = name
        if schema.horizon:
            part["step"] = step = place // size + 1
            target = name.removesuffix(FUTURE_NAME_FORMAT.format("", step))
        if schema.y_scale is None:
            part["target"], part["class"] = schema.targets[0], name
            part["probability"], part["predicted"] = wide[name], decisions == place
        else:
            part["target"], part["value"] = target, wide[name]
        if f"{name} {SPREAD}" in wide:
            part[SPREAD] = wide[f"{name} {SPREAD}"]
        part["_row"] = np.arange(len(wide))
        parts += _split_by_quantile(part, wide, name, level)
    found = pandas.concat(parts, ignore_index=True).sort_values("_row", kind="stable")
    return found.drop(columns="_row").reset_index(drop=True)


def _split_by_quantile(
    part: "DataFrame", wide: "DataFrame", name: str, level: float | None
) -> list["DataFrame"]:
    """Return rows of a value three times: the lower end, the prediction, the upper end."""
    if level is None:
        return [part]
    ends = ((1 - level) / 2, f"{name} {LOW}"), (np.nan, name), ((1 + level) / 2, f"{name} {HIGH}")
    rows = []
    for quantile, column in ends:
        one = part.assign(value=wide[column])
        one.insert(one.columns.get_loc("value"), "quantile", round(quantile, 6))
        rows.append(one)
    return rows


def _to_dates(times: Any, schema: Schema) -> Any:
    """Return times of dates as such, however a table writes them; others as they are."""
    if not schema.dated or times.dtype.kind in "mM" or hasattr(times.dtype, "tz"):
        return times
    return require("pandas", extra="tables").to_datetime(times, format="ISO8601")
