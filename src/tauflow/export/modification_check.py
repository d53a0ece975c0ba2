"""Find how a module differs from one newly built with the same options."""

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
    rebuilt_parts = dict(rebuilt.named_modules(remove_duplicate=False))
    parts = module.named_modules(remove_duplicate=False)
    return "; ".join(
        text for name, part in parts for text in _iter_computed(name, part, rebuilt_parts.get(name))
    )


def describe_modifications(rebuilt: nn.Module, module: nn.Module) -> str:
    """Return what else a module has that its description leaves out; "" if there is nothing.

    Args:
        rebuilt: the module that the description builds.
        module: the module itself.
    """
    parts = dict(module.named_modules(remove_duplicate=False))
    rebuilt_parts = dict(rebuilt.named_modules(remove_duplicate=False))
    differences = [f"{name} is missing" for name in rebuilt_parts if name not in parts]
    for name, part in parts.items():
        differences += _part_differences(name, part, rebuilt_parts.get(name))
    return "; ".join([*differences, *_tie_differences(rebuilt, module)])


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
            text = f"{value!r}" if isinstance(value, bool | int | float | str) else "replaced"
            yield f"{_join_name(name, key)}, which the class defines, is {text} on the module"
    for key, default in vars(rebuilt).items():
        if not key.startswith("_") and key not in ("training", "options"):  # torch's; known
            yield from _attribute_differences(
                _join_name(name, key), getattr(part, key, _ABSENT), default
            )
    for key in rebuilt._non_persistent_buffers_set:
        default = rebuilt._buffers[key]
        if default is not None and not default.is_floating_point():  # those are in the file
            yield from _attribute_differences(
                _join_name(name, key), part._buffers.get(key), default
            )


def _hook_differences(where: str, part: nn.Module, rebuilt: nn.Module) -> Iterator[str]:
    hooks, expected = list_hook_kinds(part), list_hook_kinds(rebuilt)
    for kind in dict.fromkeys([*hooks, *expected]):
        if hooks.count(kind) != expected.count(kind):
            advice = "remove them, and put what they compute into a module of your own"
            yield f"{where} has {kind} ({advice})" if kind in hooks else f"{where} lost its {kind}"


def _attribute_differences(where: str, actual: Any, expected: Any) -> Iterator[str]:
    if _are_equal(actual, expected):
        return
    if isinstance(expected, (Tensor, np.ndarray)):
        advice = "a tensor made of nothing but the arguments, or a buffer, is kept in files"
        yield f"{where} has other entries now than when newly built ({advice})"
    else:
        yield f"{where} is {'missing' if actual is _ABSENT else repr(actual)}, was {expected!r}"


def _is_class_override(kind: type, key: str) -> bool:
    """Whether an attribute of an instance hides one of its class."""
    class_value = getattr_static(kind, key, _ABSENT)
    return class_value is not _ABSENT and not (
        isinstance(class_value, cached_property) or key == "_compiled_call_impl"
    )


def _tie_differences(rebuilt: nn.Module, module: nn.Module) -> Iterator[str]:
    """Yield which names share a tensor as built, and do so no longer; the reverse is no loss."""
    group_of_name = {name: i for i, names in enumerate(find_tied_names(module)) for name in names}
    for names in find_tied_names(rebuilt):
        if len({group_of_name.get(name, name) for name in names}) > 1:
            yield f"{' and '.join(names)} are no longer one tensor, as they were"


def _join_name(name: str, key: str | None) -> str:
    return f"{name}.{key}" if name else str(key)


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two attributes are equal, tensors and arrays in all entries, NaN being like NaN."""
    if isinstance(b, Tensor) and isinstance(a, Tensor):
        return a.dtype is b.dtype and _are_equal(_to_array(a), _to_array(b))
    if isinstance(b, np.ndarray) and isinstance(a, np.ndarray):
        numbers = b.dtype.kind in "fc"
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=numbers)
    if isinstance(b, list | tuple) and isinstance(a, list | tuple):
        same = isinstance(a, list) is isinstance(b, list) and len(a) == len(b)
        return same and all(map(_are_equal, a, b))
    if isinstance(b, dict) and isinstance(a, dict):
        return a.keys() == b.keys() and all(_are_equal(a[key], b[key]) for key in b)
    if isinstance(b, float) and isinstance(a, float) and math.isnan(b):
        return math.isnan(a)
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):  # of something that compares entry by entry
        return False


def _to_array(tensor: Tensor) -> "np.ndarray[Any, Any]":
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
