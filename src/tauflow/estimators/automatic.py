"""``model="auto"``: a portfolio of models, of which validation chooses, as an estimator's model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.runs.job import DatasetSpec, Job, Trained, train_job
from tauflow.runs.portfolio import NETWORKS
from tauflow.runs.portfolio_folds import fit_portfolio
from tauflow.runs.run_data import RunData
from tauflow.tabular.sequences import Sequences
from tauflow.training import TrainingResult
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import DEFAULT_RECIPE

from .preparation import fit_schema, get_schema_options
from .state import copy_option
from .training import AUTO, RECIPE_PARAMETERS, LearningTask, TrainingPlan, describe_task

_OBJECTIVES = ("cross_entropy", "mse")
_FIXED = {
    **dict.fromkeys(("options", "recipe", "callbacks", "class_weight")),
    **{"backend": "auto", "dtype": "float32"},
}
"""Parameters that a portfolio cannot take, with what they must be."""


def fit_automatic(
    estimator: Any,
    learned: Sequences,
    held: Sequences | None,
    everything: Sequences | None,
    plan: TrainingPlan,
) -> TrainingResult:
    """Try a portfolio of models, and give an estimator the ensemble that validation chooses.

    The estimator gets ``trials_``, what was tried, and ``notes_``, what is to be said of it. Models
    are not trained again on all data.

    Args:
        estimator: that predicts one class, or numbers, of each sequence.
        learned: what to train on.
        held: what to choose by.
        whole: not trained on.
        plan: its seed is that of all networks, and going on from a fit before is refused.

    Returns:
        The training of the network with the largest share.

    Raises:
        ArgumentError: there are no validation data, or a parameter does not go with this.
    """
    task = estimator._make_task(learned)
    _check(estimator, task, goes_on=plan.goes_on)
    if held is None and not plan.folds:
        raise ArgumentError(
            f"model={AUTO!r} chooses models on validation data, which are missing. Give fit "
            "validation=, validation_fraction, or more sequences."
        )
    estimator.schema_ = fit_schema(
        estimator.schema_, learned, observes=True, **get_schema_options(estimator)
    )
    estimator._fit_target_scaler(learned)
    estimator._built = {
        name: copy_option(getattr(estimator, name)) for name in estimator._network_params
    }

    def make_part(train_rows: Sequences, rest: Sequences) -> TaskData:
        train, valid = (_with_observed(estimator._make_batch(rows)) for rows in (train_rows, rest))
        card = describe_task(task, input_size=len(estimator.schema_.inputs))
        card = replace(card, sizes=(len(train), len(valid), len(valid)))
        return TaskData(card, train, valid, valid, schema=estimator.schema_)

    parts = (
        [make_part(learned, held)]
        if held is not None
        else [make_part(learned.select(rows), learned.select(rest)) for rows, rest in plan.folds]
    )

    def train(
        job: Job, data: TaskData, folder: Path | None, calls: Sequence[AnyCallback]
    ) -> Trained:
        with torch.random.fork_rng(devices=[]):  # which a job seeds
            return train_job(
                job,
                data,
                callbacks=calls,
                progress=bool(estimator.verbose),
                device=None if estimator.device == "cpu" else estimator.device,
                score_test=False,
            )

    auto_fit = fit_portfolio(
        [RunData(part, DatasetSpec("", part.card.name), part) for part in parts],
        train,
        networks=NETWORKS,
        hidden_size=estimator.hidden_size,
        recipe=DEFAULT_RECIPE.with_changes(_get_changed_parameters(estimator)),
        seed=plan.seed,
        time_limit=estimator.time_limit,
        score_test=False,
    )
    estimator.module_ = auto_fit.model
    estimator.trials_ = auto_fit.trials
    estimator.notes_ = auto_fit.notes
    record = auto_fit.record
    return TrainingResult.from_history(
        [dict(row) for row in record.history],
        best_epoch=record.best_epoch or 1,
        parameters=record.parameters or 0,
    )


def _check(estimator: Any, task: LearningTask, *, goes_on: bool) -> None:
    name = type(estimator).__name__
    if task.loss not in _OBJECTIVES or task.per_step or task.query_targets:
        raise ArgumentError(
            f"model={AUTO!r} is for one class, or numbers, of each sequence, and {name} predicts "
            "something else. Name a model."
        )
    if estimator.ensemble not in (1, AUTO):
        raise ArgumentError(
            f"model={AUTO!r} tries several models, which ensemble={estimator.ensemble!r} does not "
            "go with. Leave it out, or name a model."
        )
    for parameter, expected in _FIXED.items():
        value = getattr(estimator, parameter, expected)
        if value != expected:
            raise ArgumentError(
                f"model={AUTO!r} tries several models, which {parameter}={value!r} does not go "
                "with. Leave it out, or name a model."
            )
    if estimator._spread is not None:
        raise ArgumentError(
            f"model={AUTO!r} has no intervals that are learned. Choose conformal ones, or name a "
            "model."
        )
    if goes_on:
        raise ArgumentError(f"model={AUTO!r} cannot go on from a fit. Set warm_start=False.")


def _get_changed_parameters(estimator: Any) -> dict[str, Any]:
    """Return fields of the recipe that differ from the estimator's defaults."""
    defaults = type(estimator)()
    return {
        name: getattr(estimator, name)
        for name in RECIPE_PARAMETERS
        if getattr(estimator, name) != getattr(defaults, name)
    }


def _with_observed(batch: SequenceBatch) -> SequenceBatch:
    """Return a batch that says what was measured, also where all was: new data may lack values."""
    if batch.observed is not None:
        return batch
    return replace(batch, observed=batch.valid.unsqueeze(-1).expand_as(batch.x).clone())
