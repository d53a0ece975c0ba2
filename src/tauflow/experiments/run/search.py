"""The best of several settings, by the validation score of the first seed."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tauflow.errors import ArgumentError, DataNotFoundError
from tauflow.experiments.spec.experiment import Experiment, Row, Setting
from tauflow.training.metrics import METRICS

from .job import Job, job_of, load_part
from .results import DONE, RunRecord

SEED = 0
"""The seed with which every setting is run."""


def search_jobs(experiment: Experiment, row: Row, epochs: int | None) -> list[Job]:
    """Return the jobs of all settings that a row searches; none if it does not."""
    part = row.search_part or row.part
    jobs = [job_of(experiment, row, SEED, epochs=epochs, setting=s) for s in row.search]
    return [
        replace(job, part=part, label=setting.label)
        for job, setting in zip(jobs, row.search, strict=True)
    ]


def check_validation(row: Row, data_dir: Path | None) -> None:
    """Refuse a search on data without a validation part; data that are missing are let pass.

    Args:
        row: the row that searches.
        data_dir: folder of the data files.

    Raises:
        ArgumentError: there is nothing to select by.
    """
    part = row.search_part or row.part
    try:
        data = load_part(part, data_dir)
    except DataNotFoundError:  # will be told with the runs that need them
        return
    if data.valid is None:
        raise ArgumentError(
            f"{row.name}: {part.dataset!r} has no validation part to select settings by. "
            "Choose a row of another data set, or an option of this one that sets sequences aside."
        )


def best_setting(
    experiment: Experiment, row: Row, epochs: int | None, records: Iterable[RunRecord]
) -> Setting | None:
    """Return the best of the settings that have a finished run, the first if several tie.

    The score is that of the metric that selects epochs, on the validation part.

    Args:
        experiment: the table.
        row: one of its rows.
        epochs: to how many the runs were cut; ``None`` for the recipes' own.
        records: finished and failed runs.

    Returns:
        The setting, or ``None`` if the row searches none, or none has finished.
    """
    done = {record.config_hash: record for record in records if record.status == DONE}
    jobs = zip(row.search, search_jobs(experiment, row, epochs), strict=True)
    scored = [
        (score, setting)
        for setting, job in jobs
        if job.hash in done and (score := _score(job, done[job.hash])) is not None
    ]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _score(job: Job, record: RunRecord) -> float | None:
    """Return the validation score that selected the epoch; larger is better."""
    value = validation_score(job, record)
    if value is None:
        return None
    return value if METRICS[selected_by(job)].higher_is_better else -value


def selected_by(job: Job) -> str:
    """Return the metric by which a job selects its epoch."""
    return job.recipe.select_by or job.metric


def validation_score(job: Job, record: RunRecord) -> float | None:
    """Return the score on validation data that selected the epoch, in :func:`selected_by`."""
    if job.recipe.select_by is None or record.best_epoch is None:
        return record.valid
    value: float | None = record.history[record.best_epoch - 1].get("criterion")
    return value
