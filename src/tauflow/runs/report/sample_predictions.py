"""What a trained model makes of the test part of a table, entry by entry."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tauflow.data.card import TaskData
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.metrics import predict

_BATCH_SIZE = 512


@dataclass(frozen=True, eq=False)
class SamplePredictions:
    """Predictions and targets of the test part, of the N entries that count.

    Args:
        predicted: probabilities of classes, or values in the unit of the table, (N, O).
        truth: classes, (N,), or values, (N, O), NaN where one is not known.
        sequence_index: number of the sequence that each belongs to, (N,).
    """

    predicted: Tensor
    truth: Tensor
    sequence_index: Tensor


@torch.no_grad()
def predict_samples(model: nn.Module, data: TaskData) -> SamplePredictions:
    """Return what a model makes of the test part of a user's own table."""
    schema, card = data.schema, data.card
    assert schema is not None
    parts = []
    for first in range(0, len(data.test), _BATCH_SIZE):
        batch = data.test[first : first + _BATCH_SIZE]
        with evaluation_mode(model):
            found = predict(model, batch)
        owners = first + torch.arange(len(batch))
        y = batch.y
        if card.task == "classify":
            found = found.softmax(-1)
        else:
            found, y = schema.unscale(found), schema.unscale(y)
        if card.per_step:
            counts = batch.mask if batch.y_mask is None else batch.y_mask
            counts = torch.ones(found.shape[:2], dtype=torch.bool) if counts is None else counts
            if counts.ndim == 3:
                y, counts = y.masked_fill(~counts, torch.nan), counts.any(-1)
            owners = owners[:, None].expand(counts.shape)[counts]
            found, y = found[counts], y[counts]
        elif (known := batch.sequence_target_mask) is not None:
            y = y.masked_fill(~known, torch.nan)
        parts.append((found, y, owners))
    return SamplePredictions(*map(torch.cat, zip(*parts, strict=True)))
