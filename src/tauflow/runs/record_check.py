"""What a line of a results file must hold for reports to be made of it."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from tauflow._internal.checks import find_type_mismatch, format_value
from tauflow._internal.registry import suggest_name
from tauflow.errors import DataError

_MAX_NUMBER = 1e100
"""No score or time is beyond it; its square is still a number."""
_MAX_COUNT = 10**12
"""No count is beyond it."""
_EPOCH_KEYS = ("train_loss", "valid", "test")
_SCORE_KEYS = ("valid", "test", "last_test")


def check_record(record: type, values: Any) -> dict[str, Any]:
    """Return the arguments of a record, as JSON gave them, if they are such; no score for NaN.

    Args:
        record: the dataclass.
        values: what was read.

    Raises:
        DataError: they are not.
    """
    if not isinstance(values, dict):
        raise DataError(f"expected an object, got {format_value(values)}")
    _check_keys(record, values)
    if wrong := find_type_mismatch(record.__init__, values):  # type: ignore[misc]  # of this very class
        raise DataError(wrong)
    _check_numbers("", values)
    _check_recipe(values["config"])
    for place, row in enumerate(values.get("history", ())):
        _check_epoch(f"history[{place}].", row)
    return {
        name: None if name in _SCORE_KEYS and _is_nan(value) else value
        for name, value in values.items()
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _check_keys(record: type, values: Mapping[str, Any]) -> None:
    known = {field.name: field for field in fields(record)}
    for name in values:
        if name not in known:
            raise DataError(f"unknown key {format_value(name)}.{suggest_name(name, known)}")
    for name, field in known.items():
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and name not in values:
            raise DataError(f"the key {name!r} is missing")


def _check_epoch(where: str, row: Mapping[str, Any]) -> None:
    for name in ("epoch", *_EPOCH_KEYS):
        if name not in row:
            raise DataError(f"the key {where}{name} is missing")
    _check_numbers(where, row)
    if not isinstance(row["epoch"], int) or not _are_optional_numbers(row):
        raise DataError(f"{where}epoch and scores must be numbers, got {format_value(row)}")


def _check_recipe(config: Mapping[str, Any]) -> None:
    recipe = config.get("recipe")
    epochs = recipe.get("epochs") if isinstance(recipe, dict) else None
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise DataError(
            f"config.recipe.epochs must be an int of 1 or more, got {format_value(epochs)}"
        )


def _check_numbers(where: str, values: Mapping[str, Any]) -> None:
    """Refuse numbers with which nothing can be computed; NaN says that there is no score."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name == "seed":
            fine = 0 <= value < 2**64
        elif isinstance(value, int):
            fine = -_MAX_COUNT <= value <= _MAX_COUNT
        else:
            fine = math.isnan(value) or abs(value) <= _MAX_NUMBER
        if not fine:
            raise DataError(f"{where}{name} is out of all bounds, got {format_value(value)}")


def _are_optional_numbers(row: Mapping[str, Any]) -> bool:
    return all(
        row[name] is None or (isinstance(row[name], int | float) and row[name] is not True)
        for name in _EPOCH_KEYS
    )
