"""What a model makes of a part of the data, entry by entry, beside the targets."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError
from tauflow.models import Calibrated, Ensemble
from tauflow.training.elementwise import select_entries
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict

_BATCH_SIZE = 512


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Outputs and targets of the N entries of a part that count.

    Args:
        prediction: logits or scaled values, (N, O).
        y: classes, (N,), or scaled values, (N, O), NaN where one is not known.
        sequence_index: number of the sequence that each belongs to, (N,).
        quantiles: of scaled values, (N, O, Q); ``None`` of a model that learned none.
    """

    prediction: Tensor
    y: Tensor
    sequence_index: Tensor
    quantiles: Tensor | None = None


def has_quantiles(model: nn.Module) -> bool:
    """Whether a model has learned quantiles beside its predictions."""
    return bool(getattr(model, "quantile_levels", ()))


def predict_quantiles(model: nn.Module, batch: SequenceBatch) -> Tensor:
    """Return the quantiles that a model has learned, (..., O, Q)."""
    options = {} if batch.observed is None else {"observed": batch.observed}
    quantiles: Tensor = model.quantiles(batch.x, dt=batch.dt, mask=batch.mask, **options)  # type: ignore[operator]
    return quantiles


def predict_spread(model: nn.Module, batch: SequenceBatch, task: str = "regress") -> Tensor:
    """Return the standard deviation of the answers of an ensemble's members, (..., O).

    Args:
        model: an ensemble, calibrated or not.
        batch: the sequences.
        task: of values, or of classes, whose probabilities are then compared, (..., C).

    Raises:
        ArgumentError: the model is no ensemble.
    """
    ensemble = model.model if isinstance(model, Calibrated) else model
    if not isinstance(ensemble, Ensemble):
        raise ArgumentError(
            f"the spread is that of the members of an ensemble, and the model is a single "
            f"{type(model).__name__}. Train with ensemble=5 (--ensemble 5)."
        )
    options = {} if batch.observed is None else {"observed": batch.observed}
    members = ensemble.predict_members(batch.x, dt=batch.dt, mask=batch.mask, **options)
    if isinstance(model, Calibrated):
        members = model.correct(members)
    members = members if task == "regress" else compute_probabilities(members, task)
    return members.std(0, correction=0)


def compute_probabilities(logits: Tensor, task: str) -> Tensor:
    """Return the probabilities of all classes, (..., C), of logits; of labels (..., 2 S)."""
    if task == "binary":
        yes = logits.sigmoid()
        return torch.stack([1 - yes, yes], -1).flatten(-2)
    return logits.softmax(-1)


@torch.no_grad()
def predict_split(
    model: nn.Module, data: SequenceBatch, *, with_quantiles: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return what a model predicts of a whole part of the data, on the CPU.

    Args:
        model: the model, which may be on another device.
        data: the part.
        with_quantiles: whether to return the quantiles too, if the model has learned some.

    Returns:
        Predictions, (B, T, O) or (B, O), and quantiles, (B, T, O, Q) or (B, O, Q).
    """
    with_quantiles = with_quantiles and has_quantiles(model)
    device = next(model.parameters(), torch.empty(0)).device
    predictions, quantiles = [], []
    with evaluation_mode(model):
        for first in range(0, len(data), _BATCH_SIZE):
            batch = data[first : first + _BATCH_SIZE].to(device)
            predictions.append(predict(model, batch).cpu())
            if with_quantiles:
                quantiles.append(predict_quantiles(model, batch).cpu())
    return torch.cat(predictions), torch.cat(quantiles) if quantiles else None


def collect_outputs(
    model: nn.Module, data: SequenceBatch, *, with_quantiles: bool = False
) -> ModelOutputs:
    """Return what :func:`predict_split` does of the entries that count, with their targets."""
    prediction, quantiles = predict_split(model, data, with_quantiles=with_quantiles)
    entries = select_entries("a prediction", prediction, data, mark_unknown=True)
    y = entries.y.reshape(entries.prediction.shape) if entries.y.is_floating_point() else entries.y
    if quantiles is not None:
        valid = entries.valid
        quantiles = quantiles.flatten(0, -3) if valid is None else quantiles[valid]
    return ModelOutputs(entries.prediction, y, entries.expand(torch.arange(len(data))), quantiles)
