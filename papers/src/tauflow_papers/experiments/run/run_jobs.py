"""Run jobs, in processes if asked and within a budget of time, and keep every result at once."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.locks import lock_folder
from tauflow._internal.sanitize import format_count
from tauflow.errors import TauflowError
from tauflow.runs.job import Job, Say, format_utc_now, load_dataset, say_nothing
from tauflow.runs.results import DONE, RunRecord

from . import result_file
from .eta import EtaEstimator
from .progress import show_progress
from .provenance import check_can_store, get_command
from .result_file import FAILED, STOPPED, format_record
from .run_in_cluster import run_in_cluster
from .run_in_processes import run_in_processes
from .run_job import Paths, make_failure_record, run_job
from .time_budget import Deadline, format_estimated_duration

# Two programs that train into one folder would undo each other's work.
_ADVICE = (
    "Wait until it ends, or stop it: every finished epoch is kept. To run several models at a "
    "time, give one 'tauflow reproduce' with --jobs; for something else, choose another folder "
    "with --runs."
)


@dataclass(frozen=True)
class ExecutionOptions:
    """How jobs are run; nothing of it changes a result beyond the rounding of its last digits.

    Args:
        jobs: processes; with more than one each uses a single thread, even where a single job is
            left, and the seeds of a row are shared out if there are fewer rows than processes. How
            many threads add up a sum, and what is trained side by side, can change its last digit:
            a run that was stopped goes on bit for bit if it is given as many as before.
        budget: seconds from now; no epoch is begun that would, at the pace of the one before, end
            later. A run in the middle continues from its checkpoint next time, and every call gets
            at least one epoch further.
        paths: of results, runs and data.
        say: called with one line per run, and now and then how much time is left.
        progress: whether to draw bars; by default on a terminal only.
        cluster: run on the workers of a Dask cluster: the address of its scheduler, or ``"local"``
            for ``jobs`` workers on this machine. Results come home through the scheduler; a job
            that another worker takes over goes on from its checkpoint where the workers share the
            folder of runs.
        device: where to train; by default the CPU.
    """

    jobs: int = 1
    budget: float | None = None
    paths: Paths = field(default_factory=Paths)
    say: Say = field(default=say_nothing)
    progress: bool | None = None
    cluster: str | None = None
    device: str | None = None
    deadline: Deadline | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_at_least(1, jobs=self.jobs)
        if self.budget is not None:
            ends = time.monotonic() + check_positive(budget=self.budget)
            object.__setattr__(self, "deadline", Deadline(ends))


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that is left for another time.

    Args:
        name: what it is called, with row and seed.
        done: finished epochs.
        epochs: epochs in all.
        key: the key that its record will have, if that is known yet.
    """

    name: str
    done: int
    epochs: int
    key: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.done} of {format_count(self.epochs, 'epoch')}"


@dataclass(frozen=True)
class Outcome:
    """Results of running jobs.

    Args:
        failures: runs that failed.
        unfinished: runs that the budget left over, in their order.
        seconds_left: how long those may take, if anything is known about it.
        ran: jobs that had no result before.
    """

    failures: tuple[RunRecord, ...] = ()
    unfinished: tuple[UnfinishedRun, ...] = ()
    seconds_left: float | None = None
    ran: int = field(default=0, compare=False)

    def combine(self, other: "Outcome", unplanned: Iterable[UnfinishedRun] = ()) -> "Outcome":
        """Return what two batches of jobs came to together.

        Args:
            other: that of the later one.
            unplanned: runs that could not even be planned.
        """
        known = [s for s in (self.seconds_left, other.seconds_left) if s is not None]
        return Outcome(
            (*self.failures, *other.failures),
            (*self.unfinished, *other.unfinished, *unplanned),
            sum(known) if known else None,
            self.ran + other.ran,
        )

    def describe_unfinished(self) -> str:
        """Say which runs are left over and how long they may take; empty if none is."""
        if not self.unfinished:
            return ""
        begun = [str(run) for run in self.unfinished if run.done]
        parts = [f"begun ({'; '.join(begun)})"] if begun else []
        if len(begun) < len(self.unfinished):
            parts.append(f"{len(self.unfinished) - len(begun)} not begun")
        time_left = (
            f", about {format_estimated_duration(self.seconds_left)} at this pace"
            if self.seconds_left
            else ""
        )
        remain = "remains" if len(self.unfinished) == 1 else "remain"
        return (
            f"Time budget reached: {format_count(len(self.unfinished), 'run')} "
            f"{remain}{time_left}: "
            f"{', '.join(parts)}. Every finished epoch is kept; the same command continues."
        )


def run_jobs(
    jobs: Sequence[Job], options: ExecutionOptions, *, force_start: bool = True
) -> Outcome:
    """Run every job that has no result yet, and append each result to the table's file at once.

    A job that was stopped continues from its checkpoint; one that fails, or whose process dies, is
    reported and leaves the others alone.

    Args:
        jobs: what to run, in this order; they must belong to one experiment.
        options: how.
        force_start: whether the first jobs are begun however short the time is: with a budget
            shorter than loading the data, or than an epoch, nothing would ever get done otherwise.

    Raises:
        BusyError: another program runs jobs of the same experiment in the same folder.
        OSError: nothing can be written to the file.
    """
    if not jobs:
        return Outcome()
    path = options.paths.results_file(jobs[0].experiment)
    say = options.say
    known = read_finished_runs(path, say)
    todo = list({job.key: job for job in jobs if job.key not in known}.values())
    if len(todo) < len(jobs):
        say(f"{len(jobs) - len(todo)} of {len(jobs)} runs are in {path} already")
    if not todo:
        return Outcome()
    runs = options.paths.runs
    check_can_store(path.parent)
    with lock_folder(todo[0].directory(runs).parent, advice=_ADVICE):
        result_file.check_writable(path)
        outlook = EtaEstimator(
            todo,
            runs,
            workers=options.jobs,
            token=secrets.token_hex(8),
            finished_runs=known.values(),
        )
        by_key = {job.key: job for job in todo}
        failures: list[RunRecord] = []
        stopped: set[str] = set()
        with show_progress(outlook, say=say, enabled=options.progress):
            for record in _iter_records(outlook, options, force_start=force_start):
                if record.status == STOPPED:
                    stopped.add(record.key)
                    continue
                outlook.mark_ended(record.key)
                if record.status == FAILED:
                    failures.append(record)
                record = replace(record, command=get_command())
                result_file.append_record(path, record)
                job = by_key[record.key]
                # The test scores of points to choose from stay unseen.
                line = format_record(record, job.name, "valid" if job.label else "test")
                say(f"[{outlook.num_ended}/{len(todo)}] {line}; {outlook.format_time_left()}")
        outlook.refresh()
        left = [
            UnfinishedRun(job.name, outlook.count_finished_epochs(job), job.recipe.epochs, job.key)
            for job in todo
            if job.key in stopped
        ]
        seconds_left = outlook.estimate_seconds_left() if left else None
        return Outcome(tuple(failures), tuple(left), seconds_left, len(todo))


def read_finished_runs(path: Path, say: Say = say_nothing) -> dict[str, RunRecord]:
    """Return the finished runs of a file by row and configuration.

    Args:
        path: the file; it may be missing.
        say: called with every line that cannot be read.
    """
    records, warnings = result_file.read_records(path)
    for warning in warnings:
        say(f"warning: {warning}")
    return {record.key: record for record in records if record.status == DONE}


def _iter_records(
    outlook: EtaEstimator, effort: ExecutionOptions, *, force_start: bool
) -> Iterator[RunRecord]:
    """Yield the record of each job as soon as it is there."""
    missing = _load_all_parts(outlook.jobs, effort.paths)
    for job in outlook.jobs:
        if job.part.name in missing:
            yield make_failure_record(job, missing[job.part.name], format_utc_now())
    jobs = [job for job in outlook.jobs if job.part.name not in missing]
    options: dict[str, Any] = {
        "places": effort.paths,
        "deadline": effort.deadline,
        "token": outlook.token,
        "device": effort.device,
    }
    if effort.cluster is not None and jobs:
        yield from run_in_cluster(jobs, effort.cluster, outlook, force_start, options)
        return
    if effort.jobs > 1 and len(jobs) > 1:
        yield from run_in_processes(jobs, outlook, force_start, options)
        return
    with _num_threads(1 if effort.jobs > 1 else None):
        for number, job in enumerate(jobs):
            ahead = outlook.get_required_seconds(job, in_any_case=force_start and number == 0)
            yield run_job(job, ahead=ahead, **options)


@contextmanager
def _num_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads; ``None``: as many as it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load_all_parts(jobs: Sequence[Job], paths: Paths) -> dict[str, str]:
    """Load every part once, before there are processes that would all fetch its files.

    Returns:
        What is wrong with the parts that cannot be loaded, by name.

    Raises:
        TauflowError: no part can be loaded at all.
    """
    parts = {job.part.name: job.part for job in jobs}
    missing: dict[str, str] = {}
    for name, part in parts.items():
        try:
            load_dataset(part, paths.data)
        except TauflowError as error:
            if len(missing) == len(parts) - 1:
                raise
            missing[name] = f"{type(error).__name__}: {error}"
    return missing
