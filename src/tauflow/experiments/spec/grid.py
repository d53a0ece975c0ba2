"""Grids of settings: what may be varied, and the points that follow."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tauflow.errors import SpecificationError
from tauflow.registry import nearest
from tauflow.training.recipe import Recipe

from .load import read_toml

PLACES = ("recipe", "model")

Settings = Mapping[str, Any]
"""Values of one point by dotted name, such as ``{"recipe.lr": 0.01, "model.hidden_size": 32}``."""


def read_grid(where: str, given: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Check a grid and return its values by dotted name.

    Args:
        where: what it belongs to, for messages.
        given: lists of values, by ``recipe`` and ``model`` and the name below, or by dotted name:
            ``{"recipe": {"lr": [0.01, 0.1]}}`` and ``{"recipe.lr": [0.01, 0.1]}`` say the same.

    Raises:
        SpecificationError: a name is unknown or comes twice, or has no list of values.
    """
    flat: dict[str, Any] = {}
    for key, value in given.items():
        nested = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {}
        for name, values in (nested or {key: value}).items():
            if name in flat:
                raise SpecificationError(f"{where}: {name} is given twice; leave one out.")
            _check(where, name, values)
            flat[name] = tuple(values)
    return flat


def _check(where: str, name: str, values: Any) -> None:
    place, _, setting = name.partition(".")
    if place not in PLACES or not setting:
        raise SpecificationError(
            f"{where}: a grid has no {name!r}. Name a setting of the recipe or of the model: "
            "recipe.lr, model.hidden_size."
        )
    known = [field.name for field in fields(Recipe)]
    if place == "recipe" and setting not in known:
        raise SpecificationError(
            f"{where}: a recipe has no option {setting!r}.{nearest(setting, known)} "
            f"Known: {', '.join(known)}."
        )
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise SpecificationError(
            f"{where}: {name} must be a list of values to try, got {values!r}. Write for example "
            f"{name} = [1, 2]."
        )


def load_grid(path: str | Path) -> dict[str, tuple[Any, ...]]:
    """Read the table ``[grid]`` of a TOML file; what else the file holds is not looked at.

    Raises:
        DataNotFoundError: there is no such file.
        SpecificationError: the file is not TOML, has no grid, or the grid is not one.
    """
    content = read_toml(path)
    if not isinstance(content.get("grid"), Mapping):
        raise SpecificationError(
            f"{path} has no table [grid]. Add one, with lists of values such as "
            "recipe.lr = [0.001, 0.01]."
        )
    return read_grid(f"{path}, [grid]", content["grid"])


def points(grid: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Return every combination of a grid's values, the last name varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def show(settings: Settings) -> str:
    """Write settings in one line, such as ``lr=0.01, hidden_size=32``."""
    return ", ".join(f"{name.partition('.')[2]}={value}" for name, value in settings.items())
