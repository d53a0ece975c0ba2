"""PyTorch's own optimizers and learning-rate schedules, by name."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import lr_scheduler

from tauflow._internal.registry import Registry
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
    defaults = {
        "cosine": lr_scheduler.CosineAnnealingLR,
        "one_cycle": lr_scheduler.OneCycleLR,
        "plateau": lr_scheduler.ReduceLROnPlateau,
    }
    return defaults.get(name) or SCHEDULERS[name]


def has_option(kind: type, name: str) -> bool:
    """Whether the constructor of an optimizer takes an option."""
    return name in inspect.signature(kind).parameters


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
        return tuple(_to_json_value(where, entry) for entry in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError(
        f"{where} must be a number, a word, None or a list of them, which a run's file can hold; "
        f"got {type(value).__name__}."
    )
