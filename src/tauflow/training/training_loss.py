"""The number that a step minimises, of a batch that several processes may share."""

from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, DistributedError

from .elementwise import NoValidEntriesError, Score
from .evaluation_loop import predict
from .process_group import DistributedContext


class TrainingLoss(nn.Module):
    """The loss of this process's share of a batch, as a module whose call PyTorch's DDP can watch.

    Args:
        model: asked for ``training_loss(batch, prediction_loss, epoch=...)`` if it has that method;
            otherwise its predictions are scored.
        score: the loss of predictions.
        ranks: the processes.
    """

    def __init__(self, model: nn.Module, score: Score, ranks: DistributedContext) -> None:
        super().__init__()
        self.model, self.score, self.ranks = model, score, ranks

    def forward(
        self, batch: SequenceBatch, *, counts: bool, epoch: int, whole: bool
    ) -> tuple[Tensor, float]:
        """Return the loss of the share, and the weight it has in the mean over an epoch.

        Args:
            batch: the share.
            counts: whether it counts; else it only keeps this process in step with the others.
            epoch: finished epochs.
            whole: whether it is all that a step is made from, and must have a target.

        Returns:
            A scalar, and what the error of the predictions was divided by: the number of targets
            that they were compared with, or the sum of what these count. Of a model that compared
            none, the same of sequences. 0 of a share that does not count.

        Raises:
            ArgumentError: the model's own loss is not a scalar tensor, or a loss has no graph.
        """
        try:
            loss, divisor = _compute_loss(self.model, batch, self.score, epoch)
        except NoValidEntriesError:
            if whole and not self.ranks.is_distributed:
                raise
            counts = False  # no target in this share; there are some in another's, or all raise
        if counts:
            return loss, divisor
        zeros = [p.sum() * 0.0 for p in self.model.parameters() if p.requires_grad]
        return torch.stack(zeros).sum(), 0.0


def wrap_data_parallel(model: nn.Module, score: Score, context: DistributedContext) -> nn.Module:
    """Return what computes the loss of a share, and averages its gradients over all processes."""
    loss = TrainingLoss(model, score, context)
    if not context.is_distributed:
        return loss
    # Models may leave parameters out, of a batch or always, where DDP would wait for ever. Torch
    # warns once of a model that does not; what it warns of costs one look at the graph per step.
    return DistributedDataParallel(loss, find_unused_parameters=True)


def compute_training_loss(
    shared: nn.Module,
    batch: SequenceBatch,
    context: DistributedContext,
    *,
    counts: bool,
    epoch: int,
    needs_targets: bool = True,
) -> tuple[Tensor, float, float]:
    """Return the loss to go back from, its value over all shares, and the divisor of all.

    Gradients are averaged over processes, where the loss of the whole batch is a mean over entries:
    each share's loss is scaled by its share of the divisor, which is the number of entries, or what
    they count together.

    Args:
        shared: from :func:`wrap_data_parallel`.
        batch: this process's share.
        context: the processes.
        counts: whether the share counts.
        epoch: finished epochs.
        needs_targets: whether the batch is all that a step is made from; else it may have no
            target.

    Raises:
        DataError: no entry of the whole batch is valid.
        DistributedError: another process failed.
    """
    if not context.is_distributed:
        loss, divisor = shared(batch, counts=True, epoch=epoch, whole=needs_targets)
        return loss, loss.item(), divisor
    failure: Exception | None = None
    try:
        loss, own = shared(batch, counts=counts, epoch=epoch, whole=needs_targets)
        numbers = (loss.item() * own, own, 0)
    except Exception as error:
        failure, numbers = error, (0.0, 0.0, 1)
    total, divisor, failed = context.all_reduce_sum(*numbers, device=batch.x.device)
    if failure is not None:
        raise failure
    if failed:
        raise DistributedError("another process failed in this step, and this one ends with it.")
    if not divisor and needs_targets:
        raise DataError("no entry of this batch is valid in any process's share.")
    if not divisor:
        return loss, 0.0, 0.0
    return loss * (own * context.world_size / divisor), total / divisor, divisor


def _compute_loss(
    model: nn.Module, batch: SequenceBatch, score: Score, epoch: int
) -> tuple[Tensor, float]:
    own = getattr(model, "training_loss", None)
    if not isinstance(own, MethodType):  # a part that happens to be called so is no such method
        prediction = _to_full_precision(predict(model, batch))
        value, divisor = score.compute_with_divisor(prediction, batch)
        _check_requires_grad(f"loss={score.name}", value)
        return value, float(divisor)
    compared = _ScoreWithDivisor(score)
    loss = own(batch, compared, epoch=epoch)
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
