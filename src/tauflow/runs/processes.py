"""Run jobs in processes of their own, which end with the process that started them."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import Any

import torch

from tauflow._internal.import_path import safe_path_of_children

from .eta import EtaEstimator
from .job import Job, format_utc_now
from .results import RunRecord
from .run_job import make_failure_record, run_job

_POLL_SECONDS = 0.2  # seconds between two looks at whether the parent lives


def run_in_processes(
    jobs: list[Job], outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    """Run jobs in several processes, and go on without those whose process dies.

    A process that dies, often killed for want of memory, takes the pool with it. Nobody says which
    job it had, so those that were running are run again, each in a pool of its own.

    Args:
        jobs: what to run.
        outlook: knows how many processes there are, and which jobs were running.
        force_start: whether the first jobs are begun however short the time is.
        options: of :func:`tauflow.runs.run_job.run_job`.
    """
    left = {job.key: job for job in jobs}
    while left:
        try:
            with worker_processes():
                for record in _run_pool(list(left.values()), outlook, force_start, options):
                    del left[record.key]
                    yield record
            return
        except BrokenProcessPool:
            suspects = [job for job in outlook.get_running_jobs() if job.key in left]
        for job in suspects or list(left.values())[:1]:
            try:
                with worker_processes():
                    (record,) = _run_pool([job], outlook, force_start, options)
            except BrokenProcessPool:
                message = (
                    "its process was killed, often for want of memory. Run the command again to "
                    "continue, with fewer --jobs."
                )
                record = make_failure_record(job, message, format_utc_now())
            del left[job.key]
            yield record


@contextmanager
def worker_processes() -> Iterator[None]:
    """Let worker processes begin as they should, and be cleared away where this one is stopped.

    SIGTERM, by which batch systems and ``timeout`` stop a program, ends a process on the spot.
    Joblib's tracker then finds semaphores and folders in shared memory, removes them, and says so
    at length. Here it leads out of the block, as Ctrl-C does, and ends the program with code 143; a
    second one ends it on the spot.
    """
    with safe_path_of_children():
        ours = threading.current_thread() is threading.main_thread()  # none else may set handlers
        if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, _exit_on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def _run_pool(
    jobs: list[Job], outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    from joblib import Parallel, delayed

    workers = min(outlook.workers, len(jobs))
    calls = (
        delayed(_run_job_in_worker)(
            job,
            ahead=outlook.get_required_seconds(job, in_any_case=force_start and number < workers),
            **options,
        )
        for number, job in enumerate(jobs)
    )
    pool = Parallel(
        n_jobs=max(2, workers),  # a single one would be this process
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=workers,  # so that the pace is known by then
        # Not before the first job: a worker that never gets one must end too.
        initializer=exit_with_parent,
        initargs=(os.getpid(),),
    )
    records: Iterator[RunRecord] = pool(calls)
    return records


def _run_job_in_worker(job: Job, **options: Any) -> RunRecord:
    """Run a job in a process of its own, with one thread."""
    torch.set_num_threads(1)
    return run_job(job, **options)


def exit_with_parent(parent: int) -> None:
    """End this process soon after the one that started it has died.

    A worker whose parent was killed would train on unseen, and keep the run from the next call. A
    process that ``parent`` did not start, as on another machine, is left alone.

    Args:
        parent: number of the process that asks for work.
    """
    started_by = multiprocessing.parent_process()  # says so even after that one has died
    if started_by is None or started_by.pid != parent:
        return

    def watch() -> None:
        if sys.platform == "win32":  # does not tell that a parent is gone
            started_by.join()
        while os.getppid() == parent and sys.platform != "win32":
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
