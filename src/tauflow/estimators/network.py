"""The network of an estimator, and how it is trained."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError
from tauflow.models.registry import entry_of
from tauflow.models.specified import ModelSpec, build_model
from tauflow.training import Recipe
from tauflow.training.defaults import RECIPE, adapted, without_validation
from tauflow.training.preconditions import usable_device

from .targets import AUTO, Task

OWN = ("epochs", "lr", "batch_size", "patience")
"""Fields of a recipe that are parameters of an estimator."""


def network_of(
    spec: ModelSpec, task: Task, *, input_size: int, backend: str, seed: int
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
    if "wiring" in entry_of(spec.cell).reads:  # a cell
        spec = replace(spec, options={"backend": backend, **spec.options})
    elif backend != "auto":
        raise ArgumentError(
            f"backend={backend!r} is for cells, and {spec.cell!r} is none; leave it out."
        )
    card = DatasetCard(
        name="the data",
        title="The data",
        task=task.kind,
        input_size=input_size,
        target_size=task.outputs,
        time_unit="",
        sizes=(0, 0, 0),
        source="",
        licence="",
        split="",
        loss=task.loss,
        metric=task.metric,
        per_step=task.per_step,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_model(spec, card)


def recipe_of(
    given: Recipe | Mapping[str, Any] | None,
    own: dict[str, Any],
    task: Task,
    *,
    validated: bool,
) -> Recipe:
    """Return how to train.

    Args:
        given: a whole recipe, or further fields of one.
        own: fields that are parameters of the estimator.
        task: what is learned.
        validated: whether there are validation data.

    Raises:
        ArgumentError: something is given twice, or is no recipe.
        SpecificationError: there is no such field.
    """
    weights = task.class_weights
    if own["patience"] not in (None, AUTO) and not validated:
        raise ArgumentError(
            "patience waits for a better score on validation data, and there are none. Set "
            "validation_fraction, or give fit validation=."
        )
    if isinstance(given, Recipe):
        if weights and given.class_weights:
            raise ArgumentError("class_weight and class_weights of the recipe: give one of them.")
        return replace(given, class_weights=weights) if weights else given
    if not isinstance(given, Mapping | None):
        raise ArgumentError(f"recipe must be a Recipe or a mapping of its fields, got {given!r}.")
    more = dict(given or {})
    chosen = validated and more.get("select") != "last"
    if own["patience"] == AUTO:
        own = {**own, "patience": RECIPE.patience if chosen else None}
    own = {**own, "class_weights": weights} if weights else own
    if twice := sorted(own.keys() & more.keys()):
        raise ArgumentError(f"recipe holds {twice[0]!r}, a parameter of the estimator. Set that.")
    usual = RECIPE if validated else without_validation(RECIPE)
    if chosen:
        more.setdefault("select_by", task.select_by)
    return adapted(usual, {**own, **more})


def recipe_of_refit(recipe: Recipe, epochs: int) -> Recipe | None:
    """Return how to train again for so many epochs, without validation data.

    ``None`` for recipes that depend on validation data, or on the number of their epochs.
    """
    if recipe.select == "last" or recipe.schedule != "constant" or recipe.curriculum is not None:
        return None
    plain = {"on_divergence": "raise", "score_last_epoch": True}
    return adapted(recipe, {"select": "last", "epochs": epochs, **plain})


def device_of(name: str) -> torch.device:
    """Return a device by its name; ``"auto"`` is the accelerator if there is one.

    Raises:
        ArgumentError: there is no such device here.
    """
    if name == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found or torch.device("cpu")
    return usable_device(name)
