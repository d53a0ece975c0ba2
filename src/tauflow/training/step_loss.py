"""The number that a step minimises: the error of predictions, or what the model itself asks for."""

from types import MethodType

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError

from .metrics import predict
from .score import Score


def training_loss(
    model: nn.Module, batch: SequenceBatch, score: Score, *, epoch: int
) -> tuple[Tensor, int]:
    """Return the loss of a batch, and the weight it has in the mean over an epoch.

    Args:
        model: asked for ``training_loss(batch, prediction_loss, epoch=...)`` if it has that method;
            otherwise its predictions are scored.
        batch: inputs and targets.
        score: the loss of predictions.
        epoch: finished epochs.

    Returns:
        A scalar, and the number of targets that predictions were compared with; of a model that
        compared none, the number of sequences.

    Raises:
        ArgumentError: the model's own loss is not a scalar tensor.
    """
    own = getattr(model, "training_loss", None)
    if not isinstance(own, MethodType):  # a part that happens to be called so is no such method
        prediction = _in_full(predict(model, batch))
        return score(prediction, batch), score.count(batch, per_step=prediction.ndim == 3)
    compared = _Compared(score)
    loss = own(batch, compared, epoch=epoch)
    if not isinstance(loss, Tensor) or loss.ndim:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ArgumentError(
            f"{type(model).__name__}.training_loss returned {got}, expected a scalar tensor. "
            "Return one number with a graph, such as the mean over the batch."
        )
    return loss, compared.entries or len(batch)


def _in_full(prediction: Tensor) -> Tensor:
    """Return a prediction in single precision, if autocast made it in less."""
    if torch.is_autocast_enabled(prediction.device.type) and prediction.dtype is torch.bfloat16:
        return prediction.float()
    return prediction


class _Compared:
    """A score that remembers with how many targets it last compared predictions."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.entries = 0

    def __call__(self, prediction: Tensor, batch: SequenceBatch) -> Tensor:
        self.entries = self.score.count(batch, per_step=prediction.ndim == 3)
        return self.score(_in_full(prediction), batch)
