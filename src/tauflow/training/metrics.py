"""Metrics by name, and their exact value over a whole split."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.registry import Registry

from .losses import binary_cross_entropy, cross_entropy, squared_error
from .score import Score


def absolute_error(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the absolute error of every output."""
    return F.l1_loss(prediction, y.view_as(prediction), reduction="none")


def correct_class(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the largest logit is that of the true class, else 0."""
    return (prediction.argmax(-1) == y).to(prediction.dtype)


def correct_side(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the logit is on the side of zero that the target, 0 or 1, says, else 0."""
    return ((prediction > 0) == (y.view_as(prediction) > 0.5)).to(prediction.dtype)


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "mae": Score("mae", "values", absolute_error),
        "accuracy": Score("accuracy", "classes", correct_class, higher_is_better=True),
        "binary_accuracy": Score("binary_accuracy", "binary", correct_side, higher_is_better=True),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
    },
)
"""Metrics that training knows by name; add one with ``METRICS.add(name, Score(...))``."""


def predict(model: nn.Module, batch: SequenceBatch) -> Tensor:
    """Call a model on a batch and return its predictions without its final state."""
    options = {} if batch.observed is None else {"observed": batch.observed}
    result = model(batch.x, dt=batch.dt, mask=batch.mask, **options)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        raise ArgumentError(
            f"the model returned a {type(result).__name__}, expected (prediction, state). Return "
            "both, or build the model with tauflow.SequenceModel."
        )
    prediction: Tensor = result[0]
    return prediction


@torch.no_grad()
def evaluate(model: nn.Module, data: SequenceBatch, *, metric: str, batch_size: int = 512) -> float:
    """Return a metric over a whole split, in evaluation mode.

    The value is the mean over all valid entries of the split, whatever the batch size. Every module
    is in its former mode afterwards.

    Args:
        model: called as ``prediction, state = model(x, dt=..., mask=...)``.
        data: the split.
        metric: a name in :data:`METRICS`.
        batch_size: sequences per forward pass.

    Raises:
        DataError: the split is empty, or no entry of it is valid.
    """
    score = METRICS[metric]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, count = 0.0, 0
    try:
        for start in range(0, len(data), batch_size):
            batch = data[start : start + batch_size]
            entries = score.entries(predict(model, batch), batch)
            total += entries.sum(dtype=torch.float64).item()
            count += entries.numel()
    finally:
        for module, mode in modes:
            module.training = mode
    if count == 0:
        raise DataError(
            f"{metric}: the data have no valid entry: there are {len(data)} sequences, and y_mask, "
            "or mask, is false at every step. Evaluate on data with at least one target."
        )
    return total / count
