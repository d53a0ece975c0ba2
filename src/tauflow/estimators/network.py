"""The network of an estimator, and how it is trained."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training import Recipe
from tauflow.training.argument_checks import resolve_device
from tauflow.training.defaults import DEFAULT_RECIPE, adapt_recipe, disable_validation

from .targets import AUTO, LearningTask

RECIPE_PARAMETERS = ("epochs", "lr", "batch_size", "patience")
"""Fields of a recipe that are parameters of an estimator."""


def resolve_options(
    model: str, options: Mapping[str, Any] | None, *, is_causal: bool
) -> dict[str, Any]:
    """Return the options of a model; one that need not be causal is bidirectional if it can be."""
    options = dict(options or {})
    if not is_causal and get_model_info(model).is_causal(options):
        options = {"bidirectional": True, **options}
    return options


def build_network(
    spec: ModelSpec, task: LearningTask, *, input_size: int, backend: str, seed: int
) -> nn.Module:
    """Build a network.

    Args:
        spec: the model.
        task: what it is to learn.
        input_size: its inputs.
        backend: of a cell.
        seed: of its first weights; the global generator is left as it was.

    Raises:
        ArgumentError: the model has no backends.
    """
    if "wiring" in get_model_info(spec.cell).inputs:  # a cell
        spec = replace(spec, options={"backend": backend, **spec.options})
    elif backend != "auto":
        raise ArgumentError(
            f"backend={backend!r} is for cells, and {spec.cell!r} is none; leave it out."
        )
    card = DatasetCard(
        name="the data",
        title="The data",
        task=task.kind,
        input_size=input_size + bool(task.query_targets),  # which says what is a query
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
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_model(spec, card)


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
        SpecificationError: there is no such field.
    """
    weights = task.class_weights
    if parameters["patience"] not in (None, AUTO) and not has_validation:
        raise ArgumentError(
            "patience waits for a better score on validation data, and there are none. Set "
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
        parameters = {**parameters, "patience": DEFAULT_RECIPE.patience if chosen else None}
    parameters = {**parameters, "class_weights": weights} if weights else parameters
    if twice := sorted(parameters.keys() & more.keys()):
        raise ArgumentError(f"recipe holds {twice[0]!r}, a parameter of the estimator. Set that.")
    usual = DEFAULT_RECIPE if has_validation else disable_validation(DEFAULT_RECIPE)
    if chosen:
        more.setdefault("select_by", task.select_by)
    return adapt_recipe(usual, {**parameters, **more})


def build_refit_recipe(recipe: Recipe, epochs: int) -> Recipe | None:
    """Return how to train again for so many epochs, without validation data.

    ``None`` for recipes that depend on validation data, or on the number of their epochs.
    """
    if recipe.select == "last" or recipe.schedule != "constant" or recipe.curriculum is not None:
        return None
    plain = {"on_divergence": "raise", "score_last_epoch": True}
    return adapt_recipe(recipe, {"select": "last", "epochs": epochs, **plain})


def select_device(name: str) -> torch.device:
    """Return a device by its name; ``"auto"`` is the accelerator if there is one.

    Raises:
        ArgumentError: there is no such device here.
    """
    if name == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found or torch.device("cpu")
    return resolve_device(name)
