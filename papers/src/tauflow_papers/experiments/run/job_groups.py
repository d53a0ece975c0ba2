"""Which jobs are trained side by side: those with one model on the same data, or splits of them."""

import json
from collections.abc import Sequence
from pathlib import Path

from tauflow.errors import CheckpointError
from tauflow.runs.job import Job
from tauflow.training.checkpoint import read_checkpoint
from tauflow_papers.experiments.spec.experiment import BASELINES, ENSEMBLE

JobGroup = list[Job]


def group_jobs(jobs: Sequence[Job], runs_dir: Path, workers: int = 1) -> list[JobGroup]:
    """Return groups of jobs to train side by side, in the order of their first jobs.

    Runs that began go on as they began, alone or with the same others. Where there would be fewer
    groups than workers, the others are split.

    Args:
        jobs: what to run.
        runs_dir: folder of the run directories.
        workers: how many groups are run at a time.
    """
    groups: dict[tuple[str, ...], JobGroup] = {}
    fresh = set()
    for job in jobs:
        alike: tuple[str, ...] = (
            json.dumps([*_describe_data(job), repr(job.model), job.recipe.batch_size]),
        )
        partners = _read_partners(job.directory(runs_dir))
        if job.model.cell in (*BASELINES, ENSEMBLE) or partners == []:
            alike = (*alike, job.key)
        elif partners is not None:
            alike = (*alike, "with", *partners)
        else:
            fresh.add(alike)
        groups.setdefault(alike, []).append(job)
    parts = -(-max(0, workers - len(groups) + len(fresh)) // max(1, len(fresh)))
    return [
        part
        for key, group in groups.items()
        for part in (_split(group, parts) if key in fresh else [group])
    ]


def _describe_data(job: Job) -> list[str]:
    options = json.dumps(job.part.source_options, sort_keys=True)
    return [job.part.dataset, options, job.loss, job.metric]


def _read_partners(directory: Path) -> list[str] | None:
    """Return what a run was trained with, which may be nothing; ``None`` if it has not begun."""
    path = directory / "last.safetensors"
    if not path.exists():
        return None
    try:
        return read_checkpoint(path).stacked_with
    except CheckpointError:  # which running it raises again
        return []


def _split(group: JobGroup, parts: int) -> list[JobGroup]:
    """Return a group in so many parts, of nearly the same size, or as many as it has jobs."""
    count = max(1, min(parts, len(group)))
    edges = [k * len(group) // count for k in range(count + 1)]
    return [group[edges[k] : edges[k + 1]] for k in range(count)]
