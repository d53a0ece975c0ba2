"""Run jobs on the workers of a Dask cluster, on one machine or on many."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tauflow.runs.job import Job, format_utc_now
from tauflow.runs.results import RunRecord

from .eta import EtaEstimator
from .run_job import make_failure_record, run_job
from .time_budget import Deadline
from .worker_pool import connect_workers, describe_worker_failure


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
        options: of :func:`~tauflow_papers.experiments.run.run_job.run_job`.

    Raises:
        MissingExtraError: Dask is not installed.
        ArgumentError: no scheduler answers at the address, or workers run several jobs at a time.
    """
    with connect_workers(cluster, outlook.workers) as crew:
        outlook.workers = crew.size  # which its estimates go by
        portable = _make_portable(options)

        def call(number: int, job: Job) -> Callable[[], RunRecord]:
            ahead = outlook.get_required_seconds(
                job, in_any_case=force_start and number < crew.size
            )
            return partial(_run_job_remotely, job, ahead=ahead, **portable)

        calls = ((job, call(number, job)) for number, job in enumerate(jobs))
        for job, outcome in crew.run_calls(calls):
            if isinstance(outcome, BaseException):
                yield make_failure_record(job, describe_worker_failure(outcome), format_utc_now())
            else:
                yield outcome


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
