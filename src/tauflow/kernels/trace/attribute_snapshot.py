"""What is set on a cell and its parts, to see whether something was set again."""

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

_PRIMITIVE_TYPES = (bool, int, str, bytes, type(None), type(...), CodeType, range)
_REPR_COMPARED_TYPES = (float, complex, torch.device)  # compared by their text: -0.0 is not 0.0
_IDENTITY_TYPES = (Tensor, Enum, BuiltinFunctionType, WrapperDescriptorType)
_TORCH_IDENTITY_TYPES = (torch.dtype, torch.layout, torch.memory_format)
_IGNORED_MODULE_ATTRIBUTES = {*vars(nn.Module()), "_parts_when_built", "_options_when_built"}
_IGNORED_CLASS_ATTRIBUTES = {"_abc_impl", "__init__"}  # which nothing reads after a cell is built
_FUNCTION_STATE = ("__closure__", "__defaults__", "__kwdefaults__", "__dict__")
_MAX_DEPTH = 8  # of settings within settings that are looked at
_HEAP_TYPE_FLAG = 1 << 9  # Py_TPFLAGS_HEAPTYPE


class AttributeSnapshot:
    """What is set on a cell and its submodules; of known classes, public names only.

    Values are compared by type and bits, and so are the contents of lists, mappings and objects,
    which may be edited in place, and the attributes of classes that are neither PyTorch's nor this
    library's. No object is kept alive, and a new one at the address of another differs from it.

    Attributes:
        unknown: the first attribute in which a change could not be seen, such as an array, with
            its type; ``None`` if there is none.
    """

    def __init__(self, cell: AbstractCell) -> None:
        self.untracked_attribute: str | None = None
        self._submodules = dict(cell.named_modules(remove_duplicate=False))
        self._submodule_ids = {id(part) for part in self._submodules.values()}
        self._held = [
            (path, *self._describe_module(path, part, _MAX_DEPTH))
            for path, part in self._submodules.items()
        ]
        del self._submodules, self._submodule_ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttributeSnapshot) and self._held == other._held

    __hash__ = None  # type: ignore[assignment]  # changes with what it tells

    def _describe_module(self, path: str, part: nn.Module, depth: int) -> Iterator[Any]:
        """Yield what tells a module from another: its class, its tensors' names, its settings."""
        kind, known = type(part), _is_trusted(type(part))
        yield kind
        for tensors in (part._parameters, part._buffers):
            yield [(name, tensor is None) for name, tensor in tensors.items()]
        if not known:
            yield self._describe_class(f"{path}.__class__", kind, depth)
        for name, value in vars(part).items():
            if not (name.startswith("_") and (known or name in _IGNORED_MODULE_ATTRIBUTES)):
                yield name, self._make_key(f"{path}.{name}", value, depth)

    def _describe_class(self, path: str, kind: type, depth: int) -> list[Any]:
        """Return what is set on classes that are not known, and on those that they derive from."""
        found: list[Any] = []
        for one in kind.__mro__:
            if _is_trusted(one) or not one.__flags__ & _HEAP_TYPE_FLAG:
                continue
            found.append(one)
            for name, value in vars(one).items():
                is_special = name[:2] == name[-2:] == "__" and not isinstance(value, FunctionType)
                if not (is_special or name in _IGNORED_CLASS_ATTRIBUTES):
                    found.append((name, self._make_key(f"{path}.{name}", value, depth - 1)))
        return found

    def _make_key(self, path: str, value: Any, depth: int) -> Any:
        """Return what stands for a value in comparisons."""
        kind = type(value)
        if kind in _PRIMITIVE_TYPES:
            return kind, value
        if kind in _REPR_COMPARED_TYPES or isinstance(value, np.generic):
            return kind, repr(value)
        if kind is FunctionType and not any(map(value.__getattribute__, _FUNCTION_STATE)):
            return value.__code__
        if kind is _IdentityKey:
            return value
        if _is_compared_by_identity(value):
            return _IdentityKey(value)
        if depth <= 0:
            return self._mark_untracked(path, value)
        if isinstance(value, nn.Module):
            inside = id(value) in self._submodule_ids
            return (
                _IdentityKey(value)
                if inside
                else list(self._describe_module(path, value, depth - 1))
            )
        if isinstance(value, type):
            return self._describe_class(path, value, depth)
        return kind, *(
            self._make_key(f"{path}{name}", one, depth - 1)
            for name, one in self._iter_contents(path, value)
        )

    def _iter_contents(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield what a value consists of, with names."""
        kind = type(value)
        contents = next((of for kinds, of in _CONTENT_ITERATORS if isinstance(value, kinds)), None)
        if contents is not None:
            yield from contents(value)
        elif not _has_only_dict_state(kind):
            yield "", self._mark_untracked(path, value)
        if not _is_trusted(kind) and kind.__flags__ & _HEAP_TYPE_FLAG:
            yield "'s class", kind
        yield from ((f".{name}", one) for name, one in getattr(value, "__dict__", {}).items())

    def _mark_untracked(self, path: str, value: object) -> "_IdentityKey":
        self.untracked_attribute = (
            self.untracked_attribute or f"{path.lstrip('.')} ({type(value).__name__})"
        )
        return _IdentityKey(value)


def _iter_mapping(value: Any) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        yield "'s keys", key
        yield f"[{key!r}]", one


def _iter_function(value: Any) -> Iterator[tuple[str, Any]]:
    yield "", value.__code__
    yield "'s defaults", [value.__defaults__, value.__kwdefaults__]
    yield "'s closure", [one.cell_contents for one in value.__closure__ or ()]


_CONTENT_ITERATORS: list[tuple[Any, Callable[[Any], Iterable[tuple[str, Any]]]]] = [
    ((list, tuple), lambda value: ((f"[{i}]", one) for i, one in enumerate(value))),
    ((dict, MappingProxyType), _iter_mapping),
    (FunctionType, _iter_function),
    (MethodType, lambda value: [("'s object", value.__self__), ("", value.__func__)]),
    ((staticmethod, classmethod), lambda value: [("", value.__func__)]),
    (property, lambda value: [("", (value.fget, value.fset, value.fdel))]),
    (functools.partial, lambda value: [("", (value.func, value.args, value.keywords))]),
]
"""Classes of values, and what their objects consist of, with names."""


def _has_only_dict_state(kind: type) -> bool:
    """Whether all that objects of a class hold is in their ``__dict__``."""
    if _is_trusted(kind):
        return True
    slots = any(vars(one).get("__slots__") for one in kind.__mro__)
    compiled = [one for one in kind.__mro__ if not one.__flags__ & _HEAP_TYPE_FLAG]
    return not slots and set(compiled) <= {object, SimpleNamespace}


def _is_compared_by_identity(value: object) -> bool:
    """Whether a value can be told from others by its identity, for nobody edits its like."""
    if isinstance(value, (FunctionType, MethodType, type)):
        return _is_trusted(value) or value.__module__ in sys.stdlib_module_names
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in {
            *sys.stdlib_module_names,
            *_TRUSTED_PACKAGES,
            "numpy",
        }
    if isinstance(value, _IDENTITY_TYPES + _TORCH_IDENTITY_TYPES + (np.ufunc,)):
        return True
    # such as torch's generators
    return _is_trusted(type(value)) and not hasattr(value, "__dict__")


_TRUSTED_PACKAGES = ("torch", "tauflow")


class _IdentityKey:
    """An object that equals itself alone, as long as it is there."""

    __slots__ = ("_to",)

    def __init__(self, value: object) -> None:
        try:
            self._to: Any = ref(value)
        except TypeError:  # of a class whose objects cannot be referred to: kept
            self._to = lambda: value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _IdentityKey)
            and (own := self._to()) is not None
            and own is other._to()
        )

    __hash__ = None  # type: ignore[assignment]


def has_user_functions(cell: AbstractCell) -> bool:
    """Whether somebody else wrote what a cell calls, which then may read anything.

    A cell of somebody else's that says that it is pure reads nothing but what is set on it.
    """
    if cell.is_pure:
        return False
    for part in cell.modules():
        if part is not cell and not _is_trusted(type(part)):
            return True
        for value in vars(part).values():
            is_function = callable(value) and not isinstance(value, (Tensor, nn.Module, type))
            if is_function and not _is_trusted(value):
                return True
    return False


def _is_trusted(value: object) -> bool:
    """Whether a function or a class is of PyTorch, of this library, or of no Python at all."""
    if isinstance(value, BuiltinFunctionType):
        return True
    if isinstance(value, MethodType):
        return _is_trusted(
            value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        )
    of = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(of.__module__).partition(".")[0] in _TRUSTED_PACKAGES
