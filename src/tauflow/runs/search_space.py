"""What ``tauflow tune`` tries of a model: the space, checked before the first trial."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tauflow._internal.json_io import to_lists
from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError
from tauflow.models.spec import ModelSpec
from tauflow.training.recipe import Recipe, check_field_name


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
    model_space = MODELS[model].tune if model in MODELS else {}
    space: SearchSpace = {
        **COMMON_SPACE,
        **{f"model.{name}": values for name, values in model_space.items()},
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
    return {name: _suggest_value(trial, name, choices) for name, choices in space.items()}


def _suggest_value(trial: Any, name: str, choices: LogRange | tuple[Any, ...]) -> Any:
    if isinstance(choices, tuple):
        return trial.suggest_categorical(name, choices)
    if _is_integer_range(choices):
        return trial.suggest_int(name, choices.low, choices.high, log=True)
    return trial.suggest_float(name, choices.low, choices.high, log=True)


def apply_settings(
    settings: Mapping[str, Any], spec: ModelSpec, recipe: Recipe
) -> tuple[ModelSpec, Recipe]:
    """Return a model and a recipe with the settings, by dotted name, in place of theirs.

    Raises:
        TauflowError: a value is impossible.
    """
    changes: dict[str, dict[str, Any]] = {"recipe": {}, "model": {}}
    for name, value in settings.items():
        place, _, inner = name.partition(".")
        changes[place][inner] = value
    hidden_size = changes["model"].pop("hidden_size", spec.hidden_size)
    options = {**spec.options, **changes["model"]}
    changed = replace(spec, hidden_size=hidden_size, options=options)
    return changed, recipe.with_changes(changes["recipe"])


def check_search_space(space: SearchSpace, spec: ModelSpec, recipe: Recipe) -> None:
    """Refuse values that a recipe cannot have, each by itself; a trial refuses all others.

    Args:
        space: what is to be tried.
        spec: the model, where the space does not say it.
        recipe: how it is trained, where the space does not say it.

    Raises:
        ArgumentError: there is such a value.
    """
    for name, choices in space.items():
        for value in (choices.low, choices.high) if isinstance(choices, LogRange) else choices:
            with name_settings_in_errors({name: value}):
                apply_settings({name: value}, spec, recipe)


def list_combinations(space: SearchSpace, most: int) -> list[dict[str, Any]] | None:
    """Return all settings of a space; ``None`` of one of real numbers, or of more than ``most``."""
    if any(
        isinstance(choices, LogRange) and not _is_integer_range(choices)
        for choices in space.values()
    ):
        return None
    values = {
        name: range(int(choices.low), int(choices.high) + 1)
        if isinstance(choices, LogRange)
        else choices
        for name, choices in space.items()
    }
    if math.prod(map(len, values.values())) > most:
        return None
    return [
        dict(zip(values, combination, strict=True))
        for combination in itertools.product(*values.values())
    ]


def _is_integer_range(choices: LogRange) -> bool:
    return isinstance(choices.low, int) and isinstance(choices.high, int)


@contextmanager
def name_settings_in_errors(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let an error of an argument say which settings it is about."""
    try:
        yield
    except (ArgumentError, TypeError) as error:
        described = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise ArgumentError(f"{described} cannot be tried: {error}") from error
