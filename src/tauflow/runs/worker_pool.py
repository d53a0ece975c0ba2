"""Run jobs on the workers of a Dask cluster, on one machine or on many.

Dask's own client, and not joblib's backend for it: that one returns results only when all are there
(it has no generator), and here each is recorded as it comes.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

from .eta import EtaEstimator
from .job import Job, format_utc_now
from .results import RunRecord
from .run_job import make_failure_record, run_job
from .time_limits import Deadline

LOCAL = "local"
Key = TypeVar("Key")
CallResult = TypeVar("CallResult")
_CONNECT_TIMEOUT = 30.0  # seconds until a scheduler counts as not there


def run_in_cluster(
    jobs: list[Job], cluster: str, outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    """Run jobs on the workers of a cluster, and yield each record as it comes home.

    A worker that dies costs the job that it had: Dask gives that to another one, which goes on from
    the job's checkpoint if both see the same folder of runs. How many workers a job may cost before
    it counts as failed is a setting of Dask's, ``distributed.scheduler.allowed-failures``.

    Args:
        jobs: what to run.
        cluster: address of the scheduler, such as ``tcp://head:8786``; or ``"local"`` for workers
            of this machine's own, as many as ``outlook`` knows of.
        outlook: knows the pace of the jobs.
        force_start: whether the first jobs are begun however short the time is.
        options: of :func:`tauflow.runs.run_job.run_job`.

    Raises:
        MissingExtraError: Dask is not installed.
        ArgumentError: nobody answers at the address, or workers run several jobs at a time.
    """
    with connect_workers(cluster, outlook.workers) as crew:
        outlook.workers = crew.size  # which its estimates go by
        given = _make_portable(options)

        def call(number: int, job: Job) -> Callable[[], RunRecord]:
            ahead = outlook.get_required_seconds(
                job, in_any_case=force_start and number < crew.size
            )
            return partial(_run_job_remotely, job, ahead=ahead, **given)

        calls = ((job, call(number, job)) for number, job in enumerate(jobs))
        for job, found in crew.run_calls(calls):
            yield (
                found
                if isinstance(found, RunRecord)
                else make_failure_record(job, describe_worker_failure(found), format_utc_now())
            )


@dataclass(frozen=True)
class WorkerPool:
    """The workers of a cluster.

    Args:
        client: connected to their scheduler.
        size: how many there are.
    """

    client: Any
    size: int

    def run_calls(
        self, calls: Iterable[tuple[Key, Callable[[], CallResult]]]
    ) -> Iterator[tuple[Key, CallResult | BaseException]]:
        """Run calls, as many at a time as there are workers, and yield what comes home.

        Args:
            calls: with what to tell each by; taken only when a worker is free, after what the one
                before found has been seen to.

        Yields:
            What a call returned or raised, or why no worker came to an end with it.
        """
        left, running = iter(calls), {}
        done = require("distributed", extra="cluster").as_completed(loop=self.client.loop)

        def submit() -> None:
            for key, call in islice(left, 1):
                future = self.client.submit(_call_in_one_thread, call, pure=False)
                running[future] = key
                done.add(future)

        for _ in range(self.size):
            submit()
        for future in done:
            key, trouble = running.pop(future), future.exception()
            yield key, future.result() if trouble is None else trouble
            submit()


def _call_in_one_thread(call: Callable[[], CallResult]) -> CallResult:
    torch.set_num_threads(1)
    return call()


@contextmanager
def connect_workers(cluster: str, workers: int) -> Iterator[WorkerPool]:
    """Connect to the workers of a cluster.

    Args:
        cluster: address of the scheduler, or ``"local"``.
        workers: how many to start if it is ``"local"``.

    Raises:
        MissingExtraError: Dask is not installed.
        ArgumentError: nobody answers at the address, or workers run several jobs at a time.
    """
    distributed = require("distributed", extra="cluster")
    with _connect_client(distributed, cluster, workers) as client:
        yield WorkerPool(client, _count_workers(client, cluster))


def describe_worker_failure(error: BaseException) -> str:
    """Say what became of a call that no worker came to an end with."""
    return (
        f"no worker came to an end with it ({type(error).__name__}: {error}). Look into the "
        "workers' own logs; the same command tries again."
    )


def _make_portable(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that mean the same elsewhere: whole paths, and a time by the clock."""
    places, deadline = options["places"], options.get("deadline")
    here = replace(places, runs=Path(places.runs).resolve())
    if places.data is not None:
        here = replace(here, data=Path(places.data).resolve())
    until = None if deadline is None else time.time() + deadline.at - time.monotonic()
    return {**options, "places": here, "deadline": until}


def _run_job_remotely(job: Job, *, deadline: float | None, **options: Any) -> RunRecord:
    """Run a job on a worker; ``deadline`` is a time in seconds since 1970."""
    until = None if deadline is None else Deadline(time.monotonic() + deadline - time.time())
    return run_job(job, deadline=until, **options)


@contextmanager
def _connect_client(distributed: Any, cluster: str, workers: int) -> Iterator[Any]:
    """Connect to a scheduler, or start one with its workers and end them afterwards."""
    if cluster != LOCAL:
        try:
            client = distributed.Client(cluster, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"no scheduler answers at {cluster!r} ({error}). Start one with 'dask scheduler' "
                "and give the address that it prints, or 'local'."
            ) from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,  # a worker that dies is told by its job
        ) as own,
        distributed.Client(own, set_as_default=False) as client,
    ):
        yield client


def _count_workers(client: Any, cluster: str) -> int:
    """Return how many jobs run at a time, once there are workers.

    Raises:
        ArgumentError: there are none, or one of them runs several jobs at a time.
    """
    try:
        client.wait_for_workers(1, timeout=_CONNECT_TIMEOUT)
    except TimeoutError as error:
        raise ArgumentError(
            f"the scheduler at {cluster} has no workers. Start some with 'dask worker {cluster} "
            "--nthreads 1 --nworkers N'."
        ) from error
    threads: dict[str, int] = client.nthreads()
    several = [name for name, count in threads.items() if count > 1]
    if several:
        raise ArgumentError(
            f"the worker {several[0]} runs {format_count(threads[several[0]], 'job')} at a time, "
            "which would share "
            "random numbers. Start workers with '--nthreads 1', and more of them."
        )
    return len(threads)
