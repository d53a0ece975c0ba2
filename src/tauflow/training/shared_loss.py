"""The loss of a batch whose sequences several processes share."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tauflow.batch import SequenceBatch
from tauflow.errors import DataError, RankError

from .ranks import Ranks
from .score import NothingToScoreError, Score
from .step_loss import training_loss


class SharedLoss(nn.Module):
    """The loss of a share of a batch, as a module whose call PyTorch's DDP can watch.

    Args:
        model: what is trained.
        score: the loss of predictions.
        ranks: the processes.
    """

    def __init__(self, model: nn.Module, score: Score, ranks: Ranks) -> None:
        super().__init__()
        self.model, self.score, self.ranks = model, score, ranks

    def forward(
        self, batch: SequenceBatch, *, counts: bool, epoch: int, whole: bool
    ) -> tuple[Tensor, int]:
        """Return the loss of this process's share and the number of its entries.

        Args:
            batch: the share.
            counts: whether it counts; else it only keeps this process in step with the others.
            epoch: finished epochs.
            whole: whether it is all that a step is made from, and must have a target.
        """
        try:
            loss, entries = training_loss(self.model, batch, self.score, epoch=epoch)
        except NothingToScoreError:
            if whole and not self.ranks.several:
                raise
            counts = False  # no target in this share; there are some in another's, or all raise
        if counts:
            return loss, entries
        zeros = [p.sum() * 0.0 for p in self.model.parameters() if p.requires_grad]
        return torch.stack(zeros).sum(), 0


def shared_loss(model: nn.Module, score: Score, ranks: Ranks) -> nn.Module:
    """Return what computes the loss of a share, and averages its gradients over all processes."""
    loss = SharedLoss(model, score, ranks)
    if not ranks.several:
        return loss
    # Models may leave parameters out, of a batch or always, where DDP would wait for ever. Torch
    # warns once of a model that does not; what it warns of costs one look at the graph per step.
    return DistributedDataParallel(loss, find_unused_parameters=True)


def loss_over_ranks(
    shared: nn.Module,
    batch: SequenceBatch,
    ranks: Ranks,
    *,
    counts: bool,
    epoch: int,
    whole: bool = True,
) -> tuple[Tensor, float, int]:
    """Return the loss to go back from, its value over all shares, and the number of entries.

    Gradients are averaged over processes, where the loss of the whole batch is a mean over entries:
    each share's loss is scaled by the share of the entries that it has.

    Args:
        shared: from :func:`shared_loss`.
        batch: this process's share.
        ranks: the processes.
        counts: whether the share counts.
        epoch: finished epochs.
        whole: whether the batch is all that a step is made from; else it may have no target.

    Raises:
        DataError: no entry of the whole batch is valid.
        RankError: another process failed.
    """
    if not ranks.several:
        loss, entries = shared(batch, counts=True, epoch=epoch, whole=whole)
        return loss, loss.item(), entries
    failure: Exception | None = None
    try:
        loss, own = shared(batch, counts=counts, epoch=epoch, whole=whole)
        numbers = (loss.item() * own, own, 0)
    except Exception as error:
        failure, numbers = error, (0.0, 0, 1)
    total, entries, failed = ranks.summed(*numbers, device=batch.x.device)
    if failure is not None:
        raise failure
    if failed:
        raise RankError("another process failed in this step, and this one ends with it.")
    if not entries and whole:
        raise DataError("no entry of this batch is valid in any process's share.")
    if not entries:
        return loss, 0.0, 0
    return loss * (own * ranks.world / entries), total / entries, int(entries)
