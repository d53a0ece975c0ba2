"""How long a run of a table's row would take here, told by a few of its batches."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import NonFiniteError
from tauflow.experiments.spec.experiment import Experiment, Row
from tauflow.models import AbstractWholeModel, SequenceModel
from tauflow.training.curriculum import beginning
from tauflow.training.metrics import evaluate_all
from tauflow.training.recipe import Recipe

from .job import Job, execute, job_of, load_part, shortened

BATCHES = 3
"""Steps that are timed, on sequences drawn at random."""
_SCORED = 256
"""Sequences whose evaluation is timed."""


@dataclass(frozen=True)
class Estimate:
    """What a run of a row is expected to take.

    Args:
        experiment: name of the table.
        row: name of the row.
        config_hash: of the run with seed 0, and the first of the settings that a row searches.
        epochs: of a run.
        epoch: seconds of an epoch on whole sequences, evaluation included.
        seconds: of a run.
    """

    experiment: str
    row: str
    config_hash: str
    epochs: int
    epoch: float
    seconds: float


def job_to_estimate(experiment: Experiment, row: Row) -> Job:
    """Return the run that stands for all of a row: seed 0, with the first setting it searches."""
    return job_of(experiment, row, 0, row.search[0] if row.search else None)


def estimate(experiment: Experiment, row: Row, data_dir: Path | None = None) -> Estimate:
    """Time a few steps and a part of an evaluation, and reckon what a whole run takes.

    It is an estimate: sequences differ in length, other programs take their share, and early
    stopping is not foreseen. Stages of a curriculum count by their steps.

    Args:
        experiment: the table.
        row: one of its rows, which must be one that can be run.
        data_dir: folder of the data files.

    Raises:
        ArgumentError: the row is not one that can be run.
        DataNotFoundError: its data are not here and cannot be fetched.
        NonFiniteError: the loss is not finite from the beginning.
    """
    job = job_to_estimate(experiment, row)
    data = load_part(row.part, data_dir)
    size = job.recipe.batch_size * job.recipe.accumulate
    few = _drawn(data.train, BATCHES * size)
    steps = data.train.x.shape[1]
    try:
        _timed(job, data, few[:size])  # compiles what is not compiled yet
        model, seconds = _timed(job, data, few)
    except NonFiniteError:  # a network that only its curriculum leads to whole sequences
        if not job.recipe.curriculum:
            raise
        first = min(job.recipe.curriculum[0], steps)
        model, seconds = _timed(job, data, beginning(few, first))
        seconds *= steps / first
    training = seconds * len(data.train) / len(few)
    scoring = sum(_scoring(model, part) for part in (data.valid, data.test) if part is not None)
    epochs = job.recipe.epochs
    return Estimate(
        experiment=experiment.name,
        row=row.name,
        config_hash=job.hash,
        epochs=epochs,
        epoch=training + scoring,
        seconds=training * whole_epochs(job.recipe, steps) + scoring * epochs,
    )


def whole_epochs(recipe: Recipe, steps: int) -> float:
    """Return how many epochs on whole sequences cost as much as a recipe's training.

    Args:
        recipe: what may have a curriculum.
        steps: of the longest sequence.
    """
    left, cost = recipe.epochs, 0.0
    for stage in recipe.curriculum or ():
        epochs = min(left, recipe.curriculum_epochs or 0)
        left, cost = left - epochs, cost + epochs * min(1.0, stage / steps)
    return cost + left


def _drawn(data: SequenceBatch, count: int) -> SequenceBatch:
    """Return some sequences, the same ones in every call."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    return data[order[:count]]


def _timed(
    job: Job, data: TaskData, few: SequenceBatch
) -> tuple[SequenceModel | AbstractWholeModel, float]:
    """Train for an epoch on a few sequences; return the model and the seconds."""
    recipe = replace(
        shortened(job.recipe, 1),
        curriculum=None,
        curriculum_epochs=None,
        select="last",
        select_by=None,
        on_divergence="raise",
        patience=None,
        drop_last=False,
    )
    part = replace(data, train=few, valid=None)
    record, model = execute(replace(job, recipe=recipe), part, progress=False, tested=False)
    return model, record.seconds or 0.0


def _scoring(model: SequenceModel | AbstractWholeModel, part: SequenceBatch) -> float:
    """Return the seconds of an evaluation of a part, from some of its sequences."""
    some = _drawn(part, _SCORED)
    start = time.perf_counter()
    evaluate_all(model, some, metrics=())
    return (time.perf_counter() - start) * len(part) / len(some)
