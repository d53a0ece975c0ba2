"""PyTorch's own optimizers and learning-rate schedules, by name, and what options they take."""

import inspect
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch.optim import lr_scheduler

from tauflow._internal.registry import Registry, suggest_name
from tauflow.errors import ArgumentError

OPTIMIZERS: Registry[type[torch.optim.Optimizer]] = Registry(
    "optimizer",
    {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        # The first is abstract, the second evaluates a step more than once, the third is for
        # sparse gradients only.
        and name not in ("Optimizer", "LBFGS", "SparseAdam")
    },
)
"""Classes of ``torch.optim`` by their names in lower case."""

SCHEDULERS: Registry[type[lr_scheduler.LRScheduler]] = Registry(
    "schedule",
    {
        name: getattr(lr_scheduler, name)
        for name in lr_scheduler.__all__
        if name.endswith("LR") or name.startswith("CosineAnnealing")
        # These take functions or other schedulers.
        if name not in ("LambdaLR", "MultiplicativeLR", "SequentialLR")
    },
)
"""Classes of ``torch.optim.lr_scheduler`` by name, that numbers and words describe whole."""


def scheduler_class(name: str) -> type:
    """Return the class of a schedule that PyTorch computes."""
    own = {
        "cosine": lr_scheduler.CosineAnnealingLR,
        "one_cycle": lr_scheduler.OneCycleLR,
        "plateau": lr_scheduler.ReduceLROnPlateau,
    }
    return own.get(name) or SCHEDULERS[name]


_NOT_OPTIONS = ("self", "params", "optimizer", "lr", "last_epoch")


def get_constructor_options(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Return the options that the class of an optimizer or a scheduler takes."""
    return _get_constructor_options(kind)


@cache  # a table with searches has thousands of recipes
def _get_constructor_options(kind: type) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(kind).parameters
    return MappingProxyType({n: one for n, one in parameters.items() if n not in _NOT_OPTIONS})


def check_options(
    role: str, kind: type, options: Mapping[str, Any], *, recipe_options: set[str]
) -> None:
    """Refuse options that a class of PyTorch does not take, and the lack of those it needs.

    Args:
        role: ``"optimizer"`` or ``"schedule"``, for messages.
        kind: the class.
        options: by name.
        recipe_options: options that the recipe says otherwise.

    Raises:
        ArgumentError: an option is unknown, is said twice, or is missing.
    """
    known = get_constructor_options(kind)
    for name in options:
        if name == "lr" or name in recipe_options:
            raise ArgumentError(
                f"{role}_options: {name} is said by the recipe itself. Leave it out here."
            )
        if name not in known:
            raise ArgumentError(
                f"{role}_options: {kind.__name__} has no option "
                f"{name!r}.{suggest_name(name, known)} "
                f"Known: {', '.join(known)}."
            )
    for name, one in known.items():
        if one.default is one.empty and name not in options and name not in recipe_options:
            raise ArgumentError(
                f"{kind.__name__} needs the option {name!r}. Give it in {role}_options="
                f"{{{name!r}: ...}}."
            )


def to_json_options(name: str, options: object) -> dict[str, Any] | None:
    """Return options as a file can hold them, or ``None`` without any.

    Raises:
        ArgumentError: they are no mapping, or hold something else than numbers, words and lists.
    """
    if options is None or options == {}:
        return None
    if not isinstance(options, Mapping):
        raise ArgumentError(f"{name} must be a mapping of options to values, got {options!r}.")
    return {key: _to_json_value(f"{name}: {key}", value) for key, value in options.items()}


def _to_json_value(where: str, value: Any) -> Any:
    if hasattr(value, "item") and not isinstance(value, torch.Tensor):  # a NumPy number
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_to_json_value(where, one) for one in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError(
        f"{where} must be a number, a word, None or a list of them, which a run's file can hold; "
        f"got {type(value).__name__}."
    )
