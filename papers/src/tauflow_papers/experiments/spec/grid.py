"""Grids of settings: what may be varied, and the points that follow."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tauflow.errors import ArgumentError, SpecificationError, TauflowError
from tauflow.models.spec import ModelSpec
from tauflow.runs.toml_files import merge_entries
from tauflow.training.recipe import Recipe, check_field_name

from .experiment import Row, Setting

SECTIONS = ("recipe", "model")

Grids = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A grid, see :func:`read_grid`, or several, of each of which every point is tried."""
Settings = Mapping[str, Any]
"""Values of one point by dotted name, such as ``{"recipe.lr": 0.01, "model.hidden_size": 32}``."""


def read_grid(where: str, grid: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Check a grid and return its values by dotted name.

    Args:
        where: what it belongs to, for messages.
        grid: lists of values, by ``recipe`` and ``model`` and the name below, or by dotted name:
            ``{"recipe": {"lr": [0.01, 0.1]}}`` and ``{"recipe.lr": [0.01, 0.1]}`` say the same.

    Raises:
        SpecificationError: a name is unknown or comes twice, or has no list of values.
    """
    flat: dict[str, Any] = {}
    for key, value in grid.items():
        nested = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {}
        for name, values in (nested or {key: value}).items():
            if name in flat:
                raise SpecificationError(f"{where}: {name} is given twice; leave one out.")
            _check_entry(where, name, values)
            flat[name] = tuple(values)
    return flat


def _check_entry(where: str, name: str, values: Any) -> None:
    place, _, setting = name.partition(".")
    if place not in SECTIONS or not setting:
        raise SpecificationError(
            f"{where}: a grid has no {name!r}. Name a setting of the recipe or of the model: "
            "recipe.lr, model.hidden_size."
        )
    if place == "recipe":
        check_field_name(setting, SpecificationError, f"{where}: ")
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise SpecificationError(
            f"{where}: {name} must be a list of values to try, got {values!r}. Write for example "
            f"{name} = [1, 2]."
        )


def read_settings(row: Row, grids: Grids) -> tuple[Setting, ...]:
    """Return every point of one or several grids as a setting of a row, each once.

    Args:
        row: a row whose model exists.
        grids: see :func:`read_grid`.

    Raises:
        SpecificationError: a grid is invalid, or a value is impossible.
        ArgumentError: there is nothing to vary.
    """
    listed = [grids] if isinstance(grids, Mapping) else list(grids)
    read = [read_grid(f"the grid of {row.name!r}", grid) for grid in listed]
    points: list[Settings] = []
    for settings in (point for grid in read for point in enumerate_points(grid) if grid):
        if settings not in points:
            points.append(settings)
    if not points:
        raise ArgumentError(
            f"there is nothing to vary for {row.name!r}: the grid is empty. Give one, such as "
            '{"recipe": {"lr": [0.001, 0.01]}}.'
        )
    return tuple(make_setting(row, settings) for settings in points)


def make_setting(row: Row, settings: Settings) -> Setting:
    """Return what a row is with other values.

    Args:
        row: a row whose model exists.
        settings: values by dotted name; ``recipe.A.b`` is entry b of the recipe's A.

    Raises:
        SpecificationError: a value is impossible.
    """
    assert row.recipe is not None, "only rows that are ready are searched"
    assert row.model is not None, "only rows that are ready are searched"
    nested = nest_settings(settings)
    spec_fields = {f.name for f in fields(ModelSpec)} - {"options"}
    of_model = nested.get("model", {}).items()
    places = {key: value for key, value in of_model if key.partition(".")[0] in spec_fields}
    options = {key: value for key, value in of_model if key not in places}
    try:
        recipe = Recipe.from_dict(merge_entries(row.recipe.to_dict(), nested.get("recipe", {})))
        options = merge_entries(row.model.options, options)
        model = replace(row.model, **merge_entries({}, places), options=options)
    except (TauflowError, TypeError) as error:
        raise invalid_point_error(row, settings, error) from error
    return Setting(format_settings(settings), model, recipe, settings)


def invalid_point_error(row: Row, settings: Settings, error: Exception) -> SpecificationError:
    """Return the error of a point that cannot be tried."""
    return SpecificationError(f"the point {format_settings(settings)} of {row.name!r}: {error}")


def enumerate_points(grid: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Return every combination of a grid's values, the last name varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def nest_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return values by ``recipe`` and ``model`` and the name below, without what is not set."""
    values_by_part: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        place, _, setting = name.partition(".")
        values_by_part.setdefault(place, {})[setting] = value
    return values_by_part


def format_label(settings: Settings) -> str:
    """Write settings as tables do, such as ``lr 0.01, hidden size 32``."""
    named = ((name.partition(".")[2].replace("_", " "), v) for name, v in settings.items())
    return ", ".join(
        f"{name} {v:g}" if isinstance(v, float) else f"{name} {v}" for name, v in named
    )


def format_settings(settings: Settings) -> str:
    """Write settings in one line, such as ``lr=0.01, hidden_size=32``."""
    return ", ".join(f"{name.partition('.')[2]}={value}" for name, value in settings.items())
