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
from tauflow.training.metrics import METRICS


def score_baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score naive baselines on the test split.

    ``persistence``, of a forecast: what is to be predicted stays as it was last measured, if
    :func:`has_naive_forecasts` says so.
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
        baselines.insert(0, ("persistence", _make_persistence(data)))
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


def _make_persistence(data: TaskData) -> "_Persistence":
    """Return what predicts a forecast's targets as they were last measured."""
    card, inputs = data.card, () if data.schema is None else data.schema.inputs
    size = card.target_size // (card.horizon or 1)
    measured = [INDICATOR_NAME_FORMAT.format(name) for name in inputs[:size]]
    indicators = [inputs.index(name) if name in inputs else None for name in measured]
    return _Persistence(size, card.horizon, indicators)


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


class _Persistence(nn.Module):
    """Predicts the first inputs as they were last measured; before that, what is there.

    Args:
        size: how many of the inputs.
        horizon: rows after the last one to predict at once; 0 for the row after each row.
        measured_columns: of each of these inputs, the place of one that is above 0 where it was
            measured; ``None`` if it always was. Where a batch says what was observed, that counts.
    """

    def __init__(self, size: int, horizon: int, measured_columns: Sequence[int | None]) -> None:
        super().__init__()
        self.size, self.horizon, self.measured_columns = size, horizon, measured_columns

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
        **_: Tensor | None,
    ) -> tuple[Tensor, None]:
        """Return what is predicted, (B, T, size), or over a horizon (B, H * size)."""
        rows = torch.arange(x.shape[1], device=x.device)[:, None].expand(len(x), -1, self.size)
        there = self._get_measured(x, observed)
        if there is not None:
            rows = torch.where(there, rows, -1).cummax(dim=1).values.clamp(min=0)
        last = x[..., : self.size].gather(1, rows)
        if not self.horizon:
            return last, None
        lengths = last.new_full((len(x),), x.shape[1]) if mask is None else mask.sum(1)
        ends = last[torch.arange(len(x), device=x.device), lengths.long() - 1]
        return ends.repeat(1, self.horizon), None

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
