"""The ids of a table that a trained model is furthest from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow.data.card import TaskData
from tauflow.evaluation.outputs import ModelOutputs
from tauflow.evaluation.thresholds import Threshold

from .document import Listing

_MAX_IDS = 10
"""How many ids are listed at most."""


@dataclass(frozen=True, eq=False)
class SamplePredictions:
    """Predictions and targets of the test split, of the N entries that count.

    Args:
        predicted: probabilities of classes, or values in the unit of the table, (N, O).
        truth: classes, (N,), or values, (N, O), NaN where one is not known.
        sequence_index: number of the sequence that each belongs to, (N,).
    """

    predicted: Tensor
    truth: Tensor
    sequence_index: Tensor

    def choose_classes(self, threshold: Threshold | None) -> Tensor:
        """Return the predicted classes, (N,): by a threshold, or by default the most likely."""
        if threshold is None:
            return self.predicted.argmax(1)
        above = self.predicted[:, threshold.positive] >= threshold.value
        return torch.where(above, threshold.positive, 1 - threshold.positive)


def convert_outputs(outputs: ModelOutputs, data: TaskData) -> SamplePredictions:
    """Return outputs as probabilities, or in the unit of the table."""
    schema, card = data.schema, data.card
    assert schema is not None
    if card.task == "classify":
        return SamplePredictions(outputs.prediction.softmax(-1), outputs.y, outputs.sequence_index)
    predicted, truth = schema.unscale(outputs.prediction), schema.unscale(outputs.y)
    return SamplePredictions(predicted, truth, outputs.sequence_index)


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
