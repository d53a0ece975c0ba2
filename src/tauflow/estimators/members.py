"""The networks of an estimator, one for each seed."""

import logging
import warnings
from typing import Any

from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow.models.ensemble import Ensemble, list_members
from tauflow.models.stack_training import find_training_obstacle, train_stack
from tauflow.training import Recipe, TrainingResult, train

from .network import RECIPE_PARAMETERS, build_recipe, build_refit_recipe, select_device
from .state import copy_network
from .targets import LearningTask, WeightedSequences

_log = logging.getLogger("tauflow")


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
    count = check_at_least(1, ensemble=estimator.ensemble)
    together = [] if before or count == 1 else _train_together(estimator, learned, held, seed)
    members, results = [], []
    for number in range(count):
        with warnings.catch_warnings():
            if number:  # they have been given
                warnings.simplefilter("ignore", UserWarning)
            start = before[number] if goes_on else None
            trained = together[number] if together else None
            results.append(
                _fit_member(estimator, learned, held, whole, seed + number, start, trained)
            )
        members.append(estimator.module_)
    estimator.module_ = Ensemble(members, kind).eval() if len(members) > 1 else members[0]
    return results[0]


_Trained = tuple[nn.Module, TrainingResult, Recipe]


def _train_together(
    estimator: Any, learned: WeightedSequences, held: WeightedSequences | None, seed: int
) -> list[_Trained]:
    """Train the networks of all seeds in one stack; return nothing where that is not possible."""
    if estimator.callbacks or estimator.verbose or select_device(estimator.device).type != "cpu":
        return []
    task, networks = estimator._make_task(learned.targets, learned.weight), []
    for number in range(estimator.ensemble):
        estimator._initialise(*learned, task, seed + number)
        networks.append(estimator.module_)
    data = estimator._make_batch(*learned)
    valid = None if held is None else estimator._make_batch(*held)
    recipe = _make_recipe(estimator, task, has_validation=valid is not None)
    if reason := find_training_obstacle(networks, data, recipe, task.loss):
        _log.info("training the networks one after the other: %s", reason)
        return []
    results = train_stack(
        networks,
        seeds=range(seed, seed + estimator.ensemble),
        train=data,
        valid=valid,
        loss=task.loss,
        metric=task.metric,
        recipe=recipe,
    )
    return [(one, result, recipe) for one, result in zip(networks, results, strict=True)]


def _fit_member(
    estimator: Any,
    learned: WeightedSequences,
    held: WeightedSequences | None,
    whole: WeightedSequences | None,
    seed: int,
    start: nn.Module | None,
    trained: _Trained | None,
) -> TrainingResult:
    """Train a network from a seed, or go on with a copy of one; or take what is trained."""
    task = estimator._make_task(learned.targets, learned.weight)
    if trained is not None:
        estimator.module_, result, recipe = trained
    else:
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
    recipe = refit_recipe or _make_recipe(estimator, task, has_validation=valid is not None)
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


def _make_recipe(estimator: Any, task: LearningTask, *, has_validation: bool) -> Recipe:
    own = {name: getattr(estimator, name) for name in RECIPE_PARAMETERS}
    return build_recipe(estimator.recipe, own, task, has_validation=has_validation)
