"""How a module differs from one newly built with the same options, and what to do about it."""

import math
from collections.abc import Iterator
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tauflow._internal.module_hooks import find_tied_names, list_hook_kinds

_REMOVAL_FUNCTIONS = (
    (BasePruningMethod, "prune.remove"),
    (SpectralNorm, "remove_spectral_norm"),
    (WeightNorm, "remove_weight_norm"),
)
_ABSENT = object()


def describe_computed_parameters(rebuilt: nn.Module, module: nn.Module) -> str:
    """Return which parameters are computed from others, as pruned ones are; "" if none is.

    Args:
        rebuilt: the module that the description builds.
        module: the module itself.
    """
    then = dict(rebuilt.named_modules(remove_duplicate=False))
    parts = module.named_modules(remove_duplicate=False)
    return "; ".join(
        text for name, part in parts for text in _iter_computed(name, part, then.get(name))
    )


def describe_modifications(rebuilt: nn.Module, module: nn.Module) -> str:
    """Return what else a module has that its description leaves out; "" if there is nothing.

    Args:
        rebuilt: the module that the description builds.
        module: the module itself.
    """
    now = dict(module.named_modules(remove_duplicate=False))
    then = dict(rebuilt.named_modules(remove_duplicate=False))
    found = [f"{name} is missing" for name in then if name not in now]
    for name, part in now.items():
        found += _part_differences(name, part, then.get(name))
    return "; ".join([*found, *_tie_differences(rebuilt, module)])


def _iter_computed(name: str, part: nn.Module, rebuilt: nn.Module | None) -> Iterator[str]:
    """Yield which parameters of a part are computed from others, and how to end that."""
    if is_parametrized(part) and (rebuilt is None or not is_parametrized(rebuilt)):
        for tensor in part.parametrizations:  # type: ignore[union-attr]
            yield (
                f"{_join_name(name, tensor)} is parametrized (torch.nn.utils.parametrize."
                f"remove_parametrizations(module, {tensor!r}) keeps its present value)"
            )
    for hook in part._forward_pre_hooks.values():
        for kind, function in _REMOVAL_FUNCTIONS:
            tensor = getattr(hook, "name", None) or getattr(hook, "_tensor_name", None)
            if isinstance(hook, kind) and not (rebuilt and _has_hook(rebuilt, kind)):
                yield (
                    f"{_join_name(name, tensor)} is computed by {type(hook).__name__} "
                    f"(torch.nn.utils.{function}(module, {tensor!r}) keeps its present value)"
                )


def _has_hook(part: nn.Module, kind: type) -> bool:
    return any(isinstance(hook, kind) for hook in part._forward_pre_hooks.values())


def _part_differences(name: str, part: nn.Module, rebuilt: nn.Module | None) -> Iterator[str]:
    """Yield how a part differs from the one by the same name that was newly built."""
    if rebuilt is None:
        yield f"{name} ({type(part).__name__}) was added"
        return
    if type(part) is not type(rebuilt):
        yield f"{name} is a {type(part).__name__}, was a {type(rebuilt).__name__}"
        return
    yield from _hook_differences(name or "the model itself", part, rebuilt)
    for key, value in vars(part).items():
        if key not in vars(rebuilt) and _is_class_override(type(part), key):
            told = f"{value!r}" if isinstance(value, bool | int | float | str) else "replaced"
            yield f"{_join_name(name, key)}, which the class defines, is {told} on the module"
    for key, was in vars(rebuilt).items():
        if not key.startswith("_") and key not in ("training", "options"):  # torch's; known
            yield from _attribute_differences(
                _join_name(name, key), getattr(part, key, _ABSENT), was
            )
    for key in rebuilt._non_persistent_buffers_set:
        was = rebuilt._buffers[key]
        if was is not None and not was.is_floating_point():  # those are in the file
            yield from _attribute_differences(_join_name(name, key), part._buffers.get(key), was)


def _hook_differences(where: str, part: nn.Module, rebuilt: nn.Module) -> Iterator[str]:
    now, before = list_hook_kinds(part), list_hook_kinds(rebuilt)
    for kind in dict.fromkeys([*now, *before]):
        if now.count(kind) != before.count(kind):
            advice = "remove them, and put what they compute into a module of your own"
            yield f"{where} has {kind} ({advice})" if kind in now else f"{where} lost its {kind}"


def _attribute_differences(where: str, now: Any, was: Any) -> Iterator[str]:
    if _are_equal(now, was):
        return
    if isinstance(was, (Tensor, np.ndarray)):
        advice = "a tensor made of nothing but the arguments, or a buffer, is kept in files"
        yield f"{where} has other entries now than when newly built ({advice})"
    else:
        yield f"{where} is {'missing' if now is _ABSENT else repr(now)}, was {was!r}"


def _is_class_override(kind: type, key: str) -> bool:
    """Whether an attribute of an instance hides one of its class."""
    of_class = getattr_static(kind, key, _ABSENT)
    return of_class is not _ABSENT and not (
        isinstance(of_class, cached_property) or key == "_compiled_call_impl"
    )


def _tie_differences(rebuilt: nn.Module, module: nn.Module) -> Iterator[str]:
    """Yield which names share a tensor as built, and do so no longer; the reverse is no loss."""
    of_name = {name: i for i, names in enumerate(find_tied_names(module)) for name in names}
    for names in find_tied_names(rebuilt):
        if len({of_name.get(name, name) for name in names}) > 1:
            yield f"{' and '.join(names)} are no longer one tensor, as they were"


def _join_name(name: str, key: str | None) -> str:
    return f"{name}.{key}" if name else str(key)


def _are_equal(now: Any, was: Any) -> bool:
    """Whether two attributes are equal, tensors and arrays in all entries, NaN being like NaN."""
    if isinstance(was, Tensor) and isinstance(now, Tensor):
        return now.dtype is was.dtype and _are_equal(_to_array(now), _to_array(was))
    if isinstance(was, np.ndarray) and isinstance(now, np.ndarray):
        numbers = was.dtype.kind in "fc"
        return now.dtype == was.dtype and np.array_equal(now, was, equal_nan=numbers)
    if isinstance(was, list | tuple) and isinstance(now, list | tuple):
        same = isinstance(now, list) is isinstance(was, list) and len(now) == len(was)
        return same and all(map(_are_equal, now, was))
    if isinstance(was, dict) and isinstance(now, dict):
        return now.keys() == was.keys() and all(_are_equal(now[key], was[key]) for key in was)
    if isinstance(was, float) and isinstance(now, float) and math.isnan(was):
        return math.isnan(now)
    try:
        return bool(now == was)
    except (TypeError, ValueError, RuntimeError):  # of something that compares entry by entry
        return False


def _to_array(tensor: Tensor) -> "np.ndarray[Any, Any]":
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
