"""Jobs of the rows of published tables."""

from dataclasses import replace
from pathlib import Path

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.runs.job import Job, load_dataset, train_job, with_epochs
from tauflow.runs.results import RunRecord
from tauflow.runs.run_data import add_needed_indicators
from tauflow_papers.experiments.spec.experiment import BASELINES, Experiment, Row, Setting


def make_job(experiment: Experiment, row: Row, seed: int, setting: Setting | None = None) -> Job:
    """Return the job of a row and a seed.

    Args:
        experiment: the table, which may be cut to fewer epochs.
        row: one of its rows; it must be one that can be run.
        seed: 0 or larger.
        setting: one of those that the row searches; by default its own model and recipe.
    """
    if row.model is None or row.recipe is None:
        raise ArgumentError(
            f"{experiment.name}, row {row.name!r} is {row.status}; choose a row that is ready."
        )
    chosen = setting or Setting("", row.model, row.recipe)
    epochs, recipe = experiment.epochs, chosen.recipe
    part = row.part
    if experiment.split_option:
        option = experiment.split_option
        part = replace(part, options={**part.options, option: seed})
    return Job(
        experiment=experiment.name,
        row=row.name,
        part=part,
        model=chosen.model,
        recipe=recipe if epochs is None else with_epochs(recipe, epochs),
        loss=row.loss,
        metric=row.metric,
        seed=seed,
    )


def load_job_data(job: Job, data_dir: Path | None = None) -> TaskData:
    """Load the data of a job; a network that is not told what is missing gets it as inputs.

    Args:
        job: of a row.
        data_dir: folder of the data files.
    """
    data = load_dataset(job.part, data_dir)
    if data.schema is None or job.model.cell in BASELINES:
        return data
    return add_needed_indicators(data, job.model)


def run_one(
    experiment: Experiment,
    row: Row,
    seed: int,
    *,
    epochs: int | None = None,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    resume: bool = True,
    progress: bool | None = None,
) -> RunRecord:
    """Run one row with one seed, without a search of settings, and return its record.

    Args:
        experiment: the table.
        row: one of its rows.
        seed: 0 or larger.
        epochs: instead of the recipe's.
        runs_dir: folder under which the run gets its own; without it nothing is written.
        data_dir: folder of the data files.
        resume: whether to continue a run of the same configuration that was stopped.
        progress: whether to draw a bar; by default on a terminal only.
    """
    job = make_job(experiment.with_epochs(epochs), row, seed)
    run_dir = None if runs_dir is None else job.directory(runs_dir)
    data = load_job_data(job, data_dir)
    go_on = resume and run_dir is not None
    record, _ = train_job(job, data, run_dir=run_dir, resume=go_on, progress=progress)
    return record
