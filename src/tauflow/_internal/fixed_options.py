"""Modules whose options are fixed once they are built."""

from abc import ABCMeta
from collections.abc import Callable
from functools import cached_property
from inspect import getattr_static
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from tauflow.errors import ArgumentError

_ABSENT = object()
_METHODS = (FunctionType, staticmethod, classmethod)
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_NOT_OPTIONS = frozenset({*_MODULE_ATTRIBUTES, "options", "_exact", "_parts_when_built"})


def list_options(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """Return what is set on a module itself and is no tensor, module or method, with its value."""
    return tuple(
        (name, value)
        for name, value in module.__dict__.items()
        if name not in _NOT_OPTIONS and not isinstance(value, (Tensor, nn.Module))
    )


class FixedOptionsMeta(ABCMeta):
    """Metaclass that fixes the options of a module when its constructor has returned."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Build the module, then fix its options."""
        module = super().__call__(*args, **kwargs)
        module.fix_options()
        return module


class FixedOptionsModule(nn.Module):
    """A module on which no option can be set, or deleted, once it is built.

    Options are all that is set on it but tensors and modules. Those may be replaced, and so may a
    method by a function, as PyTorch and libraries around it do: what uses the module looks at that.
    """

    _options_when_built: tuple[tuple[str, Any], ...]

    def fix_options(self) -> None:
        """From now on, let no option be set."""
        self.__dict__["_options_when_built"] = list_options(self)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; one that is an option of a built module is an error."""
        if "_options_when_built" in self.__dict__ and self._is_fixed(name, value):
            raise self._fixed_error(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute; one that is an option of a built module is an error."""
        if "_options_when_built" in self.__dict__ and self._is_fixed(name):
            raise self._fixed_error(name)
        super().__delattr__(name)

    def _is_fixed(self, name: str, value: Callable[..., Any] | object = _ABSENT) -> bool:
        """Whether an attribute is an option, rather than a tensor, a module, a method or new."""
        if name.startswith("__") or name in _MODULE_ATTRIBUTES or hasattr(nn.Module, name):
            return False
        if any(name in held for held in (self._parameters, self._buffers, self._modules)):
            is_part = isinstance(value, (Tensor, nn.Module)) or value is None or value is _ABSENT
            return not is_part and name in self.__dict__.get("options", ())
        held = self.__dict__.get(name, _ABSENT)
        on_class = getattr_static(type(self), name, _ABSENT)
        if isinstance(on_class, _METHODS) and (value is _ABSENT or callable(value)):
            return False
        if isinstance(on_class, cached_property) and value is _ABSENT:
            return False
        if held is not _ABSENT:  # what was added later, as PyTorch does, is not of the constructor
            return any(name == option for option, _ in self._options_when_built)
        if isinstance(on_class, property):
            return on_class.fset is None  # that of a parametrized tensor can be set
        return on_class is not _ABSENT or name in self.__dict__.get("options", ())

    def _fixed_error(self, name: str) -> ArgumentError:
        built_with = self.__dict__.get("options", {}).get(name, _ABSENT)
        built_with = getattr(self, name, None) if built_with is _ABSENT else built_with
        return ArgumentError(
            f"{type(self).__name__}: {name} is fixed when it is built, with {built_with!r} here. "
            f"{self._fixed_advice(name)}"
        )

    def _fixed_advice(self, name: str) -> str:
        """Return what to do instead of setting an option."""
        return (
            "Build the cell with other options by cell.replace(**options), which keeps its weights."
        )
