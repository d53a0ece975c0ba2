"""Rows without a network: gradient boosting on summary features, and the best naive baseline."""

import time

from torch import nn

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.runs.baselines import make_baseline_models
from tauflow.runs.boosting import fit_boosted_trees
from tauflow.runs.job import Job, format_utc_now, make_record_header
from tauflow.runs.results import DONE, RunRecord
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.spec.experiment import BOOSTING


def run_baseline_job(job: Job, data: TaskData) -> RunRecord:
    """Fit and score a baseline as a run is; it has no epochs and no parameters.

    Args:
        job: whose model is one of :data:`~tauflow_papers.experiments.spec.experiment.BASELINES`.
        data: as the table was read.

    Raises:
        ArgumentError: there is no validation part.
        MissingExtraError: scikit-learn is not installed.
    """
    if data.valid is None:
        raise ArgumentError(f"{data.card.name} has no validation part to compare by.")
    started, began = format_utc_now(), time.perf_counter()
    model = fit_boosted_trees(data) if job.model.cell == BOOSTING else _choose_naive(job, data)
    return RunRecord(
        **make_record_header(job, started),
        status=DONE,
        valid=evaluate(model, data.valid, metric=job.metric),
        test=evaluate(model, data.test, metric=job.metric),
        parameters=0,
        seconds=time.perf_counter() - began,
    )


def _choose_naive(job: Job, data: TaskData) -> nn.Module:
    """Return the naive baseline with the best validation score."""
    assert data.valid is not None
    sign = -1.0 if METRICS[job.metric].higher_is_better else 1.0
    models = [model for _, model in make_baseline_models(data)]
    scores = [sign * evaluate(model, data.valid, metric=job.metric) for model in models]
    return models[scores.index(min(scores))]
