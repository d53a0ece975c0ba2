"""Copy the options of a cell for another one, with newly drawn parameters."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from torch import nn

from tauflow.errors import ArgumentError


def reinitialised_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which modules and parameters are copies, those of lists and the like too.

    Every part of such a module that trains and has a ``reset_parameters`` draws its parameters
    again, from the global generator. Other parameters start where the given ones are now.
    """
    with_parameters = {name: value for name, value in options.items() if _list_modules(value)}
    copies: dict[str, Any] = deepcopy(with_parameters)  # together, for two may be the same one
    for value in copies.values():
        for part in _list_modules(value):
            if isinstance(part, nn.Module):
                part.apply(_reset_if_trainable)
    return {**options, **copies}


def reset_submodules(module: nn.Module) -> None:
    """Draw the parameters of all parts of a module again, from the global generator.

    Raises:
        ArgumentError: a part, or the module, has parameters that no ``reset_parameters`` draws.
    """
    if any(parameter is not None for parameter in module._parameters.values()):
        raise ArgumentError(
            f"{type(module).__name__} has parameters and no reset_parameters() that "
            "draws them. Give the class that method."
        )
    for part in module.children():
        reset: Callable[[], Any] | None = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            reset_submodules(part)


def _reset_if_trainable(part: nn.Module) -> None:
    reset: Callable[[], Any] | None = getattr(part, "reset_parameters", None)
    if callable(reset) and any(parameter.requires_grad for parameter in part.parameters()):
        reset()


def _list_modules(value: Any) -> list[nn.Module | nn.Parameter]:
    """Return the modules and parameters in an option."""
    if isinstance(value, nn.Module | nn.Parameter):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return [part for item in value for part in _list_modules(item)]
    return []
