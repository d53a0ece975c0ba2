"""The loss of a batch whose sequences several processes share."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tauflow.batch import SequenceBatch
from tauflow.errors import DataError, DistributedError

from .process_group import DistributedContext
from .score import NoValidEntriesError, Score
from .training_loss import compute_training_loss


class DistributedLoss(nn.Module):
    """The loss of a share of a batch, as a module whose call PyTorch's DDP can watch.

    Args:
        model: what is trained.
        score: the loss of predictions.
        ranks: the processes.
    """

    def __init__(self, model: nn.Module, score: Score, ranks: DistributedContext) -> None:
        super().__init__()
        self.model, self.score, self.ranks = model, score, ranks

    def forward(
        self, batch: SequenceBatch, *, counts: bool, epoch: int, whole: bool
    ) -> tuple[Tensor, float]:
        """Return the loss of this process's share and its divisor, 0 if it does not count.

        Args:
            batch: the share.
            counts: whether it counts; else it only keeps this process in step with the others.
            epoch: finished epochs.
            whole: whether it is all that a step is made from, and must have a target.
        """
        try:
            loss, divisor = compute_training_loss(self.model, batch, self.score, epoch=epoch)
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
    loss = DistributedLoss(model, score, context)
    if not context.is_distributed:
        return loss
    # Models may leave parameters out, of a batch or always, where DDP would wait for ever. Torch
    # warns once of a model that does not; what it warns of costs one look at the graph per step.
    return DistributedDataParallel(loss, find_unused_parameters=True)


def compute_distributed_loss(
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
