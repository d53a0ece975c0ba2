"""Small checks for the borders of the library: one line to call, one clear message each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tauflow.errors import ArgumentError, DtypeError, ShapeError, UnknownNameError
from tauflow.registry import nearest

N = TypeVar("N", int, float)

_NO_NUMBERS = bool, np.timedelta64
"""Whole numbers to Python, which nobody means by one."""


def _single(named: dict[str, N]) -> tuple[str, N]:
    ((name, value),) = named.items()
    return name, value


def at_least(minimum: int, **named: int) -> int:
    """Return the one named integer, or raise :class:`ArgumentError` if it is below ``minimum``."""
    name, value = _single(named)
    if not isinstance(value, Integral) or isinstance(value, _NO_NUMBERS):
        raise ArgumentError(f"{name} must be an integer, got {value!r} ({type(value).__name__}).")
    if value < minimum:
        raise ArgumentError(f"{name} must be at least {minimum}, got {value}.")
    return int(value)


def seed_of_bits(bits: int, **named: int) -> int:
    """Return the one named integer, or raise unless it is a seed from 0 to ``2**bits - 1``."""
    at_least(0, **named)
    name, value = _single(named)
    if value >= 2**bits:
        raise ArgumentError(f"{name} must be less than 2**{bits} = {2**bits}, got {value}.")
    return int(value)


def within(low: float, high: float, **named: float) -> float:
    """Return the one named number, or raise unless ``low <= number <= high``."""
    name, value = _single(named)
    if not _is_finite(value) or not low <= value <= high:
        span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of {low:g} or more"
        raise ArgumentError(f"{name} must be a number {span}, got {value!r}.")
    return value


def positive(**named: float) -> float:
    """Return the one named number, or raise unless it is finite and above zero."""
    name, value = _single(named)
    if not _is_finite(value) or not value > 0:
        raise ArgumentError(f"{name} must be a number above 0, got {value!r}.")
    return float(value)


def finite(**named: float) -> float:
    """Return the one named number, or raise if it is not a finite one."""
    name, value = _single(named)
    if not _is_finite(value):
        raise ArgumentError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def boolean(**named: bool) -> bool:
    """Return the one named truth value, or raise if it is anything else."""
    ((name, value),) = named.items()
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}.")
    return value


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, _NO_NUMBERS) and math.isfinite(value)


def one_of(known: Iterable[str], **named: str) -> str:
    """Return the one named string, or raise if it is not among ``known``."""
    ((name, value),) = named.items()
    if isinstance(value, str) and isinstance(known, Mapping | Sequence) and value in known:
        return value  # without listing it, for which plugins would be imported
    choices = list(known)
    if value not in choices:
        hint = nearest(value, choices)
        raise UnknownNameError(
            f"{name}={value!r} is unknown.{hint} Choose from: {', '.join(choices)}."
        )
    return value


def floating(where: str, **named: Tensor) -> Tensor:
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


def boolean_tensor(where: str, **named: Tensor) -> Tensor:
    """Return the one named tensor, or raise if it is not one of truth values."""
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


def same_device(where: str, like: Tensor, **named: Tensor | None) -> None:
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


def no_missing_features(where: str, model: object) -> ArgumentError:
    """Build the error of a model that was told which features are missing and cannot know."""
    return ArgumentError(
        f"{where}: {type(model).__name__} does not model missing features. Fill them in and drop "
        "observed, or append it to x as features, as missing='inputs' of tauflow.data.from_table "
        "and read_csv does."
    )


def is_jit_traced() -> bool:
    """Whether ``torch.jit.trace`` records what runs."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call, no-any-return]


def is_traced() -> bool:
    """Whether a compiler or ``torch.jit.trace`` records what runs: a trace is to hold no look."""
    return torch.compiler.is_compiling() or is_jit_traced()


def values_readable(tensor: Tensor) -> bool:
    """Whether Python may look at the values without cost or harm.

    False while ``torch.compile`` traces, inside ``torch.func`` transforms, for fake and meta
    tensors, and on accelerators, where a look would make the host wait for the device.
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not isinstance(tensor, torch._subclasses.FakeTensor)
