"""What ``tauflow tune`` tries of a model: the space, checked before the first trial."""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from tauflow._internal.json_io import to_lists
from tauflow.cells.registry import MODELS
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, TauflowError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training.argument_checks import (
    Objectives,
    Splits,
    check_data,
    check_loss_is_mean,
    check_recipe,
)
from tauflow.training.lr_schedule import LRSchedule
from tauflow.training.optim import make_optimizer
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import Recipe, check_field_name

from .run_data import RunData

_MAX_COMBINATIONS = 256
"""How many combinations of values are checked at most."""


@dataclass(frozen=True)
class LogRange:
    """Numbers from low to high, tried evenly on a logarithmic scale; whole ones if both are."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"Span(low={self.low!r}, high={self.high!r})"  # enters the names of studies


SearchSpace = dict[str, LogRange | tuple[Any, ...]]
"""What is tried, by dotted name: ``recipe.lr``, ``model.hidden_size``, ``model.NAME``."""

COMMON_SPACE: SearchSpace = {
    "recipe.lr": LogRange(1e-4, 3e-2),
    "model.hidden_size": LogRange(16, 128),
}
"""What is tried of every model."""


def make_search_space(
    model: str, vary: Mapping[str, Sequence[Any]] | None = None, fixed: Collection[str] = ()
) -> SearchSpace:
    """Return what is tried of a model: of its row in the catalog, and what a caller wants.

    Args:
        model: its name.
        vary: lists of values to try, by dotted name.
        fixed: dotted names of what has a value already, and is not tried.

    Raises:
        ArgumentError: a name is neither of the recipe nor of the model, has no values, or is both
            given and varied; or nothing is left to try.
    """
    own = MODELS[model].tune if model in MODELS else {}
    space: SearchSpace = {
        **COMMON_SPACE,
        **{f"model.{name}": values for name, values in own.items()},
    }
    for name in fixed:
        _check_name(name)
        space.pop(name, None)
    for name, values in (vary or {}).items():
        _check_name(name)
        if not isinstance(values, list | tuple) or not values:
            raise ArgumentError(f"{name} needs a list of values to try, got {values!r}.")
        if name in fixed:
            raise ArgumentError(
                f"{name} is given and varied too. Leave out its value, or the list of values to "
                "try."
            )
        # As a journal in JSON gives them back: Optuna compares the two.
        space[name] = tuple(map(to_lists, values))
    if not space:
        raise ArgumentError(
            "nothing is left to try: everything has a value. Name values to try, such as "
            "vary={'recipe.lr': [0.001, 0.01]}."
        )
    return space


def _check_name(name: str) -> None:
    place, _, inner = name.partition(".")
    if place not in ("recipe", "model") or not inner:
        raise ArgumentError(f"{name!r} is not tuned; name recipe.FIELD or model.OPTION.")
    if place == "recipe":
        check_field_name(inner, ArgumentError)


def suggest_settings(trial: Any, space: SearchSpace) -> dict[str, Any]:
    """Return the settings that a trial of Optuna's draws from a space."""
    return {name: _suggest_value(trial, name, one) for name, one in space.items()}


def _suggest_value(trial: Any, name: str, one: LogRange | tuple[Any, ...]) -> Any:
    if isinstance(one, tuple):
        return trial.suggest_categorical(name, one)
    if isinstance(one.low, int) and isinstance(one.high, int):
        return trial.suggest_int(name, one.low, one.high, log=True)
    return trial.suggest_float(name, one.low, one.high, log=True)


def apply_settings(
    settings: Mapping[str, Any], spec: ModelSpec, recipe: Recipe
) -> tuple[ModelSpec, Recipe]:
    """Return a model and a recipe with the settings, by dotted name, in place of their own.

    Raises:
        TauflowError: a value is impossible.
    """
    said: dict[str, dict[str, Any]] = {"recipe": {}, "model": {}}
    for name, value in settings.items():
        place, _, inner = name.partition(".")
        said[place][inner] = value
    hidden_size = said["model"].pop("hidden_size", spec.hidden_size)
    options = {**spec.options, **said["model"]}
    changed = replace(spec, hidden_size=hidden_size, options=options)
    return changed, recipe.with_changes(said["recipe"])


def check_search_space(
    space: SearchSpace,
    spec: ModelSpec,
    recipe: Recipe,
    run_data: RunData,
    read: Callable[[ModelSpec], RunData],
) -> None:
    """Refuse values that no trial could be run with.

    Args:
        space: what is to be tried.
        spec: the model, where the space does not say it.
        recipe: how it is trained, where the space does not say it.
        run_data: the data.
        read: reads them for a model, and refuses one that must not see them.

    Raises:
        ArgumentError: the model cannot be built with a value, or the recipe not be followed with
            these data.
        DataError: the data are not finite, or do not suit the loss or the metric.
    """
    is_causal, built = get_model_info(spec.cell).is_causal, None
    for settings in _iter_corner_settings(space, "model."):
        with _name_settings_in_errors(settings):
            model, _ = apply_settings(settings, spec, recipe)
            with torch.random.fork_rng(devices=[]):
                one = build_model(model, run_data.data.card)
            if is_causal(spec.options) and not is_causal(model.options):
                read(model)
        built = built or one
    assert built is not None  # without anything to try of the model, it is built as it is
    seen: set[str] = set()
    _check_data(
        recipe, run_data.data, seen
    )  # first, as what is wrong with them is no setting's fault
    for settings in _iter_corner_settings(space, "recipe."):
        with _name_settings_in_errors(settings):
            _, changed = apply_settings(settings, spec, recipe)
            _check_recipe(changed, built, run_data.data, seen)


def _check_recipe(recipe: Recipe, model: nn.Module, data: TaskData, seen: set[str]) -> None:
    """Refuse a recipe that the model cannot be trained by on the data.

    Args:
        recipe: the protocol.
        model: one of those to be trained.
        data: to train on and to choose by.
        seen: as for :func:`_check_data`.
    """
    measures, splits = _check_data(recipe, data, seen)
    check_recipe(model, splits, recipe)
    check_loss_is_mean(measures, data.train, recipe, DistributedContext())
    if recipe.class_weights is not None:  # their number is held against predictions only
        assert measures.loss.compare is not None
        measures.loss.compare(torch.zeros(1, data.card.target_size), data.train.y.new_zeros(1))
    parameters = [one for one in model.parameters() if one.requires_grad]
    LRSchedule(
        recipe,
        make_optimizer(recipe, parameters),
        sequences=len(data.train),
        higher_is_better=measures.monitor.higher_is_better,
    )


def _check_data(recipe: Recipe, data: TaskData, seen: set[str]) -> tuple[Objectives, Splits]:
    """Return what a recipe measures and on what, which is looked at once for every metric.

    Args:
        recipe: the protocol.
        data: the splits of a task; a trial does without the test data.
        seen: names of the metrics to choose by that there were; this one is added.
    """
    card = data.card
    measures = Objectives.from_arguments(card.loss, card.metric, recipe, data.train, card)
    splits: Splits = {"train": data.train, "valid": data.valid, "test": None}
    if measures.monitor.name not in seen:
        check_data(splits, measures)
        seen.add(measures.monitor.name)
    return measures, splits


@contextmanager
def _name_settings_in_errors(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let an error say which settings it is about."""
    try:
        yield
    except (TauflowError, TypeError) as error:
        told = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise ArgumentError(f"{told} cannot be tried: {error}" if told else str(error)) from error


def _iter_corner_settings(space: SearchSpace, place: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of one place to check: of spans both ends, of lists every value.

    Every combination that a trial may draw of them, as values may contradict each other; of very
    many, each value beside the first ones of all others.
    """
    values = {
        name: (one.low, one.high) if isinstance(one, LogRange) else one
        for name, one in space.items()
        if name.startswith(place)
    }
    if math.prod(map(len, values.values())) <= _MAX_COMBINATIONS:
        for combination in itertools.product(*values.values()):
            yield dict(zip(values, combination, strict=True))
        return
    first = {name: some[0] for name, some in values.items()}
    for name, some in values.items():
        for value in some:
            yield {**first, name: value}
