"""The networks of an estimator, one for each seed."""

import warnings
from typing import Any

from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow.models.ensemble import Ensemble, list_members
from tauflow.training import Recipe, TrainingResult, train

from .network import RECIPE_PARAMETERS, build_recipe, build_refit_recipe, select_device
from .state import copy_network
from .targets import LearningTask, WeightedSequences


def fit_members(
    estimator: Any,
    learned: WeightedSequences,
    held: WeightedSequences | None,
    whole: WeightedSequences | None,
    seed: int,
    *,
    goes_on: bool,
) -> TrainingResult:
    """Train the networks of an estimator, which gets their mean as ``module_``.

    Args:
        estimator: of which there are ``ensemble`` networks.
        learned: what to train on.
        held: what to choose the best epoch by, if there is anything.
        whole: what to train on once more, for as many epochs, if this is to be done.
        seed: of the first network; those of the others follow it.
        goes_on: whether they go on from those that the estimator has.

    Returns:
        What training the first network returned.
    """
    before = list_members(estimator.module_) if goes_on else []
    kind = estimator._make_task(learned.targets, learned.weight).kind
    members, results = [], []
    for number in range(check_at_least(1, ensemble=estimator.ensemble)):
        with warnings.catch_warnings():
            if number:  # they have been given
                warnings.simplefilter("ignore", UserWarning)
            start = before[number] if goes_on else None
            results.append(_fit_member(estimator, learned, held, whole, seed + number, start))
        members.append(estimator.module_)
    estimator.module_ = Ensemble(members, kind).eval() if len(members) > 1 else members[0]
    return results[0]


def _fit_member(
    estimator: Any,
    learned: WeightedSequences,
    held: WeightedSequences | None,
    whole: WeightedSequences | None,
    seed: int,
    start: nn.Module | None,
) -> TrainingResult:
    """Train a network from a seed, or go on with a copy of one."""
    task = estimator._make_task(learned.targets, learned.weight)
    if start is None:
        estimator._initialise(*learned, task, seed)
    else:
        estimator.module_ = copy_network(start)
    result, recipe = _train(estimator, learned, held, task, seed)
    again = None if whole is None else build_refit_recipe(recipe, result.best_epoch)
    if whole is not None and again is not None:
        with warnings.catch_warnings():  # which have been given
            warnings.simplefilter("ignore", UserWarning)
            task = estimator._make_task(whole.targets, whole.weight)
            estimator._initialise(*whole, task, seed)
            _train(estimator, whole, None, task, seed, again)
    return result


def _train(
    estimator: Any,
    training: WeightedSequences,
    validation: WeightedSequences | None,
    task: LearningTask,
    seed: int,
    refit_recipe: Recipe | None = None,
) -> tuple[TrainingResult, Recipe]:
    """Train, by the recipe of the parameters or once more by another one, which is returned."""
    valid = None if validation is None else estimator._make_batch(*validation)
    own = {name: getattr(estimator, name) for name in RECIPE_PARAMETERS}
    recipe = refit_recipe or build_recipe(
        estimator.recipe, own, task, has_validation=valid is not None
    )
    result = train(
        estimator.module_,
        train=estimator._make_batch(*training),
        valid=valid,
        loss=task.loss,
        metric=task.metric,
        recipe=recipe,
        seed=seed,
        device=select_device(estimator.device),
        progress=bool(estimator.verbose),
        callbacks=() if refit_recipe else estimator.callbacks or (),
    )
    return result, recipe
