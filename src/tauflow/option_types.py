"""Whether values are of the types that annotations ask for: of options, and of what files hold."""

import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

_SHOWN = 60
_ROWS = frozenset({list, tuple, Sequence, Iterable, Collection})


def misfit(function: Callable[..., Any], values: Mapping[str, Any]) -> str:
    """Say which value is not of the type that a function's annotations ask for.

    A list does for a tuple, and a NumPy number for Python's; a truth value is no number. What has
    no annotation, or one that says nothing about a value by itself, is let pass.

    Args:
        function: any, such as a class's ``__init__``.
        values: arguments by name.

    Returns:
        ``"hidden_size must be an int, got [4] (list)"``, or nothing if all fit.
    """
    hints = _hints(function)
    for name, value in values.items():
        if name in hints and not fits(value, hints[name]):
            return f"{name} must be {in_words(hints[name])}, got {shown(value)}"
    return ""


def shown(value: object) -> str:
    """Return a value and its type for a message, cut to a line."""
    text = repr(value)
    return f"{text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'} ({type(value).__name__})"


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of the annotated type."""
    origin = get_origin(annotation)
    if annotation is Any or isinstance(annotation, TypeVar):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return any(type(value) is type(c) and value == c for c in get_args(annotation))
    if annotation is bool:
        return isinstance(value, bool | np.bool_)
    if annotation in (int, float):
        number = Integral if annotation is int else Real
        return isinstance(value, number) and not isinstance(value, bool | np.timedelta64)
    return _fits_class(value, origin or annotation, get_args(annotation))


def in_words(annotation: Any) -> str:
    """Return an annotation as it reads after "must be"."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(in_words(choice) for choice in get_args(annotation))
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    if annotation is type(None):
        return "None"
    kind = get_origin(annotation) or annotation
    name = getattr(kind, "__name__", str(kind))
    inner = [in_words(part) for part in get_args(annotation) if part is not Ellipsis]
    of = f" of {inner[0].partition(' ')[2]}" if inner and kind in _ROWS else ""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}{of}"


def _fits_class(value: Any, kind: Any, parts: tuple[Any, ...]) -> bool:
    if kind is Callable:
        return callable(value)
    if kind in _ROWS and isinstance(value, list | tuple):
        if kind is tuple and parts and parts[-1] is not Ellipsis:
            return len(value) == len(parts) and all(map(fits, value, parts))
        return not parts or all(fits(item, parts[0]) for item in value)
    if kind in _ROWS and isinstance(value, str | bytes):
        return False
    if not isinstance(kind, type) or kind.__module__.startswith("jaxtyping"):
        return True  # it says something about shapes, or nothing at all
    try:
        if not isinstance(value, kind):
            return False
    except TypeError:  # a protocol that cannot be asked
        return True
    if parts and isinstance(value, Mapping) and len(parts) == 2:
        return all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    return True


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # names that exist for type checkers only
        return {}
