"""What is set on a cell and its parts, to see whether something was set anew."""

from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

from torch import Tensor, nn

from tauflow.cells.base import AbstractCell

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_WHOLE = (Tensor, nn.Module, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_OF_MODULES = {*vars(nn.Module()), "_parts_when_built"}
_DEPTH = 3  # of settings within settings that are looked at


class Settings:
    """What is set on a cell and its parts now; of known classes what has no leading underscore.

    Numbers and words are told apart by value, and so is what lists, mappings and objects hold of
    them: a setting may be edited in place. Anything else is the same only if it is the same object.
    No object is kept alive, and none that came into being at the address of another is taken for
    it.
    """

    def __init__(self, cell: AbstractCell) -> None:
        self._held = list(_settings(cell))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._held == other._held

    __hash__ = None  # type: ignore[assignment]  # changes with what it tells


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
    return of.__module__.partition(".")[0] in ("torch", "tauflow")


def _settings(cell: AbstractCell) -> Iterator[Any]:
    for part in cell.modules():
        known = _is_known(type(part))
        for name, value in vars(part).items():
            if not (name.startswith("_") and (known or name in _OF_MODULES)):
                yield value if isinstance(value, _PLAIN) else _look(value, _DEPTH)


def _look(value: object, depth: int) -> Any:
    """Return what stands for a value in comparisons."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _WHOLE) or not depth:
        return _One(value)
    if isinstance(value, (list, tuple)):
        return type(value), [_look(one, depth - 1) for one in value]
    if isinstance(value, Mapping):
        return type(value), [(_look(k, 0), _look(one, depth - 1)) for k, one in value.items()]
    held = getattr(value, "__dict__", None)
    if not held:
        return _One(value)
    return type(value), [(name, _look(one, depth - 1)) for name, one in held.items()]
