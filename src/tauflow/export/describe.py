"""A module as plain data, and back: how it was built, without its weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tauflow.budget import spend
from tauflow.cells import ACTIVATIONS
from tauflow.cells.catalog import CELLS
from tauflow.errors import ArgumentError, ModelFileError, OptionError
from tauflow.models import WHOLE_MODELS, SequenceModel
from tauflow.registry import Registry
from tauflow.sequence import RNN, SEQUENCE_MODULES
from tauflow.wirings import AbstractWiring, wiring_from_dict

_MODULES: list[type[nn.Module]] = [*CELLS, *SEQUENCE_MODULES, RNN, SequenceModel]
_MODULES += (entry.model for entry in WHOLE_MODELS.values())

CLASSES: Registry[type[nn.Module]] = Registry(
    "class of modules", {module.__name__: module for module in _MODULES}
)
"""Every class that a description may name; nothing else is ever built from one."""


def describe(module: nn.Module) -> dict[str, Any]:
    """Return how a module was built, as data that JSON can hold.

    Args:
        module: a cell, a sequence module or a model of :mod:`tauflow.models`.

    Returns:
        ``{"class": name, "options": {...}}``, where an option that is itself a module is described
        alike, a wiring is ``{"wiring": wiring.to_dict()}``, and a tuple a list.

    Raises:
        ArgumentError: the module, or a part of it, is of a class that is not tauflow's, or one of
            its options is a function or another object without a description.
    """
    name = type(module).__name__
    if name not in CLASSES or CLASSES[name] is not type(module):
        raise ArgumentError(
            f"{name} is not a class of tauflow, so that a model file cannot say how to build it. "
            "Save the state_dict() of your own modules with safetensors, or save the tauflow "
            f"module inside. Known: {', '.join(sorted(CLASSES))}."
        )
    recorded: dict[str, Any] = module.options  # type: ignore[assignment]
    return {
        "class": name,
        "options": {option: _described(name, option, v) for option, v in recorded.items()},
    }


def rebuild(description: Mapping[str, Any]) -> Any:
    """Build the module that :func:`describe` described, with fresh parameters.

    The state of the global random generator is left as it was.

    Raises:
        ModelFileError: the description has another form.
        UnknownNameError: it names a class or a wiring that does not exist.
        OptionError: it gives the class an option that it does not have, or lacks one.
    """
    match description:
        case {"class": str(name), "options": dict(recorded)} if len(description) == 2:
            pass
        case _:
            raise ModelFileError(
                "a description has the keys 'class' and 'options', a name and a dictionary, got "
                f"{description!r}. Pass what tauflow.export.describe returned."
            )
    options = {option: _rebuilt(value) for option, value in recorded.items()}
    module = CLASSES[name]
    with torch.random.fork_rng(devices=[]):
        try:
            return module(**options)
        except TypeError as error:
            raise OptionError(
                f"{module.__name__} cannot be built with the options {sorted(options)}: {error}. "
                "Was the model described by another version of tauflow?"
            ) from error


def _described(owner: str, option: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_described(owner, option, item) for item in value]
    if isinstance(value, AbstractWiring):
        return {"wiring": value.to_dict()}
    if isinstance(value, nn.Module):
        return describe(value)
    names = [name for name, function in ACTIVATIONS.items() if function is value]
    advice = (
        f"Build it with {option}={names[0]!r}"
        if names
        else f"Build it with one of the names {', '.join(sorted(ACTIVATIONS))}"
        if callable(value)
        else "Build it with a number, a name or a wiring"
    )
    raise ArgumentError(
        f"{owner}: the option {option} is {value!r} ({type(value).__name__}), which a model file "
        f"cannot hold. {advice}, or save the state_dict() alone."
    )


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(item) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) != {"wiring"}:
        return rebuild(value)
    wiring = wiring_from_dict(value["wiring"])
    spend(wiring.units)  # which are listed before any synapses are made
    return wiring
