"""Run jobs as some of many: whatever happens becomes a record, and a time limit is kept."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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


def run_job_group(
    jobs: Sequence[Job],
    *,
    places: Paths,
    deadline: Deadline | None = None,
    ahead: float = 0.0,
    token: str = "",
    device: str | None = None,
) -> list[RunRecord]:
    """Run jobs side by side, continuing stopped or shorter ones; a failure becomes a record.

    Args:
        jobs: what to run, with one model on the same data, or splits of them, if they are several.
        places: of the runs' directories, and of the data files.
        deadline: when to stop; the records then say so, and the rest can be run later.
        ahead: seconds that an epoch of all will take, as far as one can tell: runs whose first
            epoch would end too late are not begun.
        token: written into the runs' directories while they run.
        device: where to train; by default the CPU.
    """
    started = format_utc_now()
    if deadline is not None and deadline.is_too_late(ahead):
        return [_make_stopped_record(job, started) for job in jobs]
    with ExitStack() as marked:
        for job in jobs:
            marked.enter_context(_running_marker(job.directory(places.runs), token))
        found = _train_group(jobs, places, deadline, device)
    records = []
    for job, one in zip(jobs, found, strict=True):
        trouble = job.directory(places.runs) / "error.txt"
        if isinstance(one, RunRecord):
            trouble.unlink(missing_ok=True)  # of an earlier try
            records.append(one)
        elif isinstance(one, TimeLimitReached):
            records.append(_make_stopped_record(job, started))
        else:  # one run that fails must not take the others with it
            with suppress(OSError):  # a full disk: the record says what happened
                trouble.write_text("".join(traceback.format_exception(one)), encoding="utf-8")
            records.append(make_failure_record(job, f"{type(one).__name__}: {one}", started))
    return records


def _train_group(
    jobs: Sequence[Job], places: Paths, deadline: Deadline | None, device: str | None
) -> Sequence[RunRecord | Exception]:
    """Return the record of each job, or what it failed with."""
    found: dict[str, RunRecord | Exception] = {}
    try:
        if jobs[0].model.cell == ENSEMBLE:
            return [_train_ensemble(job, places, deadline, device) for job in jobs]
        data = {job.key: load_job_data(job, places.data) for job in jobs}
        if jobs[0].model.cell in BASELINES:
            return [run_baseline_job(job, data[job.key]) for job in jobs]
        for job in jobs:
            try:
                warm_start_from_shorter_run(job, data[job.key], places.runs)
            except Exception as error:
                found[job.key] = error
        left = [job for job in jobs if job.key not in found]
        clocks = [ProcessorClock(job.directory(places.runs), share=len(left)) for job in left]
        checks: list[list[AnyCallback]] = [[clock.note] for clock in clocks]
        if deadline is not None:
            for job, calls in zip(left, checks, strict=True):
                calls.append(partial(deadline.check, epochs=job.recipe.epochs, networks=len(left)))
        for job, clock, calls in zip(left, clocks, checks, strict=True):
            try:
                record, _ = train_job(
                    job,
                    data[job.key],
                    run_dir=job.directory(places.runs),
                    resume=True,
                    progress=False,
                    callbacks=calls,
                    device=device,
                )
                found[job.key] = replace(record, processor_seconds=clock.seconds)
            except Exception as error:
                found[job.key] = error
    except Exception as error:
        return [error for _ in jobs]
    return [found[job.key] for job in jobs]


def _train_ensemble(
    job: Job, places: Paths, deadline: Deadline | None, device: str | None
) -> RunRecord:
    """Train the members of a row that averages them, each in a folder of its own."""
    checks = [] if deadline is None else [partial(deadline.check, epochs=job.recipe.epochs)]

    def train(one: Job, data: TaskData) -> tuple[RunRecord, nn.Module]:
        return train_job(
            one,
            data,
            run_dir=one.directory(places.runs),
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
