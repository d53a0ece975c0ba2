"""Checks of values and types where a call enters the library, each with one clear message."""

import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from tauflow.errors import ArgumentError, DtypeError, ShapeError, UnknownNameError

from .registry import suggest_name
from .sanitize import add_article

N = TypeVar("N", int, float)

_NON_NUMBERS = bool, np.timedelta64
"""Whole numbers to Python, but not what a caller means by one."""


def check_at_least(minimum: int, **named: int) -> int:
    """Return the one named integer, or raise :class:`ArgumentError` if it is below ``minimum``."""
    ((name, value),) = named.items()
    if not isinstance(value, Integral) or isinstance(value, _NON_NUMBERS):
        raise ArgumentError(f"{name} must be an integer, got {value!r} ({type(value).__name__}).")
    if value < minimum:
        raise ArgumentError(f"{name} must be at least {minimum}, got {value}.")
    return int(value)


def check_seed(bits: int, **named: int) -> int:
    """Return the one named integer, or raise unless it is a seed from 0 to ``2**bits - 1``."""
    check_at_least(0, **named)
    ((name, value),) = named.items()
    if value >= 2**bits:
        raise ArgumentError(f"{name} must be less than 2**{bits} = {2**bits}, got {value}.")
    return int(value)


def check_within(low: float, high: float, **named: float) -> float:
    """Return the one named number, or raise unless ``low <= number <= high``."""
    ((name, value),) = named.items()
    if not _is_finite(value) or not low <= value <= high:
        span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of {low:g} or more"
        raise ArgumentError(f"{name} must be a number {span}, got {value!r}.")
    return value


def check_positive(**named: float) -> float:
    """Return the one named number, or raise unless it is finite and above zero."""
    ((name, value),) = named.items()
    if not _is_finite(value) or not value > 0:
        raise ArgumentError(f"{name} must be a number above 0, got {value!r}.")
    return float(value)


def check_finite(**named: float) -> float:
    """Return the one named number, or raise if it is not a finite one."""
    ((name, value),) = named.items()
    if not _is_finite(value):
        raise ArgumentError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def check_bool(**named: bool) -> bool:
    """Return the one named boolean, or raise if it is anything else."""
    ((name, value),) = named.items()
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}.")
    return value


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, _NON_NUMBERS) and math.isfinite(value)


def check_one_of(known: Iterable[str], **named: str) -> str:
    """Return the one named string, or raise if it is not among ``known``."""
    ((name, value),) = named.items()
    if isinstance(value, str) and isinstance(known, Mapping | Sequence) and value in known:
        return value  # without listing it, for which plugins would be imported
    choices = list(known)
    if value not in choices:
        hint = suggest_name(value, choices)
        raise UnknownNameError(
            f"{name}={value!r} is unknown.{hint} Choose from: {', '.join(choices)}."
        )
    return value


def check_floating_point(where: str, **named: Tensor) -> Tensor:
    """Return the one named tensor, or raise if its dtype is not floating point."""
    ((name, value),) = named.items()
    if not isinstance(value, Tensor):
        raise DtypeError(
            f"{where}: {name} must be a torch.Tensor, got {type(value).__name__}. "
            f"Convert it with torch.as_tensor({name})."
        )
    if not value.is_floating_point():
        raise DtypeError(
            f"{where}: {name} has dtype {value.dtype}, expected a floating-point one. "
            f"Convert it with {name}.float()."
        )
    return value


def check_bool_tensor(where: str, **named: Tensor) -> Tensor:
    """Return the one named tensor, or raise if it is not one of booleans."""
    ((name, value),) = named.items()
    if not isinstance(value, Tensor):
        raise DtypeError(
            f"{where}: {name} must be a tensor of dtype torch.bool, got {type(value).__name__}. "
            f"Convert it with torch.as_tensor({name})."
        )
    if value.dtype is not torch.bool:
        raise DtypeError(
            f"{where}: {name} has dtype {value.dtype}, expected torch.bool. "
            f"Convert it with {name}.bool()."
        )
    return value


def check_same_device(where: str, like: Tensor, **named: Tensor | None) -> None:
    """Raise unless every named tensor is on the device of ``like``, the input x."""
    for name, value in named.items():
        if isinstance(value, Tensor) and value.device != like.device:
            raise ArgumentError(
                f"{where}: {name} is on {value.device}, but x is on {like.device}. "
                f"Move it with {name}.to({str(like.device)!r})."
            )


def shape_error(where: str, name: str, got: Any, expected: str, advice: str) -> ShapeError:
    """Build the library's one form of shape error."""
    return ShapeError(
        f"{where}: {name} has shape {tuple(got.shape)}, expected {expected}. {advice}"
    )


def missing_features_error(where: str, model: object) -> ArgumentError:
    """Build the error of a model that was told which features are missing and cannot know."""
    return ArgumentError(
        f"{where}: {type(model).__name__} does not model missing features. Fill them in and drop "
        "observed, or append it to x as features, as missing='inputs' of tauflow.data.from_table "
        "and read_csv does."
    )


def is_jit_tracing() -> bool:
    """Whether ``torch.jit.trace`` records what runs."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call, no-any-return]


def is_tracing() -> bool:
    """Whether a compiler or ``torch.jit.trace`` records what runs: a trace is to hold no look."""
    return torch.compiler.is_compiling() or is_jit_tracing()


def is_readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values without cost or harm.

    False while ``torch.compile`` traces, inside ``torch.func`` transforms, for fake and meta
    tensors, and on accelerators, where a look would make the host wait for the device.
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not isinstance(tensor, torch._subclasses.FakeTensor)


_MAX_SHOWN_LENGTH = 60
_SEQUENCE_TYPES = frozenset({list, tuple, Sequence, Iterable, Collection})


def find_type_mismatch(function: Callable[..., Any], values: Mapping[str, Any]) -> str:
    """Say which value is not of the type that a function's annotations ask for.

    A list does for a tuple, and a NumPy number for Python's; a boolean is no number. What has
    no annotation, or one that says nothing about a value by itself, is let pass.

    Args:
        function: any, such as a class's ``__init__``.
        values: arguments by name.

    Returns:
        ``"hidden_size must be an int, got [4] (list)"``, or nothing if all fit.
    """
    return describe_mismatch(values, _get_type_hints(function))


def describe_mismatch(values: Mapping[str, Any], annotations: Mapping[str, Any]) -> str:
    """Say which value is not of its annotated type, as :func:`find_type_mismatch` does."""
    for name, value in values.items():
        kind = annotations.get(name, Any)
        if not matches_annotation(value, kind):
            return f"{name} must be {format_annotation(kind)}, got {format_value(value)}"
    return ""


def format_value(value: object) -> str:
    """Return a value and its type for a message, cut to a line."""
    text = repr(value)
    shortened = text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}..."
    return f"{shortened} ({type(value).__name__})"


def matches_annotation(value: Any, annotation: Any) -> bool:
    """Whether a value is of the annotated type."""
    origin = get_origin(annotation)
    if annotation is Any or isinstance(annotation, TypeVar):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(matches_annotation(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return any(type(value) is type(c) and value == c for c in get_args(annotation))
    if annotation is bool:
        return isinstance(value, bool | np.bool_)
    if annotation in (int, float):
        number = Integral if annotation is int else Real
        return isinstance(value, number) and not isinstance(value, bool | np.timedelta64)
    return _matches_class(value, origin or annotation, get_args(annotation))


def format_annotation(annotation: Any) -> str:
    """Return an annotation as it reads after "must be"."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(format_annotation(choice) for choice in get_args(annotation))
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    if annotation is type(None):
        return "None"
    kind = get_origin(annotation) or annotation
    name = getattr(kind, "__name__", str(kind))
    inner = [format_annotation(part) for part in get_args(annotation) if part is not Ellipsis]
    of = f" of {inner[0].partition(' ')[2]}" if inner and kind in _SEQUENCE_TYPES else ""
    return f"{add_article(name)}{of}"


def _matches_class(value: Any, kind: Any, parts: tuple[Any, ...]) -> bool:
    if kind is Callable:
        return callable(value)
    if kind in _SEQUENCE_TYPES and isinstance(value, list | tuple):
        if kind is tuple and parts and parts[-1] is not Ellipsis:
            return len(value) == len(parts) and all(map(matches_annotation, value, parts))
        return not parts or all(matches_annotation(item, parts[0]) for item in value)
    if kind in _SEQUENCE_TYPES and isinstance(value, str | bytes):
        return False
    if not isinstance(kind, type) or kind.__module__.startswith("jaxtyping"):
        return True  # it says something about shapes, or nothing at all
    try:
        if not isinstance(value, kind):
            return False
    except TypeError:  # a protocol that cannot be asked
        return True
    if isinstance(value, np.ndarray) and parts:
        (scalar,) = get_args(parts[-1])
        return scalar is Any or bool(np.issubdtype(value.dtype, scalar))
    if parts and isinstance(value, Mapping) and len(parts) == 2:
        return all(
            matches_annotation(k, parts[0]) and matches_annotation(v, parts[1])
            for k, v in value.items()
        )
    return True


@cache
def _get_type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # names that exist for type checkers only
        return {}
