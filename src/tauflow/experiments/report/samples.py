"""A few test sequences with what a trained model, and a trivial one, makes of them."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.experiments.run.job import Job, build_model
from tauflow.training.checkpoint import read_checkpoint, read_tensors
from tauflow.training.metrics import evaluate, predict


@dataclass(frozen=True)
class Sample:
    """One test sequence; lists of floats, one entry per valid step.

    Args:
        number: its position in the test part.
        time: time of each step, in the data set's unit.
        truth: for each target feature its values, NaN where it is not known.
        predicted: for each target feature the model's values.
    """

    number: int
    time: list[float]
    truth: list[list[float]]
    predicted: list[list[float]]


def sample(
    model: nn.Module, data: TaskData, *, sequences: int = 3, features: int = 3
) -> list[Sample]:
    """Return the first test sequences with a model's predictions.

    Args:
        model: a trained model of the data set.
        data: the data set.
        sequences: number of sequences at most.
        features: number of target features at most.

    Returns:
        The samples, without sequences that have no valid step; none if the data set has no target
        at every step, or a target that is a class.
    """
    if not data.card.per_step or data.card.task != "regress":
        return []
    batch = data.test[:sequences]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        predicted = predict(model, batch)
    model.train(was_training)
    if data.table is not None:  # people know their data in the units of their table
        batch = replace(batch, y=data.table.unscale(batch.y))
        predicted = data.table.unscale(predicted)
    found = [_one(batch, predicted, number, features) for number in range(len(batch))]
    return [one for one in found if one.time]


def _one(batch: SequenceBatch, predicted: Tensor, number: int, features: int) -> Sample:
    steps = batch.x.shape[1]
    valid = torch.ones(steps, dtype=torch.bool) if batch.mask is None else batch.mask[number]
    gaps = torch.ones(steps) if batch.dt is None else batch.dt[number].reshape(steps)
    time = gaps[valid].cumsum(0) - gaps[valid][:1]
    truth = batch.y[number].reshape(steps, -1)  # one target may have no axis of its own
    if batch.y_mask is not None:
        known = batch.y_mask[number].reshape(steps, -1)
        truth = truth.masked_fill(~known, torch.nan)
    return Sample(
        number=number,
        time=time.tolist(),
        truth=truth[valid].T[:features].tolist(),
        predicted=predicted[number][valid].T[:features].tolist(),
    )


def trained_model(job: Job, data: TaskData, run_dir: Path) -> nn.Module | None:
    """Return a finished run's model with the selected weights, or ``None`` if they are gone.

    Args:
        job: what was run.
        data: its data.
        run_dir: its directory.

    Raises:
        CheckpointError: a file of the directory is damaged.
    """
    best, last = run_dir / "best.safetensors", run_dir / "last.safetensors"
    if job.recipe.select == "best" and best.is_file():
        weights, _ = read_tensors(best, "weights file")
    elif job.recipe.select == "last" and last.is_file():
        weights = read_checkpoint(last).model
    else:
        return None
    model = build_model(job.model, data)
    model.load_state_dict(weights)
    return model


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
