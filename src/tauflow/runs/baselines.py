"""Naive baselines, which a trained model must beat."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.tabular.options import INDICATOR_NAME_FORMAT
from tauflow.training.class_weights import count_classes
from tauflow.training.elementwise import Score, select_entries
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS


def score_baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score naive baselines on the test split.

    ``persistence``, of a forecast: what is to be predicted stays as it was last measured, if
    :func:`has_naive_forecasts` says so.
    ``seasonal naive``, if the season is known: it is as it was a season ago. What the sequence, or
    window, holds no such value for is predicted by persistence, and the name says of how much that
    is true, as ``seasonal naive (40 % as persistence)``; of everything, there is no such row.
    ``training mean``: the mean target of the training split; for classes, ``most frequent class``;
    for an F1 score ``always the positive class``, for an area under a ROC curve, which no constant
    brings above a half, ``the same for all``.

    Args:
        data: the data set.
        metric: a name in :data:`tauflow.training.METRICS`.

    Returns:
        Names and scores; empty if none makes sense.
    """

    def score(model: nn.Module) -> float:
        return evaluate(model, data.test, metric=METRICS[metric])

    if data.card.task == "regress":
        return [(name, score(model)) for name, model in _make_regression_baselines(data)]
    same = _make_constant_prediction(data, metric)
    return [] if same is None else [(same[0], score(_ConstantPrediction(same[1], data.card)))]


def make_baseline_models(data: TaskData) -> list[tuple[str, nn.Module]]:
    """Return naive baselines of a table, which any metric can score, as models with names.

    Those of values are as :func:`make_baseline_models` has them; of classes there is ``most
    frequent class``, whose probabilities are the shares of the classes in the training split.
    """
    if data.card.task == "regress":
        return _make_regression_baselines(data)
    if data.card.task == "binary":
        mean = _compute_mean_target(data.train, per_step=data.card.per_step)
        return [("training mean", _ConstantPrediction(mean.logit(eps=1e-6), data.card))]
    counts = count_classes(data.train, data.card.target_size).float()
    logits = (counts / counts.sum()).clamp(min=1e-12).log()
    return [("most frequent class", _ConstantPrediction(logits, data.card))]


def _make_regression_baselines(data: TaskData) -> list[tuple[str, nn.Module]]:
    card = data.card
    mean = _compute_mean_target(data.train, per_step=card.per_step)
    baselines: list[tuple[str, nn.Module]] = [("training mean", _ConstantPrediction(mean, card))]
    if has_naive_forecasts(data):
        baselines.insert(0, ("persistence", make_seasonal_naive(data)))
    lacking = compute_missing_season_share(data)
    if lacking < 1:
        baselines.insert(
            1,
            (
                f"seasonal naive{_describe_persistence_share(lacking)}",
                make_seasonal_naive(data, card.season),
            ),
        )
    return baselines


def has_naive_forecasts(data: TaskData) -> bool:
    """Whether the inputs of a forecast's test split hold what its targets were before.

    Those of a target that never changed in the training split are 0, whatever it is later.
    """
    if not data.card.forecast or data.schema is None:
        return data.card.forecast
    size = data.card.target_size // (data.card.horizon or 1)
    constant = data.schema.x_scale[:size] == 0
    y, known = data.test.y.unflatten(-1, (-1, size)), data.test.y_mask
    moved = y[..., constant] != 0
    if known is not None and known.ndim == data.test.y.ndim:
        moved &= known.unflatten(-1, (-1, size))[..., constant]
    return not bool(moved.any())


def make_seasonal_naive(data: TaskData, season: int = 1) -> "SeasonalNaive":
    """Return what predicts a forecast's targets as they were so many rows before."""
    card, inputs = data.card, () if data.schema is None else data.schema.inputs
    size = card.target_size // (card.horizon or 1)
    measured = [INDICATOR_NAME_FORMAT.format(name) for name in inputs[:size]]
    indicators = [inputs.index(name) if name in inputs else None for name in measured]
    return SeasonalNaive(size, card.horizon, season, indicators)


def compute_missing_season_share(data: TaskData) -> float:
    """Return the share of the test split's targets without a value of a season ago to predict them.

    It is 1 of what is no forecast, has no known season, or see :func:`has_naive_forecasts`.
    """
    if not data.card.season or not has_naive_forecasts(data):
        return 1.0
    itself = Score("share", "values", lambda prediction, y: prediction)
    return evaluate(
        _MissingSeason(make_seasonal_naive(data, data.card.season)), data.test, metric=itself
    )


def _describe_persistence_share(share: float) -> str:
    """Return the words for a share that is predicted otherwise, empty for no share."""
    return f" ({min(max(round(100 * share), 1), 99)} % as persistence)" if share else ""


def _make_constant_prediction(data: TaskData, metric: str) -> tuple[str, Tensor] | None:
    """Return the name of the best answer that is always the same, and its logits, (O,)."""
    card, binary = data.card, data.card.task == "binary"
    if metric in ("f1", "binary_f1"):
        return "always the positive class", torch.tensor([1.0] if binary else [0.0, 1.0])
    if metric in ("auroc", "binary_auroc"):
        return "the same for all", torch.zeros(1 if binary else 2)
    if binary and not card.per_step:
        mean = _compute_mean_target(data.train, per_step=False)
        return "most frequent class", torch.where(mean > 0.5, 1.0, -1.0)
    if card.task == "classify" and metric == "accuracy":
        common = torch.zeros(card.target_size)
        common[int(count_classes(data.train, card.target_size).argmax())] = 1.0
        return "most frequent class", common
    return None


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
        ago, last = (self.find_source_rows(x, mask, observed, rows) for rows in (self.season, 1))
        places = torch.where(ago < 0, last, ago).clamp(min=0)
        return self.to_forecast_shape(x[..., : self.size].gather(1, places)), None

    def find_source_rows(
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

    def to_forecast_shape(self, values: Tensor) -> Tensor:
        """Return what is predicted for each row as the model of a forecast gives it."""
        return values.flatten(1) if self.horizon else values

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


class _MissingSeason(nn.Module):
    """Says, as 1 or 0, which values a forecast cannot predict as they were a season ago."""

    def __init__(self, forecast: SeasonalNaive) -> None:
        super().__init__()
        self.forecast = forecast

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
        **_: Tensor | None,
    ) -> tuple[Tensor, None]:
        ago = self.forecast.find_source_rows(x, mask, observed, self.forecast.season)
        return self.forecast.to_forecast_shape((ago < 0).to(x.dtype)), None


def _compute_mean_target(batch: SequenceBatch, *, per_step: bool) -> Tensor:
    """Return the mean of each target value over the entries that count, (O,)."""
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    for _, piece in batch.iter_slices():
        y = piece.y.double().reshape(*piece.x.shape[: 2 if per_step else 1], -1)
        selected = select_entries("the mean", y, replace(piece, y=y), mark_unknown=True).y
        total, count = total + selected.nansum(0), count + (~selected.isnan()).sum(0)
    mean = total / count.clamp(min=1)
    return mean.to(batch.y.dtype) if batch.y.is_floating_point() else mean
