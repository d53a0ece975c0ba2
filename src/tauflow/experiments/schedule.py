"""Run jobs, in processes if asked and within a budget of time, and keep every result at once."""

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from tauflow.checks import at_least, positive
from tauflow.errors import TauflowError

from . import results
from .attempt import attempt, failure
from .lock import locked
from .outlook import Outlook
from .results import DONE, FAILED, STOPPED, RunRecord, describe
from .run import Job, load_part
from .timespan import Deadline, roughly
from .watch import watching

Say = Callable[[str], None]


def say_nothing(line: str) -> None:
    """Take a line and do nothing."""


@dataclass(frozen=True)
class Effort:
    """How jobs are run; nothing of it changes a result beyond the rounding of its last digits.

    Args:
        jobs: processes; with more than one each uses a single thread, even where a single job is
            left. How many threads add up a sum can change its last digit: a run that was stopped
            goes on bit for bit if it is given as many as before.
        budget: seconds; no epoch is begun that would, at the pace of the one before, end later.
            A run in the middle continues from its checkpoint next time, and every call gets at
            least one epoch further.
        runs_dir: where checkpoints and logs go.
        data_dir: folder of the data files.
        say: is told one line per run, and now and then how much time is left.
        progress: whether to draw bars; by default on a terminal only.
    """

    jobs: int = 1
    budget: float | None = None
    runs_dir: Path = Path("runs")
    data_dir: Path | None = None
    say: Say = field(default=say_nothing)
    progress: bool | None = None

    def __post_init__(self) -> None:
        at_least(1, jobs=self.jobs)
        if self.budget is not None:
            positive(budget=self.budget)


@dataclass(frozen=True)
class Unfinished:
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
        return f"{self.name}: {self.done} of {self.epochs} epochs"


@dataclass(frozen=True)
class Outcome:
    """What running jobs came to.

    Args:
        failures: runs that failed.
        unfinished: runs that the budget left over, in their order.
        seconds_left: how long those may take, if anything is known about it.
    """

    failures: tuple[RunRecord, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    seconds_left: float | None = None

    def then(self, other: "Outcome", waiting: Iterable[Unfinished] = ()) -> "Outcome":
        """Return what two batches of jobs came to together.

        Args:
            other: that of the later one.
            waiting: runs that could not even be planned.
        """
        known = [s for s in (self.seconds_left, other.seconds_left) if s is not None]
        return Outcome(
            (*self.failures, *other.failures),
            (*self.unfinished, *other.unfinished, *waiting),
            sum(known) if known else None,
        )

    def what_is_left(self) -> str:
        """Say which runs are left over and how long they may take; empty if none is."""
        if not self.unfinished:
            return ""
        begun = [str(run) for run in self.unfinished if run.done]
        parts = [f"begun ({'; '.join(begun)})"] if begun else []
        if len(begun) < len(self.unfinished):
            parts.append(f"{len(self.unfinished) - len(begun)} not begun")
        time_left = (
            f", about {roughly(self.seconds_left)} at this pace" if self.seconds_left else ""
        )
        runs = "run is" if len(self.unfinished) == 1 else "runs are"
        return (
            f"The time is up: {len(self.unfinished)} {runs} left{time_left}: {', '.join(parts)}. "
            "Every finished epoch is kept; the same command continues."
        )


def run_jobs(
    jobs: Sequence[Job], path: Path, effort: Effort, *, spent: float = 0.0, advance: bool = True
) -> Outcome:
    """Run every job whose result is not in a file yet, and append each result to it at once.

    A job that was stopped continues from its checkpoint; one that fails, or whose process dies, is
    reported and leaves the others alone.

    Args:
        jobs: what to run, in this order; they must belong to one experiment.
        path: the file of results.
        effort: how.
        spent: seconds of the budget that earlier batches of one command have used.
        advance: whether the first jobs are begun however short the time is: with a budget shorter
            than loading the data, or than an epoch, nothing would ever get done otherwise.

    Raises:
        BusyError: another program runs jobs of the same experiment in the same folder.
        OSError: nothing can be written to the file.
    """
    deadline = None
    if effort.budget is not None:
        deadline = Deadline(time.monotonic() + effort.budget - spent)
    say = effort.say
    known = finished(path, say)
    todo = list({job.key: job for job in jobs if job.key not in known}.values())
    if len(todo) < len(jobs):
        say(f"{len(jobs) - len(todo)} of {len(jobs)} runs are in {path} already")
    if not todo:
        return Outcome()
    with locked(effort.runs_dir / todo[0].experiment):
        results.check_place(path)
        outlook = Outlook(
            todo,
            effort.runs_dir,
            workers=effort.jobs,
            token=secrets.token_hex(8),
            earlier=known.values(),
        )
        by_key = {job.key: job for job in todo}
        failures: list[RunRecord] = []
        stopped: set[str] = set()
        with watching(outlook, say=say, wanted=effort.progress):
            for record in _records(outlook, effort, deadline, advance=advance):
                if record.status == STOPPED:
                    stopped.add(record.key)
                    continue
                outlook.end(record.key)
                if record.status == FAILED:
                    failures.append(record)
                results.append(path, record)
                job = by_key[record.key]
                # The test scores of points to choose from stay unseen.
                line = describe(record, job.name, "valid" if job.label else "test")
                say(f"[{outlook.ended}/{len(todo)}] {line}; {outlook.time_left()}")
        outlook.refresh()
        left = [
            Unfinished(job.name, outlook.done(job), job.recipe.epochs, job.key)
            for job in todo
            if job.key in stopped
        ]
        return Outcome(tuple(failures), tuple(left), outlook.seconds_left() if left else None)


def finished(path: Path, say: Say = say_nothing) -> dict[str, RunRecord]:
    """Return the finished runs of a file by row and configuration.

    Args:
        path: the file; it may be missing.
        say: is told of every line that cannot be read.
    """
    records, warnings = results.read(path)
    for warning in warnings:
        say(f"warning: {warning}")
    return {record.key: record for record in records if record.status == DONE}


def _records(
    outlook: Outlook, effort: Effort, deadline: Deadline | None, *, advance: bool
) -> Iterator[RunRecord]:
    """Yield the record of each job as soon as it is there."""
    missing = _fetch(outlook.jobs, effort)
    for job in outlook.jobs:
        if job.part.name in missing:
            yield failure(job, missing[job.part.name], _now())
    jobs = [job for job in outlook.jobs if job.part.name not in missing]
    options: dict[str, Any] = {
        "runs_dir": effort.runs_dir,
        "data_dir": effort.data_dir,
        "deadline": deadline,
        "token": outlook.token,
    }
    if effort.jobs > 1 and len(jobs) > 1:
        yield from _in_processes(jobs, outlook, advance, options)
        return
    with _threads(1 if effort.jobs > 1 else None):
        for number, job in enumerate(jobs):
            yield attempt(job, ahead=_ahead(outlook, job, advance and number == 0), **options)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads; ``None``: as many as it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fetch(jobs: Sequence[Job], effort: Effort) -> dict[str, str]:
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
            load_part(part, effort.data_dir)
        except TauflowError as error:
            if len(missing) == len(parts) - 1:
                raise
            missing[name] = f"{type(error).__name__}: {error}"
    return missing


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _ahead(outlook: Outlook, job: Job, in_any_case: bool) -> float:
    """Return the seconds that a job must find free to be begun: one epoch of it."""
    if in_any_case:
        return -float("inf")
    outlook.refresh()
    return outlook.pace(job) or 0.0


def _in_processes(
    jobs: Sequence[Job], outlook: Outlook, advance: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    """Run jobs in several processes, and go on without those whose process dies.

    A process that dies, often killed for want of memory, takes the pool with it. Nobody says which
    job it had, so those that were running are run again, each in a pool of its own.
    """
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = {job.key: job for job in jobs}
    while left:
        try:
            for record in _pool(list(left.values()), outlook, advance, options):
                del left[record.key]
                yield record
            return
        except TerminatedWorkerError:
            suspects = [job for job in outlook.running() if job.key in left]
        for job in suspects or list(left.values())[:1]:
            try:
                (record,) = _pool([job], outlook, advance, options)
            except TerminatedWorkerError:
                message = (
                    "its process was killed, often for want of memory. Run the command again to "
                    "continue, with fewer --jobs."
                )
                record = failure(job, message, _now())
            del left[job.key]
            yield record


def _pool(
    jobs: list[Job], outlook: Outlook, advance: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    from joblib import Parallel, delayed

    workers = min(outlook.workers, len(jobs))
    calls = (
        delayed(_attempt_in_worker)(
            job, os.getpid(), ahead=_ahead(outlook, job, advance and number < workers), **options
        )
        for number, job in enumerate(jobs)
    )
    pool = Parallel(
        n_jobs=max(2, workers),  # a single one would be this process
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=workers,  # so that the pace is known by then
    )
    records: Iterator[RunRecord] = pool(calls)
    return records


def _attempt_in_worker(job: Job, parent: int, **options: Any) -> RunRecord:
    """Run a job in a process of its own, with one thread."""
    torch.set_num_threads(1)
    _end_with(parent)
    return attempt(job, **options)


_watchers: list[Thread] = []


def _end_with(parent: int) -> None:
    """End this process soon after its parent has died.

    A worker whose parent was killed would train on unseen, in the very directory that the next call
    continues in. A process that was not started by the parent, as on another machine, is left
    alone, and so is one on Windows, which does not tell.
    """
    if _watchers or os.getppid() != parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    _watchers.append(Thread(target=watch, daemon=True))
    _watchers[0].start()
