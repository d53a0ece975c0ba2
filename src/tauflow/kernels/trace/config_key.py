"""All of a cell that a trace of its step depends on, apart from the numbers in its tensors.

Cells of the library are traced, and cells of users whose class says ``compiled = True``. The
options of a cell are fixed when it is built; what else its step reads is read once, when it is
traced.
"""

import dataclasses
from collections.abc import Hashable
from enum import Enum
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow._internal.module_hooks import has_global_hooks, has_hooks
from tauflow.cells.base import AbstractCell

from .program import TracingError

_NO_OPTIONS = {
    *vars(nn.Module()),
    *("options", "_options_when_built", "_tensors_when_built", "_number"),
}
_LIBRARIES = ("torch", "tauflow")
_STANDARD = ("abc", "builtins", "typing", "_operator")


class ConfigKey(NamedTuple):
    """What a trace of a cell's step depends on, apart from the numbers in its tensors.

    Args:
        parts: by type and value; a tensor by its shape, strides, dtype, device, and if it learns.
        has_user_code: whether a class of the cell or of its parts is a user's.
    """

    parts: tuple[Hashable, ...]
    has_user_code: bool


def make_config_key(cell: AbstractCell) -> ConfigKey:
    """Return what a trace of a cell's step depends on, apart from the numbers in its tensors.

    Raises:
        TracingError: the cell or a part has hooks, or is a user's that does not say that its step
            may be compiled.
    """
    if has_global_hooks():
        raise TracingError("there are hooks for all modules")
    parts, has_user_code, has_user_step = [], False, False
    for path, module in cell.named_modules(remove_duplicate=False):
        kind: Any = type_before_parametrizations(module)
        fields = module.__dict__
        if has_hooks(module):  # a user's, ours take none
            raise TracingError(f"its {path or 'own step'} has hooks")
        if isinstance(module, torch.jit.ScriptModule):
            raise TracingError(f"its {path} is a script")
        is_users = not all(map(_is_library, kind.__mro__[:-1])) or any(
            map(_has_user_function, fields.values())
        )
        has_user_code |= is_users
        # parametrizations are called in every call
        has_user_step |= is_users and "parametrizations" not in path.split(".")
        options = tuple(
            (name, _freeze(value)) for name, value in fields.items() if name not in _NO_OPTIONS
        )
        tensors = tuple(
            (name, None if tensor is None else _describe_tensor(tensor))
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
        )
        parts.append((path, type(module), module.training, options, tensors))
    if has_user_step and not type(cell).compiled:
        raise TracingError(
            f"{type(cell).__name__} does not say compiled = True (see AbstractCell.compiled)"
        )
    return ConfigKey(tuple(parts), has_user_code)


def _is_library(value: Any) -> bool:
    """Whether a function or class is of PyTorch, of this library or of Python itself."""
    return _is_library_module(str(getattr(value, "__module__", "")))


@lru_cache(maxsize=1024)
def _is_library_module(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES or name in _STANDARD


def _has_user_function(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_user_function, value))
    if isinstance(value, BuiltinFunctionType):  # such as torch.tanh
        return False
    return callable(value) and not isinstance(value, nn.Module) and not _is_library(value)


def _describe_tensor(tensor: Tensor) -> Hashable:
    """Return all about a tensor but its numbers."""
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return type(tensor), tensor.shape, strides, tensor.dtype, tensor.device, tensor.requires_grad


def _freeze(value: Any) -> Hashable:
    """Return what stands for an option in comparisons, by type and value, or by identity."""
    kind = type(value)
    if value is None or kind in (bool, int, str, float, complex, bytes):
        return kind, repr(value)  # so that -0.0 is not 0.0
    if isinstance(value, Tensor):
        return _describe_tensor(value)  # its numbers are read at every call
    if isinstance(value, (tuple, list)):
        return kind, *map(_freeze, value)
    if isinstance(value, dict):
        return kind, *((name, _freeze(entry)) for name, entry in value.items())
    if isinstance(value, (Enum, torch.dtype, torch.device, type)):
        return kind, value
    if dataclasses.is_dataclass(value) and not isinstance(value, nn.Module):
        return kind, *(_freeze(getattr(value, field.name)) for field in dataclasses.fields(value))
    return _Identity(value)


class _Identity:
    """An object that is compared by itself, whatever its class says, and kept alive."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
