"""Trivial predictions, which a trained model must beat."""

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.training.metrics import evaluate


def baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score trivial predictions on the test part.

    ``persistence``, of a forecast: what is to be predicted stays as it was last measured.
    ``seasonal naive``, if the season is known: it is as it was a season ago.
    ``training mean``: the mean target of the training part; for classes, ``most frequent class``;
    for an F1 score ``always the positive class``, for an area under a ROC curve, which no constant
    brings above a half, ``the same for all``.

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
        found = [("training mean", score(_Constant(mean, card)))]
        size = card.target_size // (card.horizon or 1)
        if card.forecast:
            found.insert(0, ("persistence", score(_Persistence(size, card.horizon))))
        if card.forecast and card.season:
            naive = _Persistence(size, card.horizon, card.season)
            found.insert(1, ("seasonal naive", score(naive)))
        return found
    same = _same_class(data, metric)
    return [] if same is None else [(same[0], score(_Constant(same[1], card)))]


def _same_class(data: TaskData, metric: str) -> tuple[str, Tensor] | None:
    """Return the name of the best answer that is always the same, and its logits, (O,)."""
    card, binary = data.card, data.card.task == "binary"
    if metric in ("f1", "binary_f1"):
        return "always the positive class", torch.tensor([1.0] if binary else [0.0, 1.0])
    if metric in ("auroc", "binary_auroc"):
        return "the same for all", torch.zeros(1 if binary else 2)
    if binary and not card.per_step:
        mean = _mean_target(data.train, per_step=False)
        return "most frequent class", torch.where(mean > 0.5, 1.0, -1.0)
    if card.task == "classify" and metric == "accuracy":
        common = torch.zeros(card.target_size)
        common[_most_frequent(data.train, card.target_size)] = 1.0
        return "most frequent class", common
    return None


def of_the_next_unit(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score what needs no learning either, where every target is one unit of time ahead.

    ``the last change again``: the inputs go on as they did since the sample before. Where gaps
    differ, also what a network would reach that is shown the next input in its place: ``next
    input, looks ahead``, and that with a straight line from the present one to it,
    ``interpolation, looks ahead``. At the last step, which has no next input, both stay as they
    are.

    Args:
        data: a forecast with a target at every step.
        metric: a name in :data:`tauflow.training.METRICS`.
    """
    size, kinds = data.card.target_size, ["the last change again"]
    if data.test.dt is not None and bool((data.test.dt != 1).any()):
        kinds += ["next input, looks ahead", "interpolation, looks ahead"]
    return [(kind, evaluate(_Along(kind, size), data.test, metric=metric)) for kind in kinds]


class _Along(nn.Module):
    """Predicts along a straight line of the first inputs; see :func:`of_the_next_unit`."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        self.kind, self.size = kind, size

    def forward(self, x: Tensor, *, dt: Tensor | None, **_: Tensor | None) -> tuple[Tensor, None]:
        x = x[..., : self.size]
        gap = torch.ones_like(x[..., :1]) if dt is None else dt.reshape(*x.shape[:2], 1)
        slope = x.diff(dim=1) / gap[:, 1:]
        still = torch.zeros_like(x[:, :1])
        if self.kind == "the last change again":
            return x + torch.cat([still, slope], dim=1), None
        if self.kind == "interpolation, looks ahead":
            return x + torch.cat([slope, still], dim=1), None
        return torch.cat([x[:, 1:], x[:, -1:]], dim=1), None


class _Constant(nn.Module):
    """Predicts the same values, (O,), whatever it is given."""

    def __init__(self, values: Tensor, card: DatasetCard) -> None:
        super().__init__()
        self.values, self.axes = values, 2 if card.per_step else 1

    def forward(self, x: Tensor, **_: Tensor | None) -> tuple[Tensor, None]:
        return self.values.expand(*x.shape[: self.axes], -1), None


class _Persistence(nn.Module):
    """Predicts the first inputs as they were last measured; before that, what is there.

    Args:
        size: how many of the inputs.
        horizon: rows after the last one to predict at once; 0 for the row after each row.
        season: with one, values are as they were so many rows before the one that they are for.
    """

    def __init__(self, size: int, horizon: int = 0, season: int = 1) -> None:
        super().__init__()
        self.size, self.horizon, self.season = size, horizon, season

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
        **_: Tensor | None,
    ) -> tuple[Tensor, None]:
        x, steps = x[..., : self.size], torch.arange(x.shape[1], device=x.device)
        if observed is not None:
            there = torch.where(observed[..., : self.size], steps.view(1, -1, 1), 0)
            x = x.gather(1, there.cummax(dim=1).values)
        if not self.horizon:
            return x[:, (steps + 1 - self.season).clamp(min=0)], None
        ahead = torch.arange(self.horizon, device=x.device)
        back = self.season - ahead % self.season  # from the row after the last one
        length = x.new_full((len(x),), x.shape[1]).long() if mask is None else mask.sum(1)
        places = (length.unsqueeze(1) - back).clamp(min=0)
        found = x.gather(1, places.unsqueeze(-1).expand(-1, -1, self.size))
        return found.flatten(1), None


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
