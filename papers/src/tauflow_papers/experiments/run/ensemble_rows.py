"""Rows of an ensemble: every member is trained on each fold, and all predictions are averaged."""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from torch import nn

from tauflow.data.card import TaskData
from tauflow.models import Ensemble
from tauflow.models.spec import ModelSpec
from tauflow.runs.boosting import fit_boosted_trees
from tauflow.runs.job import Job, format_utc_now, join_commits, make_record_header
from tauflow.runs.results import DONE, RunRecord
from tauflow.training.evaluation_loop import evaluate
from tauflow_papers.experiments.spec.experiment import BOOSTING, list_members

FOLD_OPTION = "fold"
"""Option of the data sets of such rows: which part of the training records validates."""
_SEEDS_BETWEEN_FOLDS = 100


def make_member_jobs(job: Job) -> list[list[Job]]:
    """Return the jobs of the members of an ensemble, by fold or seed.

    Args:
        job: of the row. Its model has the options ``members``, names of networks or boosting, and
            ``folds``, on each of which they are trained, or ``seeds``, with which they are trained
            on the same parts. All networks have its hidden size, ``options`` and recipe; those of
            a fold have their own seed.
    """
    members, times = list_members(job.model)

    def make(member: ModelSpec, number: int) -> Job:
        fold, seed = {}, job.seed * times + number
        if "folds" in job.model.options:
            fold, seed = {FOLD_OPTION: number}, job.seed + _SEEDS_BETWEEN_FOLDS * number
        return replace(
            job,
            row=f"ensemble-{member.cell}-{number}",
            part=replace(job.part, options={**job.part.options, **fold}),
            model=member,
            seed=seed,
        )

    return [[make(member, number) for member in members] for number in range(times)]


def run_ensemble_job(
    job: Job,
    load: Callable[[Job], TaskData],
    train: Callable[[Job, TaskData], tuple[RunRecord, nn.Module]],
) -> RunRecord:
    """Train the members of an ensemble, and score the mean of what they predict.

    The validation score is the mean over folds of that of its members: no record is scored
    by a network that learned from it.

    Args:
        job: of the row.
        load: loads the data of a member.
        train: trains a network on data.
    """
    header, began = make_record_header(job, format_utc_now()), time.perf_counter()
    commits = [header["commit"]]
    models: list[nn.Module] = []
    valid, parameters, seconds = [], 0, 0.0
    for jobs in make_member_jobs(job):
        data = load(jobs[0])
        assert data.valid is not None, f"{job.part.dataset} has no validation part"
        members: list[nn.Module] = []
        for member_job in jobs:
            if member_job.model.cell == BOOSTING:
                members.append(fit_boosted_trees(data))
                continue
            record, model = train(member_job, data)
            members.append(model.eval())
            commits.append(record.commit)
            parameters += record.parameters or 0
            seconds += record.seconds or 0.0
        valid.append(evaluate(_join(members, data), data.valid, metric=job.metric))
        models += members
    header["commit"] = join_commits(
        part for commit in commits for part in (commit or "unknown").split("+")
    )
    return RunRecord(
        **header,
        status=DONE,
        valid=fmean(valid),
        test=evaluate(_join(models, data), data.test, metric=job.metric),
        parameters=parameters,
        seconds=seconds or time.perf_counter() - began,
    )


def _join(models: list[nn.Module], data: TaskData) -> nn.Module:
    return Ensemble(models, data.card.task).eval() if len(models) > 1 else models[0]
