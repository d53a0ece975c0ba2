"""Jobs of the rows of published tables."""

from pathlib import Path

from tauflow.errors import ArgumentError
from tauflow.runs.job import Job, load_dataset, train_job, with_epochs
from tauflow.runs.results import RunRecord
from tauflow_papers.experiments.spec.experiment import Experiment, Row, Setting


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
    return Job(
        experiment=experiment.name,
        row=row.name,
        part=row.part,
        model=chosen.model,
        recipe=recipe if epochs is None else with_epochs(recipe, epochs),
        loss=row.loss,
        metric=row.metric,
        seed=seed,
    )


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
    data = load_dataset(row.part, data_dir)
    go_on = resume and run_dir is not None
    record, _ = train_job(job, data, run_dir=run_dir, resume=go_on, progress=progress)
    return record
