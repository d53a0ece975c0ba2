"""What there is to learn, the networks of an estimator, and how they are trained."""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import torch
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, build_model
from tauflow.models.wrappers import Ensemble, ImputedInputs, list_members
from tauflow.tabular.cell_values import Indices
from tauflow.tabular.sequences import Sequences
from tauflow.training import Recipe, Score, TrainingResult, train
from tauflow.training.defaults import (
    DEFAULT_RECIPE,
    FORECAST_STEPS,
    adapt_recipe,
    disable_validation,
)
from tauflow.training.preconditions import resolve_device

AUTO = "auto"
"""Value of parameters that are chosen by the data."""
RECIPE_PARAMETERS = ("epochs", "lr", "batch_size", "patience")
"""Fields of a recipe that are parameters of an estimator."""


@dataclass(frozen=True)
class LearningTask:
    """What there is to learn.

    Args:
        kind: ``"classify"`` or ``"regress"``.
        outputs: of the network.
        loss: its name, or the loss itself.
        metric: as ``loss``, of what is reported of the validation split.
        select_by: name of what decides which epoch is the best.
        class_weights: of a classification.
        per_step: whether the network answers at each step, rather than once per sequence.
        query_targets: of forecasts at times that are asked for, see
            :class:`tauflow.data.DatasetCard`.
        query_horizon: likewise.
        query_periods: likewise.
        query_gap: likewise.
        calendar_inputs: likewise.
        recipe: how to train, but for what parameters of the estimator say; by default
            :data:`DEFAULT_RECIPE`.
    """

    kind: str
    outputs: int
    loss: str | Score
    metric: str | Score
    select_by: str | None = None
    class_weights: tuple[float, ...] | None = None
    per_step: bool = False
    query_targets: tuple[int, ...] = ()
    query_horizon: float = 1.0
    query_periods: tuple[float, ...] | None = None
    query_gap: float = 1.0
    calendar_inputs: int = 0
    recipe: Recipe = DEFAULT_RECIPE


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """How many networks to train, and on what.

    Args:
        count: of networks.
        seed: of the first; those of the others follow it.
        goes_on: whether they go on from those that the estimator has.
        folds: of each network, which sequences to train on, and which to choose its epoch by;
            empty if all have the same.
    """

    count: int
    seed: int
    goes_on: bool
    folds: Sequence[tuple[Indices, Indices]] = ()


def list_models(model: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the models whose networks take turns in an ensemble.

    Raises:
        ArgumentError: it is no name or list of names, or one of several is ``"auto"``.
    """
    names = (model,) if isinstance(model, str) else model
    is_list = isinstance(names, Sequence) and len(names) > 0
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"model must be a name or several, got {model!r}. Give one of the catalog, such as "
            '"gru-d", or a list of them.'
        )
    if AUTO in names and len(names) > 1:
        raise ArgumentError(f"model={AUTO!r} chooses models itself. Leave out the others.")
    return tuple(names)


def resolve_options(
    model: str, options: Mapping[str, Any] | None, *, is_causal: bool
) -> dict[str, Any]:
    """Return the options of a model; one that need not be causal is bidirectional if it can be."""
    options = dict(options or {})
    if not is_causal and get_model_info(model).is_causal(options):
        options = {"bidirectional": True, **options}
    return options


def build_network(
    spec: ModelSpec,
    task: LearningTask,
    *,
    input_size: int,
    backend: str,
    seed: int,
    static_inputs: tuple[int, ...] = (),
) -> nn.Module:
    """Build a network with weights by a seed; the global generator is left as it was.

    Raises:
        ArgumentError: a backend is asked for, and the model is no cell.
    """
    if "wiring" in get_model_info(spec.cell).inputs:  # a cell
        spec = replace(spec, options={"backend": backend, **spec.options})
    elif backend != "auto":
        raise ArgumentError(
            f"backend={backend!r} is for cells, and {spec.cell!r} is no cell; leave it out."
        )
    card = describe_task(task, input_size=input_size, static_inputs=static_inputs)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_model(spec, card)


def describe_task(
    task: LearningTask, *, input_size: int, static_inputs: tuple[int, ...] = ()
) -> DatasetCard:
    """Return the card of the data of an estimator.

    Args:
        task: what there is to learn.
        input_size: of the network, but for the input that says what is a query.
        static_inputs: numbers of those with one value per sequence.
    """
    return DatasetCard(
        name="the data",
        title="The data",
        task=task.kind,
        # The last one says what is a query.
        input_size=input_size + task.calendar_inputs + bool(task.query_targets),
        target_size=task.outputs,
        time_unit="",
        sizes=(0, 0, 0),
        source="",
        licence="",
        split="",
        loss=str(getattr(task.loss, "name", task.loss)),
        metric=str(getattr(task.metric, "name", task.metric)),
        per_step=task.per_step,
        query_targets=task.query_targets,
        query_horizon=task.query_horizon,
        query_periods=task.query_periods,
        query_gap=task.query_gap,
        calendar_inputs=task.calendar_inputs,
        static_inputs=static_inputs,
    )


def build_recipe(
    recipe: Recipe | Mapping[str, Any] | None,
    parameters: dict[str, Any],
    task: LearningTask,
    *,
    has_validation: bool,
) -> Recipe:
    """Return how to train.

    Args:
        recipe: a whole recipe, or further fields of one.
        parameters: fields that are parameters of the estimator.
        task: what is learned.
        has_validation: whether there are validation data.

    Raises:
        ArgumentError: something is given twice, or is no recipe.
    """
    weights = task.class_weights
    if parameters["patience"] not in (None, AUTO) and not has_validation:
        raise ArgumentError(
            "patience waits for a better score on validation data, which are missing. Set "
            "validation_fraction, or give fit validation=."
        )
    if isinstance(recipe, Recipe):
        if weights and recipe.class_weights:
            raise ArgumentError("class_weight and class_weights of the recipe: give one of them.")
        return replace(recipe, class_weights=weights) if weights else recipe
    if not isinstance(recipe, Mapping | None):
        raise ArgumentError(f"recipe must be a Recipe or a mapping of its fields, got {recipe!r}.")
    more = dict(recipe or {})
    chosen = has_validation and more.get("select") != "last"
    if parameters["patience"] == AUTO:
        parameters = {**parameters, "patience": task.recipe.patience if chosen else None}
    parameters = {**parameters, "class_weights": weights} if weights else parameters
    if twice := sorted(parameters.keys() & more.keys()):
        raise ArgumentError(f"recipe holds {twice[0]!r}, a parameter of the estimator. Set that.")
    parameters = {name: parameter for name, parameter in parameters.items() if parameter != AUTO}
    usual = task.recipe if has_validation else disable_validation(task.recipe)
    if chosen:
        more.setdefault("select_by", task.select_by)
    return adapt_recipe(usual, {**parameters, **more})


def needs_validation(recipe: Recipe | Mapping[str, Any] | None) -> bool:
    """Whether a recipe, or further fields of one, says that validation data choose the epoch."""
    if isinstance(recipe, Recipe):
        return recipe.select == "best"
    if not isinstance(recipe, Mapping):
        return False  # what is no recipe is refused when it is read
    return recipe.get("select") == "best" or "select_by" in recipe


def omit_validation(
    recipe: Recipe | Mapping[str, Any] | None, epochs: int
) -> Recipe | Mapping[str, Any] | None:
    """Return a recipe, or further fields of one, for so many epochs without validation data."""
    if isinstance(recipe, Recipe):
        return adapt_recipe(recipe, {"select": "last", "epochs": epochs})
    return {k: v for k, v in (recipe or {}).items() if k not in ("select", "select_by")}


def build_refit_recipe(recipe: Recipe, epochs: int) -> Recipe | None:
    """Return how to train again for so many epochs, without validation data.

    ``None`` for recipes that depend on validation data, or on the number of their epochs.
    """
    if recipe.schedule == "one_cycle":  # which ends with its last epoch
        epochs = recipe.epochs
    elif recipe.schedule != "constant":
        return None
    if recipe.select == "last" or recipe.curriculum is not None:
        return None
    plain = {"on_divergence": "raise", "score_last_epoch": True}
    return adapt_recipe(recipe, {"select": "last", "epochs": epochs, **plain})


def select_device(name: str) -> torch.device:
    """Return a device by its name; ``"auto"`` is the accelerator if there is one."""
    if name == "auto":
        accelerator = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return accelerator or torch.device("cpu")
    return resolve_device(name)


def fit_networks(
    estimator: Any,
    learned: Sequences,
    held: Sequences | None,
    everything: Sequences | None,
    plan: TrainingPlan,
) -> TrainingResult:
    """Train the networks of an estimator, which gets their mean as ``module_``.

    Args:
        estimator: to be fitted.
        learned: what to train on.
        held: what to choose the best epoch by, if there is anything.
        whole: what to train on once more, for as many epochs, if this is to be done.
        plan: how many networks there are, and what each of them learns from.

    Returns:
        What training the first network returned.
    """
    seeds = range(plan.seed, plan.seed + plan.count)
    task = estimator._make_task(learned)
    if plan.goes_on:
        networks = [copy.deepcopy(member) for member in list_members(estimator.module_)]
        seeds = range(plan.seed, plan.seed + len(networks))
    else:
        networks = estimator._initialise(learned, task, seeds)
    settings = {name: getattr(estimator, name) for name in RECIPE_PARAMETERS}
    pairs = [(learned, held)]
    if plan.folds:
        pairs = [
            (learned.select(train_rows), learned.select(rest)) for train_rows, rest in plan.folds
        ]
    batches = [
        (estimator._make_batch(train_rows), None if rest is None else estimator._make_batch(rest))
        for train_rows, rest in pairs
    ]
    if task.query_targets:
        steps = FORECAST_STEPS * task.recipe.batch_size
        epochs = math.ceil(steps / len(batches[0][0]))
        task = replace(task, recipe=replace(task.recipe, epochs=epochs))
    has_validation = batches[0][1] is not None
    recipe = build_recipe(estimator.recipe, settings, task, has_validation=has_validation)
    how: dict[str, Any] = {
        "loss": task.loss,
        "metric": task.metric,
        "device": select_device(estimator.device),
        "progress": bool(estimator.verbose),
    }
    how["callbacks"] = estimator.callbacks or ()
    results = [
        _train(network, train_batch, rest, seed=number, recipe=recipe, **how)
        for number, network, (train_batch, rest) in zip(
            seeds, networks, cycle(batches), strict=False
        )
    ]
    refits = [build_refit_recipe(recipe, result.best_epoch) for result in results]
    again = [refit for refit in refits if refit is not None]
    if everything is not None and again:
        with warnings.catch_warnings():  # which have been given
            warnings.simplefilter("ignore", UserWarning)
            task = estimator._make_task(everything)
            networks = estimator._initialise(everything, task, seeds)
            data = estimator._make_batch(everything)
            for number, network, refit in zip(seeds, networks, again, strict=True):
                _train(network, data, None, seed=number, recipe=refit, **{**how, "callbacks": ()})
    estimator.module_ = networks[0]
    if len(networks) > 1:
        several = Ensemble(networks, task.kind)
        estimator.module_ = several.eval()
    return results[0]


def _train(
    network: nn.Module, learned: SequenceBatch, held: SequenceBatch | None, **how: Any
) -> TrainingResult:
    """Train a network on batches as the estimator makes them."""
    if isinstance(network, ImputedInputs):
        held = None if held is None else network.prepare(held)
        learned = network.prepare(learned)
        network = network.wrapped_models[0]
    return train(network, train=learned, valid=held, **how)
