"""What a trained model makes of the test split of a table, entry by entry."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tauflow.data.card import TaskData
from tauflow.evaluation.outputs import ModelOutputs, collect_outputs
from tauflow.evaluation.thresholds import Threshold


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


def predict_samples(model: nn.Module, data: TaskData) -> SamplePredictions:
    """Return what a model makes of the test split of a user's own table."""
    return convert_outputs(collect_outputs(model, data.test), data)


def convert_outputs(found: ModelOutputs, data: TaskData) -> SamplePredictions:
    """Return outputs as probabilities, or in the unit of the table."""
    schema, card = data.schema, data.card
    assert schema is not None
    if card.task == "classify":
        return SamplePredictions(found.prediction.softmax(-1), found.y, found.sequence_index)
    predicted, truth = schema.unscale(found.prediction), schema.unscale(found.y)
    return SamplePredictions(predicted, truth, found.sequence_index)
