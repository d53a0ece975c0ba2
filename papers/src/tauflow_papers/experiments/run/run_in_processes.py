"""Run jobs in processes, which end with the process that started them."""

import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from tauflow.runs.job import Job, format_utc_now
from tauflow.runs.processes import exit_with_parent
from tauflow.runs.results import RunRecord

from .eta import EtaEstimator
from .run_job import make_failure_record, run_job


def run_in_processes(
    jobs: list[Job], outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    """Run jobs in several processes, and go on without those whose process dies.

    A process that dies, often killed for want of memory, takes the pool with it. Which job
    it had is not known, so the jobs that were running are run again, each in another pool.

    Args:
        jobs: what to run, each in one process.
        outlook: knows how many processes there are, and which jobs were running.
        force_start: whether the first jobs are begun however short the time is.
        options: of :func:`~tauflow_papers.experiments.run.run_job.run_job`.
    """
    left = {job.key: job for job in jobs}
    while left:
        try:
            for record in _run_pool(list(left.values()), outlook, force_start, options):
                del left[record.key]
                yield record
            return
        except BrokenProcessPool:
            running = {job.key for job in outlook.get_running_jobs()}
        for key in [key for key in left if key in running] or list(left)[:1]:
            job = left.pop(key)
            try:
                (record,) = _run_pool([job], outlook, force_start, options)
            except BrokenProcessPool:
                message = (
                    "its process was killed, often for want of memory. Run the command again "
                    "to continue, with fewer --jobs."
                )
                record = make_failure_record(job, message, format_utc_now())
            yield record


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
    """Run a job in another process, with one thread."""
    torch.set_num_threads(1)
    return run_job(job, **options)
