"""A few test sequences with what a trained model, and a trivial one, makes of them."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.training.checkpoint import read_checkpoint, read_tensors
from tauflow.training.metrics import METRICS, predict

from .run import Job, build_model


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
        The samples; none if the data set has no target at every step, or a target that is a class.
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
    return [_one(batch, predicted, number, features) for number in range(len(batch))]


def _one(batch: SequenceBatch, predicted: Tensor, number: int, features: int) -> Sample:
    steps = batch.x.shape[1]
    valid = torch.ones(steps, dtype=torch.bool) if batch.mask is None else batch.mask[number]
    gaps = torch.ones(steps) if batch.dt is None else batch.dt[number].reshape(steps)
    time = gaps[valid].cumsum(0) - gaps[valid][0]
    truth = batch.y[number]
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
    card, score = data.card, METRICS[metric]
    if card.task == "regress" and card.per_step:
        mean = _mean_target(data.train).expand_as(data.test.y)
        found = [("training mean", float(score(mean, data.test)))]
        if card.forecast:
            present = _last_measured(data.test)[..., : card.target_size]
            found.insert(0, ("persistence", float(score(present, data.test))))
        return found
    if card.task == "regress":
        mean = data.train.y.mean(dim=0).expand_as(data.test.y)
        return [("training mean", float(score(mean, data.test)))]
    if card.task == "classify" and metric == "accuracy":
        common = torch.zeros(*data.test.y.shape, card.target_size)
        common[..., _most_frequent(data.train)] = 1.0
        return [("most frequent class", float(score(common, data.test)))]
    if card.task == "binary" and not card.per_step:
        side = 1.0 if float(data.train.y.float().mean()) > 0.5 else -1.0
        constant = torch.full((len(data.test), 1), side)
        return [("most frequent class", float(score(constant, data.test)))]
    return []


def _last_measured(batch: SequenceBatch) -> Tensor:
    """Return each input as it was last measured, what is there before that, (B, T, I)."""
    if batch.observed is None:
        return batch.x
    steps = torch.arange(batch.x.shape[1], device=batch.x.device).view(1, -1, 1)
    latest = torch.where(batch.observed, steps, 0).cummax(dim=1).values
    return batch.x.gather(1, latest)


def _mean_target(batch: SequenceBatch) -> Tensor:
    """Return the mean of each target feature over the entries that count, (O,)."""
    valid = batch.mask if batch.y_mask is None else batch.y_mask
    if valid is None:
        return batch.y.mean(dim=(0, 1))
    weight = (valid if valid.ndim == batch.y.ndim else valid.unsqueeze(-1)).expand_as(batch.y)
    total = batch.y.masked_fill(~weight, 0.0).sum(dim=(0, 1))
    return total / weight.sum(dim=(0, 1)).clamp(min=1)


def _most_frequent(batch: SequenceBatch) -> int:
    """Return the class that most targets that count have."""
    valid = batch.mask if batch.y_mask is None else batch.y_mask
    y = batch.y if valid is None or batch.y.ndim == 1 else batch.y[valid]
    return int(y.flatten().mode().values)
