"""Which jobs a worker takes at a time: one after the other."""

from collections.abc import Sequence
from pathlib import Path

from tauflow.runs.job import Job

JobGroup = list[Job]


def group_jobs(jobs: Sequence[Job], runs_dir: Path, workers: int = 1) -> list[JobGroup]:
    """Return each job by itself.

    Args:
        jobs: what to run.
        runs_dir: folder of the run directories.
        workers: how many groups are run at a time.
    """
    return [[job] for job in jobs]
