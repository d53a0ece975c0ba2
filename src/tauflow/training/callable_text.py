"""What tells losses and metrics without a name from one another, in words for a file."""

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from tauflow._internal.tensor_file import hash_tensors

_MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
"""Attributes that every module has."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,}")


def describe_callable(function: Any) -> str:
    """Return what tells a callable from others, as far as words can.

    A module, and an object with attributes, is called by its class and settings, those of its parts
    and its tensors; a function by its name, with what ``functools.partial`` gives it.
    """
    return _describe_object(function, frozenset())


def _describe_object(value: Any, enclosing_ids: frozenset[int]) -> str:
    inside = enclosing_ids | {id(value)}
    if isinstance(value, nn.Module):
        return _describe_module(value, inside, tensors=True)
    if isinstance(value, partial):
        said = [
            _describe_object(value.func, inside),
            *(_describe_attribute(one, inside) for one in value.args),
        ]
        said += [
            f"{name}={_describe_attribute(one, inside)}"
            for name, one in sorted(value.keywords.items())
        ]
        return f"functools.partial({', '.join(said)})"
    name = _qualified_name(value)
    settings = {} if hasattr(value, "__qualname__") else getattr(value, "__dict__", {})
    said = [f"{key}={_describe_attribute(one, inside)}" for key, one in sorted(settings.items())]
    return f"{name}({', '.join(said)})" if said else name


def _describe_module(module: nn.Module, enclosing_ids: frozenset[int], *, tensors: bool) -> str:
    own = {name: value for name, value in vars(module).items() if name not in _MODULE_ATTRIBUTES}
    said = [
        f"{name}={_describe_attribute(value, enclosing_ids)}" for name, value in sorted(own.items())
    ]
    for name, part in module.named_children():
        said.append(f"{name}={_describe_module(part, enclosing_ids | {id(part)}, tensors=False)}")
    if tensors:
        held = {**dict(module.named_buffers()), **module.state_dict()}
        if held := {name: value for name, value in held.items() if isinstance(value, Tensor)}:
            said.append(f"tensors={hash_tensors(held)[:16]}")
    return f"{type(module).__name__}({', '.join(said)})"


def _describe_attribute(value: Any, enclosing_ids: frozenset[int]) -> str:
    """Return a setting as ``repr`` does, but for what that leaves out or tells by an address."""
    if id(value) in enclosing_ids:
        return type(value).__qualname__
    if isinstance(value, Tensor):
        if value.requires_grad:
            return f"tensor{tuple(value.shape)}"
        return f"tensor({hash_tensors({'': value})[:16]})"
    if isinstance(value, nn.Module):
        # What is trained, as the model itself is, holds something else in every run.
        trained = any(parameter.requires_grad for parameter in value.parameters())
        return _describe_module(value, enclosing_ids | {id(value)}, tensors=not trained)
    if isinstance(value, partial) or hasattr(value, "__qualname__"):
        return _describe_object(value, enclosing_ids)
    inside = enclosing_ids | {id(value)}
    if isinstance(value, np.ndarray):
        words = f"{value.dtype} {_describe_attribute(value.tolist(), inside)}"
        return f"array({hashlib.sha256(words.encode()).hexdigest()[:16]})"
    if type(value) in (list, tuple):
        words = ", ".join(_describe_attribute(one, inside) for one in value)
        return f"[{words}]" if isinstance(value, list) else f"({words}{',' * (len(value) == 1)})"
    if isinstance(value, set | frozenset):  # whose order is not the same in every process
        return (
            f"{type(value).__name__}({sorted(_describe_attribute(one, inside) for one in value)})"
        )
    if isinstance(value, Mapping):
        items = (
            f"{_describe_attribute(k, inside)}: {_describe_attribute(one, inside)}"
            for k, one in value.items()
        )
        return f"{{{', '.join(items)}}}"
    text = repr(value)
    return _qualified_name(value) if _ADDRESS.search(text) else text


def _qualified_name(value: Any) -> str:
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', None) or type(value).__module__}.{name}"
