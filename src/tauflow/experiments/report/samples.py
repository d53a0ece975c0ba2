"""A few test sequences with what a trained model makes of them."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.experiments.run.job import Job
from tauflow.models.specified import build_model
from tauflow.training.checkpoint import read_checkpoint, read_tensors
from tauflow.training.metrics import predict


@dataclass(frozen=True)
class Sample:
    """One test sequence; lists of floats, one entry per valid step.

    Args:
        number: its position in the test part.
        time: time of each step, in the unit.
        unit: of time, that of the table if there is one.
        truth: for each target feature its values, NaN where it is not known.
        predicted: for each target feature the model's values.
    """

    number: int
    time: list[float]
    unit: str
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
    unit = data.card.time_unit
    if data.table is not None:  # people know their data in the units of their table
        unit, dt = data.table.unit, None if batch.dt is None else batch.dt * data.table.gap
        batch = replace(batch, y=data.table.unscale(batch.y), dt=dt)
        predicted = data.table.unscale(predicted)
    found = [_one(batch, predicted, number, features, unit) for number in range(len(batch))]
    return [one for one in found if one.time]


def _one(batch: SequenceBatch, predicted: Tensor, number: int, features: int, unit: str) -> Sample:
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
        unit=unit,
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
        saved = read_checkpoint(last)
        weights = saved.averaged or saved.model
    else:
        return None
    model = build_model(job.model, data.card)
    model.load_state_dict(weights)
    return model
