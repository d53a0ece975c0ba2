"""What is set on a cell and its parts, to see whether something was set anew."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn

from tauflow.cells.base import AbstractCell

_PLAIN = (bool, int, str, bytes, type(None), type(...), CodeType, range)
_BY_BITS = (float, complex, torch.device)  # compared by their text: -0.0 is not 0.0
_WHOLE = (Tensor, Enum, BuiltinFunctionType, WrapperDescriptorType)
_WHOLE_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)
_OF_MODULES = {*vars(nn.Module()), "_parts_when_built"}
_OF_CLASSES = {"_abc_impl", "__init__"}  # which nothing reads after a cell is built
_MORE_OF_FUNCTIONS = ("__closure__", "__defaults__", "__kwdefaults__", "__dict__")
_DEPTH = 8  # of settings within settings that are looked at
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE


class Settings:
    """What is set on a cell and its submodules; of known classes, public names only.

    Values are compared by type and bits, and so are the contents of lists, mappings and objects,
    which may be edited in place, and the attributes of classes that are neither PyTorch's nor this
    library's. No object is kept alive, and a new one at the address of another differs from it.

    Attributes:
        unknown: the first attribute in which a change could not be seen, such as an array, with
            its type; ``None`` if there is none.
    """

    def __init__(self, cell: AbstractCell) -> None:
        self.unknown: str | None = None
        self._parts = dict(cell.named_modules(remove_duplicate=False))
        self._inside = {id(part) for part in self._parts.values()}
        self._held = [
            (path, *self._module(path, part, _DEPTH)) for path, part in self._parts.items()
        ]
        del self._parts, self._inside

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._held == other._held

    __hash__ = None  # type: ignore[assignment]  # changes with what it tells

    def _module(self, path: str, part: nn.Module, depth: int) -> Iterator[Any]:
        """Yield what tells a module from another: its class, its tensors' names, its settings."""
        kind, known = type(part), _is_known(type(part))
        yield kind
        for tensors in (part._parameters, part._buffers):
            yield [(name, tensor is None) for name, tensor in tensors.items()]
        if not known:
            yield self._class(f"{path}.__class__", kind, depth)
        for name, value in vars(part).items():
            if not (name.startswith("_") and (known or name in _OF_MODULES)):
                yield name, self._look(f"{path}.{name}", value, depth)

    def _class(self, path: str, kind: type, depth: int) -> list[Any]:
        """Return what is set on classes that are not known, and on those that they derive from."""
        found: list[Any] = []
        for one in kind.__mro__:
            if _is_known(one) or not one.__flags__ & _MADE_BY_PYTHON:
                continue
            found.append(one)
            for name, value in vars(one).items():
                is_special = name[:2] == name[-2:] == "__" and not isinstance(value, FunctionType)
                if not (is_special or name in _OF_CLASSES):
                    found.append((name, self._look(f"{path}.{name}", value, depth - 1)))
        return found

    def _look(self, path: str, value: Any, depth: int) -> Any:
        """Return what stands for a value in comparisons."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind in _BY_BITS or isinstance(value, np.generic):
            return kind, repr(value)
        if kind is FunctionType and not any(map(value.__getattribute__, _MORE_OF_FUNCTIONS)):
            return value.__code__
        if kind is _One:
            return value
        if _is_stable(value):
            return _One(value)
        if depth <= 0:
            return self._unsure(path, value)
        if isinstance(value, nn.Module):
            inside = id(value) in self._inside
            return _One(value) if inside else list(self._module(path, value, depth - 1))
        if isinstance(value, type):
            return self._class(path, value, depth)
        return kind, *(
            self._look(f"{path}{name}", one, depth - 1) for name, one in self._contents(path, value)
        )

    def _contents(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield what a value consists of, with names."""
        kind = type(value)
        contents = next((of for kinds, of in _CONTENTS if isinstance(value, kinds)), None)
        if contents is not None:
            yield from contents(value)
        elif not _is_transparent(kind):
            yield "", self._unsure(path, value)
        if not _is_known(kind) and kind.__flags__ & _MADE_BY_PYTHON:
            yield "'s class", kind
        yield from ((f".{name}", one) for name, one in getattr(value, "__dict__", {}).items())

    def _unsure(self, path: str, value: object) -> "_One":
        self.unknown = self.unknown or f"{path.lstrip('.')} ({type(value).__name__})"
        return _One(value)


def _of_mapping(value: Any) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        yield "'s keys", key
        yield f"[{key!r}]", one


def _of_function(value: Any) -> Iterator[tuple[str, Any]]:
    yield "", value.__code__
    yield "'s defaults", [value.__defaults__, value.__kwdefaults__]
    yield "'s closure", [one.cell_contents for one in value.__closure__ or ()]


_CONTENTS: list[tuple[Any, Callable[[Any], Iterable[tuple[str, Any]]]]] = [
    ((list, tuple), lambda value: ((f"[{i}]", one) for i, one in enumerate(value))),
    ((dict, MappingProxyType), _of_mapping),
    (FunctionType, _of_function),
    (MethodType, lambda value: [("'s object", value.__self__), ("", value.__func__)]),
    ((staticmethod, classmethod), lambda value: [("", value.__func__)]),
    (property, lambda value: [("", (value.fget, value.fset, value.fdel))]),
    (functools.partial, lambda value: [("", (value.func, value.args, value.keywords))]),
]
"""Classes of values, and what their objects consist of, with names."""


def _is_transparent(kind: type) -> bool:
    """Whether all that objects of a class hold is in their ``__dict__``."""
    if _is_known(kind):
        return True
    slots = any(vars(one).get("__slots__") for one in kind.__mro__)
    compiled = [one for one in kind.__mro__ if not one.__flags__ & _MADE_BY_PYTHON]
    return not slots and set(compiled) <= {object, SimpleNamespace}


def _is_stable(value: object) -> bool:
    """Whether a value can be told from others by its identity, for nobody edits its like."""
    if isinstance(value, (FunctionType, MethodType, type)):
        return _is_known(value) or value.__module__ in sys.stdlib_module_names
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in {*sys.stdlib_module_names, *_KNOWN, "numpy"}
    if isinstance(value, _WHOLE + _WHOLE_OF_TORCH + (np.ufunc,)):
        return True
    # such as torch's generators
    return _is_known(type(value)) and not hasattr(value, "__dict__")


_KNOWN = ("torch", "tauflow")


class _One:
    """An object that equals itself alone, as long as it is there."""

    __slots__ = ("_to",)

    def __init__(self, value: object) -> None:
        try:
            self._to: Any = ref(value)
        except TypeError:  # of a class whose objects cannot be referred to: kept
            self._to = lambda: value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _One) and (own := self._to()) is not None and own is other._to()

    __hash__ = None  # type: ignore[assignment]


def has_own_functions(cell: AbstractCell) -> bool:
    """Whether somebody else wrote what a cell calls, which then may read anything.

    A cell of somebody else's that says that it is pure reads nothing but what is set on it.
    """
    if cell.is_pure:
        return False
    for part in cell.modules():
        if part is not cell and not _is_known(type(part)):
            return True
        for value in vars(part).values():
            is_function = callable(value) and not isinstance(value, (Tensor, nn.Module, type))
            if is_function and not _is_known(value):
                return True
    return False


def _is_known(value: object) -> bool:
    """Whether a function or a class is of PyTorch, of this library, or of no Python at all."""
    if isinstance(value, BuiltinFunctionType):
        return True
    if isinstance(value, MethodType):
        return _is_known(
            value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        )
    of = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(of.__module__).partition(".")[0] in _KNOWN
