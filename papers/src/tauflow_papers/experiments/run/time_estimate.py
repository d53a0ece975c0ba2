"""How long a run of a table's row would take here, told by a few of its batches.

Times are processor seconds of one thread, which other programs lengthen far less than wall time.
"""

import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import NonFiniteError
from tauflow.models import AbstractWholeModel, ForecastModel, SequenceModel
from tauflow.runs import results
from tauflow.runs.job import Job, format_utc_now, load_dataset, train_job, with_epochs
from tauflow.training.callbacks import Callback, Training
from tauflow.training.evaluation_loop import evaluate_all
from tauflow.training.recipe import Recipe
from tauflow_papers.experiments.spec.experiment import Experiment, Row

from .grid_search import make_search_jobs
from .row_jobs import load_job_data, make_job

NUM_TIMED_BATCHES = 3
"""Steps that are timed, on sequences drawn at random."""
NUM_TIMED_SEQUENCES = 256
"""Sequences whose evaluation is timed."""

_TIMING_RECIPE_CHANGES: dict[str, Any] = {
    **dict.fromkeys(("curriculum", "curriculum_epochs", "select_by", "patience")),
    **dict.fromkeys(("decay", "min_lr", "schedule_options")),
    **{"select": "last", "on_divergence": "raise", "drop_last": False},
    **{"schedule": "constant", "schedule_interval": "epoch", "warmup_steps": 0},
}
"""What a recipe is given for an epoch of a few steps: none of it costs time, some needs more."""


@dataclass(frozen=True)
class Estimate:
    """What a run of a row is expected to take.

    Args:
        experiment: name of the table.
        row: name of the row.
        config_hash: of what was timed: the run with seed 0, or those of all settings searched.
        epochs: of a run.
        epoch: processor seconds of an epoch on whole sequences, evaluation included; the mean over
            the settings that a row searches.
        seconds: processor seconds of a run; the same mean.
        timed: when, UTC.
        machine: where, as runs have it.
    """

    experiment: str
    row: str
    config_hash: str
    epochs: int
    epoch: float
    seconds: float
    timed: str = ""
    machine: dict[str, Any] = field(default_factory=dict)


def make_row_jobs(experiment: Experiment, row: Row) -> list[Job]:
    """Return the runs that stand for all of a row: of every setting it searches, or of seed 0."""
    return make_search_jobs(experiment, row) or [make_job(experiment, row, 0)]


def hash_jobs(jobs: list[Job]) -> str:
    """Return the hash of a run, or one of several runs' hashes."""
    if len(jobs) == 1:
        return jobs[0].hash
    return sha256(" ".join(job.hash for job in jobs).encode()).hexdigest()[:16]


def estimate_row(experiment: Experiment, row: Row, data_dir: Path | None = None) -> Estimate:
    """Time a few steps and a part of an evaluation, and reckon what a whole run takes.

    It is an estimate: sequences differ in length, other programs take their share, and early
    stopping is not foreseen. Stages of a curriculum count by their steps. Of a search every network
    and batch size is timed once.

    Args:
        experiment: the table.
        row: one of its rows, which must be one that can be run.
        data_dir: folder of the data files.

    Raises:
        ArgumentError: the row is not one that can be run.
        DataNotFoundError: its data are not here and cannot be fetched.
        NonFiniteError: the loss is not finite from the beginning.
    """
    jobs = make_row_jobs(experiment, row)
    paces: dict[str, tuple[float, float]] = {}
    measured = []
    for job in jobs:
        steps = load_dataset(job.part, data_dir).train.x.shape[1]
        kind = f"{job.model} {job.recipe.batch_size} {job.recipe.accumulate}"
        if kind not in paces:
            paces[kind] = _measure_epoch_seconds(job, load_job_data(job, data_dir))
        training, scoring = paces[kind]
        epochs = job.recipe.epochs
        total = training * count_whole_epochs(job.recipe, steps) + scoring * epochs
        measured.append((training + scoring, total))
    return Estimate(
        experiment=experiment.name,
        row=row.name,
        config_hash=hash_jobs(jobs),
        epochs=jobs[0].recipe.epochs,
        epoch=fmean(epoch for epoch, _ in measured),
        seconds=fmean(total for _, total in measured),
        timed=format_utc_now(),
        machine=results.describe_machine(),
    )


def count_whole_epochs(recipe: Recipe, steps: int) -> float:
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


def _measure_epoch_seconds(job: Job, data: TaskData) -> tuple[float, float]:
    """Return the seconds that training and evaluation take in an epoch on whole sequences."""
    few = _sample_sequences(
        data.train, NUM_TIMED_BATCHES * job.recipe.batch_size * job.recipe.accumulate
    )
    steps = few.x.shape[1]
    try:
        model, seconds = _time_training(job, data, few)
    except NonFiniteError:  # a network that only its curriculum leads to whole sequences
        if not job.recipe.curriculum:
            raise
        first = min(job.recipe.curriculum[0], steps)
        model, seconds = _time_training(job, data, few.with_steps(first))
        seconds *= steps / first
    parts = (data.valid, data.test)
    scoring = sum(_time_evaluation(model, part) for part in parts if part is not None)
    return seconds * len(data.train) / len(few), scoring


def _sample_sequences(data: SequenceBatch, count: int) -> SequenceBatch:
    """Return some sequences, the same ones in every call."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    return data[order[:count]]


def _time_training(
    job: Job, data: TaskData, few: SequenceBatch
) -> tuple[SequenceModel | ForecastModel | AbstractWholeModel, float]:
    """Train for an epoch on a few sequences, twice; return the model and the second's seconds.

    The first time compiles what is not compiled yet. Of the recipe stays what costs time.
    """
    recipe = replace(with_epochs(job.recipe, 1), **_TIMING_RECIPE_CHANGES)
    short, part = replace(job, recipe=recipe), replace(data, train=few, valid=None)
    train_job(short, part, progress=False, score_test=False)
    watch = _Stopwatch()
    _, model = train_job(short, part, progress=False, score_test=False, callbacks=[watch])
    return model, watch.seconds


class _Stopwatch(Callback):
    """The processor seconds of the epoch of a training, without what comes before it."""

    seconds = 0.0

    def on_start(self, training: Training) -> None:
        self.seconds = -time.process_time()

    def on_epoch(self, training: Training) -> None:
        self.seconds += time.process_time()


def _time_evaluation(
    model: SequenceModel | ForecastModel | AbstractWholeModel, part: SequenceBatch
) -> float:
    """Return the seconds of an evaluation of a part, from some of its sequences."""
    some = _sample_sequences(part, NUM_TIMED_SEQUENCES)
    evaluate_all(model, some, metrics=())  # without gradients other loops may run
    start = time.process_time()
    evaluate_all(model, some, metrics=())
    return (time.process_time() - start) * len(part) / len(some)
