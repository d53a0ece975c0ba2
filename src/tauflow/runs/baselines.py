"""Naive baselines, which a trained model must beat."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.tabular.options import INDICATOR_NAME_FORMAT
from tauflow.training.class_weights import count_classes
from tauflow.training.elementwise import select_entries
from tauflow.training.evaluation_loop import evaluate


def score_baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score naive baselines on the test split; see :func:`make_baseline_models`.

    For an F1 score there is ``always the positive class``, as rare classes are never the most
    frequent.

    Args:
        data: the data set.
        metric: a name in :data:`tauflow.training.METRICS`.
    """
    models = make_baseline_models(data)
    if metric in ("f1", "binary_f1"):
        logits = torch.tensor([0.0, 1.0][-data.card.target_size :])
        models = [("always the positive class", _ConstantPrediction(logits, data.card))]
    return [(name, evaluate(model, data.test, metric=metric)) for name, model in models]


def make_baseline_models(data: TaskData) -> list[tuple[str, nn.Module]]:
    """Return naive baselines, which any metric can score, as models with names.

    ``persistence``, of a forecast: what is to be predicted stays as it was last measured.
    ``seasonal naive``, if the season is known and no longer than a sequence, or window: it is as it
    was a season ago, and where that is not known as it was last measured.
    ``training mean``: the mean target of the training split; of labels, how often each is true.
    ``most frequent class``, whose probabilities are the shares of the classes in the training
    split.
    """
    card = data.card
    if card.task == "classify":
        counts = count_classes(data.train, card.target_size).float()
        logits = (counts / counts.sum()).clamp(min=1e-12).log()
        return [("most frequent class", _ConstantPrediction(logits, card))]
    mean = _compute_mean_target(data.train, per_step=card.per_step)
    if card.task == "binary":
        return [("training mean", _ConstantPrediction(mean.logit(eps=1e-6), card))]
    baselines: list[tuple[str, nn.Module]] = [("training mean", _ConstantPrediction(mean, card))]
    if card.forecast:
        if card.season and card.season <= data.test.x.shape[1]:
            baselines.insert(0, ("seasonal naive", make_seasonal_naive(data, card.season)))
        baselines.insert(0, ("persistence", make_seasonal_naive(data)))
    return baselines


def make_seasonal_naive(data: TaskData, season: int = 1) -> "SeasonalNaive":
    """Return what predicts a forecast's targets as they were so many rows before."""
    card, inputs = data.card, () if data.schema is None else data.schema.inputs
    size = card.target_size // (card.horizon or 1)
    measured = [INDICATOR_NAME_FORMAT.format(name) for name in inputs[:size]]
    indicators = [inputs.index(name) if name in inputs else None for name in measured]
    return SeasonalNaive(size, card.horizon, season, indicators)


class _ConstantPrediction(nn.Module):
    """Predicts the same values, (O,), whatever it is given."""

    def __init__(self, values: Tensor, card: DatasetCard) -> None:
        super().__init__()
        self.values, self.axes = values, 2 if card.per_step else 1

    def forward(self, x: Tensor, **_: Tensor | None) -> tuple[Tensor, None]:
        return self.values.expand(*x.shape[: self.axes], -1), None


class SeasonalNaive(nn.Module):
    """Predicts the first inputs as they were last measured so many rows before.

    Of what has no such value in its sequence, the last measured one; before that, what is there.

    Args:
        size: how many of the inputs.
        horizon: rows after the last one to predict at once; 0 for the row after each row.
        season: values are as they were so many rows before the one that they are for; over a longer
            horizon, as in the last so many.
        measured_columns: of each of these inputs, the place of one that is above 0 where it was
            measured; ``None`` if it always was. Where a batch says what was observed, that counts.
    """

    def __init__(
        self,
        size: int,
        horizon: int = 0,
        season: int = 1,
        measured_columns: Sequence[int | None] = (),
    ) -> None:
        super().__init__()
        self.size, self.horizon, self.season, self.measured_columns = (
            size,
            horizon,
            season,
            measured_columns,
        )

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
        **_: Tensor | None,
    ) -> tuple[Tensor, None]:
        """Return what is predicted, (B, T, size), or over a horizon (B, H * size)."""
        ago, last = (self._find_source_rows(x, mask, observed, rows) for rows in (self.season, 1))
        places = torch.where(ago < 0, last, ago).clamp(min=0)
        values = x[..., : self.size].gather(1, places)
        return values.flatten(1) if self.horizon else values, None

    def _find_source_rows(
        self, x: Tensor, mask: Tensor | None, observed: Tensor | None, season: int
    ) -> Tensor:
        """Return the rows whose values are those of so many rows before, below 0 for none.

        They are (B, T, size), for the row after each row, or (B, H, size).
        """
        rows = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        there = self._get_measured(x, observed)
        last = rows.unsqueeze(-1).expand(-1, -1, self.size)
        if there is not None:
            last = torch.where(there, last, -1).cummax(dim=1).values
        wanted = rows + 1 - season
        if self.horizon:
            ahead = torch.arange(self.horizon, device=x.device)
            length = rows[:, -1:] + 1 if mask is None else mask.sum(1, keepdim=True)
            wanted = length - season + ahead % season
        places = last.gather(1, wanted.clamp(min=0).unsqueeze(-1).expand(-1, -1, self.size))
        return places.masked_fill((wanted < 0).unsqueeze(-1), -1)

    def _get_measured(self, x: Tensor, observed: Tensor | None) -> Tensor | None:
        """Return which of the inputs were measured, (B, T, size), ``None`` if all were."""
        if observed is not None:
            return observed[..., : self.size]
        if all(place is None for place in self.measured_columns):
            return None
        everywhere = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return torch.stack(
            [everywhere if place is None else x[..., place] > 0 for place in self.measured_columns],
            dim=-1,
        )


def _compute_mean_target(batch: SequenceBatch, *, per_step: bool) -> Tensor:
    """Return the mean of each target value over the entries that count, (O,)."""
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    for _, piece in batch.iter_slices():
        y = piece.y.double().reshape(*piece.x.shape[: 2 if per_step else 1], -1)
        selected = select_entries("the mean", y, replace(piece, y=y), mark_unknown=True).y
        total, count = total + selected.nansum(0), count + (~selected.isnan()).sum(0)
    mean = total / count.clamp(min=1)
    return mean.to(batch.y.dtype) if batch.y.is_floating_point() else mean
