"""Build a module again with other options and the same parameters."""

import inspect
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tauflow.errors import ArgumentError, OptionError

from .module_hooks import has_hooks

Module = TypeVar("Module", bound=nn.Module)


def check_rebuildable(module: nn.Module, purpose: str, *names: str) -> None:
    """Raise unless a module's class takes its recorded options, and others, by name.

    Raises:
        ArgumentError: the constructor takes an argument by position only.
        OptionError: it has no argument of one of the names.
    """
    kind = type(module).__name__
    arguments = inspect.signature(type(module)).parameters.values()
    for argument in arguments:
        if argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
            raise ArgumentError(
                f"{kind} cannot be made {purpose}: its constructor takes {argument.name!r} by "
                "position only. Take it by name."
            )
    known = {argument.name for argument in arguments}
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        return  # the constructor says which it knows
    if unknown := [name for name in names if name not in known]:
        raise OptionError(
            f"{kind} has no option {unknown[0]!r}. Its options: {', '.join(sorted(known))}."
        )


def rebuild(module: Module, options: Mapping[str, Any], changes: Mapping[str, Any]) -> Module:
    """Return a module of the same class with other options, and copies of the same parameters.

    Parameters keep their dtype, device and ``requires_grad``, and buffers that were loaded, drawn
    or set their values; other buffers are those of the new options. Modules keep their training
    mode. No random number is taken from anybody.

    Args:
        module: the module, as its constructor left it, but for its tensors.
        options: its own, by which its class builds it.
        changes: the other ones.

    Raises:
        OptionError, ArgumentError: there is no such option, an option decides about shapes of
            parameters, or parts of the module were replaced, parametrized or given hooks.
    """
    check_rebuildable(module, "with other options", *changes)
    with torch.random.fork_rng(devices=[]):
        before = type(module)(**deepcopy(dict(options)))
        after = type(module)(**{**deepcopy(dict(options)), **changes})
    where = f"{type(module).__name__}.replace"
    _check_parts(where, module, before)
    _check_parameters(where, module, after, changes)
    like = next((tensor for tensor in module.parameters() if tensor.is_floating_point()), None)
    if like is not None:
        before.to(like.device, like.dtype)
        after.to(like.device, like.dtype)
    memo: dict[int, Any] = {}  # tensors that are tied stay so
    parts, built = dict(module.named_modules()), dict(before.named_modules())
    for path, part in after.named_modules():
        original = parts.get(path)
        if original is None:
            continue
        part.train(original.training)
        for name in part._parameters:
            part._parameters[name] = deepcopy(original._parameters[name], memo)
        for name, value in part._buffers.items():
            buffer = original._buffers.get(name)
            if buffer is not None and not _is_as_built(buffer, built[path]._buffers.get(name)):
                part._buffers[name] = deepcopy(buffer, memo)
            elif buffer is not None and value is not None:
                part._buffers[name] = value.to(buffer.device, buffer.dtype)
    return after


def _check_parts(where: str, module: nn.Module, before: nn.Module) -> None:
    """Raise if parts of a module are others than its class builds."""
    built = dict(before.named_modules())
    for path, part in module.named_modules():
        what = f"its {path}" if path else "it"
        if path not in built or type(part) is not type(built[path]):
            raise ArgumentError(
                f"{where}: {what} is a {type(part).__name__} that its constructor did not make. "
                "Undo that, or make the same change to one that is built with the new options."
            )
        methods = [name for name in part.__dict__ if inspect.isfunction(vars(nn.Module).get(name))]
        if has_hooks(part) or methods:
            added = "its own method" if methods else "hooks"
            raise ArgumentError(f"{where}: {what} has {added}, which would be lost. Remove them.")


def _check_parameters(
    where: str, module: nn.Module, after: nn.Module, changes: Mapping[str, Any]
) -> None:
    """Raise unless two modules have parameters of the same names and shapes."""
    old, new = (
        {
            name: tuple(parameter.shape)
            for name, parameter in part.named_parameters(remove_duplicate=False)
        }
        for part in (module, after)
    )
    for name in (*old, *new):
        if old.get(name) != new.get(name):
            what = ", ".join(f"{option}={value!r}" for option, value in changes.items())
            raise ArgumentError(
                f"{where}: with {what} the parameter {name} would have shape {new.get(name)}, "
                f"but it has {old.get(name)}. Build a new one with these options; its parameters "
                "are then drawn."
            )


def _is_as_built(buffer: Tensor, built: Tensor | None) -> bool:
    if built is None or buffer.shape != built.shape:
        return False
    return buffer.is_meta or torch.equal(buffer, built.to(buffer.device, buffer.dtype))
