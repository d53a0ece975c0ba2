"""The number that a step minimises."""

from types import MethodType

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError

from .elementwise import Score
from .evaluation_loop import predict


def compute_training_loss(
    model: nn.Module, batch: SequenceBatch, score: Score, *, epoch: int
) -> tuple[Tensor, float]:
    """Return the loss of a batch to go back from, and the weight it has in a mean over batches.

    Args:
        model: asked for ``training_loss(batch, prediction_loss, epoch=...)`` if it has that method;
            otherwise its predictions are scored.
        batch: the sequences.
        score: the loss of predictions.
        epoch: finished epochs.

    Returns:
        A scalar, and what the error of the predictions was divided by: the number of targets that
        they were compared with, or the sum of what these count. Of a model that compared none, the
        same of sequences.

    Raises:
        ArgumentError: the model's own loss is not a scalar tensor, or a loss has no graph.
        NoValidEntriesError: no entry of the batch is valid.
    """
    method = getattr(model, "training_loss", None)
    if not isinstance(method, MethodType):  # a part that happens to be called so is no such method
        prediction = _to_full_precision(predict(model, batch))
        value, divisor = score.compute_with_divisor(prediction, batch)
        _check_requires_grad(f"loss={score.name}", value)
        return value, float(divisor)
    compared = _ScoreWithDivisor(score)
    loss = method(batch, compared, epoch=epoch)
    if not isinstance(loss, Tensor) or loss.ndim:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ArgumentError(
            f"{type(model).__name__}.training_loss returned {got}, expected a scalar tensor. "
            "Return one number with a graph, such as the mean over the batch."
        )
    _check_requires_grad(f"{type(model).__name__}.training_loss", loss)
    if compared.divisor is not None:
        return loss, float(compared.divisor)
    return loss, float(len(batch) if batch.weight is None else batch.weight.sum())


def _check_requires_grad(name: str, loss: Tensor) -> None:
    """Refuse a number that nothing can be learned from; an L2 penalty would be all there is."""
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise ArgumentError(
            f"{name} does not follow from the parameters that are trained, as far as gradients "
            "tell. Compute it from predictions by operations that have a gradient, without "
            "detach(), item(), argmax() or comparisons alone."
        )


def _to_full_precision(prediction: Tensor) -> Tensor:
    """Return a prediction in single precision, if autocast made it in less."""
    if torch.is_autocast_enabled(prediction.device.type) and prediction.dtype is torch.bfloat16:
        return prediction.float()
    return prediction


class _ScoreWithDivisor:
    """A score that remembers what its last number was divided by."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.divisor: Tensor | int | None = None

    def __call__(self, prediction: Tensor, batch: SequenceBatch) -> Tensor:
        value, self.divisor = self.score.compute_with_divisor(_to_full_precision(prediction), batch)
        return value
