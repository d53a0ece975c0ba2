"""Run jobs as some of many: whatever happens becomes a record, and a time limit is kept."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from tauflow._internal.atomic_write import add_path_to_errors
from tauflow.data.card import TaskData
from tauflow.runs.job import Job, format_utc_now, make_record_header, train_job
from tauflow.runs.results import RunRecord
from tauflow.runs.warm_start import warm_start_from_shorter_run
from tauflow.training.callbacks import AnyCallback
from tauflow_papers.experiments.spec.experiment import BASELINES, ENSEMBLE

from .baseline_rows import run_baseline_job
from .ensemble_rows import run_ensemble_job
from .processor_clock import ProcessorClock
from .result_file import FAILED, STOPPED
from .row_jobs import load_job_data
from .time_budget import Deadline, TimeLimitReached

RUNNING_MARKER_FILE = "running"
"""File in the directory of a run that is under way; a killed program leaves it behind."""


@dataclass(frozen=True)
class Paths:
    """Where things are; said once, where a command or a call begins.

    Args:
        results: folder of the files of finished runs, one for each table.
        runs: folder under which every run has a directory, with checkpoints and log.
        data: folder of the data files; by default that of :func:`tauflow.data.load_task`.
    """

    results: Path = Path("results")
    runs: Path = Path("runs")
    data: Path | None = None

    def results_file(self, experiment: str) -> Path:
        """Return the file of a table's finished runs."""
        return self.results / f"{experiment}.jsonl"


def run_job(
    job: Job,
    *,
    places: Paths,
    deadline: Deadline | None = None,
    ahead: float = 0.0,
    token: str = "",
    device: str | None = None,
) -> RunRecord:
    """Run a job, continuing a stopped or shorter run; a failure becomes a record.

    Args:
        job: what to run.
        places: of the run's directory, and of the data files.
        deadline: when to stop; the record then says so, and the rest can be run later.
        ahead: seconds that an epoch will take, as far as one can tell: a run whose first epoch
            would end too late is not begun.
        token: written into the run's directory while it runs.
        device: where to train; by default the CPU.
    """
    started = format_utc_now()
    if deadline is not None and deadline.is_too_late(ahead):
        return _make_stopped_record(job, started)
    directory = job.directory(places.runs)
    trouble = directory / "error.txt"
    with _running_marker(directory, token):
        try:
            record = _train(job, places, deadline, device)
        except TimeLimitReached:
            return _make_stopped_record(job, started)
        except Exception as error:  # one run that fails must not take the others with it
            with suppress(OSError):  # a full disk: the record says what happened
                trouble.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            return make_failure_record(job, f"{type(error).__name__}: {error}", started)
    trouble.unlink(missing_ok=True)  # of an earlier try
    return record


def _train(job: Job, places: Paths, deadline: Deadline | None, device: str | None) -> RunRecord:
    if job.model.cell == ENSEMBLE:
        return _train_ensemble(job, places, deadline, device)
    data = load_job_data(job, places.data)
    if job.model.cell in BASELINES:
        return run_baseline_job(job, data)
    warm_start_from_shorter_run([job], [data], places.runs)
    clock = ProcessorClock(job.directory(places.runs))
    calls: list[AnyCallback] = [clock.note]
    if deadline is not None:
        calls.append(partial(deadline.check, epochs=job.recipe.epochs))
    record, _ = train_job(
        job,
        data,
        run_dir=job.directory(places.runs),
        resume=True,
        progress=False,
        callbacks=calls,
        device=device,
    )
    return replace(record, processor_seconds=clock.seconds)


def _train_ensemble(
    job: Job, places: Paths, deadline: Deadline | None, device: str | None
) -> RunRecord:
    """Train the members of a row that averages them, each in its folder."""
    checks = [] if deadline is None else [partial(deadline.check, epochs=job.recipe.epochs)]

    def train(member: Job, data: TaskData) -> tuple[RunRecord, nn.Module]:
        return train_job(
            member,
            data,
            run_dir=member.directory(places.runs),
            resume=True,
            progress=False,
            callbacks=checks,
            device=device,
        )

    return run_ensemble_job(job, partial(load_job_data, data_dir=places.data), train)


def _make_stopped_record(job: Job, started: str) -> RunRecord:
    return RunRecord(**make_record_header(job, started), status=STOPPED)


@contextmanager
def _running_marker(run_dir: Path, token: str) -> Iterator[None]:
    """Leave a file in a run's directory while the run is under way."""
    run_dir.mkdir(parents=True, exist_ok=True)
    marker = run_dir / RUNNING_MARKER_FILE
    with add_path_to_errors(marker):
        marker.write_text(token, encoding="utf-8")
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def make_failure_record(job: Job, message: str, started: str) -> RunRecord:
    """Return the record of a run that failed."""
    return RunRecord(**make_record_header(job, started), status=FAILED, error=message)
