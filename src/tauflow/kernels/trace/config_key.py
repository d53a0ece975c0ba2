"""All of a cell that a trace of its step depends on, apart from its tensors.

The options of a cell are fixed when it is built. What else its step may read are the options of
PyTorch's modules, class attributes, closures and globals of functions that users wrote. A step is
traced only if all of these are immutable, and if its code can be seen to do nothing but compute.
Their values are part of the key by which a trace is found, so that no trace outlives them.
"""

import dataclasses
import sys
from collections.abc import Hashable, Iterator
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow._internal.module_hooks import HOOKS, has_global_hooks, has_hooks
from tauflow.cells.base import AbstractCell

from .program import TracingError
from .step_code import CodeReads, is_pure_builtin, is_pure_torch_function, read_code

_VALUES = {bool, int, str, bytes, range, CodeType, *map(type, (None, ..., NotImplemented))}
_VALUES_BY_TEXT = {float, complex, torch.device}  # so that -0.0 is not 0.0
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
_NO_OPTIONS = {*vars(nn.Module()), "options", "_options_when_built", "_parts_when_built"}
_NOT_OF_STEPS = {
    *("__init__", "__new__", "__init_subclass__", "__repr__", "__hash__", "__getnewargs__"),
    *("__setattr__", "__delattr__", "__getstate__", "__setstate__", "__reduce__", "__replace__"),
    *("reset_parameters", "extra_repr", "initial_state", "readout", "update_gate", "precompute"),
    *("max_stable_dt", "time_constant", "has_time_unit", "with_input_size", "replace", "_abc_impl"),
}
"""Methods that no trace of a step consists of, unless a function reads them by name, or a class."""

_TRUSTED = ("torch", "tauflow")
_STANDARD = ("builtins", "abc", "typing", "enum", "collections.abc")


class ConfigKey(NamedTuple):
    """What a trace of a cell's step depends on, apart from the numbers in its tensors.

    Args:
        parts: by type and bits; a tensor by its shape, strides, dtype, device, and if it learns.
        has_user_code: whether functions that users wrote are among it.
    """

    parts: tuple[Hashable, ...]
    has_user_code: bool


def make_config_key(cell: AbstractCell) -> ConfigKey:
    """Return what a trace of a cell's step depends on, apart from the numbers in its tensors.

    Raises:
        TracingError: something of it can change in place, or it cannot be seen that the step does
            nothing but compute.
    """
    return _KeyMaker().make_cell_key(cell)


class _KeyMaker:
    """Makes one key; every function that users wrote is read once."""

    def __init__(self) -> None:
        self._names: set[str] = set()  # of attributes that functions read
        self._classes: dict[type, None] = {}  # that users wrote
        self._constructed: set[type] = set()  # whose objects steps may make
        self._functions: dict[int, FunctionType] = {}
        self._keys: list[Hashable] = []

    def make_cell_key(self, cell: AbstractCell) -> ConfigKey:
        is_own = _is_trusted(type_before_parametrizations(cell))
        if has_global_hooks():
            raise TracingError("there are hooks for all modules")
        for path, module in cell.named_modules(remove_duplicate=False):
            # of a cell of the library, pruned and normalised parameters are computed ahead
            if has_hooks(module) if is_own or not path else any(map(vars(module).get, HOOKS)):
                raise TracingError(f"its {path or 'own step'} has hooks")
            self._add_module(path, module)
        if not (self._classes or self._functions):
            return ConfigKey(tuple(self._keys), False)
        read: set[tuple[type, str]] = set()
        while new := [one for one in self._iter_class_reads() if one not in read]:
            read.update(new)
            for kind, name in new:
                where = f"{kind.__name__}.{name}"
                self._keys.append((kind, name, self._make_key(where, vars(kind)[name])))
        if "options" in self._names:
            raise TracingError("it reads options, a dict, which can change in place")
        return ConfigKey(tuple(self._keys), True)

    def _add_module(self, path: str, module: nn.Module) -> None:
        kind: Any = type_before_parametrizations(module)
        if isinstance(module, torch.jit.ScriptModule):
            raise TracingError(f"its {path} is a script, which can change in place")
        is_ours = _is_trusted(kind) and kind.__module__.startswith("tauflow.")
        if not all(map(_is_trusted, kind.__mro__[:-1])):
            self._add_class(kind)
        options = [
            (name, self._make_key(f"{path}.{name}".lstrip("."), _freeze(name, kind, value)))
            for name, value in module.__dict__.items()
            if name not in _NO_OPTIONS and not (is_ours and name[0] == "_" and not callable(value))
        ]
        forward = kind.forward  # which generated modules may replace
        if not _is_trusted(forward):
            options.append(("forward", self._make_key(f"{path}.forward".lstrip("."), forward)))
        tensors = [
            (name, None if tensor is None else _describe_tensor(tensor))
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
        ]
        self._keys.append((path, type(module), module.training, tuple(options), tuple(tensors)))

    def _add_class(self, kind: type) -> None:
        """Take note of a class that somebody else wrote, with those that it derives from."""
        made_by: type = type(kind)
        for one in (*kind.__mro__, *made_by.__mro__):
            if not (_is_trusted(one) or _is_standard(one)):
                self._classes[one] = None

    def _iter_class_reads(self) -> Iterator[tuple[type, str]]:
        """Yield what functions may read of classes: by name, or implicitly."""
        for kind in tuple(self._classes):
            of_library = [base for base in kind.__mro__ if _is_trusted(base)]
            for name, value in tuple(vars(kind).items()):
                makes = name in ("__init__", "__new__") and kind in self._constructed
                if name in _NOT_OF_STEPS and name not in self._names and not makes:
                    continue
                special = (name.startswith("__") or name == "_missing_") and _is_method(value)
                inherited = not name.startswith("__") and any(hasattr(b, name) for b in of_library)
                if special or inherited or name in self._names:
                    yield kind, name

    def _make_key(self, where: str, value: Any) -> Hashable:
        """Return what stands for an immutable value in comparisons, by type and bits."""
        kind = type(value)
        if kind in _VALUES or isinstance(value, _CONSTANTS):
            return kind, value
        if kind in _VALUES_BY_TEXT or (
            isinstance(value, np.generic) and kind.__module__ == "numpy"
        ):
            return kind, repr(value)
        if isinstance(value, Tensor):
            return Tensor, _describe_tensor(value)  # its numbers are read at every call
        if isinstance(value, type):
            return self._make_class_key(where, value)
        if kind is FunctionType and not _is_trusted(value):
            return self._make_function_key(where, value)
        contents = _list_contents(value)
        if contents is not None:
            self._add_values_class(kind)
            return kind, *((name, self._make_key(f"{where}{name}", one)) for name, one in contents)
        if not callable(value):
            raise TracingError(
                f"{where} is {_with_article(kind.__name__)}, which can change in place. Numbers, "
                "strings, tuples and frozen dataclasses cannot"
            )
        if is_pure_torch_function(value) or is_pure_builtin(value):
            return _Identity(value)
        name = getattr(value, "__qualname__", kind.__name__)
        raise TracingError(f"it cannot be seen that {where} ({name}) only computes")

    def _add_values_class(self, kind: type) -> None:
        if not (_is_trusted(kind) or _is_standard(kind)):
            self._add_class(kind)

    def _make_class_key(self, where: str, kind: type) -> Hashable:
        """Return a class; one that somebody else wrote must make objects that are known already."""
        if _is_trusted(kind) or is_pure_builtin(kind):
            return _Identity(kind)
        if issubclass(kind, Enum):
            self._add_class(kind)
            return _Identity(kind), *(self._make_key(f"{where}.{one.name}", one) for one in kind)
        if _is_frozen_dataclass(kind) and not hasattr(kind, "__post_init__"):
            init: Any = kind.__init__  # which sets attributes, if dataclass wrote it
            if init.__code__.co_filename == "<string>" and kind.__new__ is object.__new__:
                self._add_class(kind)
                defaults = init.__defaults__ or (), tuple((init.__kwdefaults__ or {}).items())
                return _Identity(kind), self._make_key(f"a default of {where}", defaults)
        if kind in self._classes:
            self._constructed.add(kind)
            return _Identity(kind)
        raise TracingError(f"it cannot be seen what objects of {where} do")

    def _make_function_key(self, where: str, function: FunctionType) -> Hashable:
        """Return what a function computes: its code, and the values that it reads."""
        if id(function) in self._functions:
            return id(function.__code__)
        self._functions[id(function)] = function
        name = function.__qualname__
        reads = read_code(function.__code__)
        if reads.problem:
            raise TracingError(f"{name} {reads.problem}")
        self._names |= reads.attributes
        closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held = [
            (one, _get_contents(one, name, cell)) for one, cell in closure if one != "__class__"
        ]
        held += [("its default", one) for one in function.__defaults__ or ()]
        held += [*(function.__kwdefaults__ or {}).items(), *vars(function).items()]
        held += [(text, value) for text, value in _resolve_globals(name, function, reads)]
        values = tuple(
            (text, self._make_key(f"{text}, which {name} reads,", value)) for text, value in held
        )
        return _CodeIdentity(function.__code__), values


def _resolve_globals(
    name: str, function: FunctionType, reads: CodeReads
) -> Iterator[tuple[str, Any]]:
    """Yield the values of the global names that a function reads, through modules."""
    builtins = function.__globals__["__builtins__"]
    builtins = vars(builtins) if isinstance(builtins, ModuleType) else builtins
    for first, *attributes in reads.global_names:
        text = first
        if first in function.__globals__:
            value = function.__globals__[first]
        elif first in builtins:
            value = builtins[first]
        else:
            raise _undefined_error(name, first)
        while attributes and isinstance(value, (ModuleType, type)):
            if isinstance(value, type) and not issubclass(value, Enum):
                break  # attributes of classes are read by name
            text = f"{text}.{attributes[0]}"
            try:
                value = getattr(value, attributes.pop(0))
            except AttributeError:
                raise _undefined_error(name, text) from None
        if isinstance(value, ModuleType):
            raise TracingError(f"{name} uses the module {text} as a value")
        yield text, value


def _get_contents(variable: str, function: str, cell: Any) -> Any:
    """Return the value of a variable that a function reads from around it."""
    try:
        return cell.cell_contents
    except ValueError:
        raise _undefined_error(function, variable) from None


def _undefined_error(function: str, name: str) -> TracingError:
    return TracingError(f"{function} reads {name}, which is not defined")


class _Identity:
    """An object that is compared by itself, whatever its class says, and kept alive."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


class _CodeIdentity(_Identity):
    """The code of a function, which is alike only if it is the same one."""


@lru_cache(maxsize=1024)
def _is_trusted(value: Any) -> bool:
    """Whether a function or class is of PyTorch or of this library.

    A class that ``type(name, bases, attributes)`` made says that it is of the module of its
    metaclass, where there is none by that name.
    """
    module = str(getattr(value, "__module__", ""))
    if module.partition(".")[0] not in _TRUSTED:
        return False
    return not isinstance(value, type) or _is_importable(value)


def _is_standard(kind: type) -> bool:
    """Whether a class is of the parts of Python that no step depends on."""
    return kind.__module__ in _STANDARD and _is_importable(kind)


def _is_importable(kind: type) -> bool:
    try:
        return attrgetter(kind.__qualname__)(sys.modules[kind.__module__]) is kind
    except (AttributeError, KeyError):
        return False


def _describe_tensor(tensor: Tensor) -> Hashable:
    """Return all about a tensor but its numbers."""
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return type(tensor), tensor.shape, strides, tensor.dtype, tensor.device, tensor.requires_grad


def _list_contents(value: Any) -> list[tuple[str, Any]] | None:
    """Return what an immutable value consists of, with names; ``None`` of any other."""
    kind = type(value)
    if isinstance(value, Enum):
        return [(f".{name}", one) for name, one in vars(value).items() if name != "__objclass__"]
    if isinstance(value, tuple) and not getattr(value, "__dict__", None):
        return [(f"[{i}]", one) for i, one in enumerate(value)]
    if kind is frozenset:
        return [("'s entry", one) for one in sorted(value, key=repr)]
    if kind in (staticmethod, classmethod):
        return [("", value.__func__)]
    if kind is property:
        return [("", one) for one in (value.fget, value.fset, value.fdel)]
    if kind is MethodType:
        return [("'s object", value.__self__), ("", value.__func__)]
    if _is_frozen_dataclass(kind):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [(f".{name}", one) for name, one in {**fields, **_get_dict(value)}.items()]
    return None


def _freeze(name: str, kind: type, value: Any) -> Any:
    """Return what PyTorch's modules keep in lists and dictionaries of their own as tuples."""
    if name[0] == "_" and _is_trusted(kind) and isinstance(value, (list, dict)):
        return tuple(value.items()) if isinstance(value, dict) else tuple(value)
    return value


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, (classmethod, staticmethod, property))


def _get_dict(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def _is_frozen_dataclass(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _with_article(name: str) -> str:
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
