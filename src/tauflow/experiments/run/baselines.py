"""Trivial predictions, which a trained model must beat."""

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.training.metrics import evaluate


def baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score trivial predictions on the test part.

    ``persistence``, of a forecast: what is to be predicted stays as it was last measured.
    ``training mean``: the mean target of the training part; for classes, ``most frequent class``.

    Args:
        data: the data set.
        metric: a name in :data:`tauflow.training.METRICS`.

    Returns:
        Names and scores; empty if none makes sense.
    """
    card = data.card

    def score(model: nn.Module) -> float:
        return evaluate(model, data.test, metric=metric)

    if card.task == "regress":
        mean = _mean_target(data.train, per_step=card.per_step)
        found = [("training mean", score(_Constant(mean, per_step=card.per_step)))]
        if card.forecast and card.per_step:
            found.insert(0, ("persistence", score(_Persistence(card.target_size))))
        return found
    if card.task == "classify" and metric == "accuracy":
        common = torch.zeros(card.target_size)
        common[_most_frequent(data.train, card.target_size)] = 1.0
        return [("most frequent class", score(_Constant(common, per_step=card.per_step)))]
    if card.task == "binary" and not card.per_step:
        mean = _mean_target(data.train, per_step=False)
        side = torch.where(mean > 0.5, 1.0, -1.0)
        return [("most frequent class", score(_Constant(side, per_step=False)))]
    return []


class _Constant(nn.Module):
    """Predicts the same values, (O,), whatever it is given."""

    def __init__(self, values: Tensor, *, per_step: bool) -> None:
        super().__init__()
        self.values, self.axes = values, 2 if per_step else 1

    def forward(self, x: Tensor, **_: Tensor | None) -> tuple[Tensor, None]:
        return self.values.expand(*x.shape[: self.axes], -1), None


class _Persistence(nn.Module):
    """Predicts the first inputs as they were last measured; before that, what is there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(
        self, x: Tensor, *, observed: Tensor | None = None, **_: Tensor | None
    ) -> tuple[Tensor, None]:
        x = x[..., : self.size]
        if observed is None:
            return x, None
        steps = torch.arange(x.shape[1], device=x.device).view(1, -1, 1)
        latest = torch.where(observed[..., : self.size], steps, 0).cummax(dim=1).values
        return x.gather(1, latest), None


def _mean_target(batch: SequenceBatch, *, per_step: bool) -> Tensor:
    """Return the mean of each target value over the entries that count, (O,)."""
    axes = (0, 1) if per_step else (0,)
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    for _, piece in batch.pieces():
        lead = piece.x.shape[: len(axes)]
        y, valid = piece.y.reshape(*lead, -1), _valid(piece) if per_step else None
        weight = torch.ones(lead, dtype=torch.bool) if valid is None else valid
        weight = weight.reshape(*lead, -1).expand_as(y)
        total = total + y.masked_fill(~weight, 0).sum(axes, dtype=torch.float64)
        count = count + weight.sum(axes)
    mean = total / count.clamp(min=1)
    return mean.to(batch.y.dtype) if batch.y.is_floating_point() else mean


def _most_frequent(batch: SequenceBatch, classes: int) -> int:
    """Return the class that most targets that count have."""
    counts = torch.zeros(classes, dtype=torch.int64)
    for _, piece in batch.pieces():
        valid = _valid(piece)
        y = piece.y if valid is None or piece.y.ndim == 1 else piece.y[valid]
        counts += torch.bincount(y.flatten().long(), minlength=classes)
    return int(counts.argmax())


def _valid(batch: SequenceBatch) -> Tensor | None:
    return batch.mask if batch.y_mask is None else batch.y_mask
