"""Modules whose options are fixed once they are built."""

import copy
from abc import ABCMeta
from collections.abc import Callable
from functools import cache, cached_property
from inspect import getattr_static
from types import FunctionType
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow.errors import ArgumentError

_ABSENT = object()
_METHODS = (FunctionType, staticmethod, classmethod)
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_NOT_OPTIONS = frozenset({*_MODULE_ATTRIBUTES, "options", "_tensors_when_built", "_number"})


def is_method(kind: type, name: str) -> bool:
    """Whether a class has a method of this name, which may also be that of an option."""
    return isinstance(getattr_static(kind, name, None), _METHODS)


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

    Options are all that is set on it but tensors and modules. Of the library's own classes parts
    and methods are fixed, too, and there can be no hooks: kernels compute what the constructor
    built. Tensors may be replaced, and parametrized.
    """

    _options_when_built: tuple[tuple[str, Any], ...]

    def fix_options(self) -> None:
        """From now on, let no option be set."""
        self.__dict__["_options_when_built"] = list_options(self)
        if _is_of_library(self):
            for part in self.modules():
                fix_part(part)

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
        """Whether an attribute is an option or part, rather than a tensor or new."""
        if _is_of_library(self) and name != "parametrizations" and not name.startswith("__"):
            if name in self._modules or isinstance(value, nn.Module):
                return True
            if is_method(type(self), name) and value is not _ABSENT:
                return True
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

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Add a part; to a built module of the library's classes this is an error."""
        if "_options_when_built" in self.__dict__ and self._is_fixed(name, module):
            raise self._fixed_error(name)
        super().add_module(name, module)

    def register_module(self, name: str, module: nn.Module | None) -> None:
        """Add a part, as :meth:`add_module`."""
        self.add_module(name, module)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Add a parameter; of the library's classes pruning and ``spectral_norm`` are an error."""
        if _is_of_library(self):
            _check_no_pruning(self, name, param)
        super().register_parameter(name, param)

    def register_forward_hook(self, *args: Any, **options: Any) -> Any:
        """Register a hook; on the library's classes this is an error."""
        self._check_hooks()
        return super().register_forward_hook(*args, **options)

    def register_forward_pre_hook(self, *args: Any, **options: Any) -> Any:
        """Register a hook; on the library's classes this is an error."""
        self._check_hooks()
        return super().register_forward_pre_hook(*args, **options)

    def register_full_backward_hook(self, *args: Any, **options: Any) -> Any:
        """Register a hook; on the library's classes this is an error."""
        self._check_hooks()
        return super().register_full_backward_hook(*args, **options)

    def register_full_backward_pre_hook(self, *args: Any, **options: Any) -> Any:
        """Register a hook; on the library's classes this is an error."""
        self._check_hooks()
        return super().register_full_backward_pre_hook(*args, **options)

    def _check_hooks(self) -> None:
        """Raise if no hook of this module would be called at every step.

        Raises:
            ArgumentError: it is of the library's own classes, which run in kernels.
        """
        if _is_of_library(self):
            raise _hook_error(self)

    def _fixed_error(self, name: str) -> ArgumentError:
        if _is_of_library(self) and (
            name in self._modules or name not in {**self.__dict__.get("options", {}), **vars(self)}
        ):
            return part_error(type(self).__name__, name)
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


def _is_of_library(module: nn.Module) -> bool:
    """Whether a module is of a class of this library itself, parametrized or not."""
    kind: Any = type_before_parametrizations(module)
    return str(kind.__module__).startswith("tauflow.")


def part_error(where: str, name: object) -> ArgumentError:
    """Build the error about a part or method that is fixed."""
    return ArgumentError(
        f"{where}: {name} is fixed when it is built, as all parts and methods are. Build another "
        "one, by module.replace(**options) with the same parameters; write a subclass with another "
        "step; or change parameters by torch.nn.utils.parametrize."
    )


def _hook_error(module: nn.Module) -> ArgumentError:
    return ArgumentError(
        f"{module._get_name()} takes no hooks: kernels run all steps at once. Register hooks on "
        "the outer module (the sequence module or model), compute parameters by "
        "torch.nn.utils.parametrize, or write a subclass whose step does more."
    )


def _check_no_pruning(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
    """Raise if pruning, ``spectral_norm`` or ``weight_norm`` add a parameter, before their hook.

    They have taken the parameter itself out by then, which is put back.
    """
    base, _, suffix = name.rpartition("_")
    replaces_norm = suffix == "v" and f"{base}_g" in module._parameters
    if suffix == "orig" or (replaces_norm and base not in module._parameters):
        module._parameters.pop(f"{base}_g", None)
        module._parameters[base] = param
        raise _hook_error(module)


class _FixedPart(nn.Module):
    """What PyTorch's modules refuse as parts of a built cell of the library."""

    def _refuse(self, *args: Any, **options: Any) -> Any:
        raise part_error(self._get_name(), "the list of its parts")

    def _refuse_hook(self, *args: Any, **options: Any) -> Any:
        raise _hook_error(self)

    __delitem__ = __iadd__ = append = extend = insert = pop = clear = update = _refuse
    add_module = register_module = _refuse
    register_forward_hook = register_forward_pre_hook = _refuse_hook
    register_full_backward_hook = register_full_backward_pre_hook = _refuse_hook

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a tensor, or what PyTorch sets itself; anything else is an error."""
        is_known = name in _MODULE_ATTRIBUTES or name.startswith("_") or name == "parametrizations"
        if not (is_known or value is None or isinstance(value, Tensor)):
            raise part_error(self._get_name(), name)
        super().__setattr__(name, value)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Add a parameter; pruning and ``spectral_norm`` are an error."""
        _check_no_pruning(self, name, param)
        super().register_parameter(name, param)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):  # a new list, to which parts may be added
            twin: Any = copy.copy(self)
            twin.__class__ = type(self).__mro__[2]
            return twin[key]
        return super().__getitem__(key)  # type: ignore[misc]

    def _get_name(self) -> str:
        return type(self).__name__.removeprefix("Fixed")


def fix_part(part: nn.Module) -> None:
    """Let a module of PyTorch refuse other parts, options, methods and hooks from now on."""
    kind: Any = type(part)
    if kind.__module__.startswith("torch.nn.modules."):
        part.__class__ = _make_fixed_class(kind)


@cache
def _make_fixed_class(kind: type[nn.Module]) -> type[nn.Module]:
    return type(f"Fixed{kind.__name__}", (_FixedPart, kind), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    """Return the class of a fixed part, by which it is pickled."""
    kind = getattr(nn, name.removeprefix("Fixed"), None)
    if kind is None or not name.startswith("Fixed"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _make_fixed_class(kind)
