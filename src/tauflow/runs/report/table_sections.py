"""What a report says of a table of a user's own: its columns, its errors, and how to go on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow._internal.sanitize import format_count
from tauflow.data.card import DatasetCard, TaskData
from tauflow.evaluation.thresholds import Threshold
from tauflow.export.files import PREDICTOR
from tauflow.runs.baselines import (
    compute_missing_season_share,
    has_naive_forecasts,
    make_seasonal_naive,
)
from tauflow.runs.task import TaskRun
from tauflow.tabular.options import FUTURE_NAME_FORMAT, INDICATOR_NAME_FORMAT, LEAD_TIME_INPUT
from tauflow.tabular.schema import Schema

from .document import Pairs
from .sample_predictions import SamplePredictions, predict_samples

_MAX_IDS = 10
_MAX_NAMES = 30
"""How many ids, or features, are listed at most."""


@dataclass(frozen=True)
class Listing:
    """A small table of a report.

    Args:
        title: its heading.
        headers: of the columns, of which the first holds names.
        rows: their texts.
        caption: what they mean.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def make_predict_command(run: TaskRun) -> str:
    """Return the command that uses the model of a run on another table; nothing if none can.

    Of a forecast with any gaps, the next row is looked for as far ahead as rows are on average.
    """
    schema = run.data.schema
    if schema is None or not (run.directory / PREDICTOR).is_file():
        return ""
    words = ["tauflow", "predict", str(run.directory)]
    words += ["--csv", "new.csv", "--out", "predictions.csv"]
    if LEAD_TIME_INPUT in schema.inputs and not schema.known:
        words += ["--lead-time", f"{schema.ahead:.4g}"]
    return shlex.join(words)


def describe_needed_columns(data: TaskData) -> str:
    """Return what a table must hold for the model to predict from it."""
    schema, card = data.schema, data.card
    assert schema is not None
    if not card.forecast:
        return "The new table has the columns of this one; the target is not needed."
    features = schema.inputs[: card.target_size // (card.horizon or 1)]
    names = _join_names(schema.targets or features)
    told = f"The new table has the columns of this one, among them {names}, without which nothing "
    told += "can be predicted."
    if not schema.known:
        return told
    count, of = card.horizon or 1, "" if schema.id is None else " of each id"
    said = _join_names([*filter(None, [schema.time]), *schema.known])
    if count == 1:
        return f"{told} The last row{of} is the one to predict: with {said}, and {names} empty."
    return (
        f"{told} {'Its' if not of else 'The'} last {format_count(count, 'row')}{of} are those to "
        "predict: with "
        f"{said}, and {names} empty."
    )


def _join_names(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    *first, last = names if len(names) <= _MAX_NAMES else [*names[:_MAX_NAMES], "others"]
    return f"{', '.join(first)} and {last}" if first else last


def describe_columns(data: TaskData) -> Pairs:
    """Return what was made of the columns of a table."""
    schema, card = data.schema, data.card
    assert schema is not None
    options, targets = schema, schema.targets
    shares = _compute_missing_shares(data, schema)
    told = [f"{name} ({100 * share:.2g} % missing)" if share else name for name, share in shares]
    rest = [f"and {len(told) - _MAX_NAMES} more"] if len(told) > _MAX_NAMES else []
    train, valid, test = card.sizes
    known = [
        ("task", f"{schema.task}, {_describe_targets(card)}"),
        ("id", options.id),
        ("time", _describe_time(schema)),
        ("a time step of 1", card.time_unit),
        ("group", options.group),
        ("target", ", ".join(targets) or "the next values of all features"),
        ("classes", ", ".join(schema.outputs[:_MAX_NAMES]) if schema.y_scale is None else None),
        *((f"classes of {label.name}", ", ".join(label.classes)) for label in schema.labels),
        ("features", ", ".join(told[:_MAX_NAMES] + rest)),
        ("other inputs", ", ".join(name for name in schema.inputs if name not in dict(shares))),
        ("sequences", f"{train} for training, {valid} for validation, {test} for the test"),
        ("split", card.split),
    ]
    return [(name, text) for name, text in known if text]


def _describe_targets(card: DatasetCard) -> str:
    """Return what there is a target for."""
    if card.horizon:
        return f"the {_format_rows(card.horizon)} after each window"
    return f"one target per {'row' if card.per_step else 'id'}"


def _format_rows(count: int) -> str:
    return "row" if count == 1 else f"{format_count(count, 'row')}"


def _describe_time(schema: Schema) -> str:
    if schema.time is None:
        return "none: rows are one step apart"
    kind = "dates, counted in" if schema.dated else "numbers, in"
    return f"{schema.time} ({kind} {schema.unit})"


def _compute_missing_shares(data: TaskData, schema: Schema) -> list[tuple[str, float]]:
    """Return the features, and the share of the rows of all parts in which each is missing."""
    added = {LEAD_TIME_INPUT, *map(INDICATOR_NAME_FORMAT.format, schema.inputs)}
    added |= {
        FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, step)
        for step in range(1, (data.card.horizon or 0) + 1)
    }
    names = [name for name in schema.inputs if name not in added]
    rows, absent = 0, torch.zeros(len(names))
    for part in (data.train, data.valid, data.test):
        if part is None:
            continue
        there = torch.ones(part.x.shape[:2], dtype=torch.bool) if part.mask is None else part.mask
        rows += int(there.sum())
        for place, name in enumerate(names):
            if part.observed is not None:
                absent[place] += (~part.observed[..., place] & there).sum()
            elif INDICATOR_NAME_FORMAT.format(name) in schema.inputs:
                measured = part.x[..., schema.inputs.index(INDICATOR_NAME_FORMAT.format(name))] > 0
                absent[place] += (~measured & there).sum()
    return list(zip(names, (absent / max(rows, 1)).tolist(), strict=True))


def list_target_errors(predictions: SamplePredictions, data: TaskData) -> list[Listing]:
    """List the error of every target in its own unit; nothing of a single one, or of classes.

    First comes what is far off for how much it varies; of a forecast over a horizon, the next row.
    """
    schema = data.schema
    assert schema is not None
    if schema.y_scale is None or schema.y_mean is None or len(schema.outputs) < 2:
        return []
    ours = (predictions.predicted - predictions.truth).square().nanmean(0).sqrt()
    mean = (schema.y_mean.to(predictions.truth) - predictions.truth).square().nanmean(0).sqrt()
    scores, order = {"model": ours, "training mean": mean}, (ours / schema.y_scale).argsort()
    title, caption = "Errors of each target", "the worst first"
    places = order.flip(0).tolist()
    if data.card.horizon:
        title, caption = "Errors by horizon", "the next row first"
        if has_naive_forecasts(data):
            caption += "; persistence: the last measured value"
            scores["persistence"] = _compute_repetition_error(1, predictions, data)
        lacking, season = compute_missing_season_share(data), data.card.season
        if lacking < 1:
            scores["seasonal naive"] = _compute_repetition_error(season, predictions, data)
            caption += f"; seasonal naive: the value {format_count(season, 'row')} earlier"
            caption += ", or persistence where a window holds none" if lacking else ""
        places = list(range(len(ours)))
    rows = [[schema.outputs[n], *(f"{one[n]:.4g}" for one in scores.values())] for n in places]
    caption = f"Root mean squared test errors in units of the table, {caption}."
    return [Listing(title, ("target", *scores), rows, caption)]


def _compute_repetition_error(rows: int, predictions: SamplePredictions, data: TaskData) -> Tensor:
    """Return the error of values that come again after so many rows, for each target."""
    again = predict_samples(make_seasonal_naive(data, rows), data).predicted
    return (again - predictions.truth).square().nanmean(0).sqrt()


def list_worst_ids(
    predictions: SamplePredictions, data: TaskData, threshold: Threshold | None = None
) -> list[Listing]:
    """List the ids of the test split that are predicted worst; of classes, those with errors.

    An id that was cut into windows is listed once, and a single one not at all. A threshold
    decides which class is predicted; without one the most likely one is.
    """
    schema = data.schema
    assert schema is not None
    ids = list(dict.fromkeys(schema.ids["test"]))
    if len(ids) < 2:
        return []
    places = {name: place for place, name in enumerate(ids)}
    owners = torch.tensor([places[name] for name in schema.ids["test"]])[predictions.sequence_index]
    if schema.y_scale is None:
        each = predictions.predicted.gather(1, predictions.truth.unsqueeze(1)).squeeze(1)
        scores = _average_by_sequence(each, owners, len(ids))
        wrong = predictions.choose_classes(threshold) != predictions.truth
        scores[_average_by_sequence(wrong.double(), owners, len(ids)) == 0] = torch.nan
        order = scores.argsort()
        headers = ("id", "probability of the true class")
        caption = "Test ids with a wrong answer, by the predicted probability of the true class"
        caption += ", on average over its rows." if data.card.per_step else "."
    else:
        scaled = (predictions.predicted - predictions.truth) / schema.y_scale
        scores = _average_by_sequence(scaled.square().nanmean(1), owners, len(ids)).sqrt()
        order = scores.argsort(descending=True)
        headers = ("id", "error")
        caption = "Test ids by root mean squared error, in standard deviations of the targets."
        if len(schema.outputs) == 1:
            scores = scores * float(schema.y_scale)
            caption = f"Test ids by root mean squared error, in units of {schema.outputs[0]!r}."
    rows = [[ids[n], f"{scores[n]:.4g}"] for n in order.tolist() if not scores[n].isnan()]
    return [Listing("Worst ids", headers, rows[:_MAX_IDS], caption)] if rows else []


def _average_by_sequence(scores: Tensor, sequence_index: Tensor, count: int) -> Tensor:
    """Return the mean of scores for each sequence, NaN of one without any."""
    there = ~scores.isnan()
    total = torch.zeros(count, dtype=torch.float64)
    total.index_add_(0, sequence_index[there], scores[there].double())
    return total / torch.bincount(sequence_index[there], minlength=count)
