"""Run jobs in processes of their own, which end with the process that started them."""

import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from tauflow.runs.job import format_utc_now
from tauflow.runs.processes import exit_with_parent, worker_processes
from tauflow.runs.results import RunRecord

from .eta import EtaEstimator
from .job_groups import JobGroup
from .run_job import make_failure_record, run_job_group


def run_in_processes(
    groups: list[JobGroup], outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[RunRecord]:
    """Run groups of jobs in several processes, and go on without those whose process dies.

    A process that dies, often killed for want of memory, takes the pool with it. Nobody says which
    group it had, so the jobs that were running are run again, each in a pool of its own.

    Args:
        groups: what to run, each in one process.
        outlook: knows how many processes there are, and which jobs were running.
        force_start: whether the first jobs are begun however short the time is.
        options: of :func:`~tauflow_papers.experiments.run.run_job.run_job_group`.
    """
    left = {group[0].key: group for group in groups}
    while left:
        try:
            with worker_processes():
                for records in _run_pool(list(left.values()), outlook, force_start, options):
                    del left[records[0].key]
                    yield from records
            return
        except BrokenProcessPool:
            running = {job.key for job in outlook.get_running_jobs()}
        suspects = [key for key, group in left.items() if running & {job.key for job in group}]
        for key in suspects or list(left)[:1]:
            for job in left.pop(key):
                try:
                    with worker_processes():
                        (records,) = _run_pool([[job]], outlook, force_start, options)
                except BrokenProcessPool:
                    message = (
                        "its process was killed, often for want of memory. Run the command again "
                        "to continue, with fewer --jobs."
                    )
                    records = [make_failure_record(job, message, format_utc_now())]
                yield from records


def _run_pool(
    groups: list[JobGroup], outlook: EtaEstimator, force_start: bool, options: dict[str, Any]
) -> Iterator[list[RunRecord]]:
    from joblib import Parallel, delayed

    workers = min(outlook.workers, len(groups))
    calls = (
        delayed(_run_group_in_worker)(
            group,
            ahead=outlook.get_required_seconds(group, in_any_case=force_start and number < workers),
            **options,
        )
        for number, group in enumerate(groups)
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
    records: Iterator[list[RunRecord]] = pool(calls)
    return records


def _run_group_in_worker(group: JobGroup, **options: Any) -> list[RunRecord]:
    """Run jobs in a process of their own, with one thread."""
    torch.set_num_threads(1)
    return run_job_group(group, **options)
