"""What tells losses and metrics without a name from one another, in words for a file."""

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from tauflow.tensorfile import hash_tensors

_OF_MODULES = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
"""Attributes that every module has."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,}")


def label_of(given: Any) -> str:
    """Return what tells a callable from others, as far as words can.

    A module, and an object with attributes, is called by its class and settings, those of its parts
    and its tensors; a function by its name, with what ``functools.partial`` gives it.
    """
    return _label(given, frozenset())


def _label(given: Any, around: frozenset[int]) -> str:
    inside = around | {id(given)}
    if isinstance(given, nn.Module):
        return _of_module(given, inside, tensors=True)
    if isinstance(given, partial):
        said = [_label(given.func, inside), *(_said(one, inside) for one in given.args)]
        said += [f"{name}={_said(one, inside)}" for name, one in sorted(given.keywords.items())]
        return f"functools.partial({', '.join(said)})"
    name = _qualified(given)
    settings = {} if hasattr(given, "__qualname__") else getattr(given, "__dict__", {})
    said = [f"{key}={_said(one, inside)}" for key, one in sorted(settings.items())]
    return f"{name}({', '.join(said)})" if said else name


def _of_module(given: nn.Module, inside: frozenset[int], *, tensors: bool) -> str:
    own = {name: value for name, value in vars(given).items() if name not in _OF_MODULES}
    said = [f"{name}={_said(value, inside)}" for name, value in sorted(own.items())]
    for name, part in given.named_children():
        said.append(f"{name}={_of_module(part, inside | {id(part)}, tensors=False)}")
    if tensors:
        held = {**dict(given.named_buffers()), **given.state_dict()}
        if held := {name: value for name, value in held.items() if isinstance(value, Tensor)}:
            said.append(f"tensors={hash_tensors(held)[:16]}")
    return f"{type(given).__name__}({', '.join(said)})"


def _said(value: Any, around: frozenset[int]) -> str:
    """Return a setting as ``repr`` does, but for what that leaves out or tells by an address."""
    if id(value) in around:
        return type(value).__qualname__
    if isinstance(value, Tensor):
        if value.requires_grad:
            return f"tensor{tuple(value.shape)}"
        return f"tensor({hash_tensors({'': value})[:16]})"
    if isinstance(value, nn.Module):
        # What is trained, as the model itself is, holds something else in every run.
        trained = any(parameter.requires_grad for parameter in value.parameters())
        return _of_module(value, around | {id(value)}, tensors=not trained)
    if isinstance(value, partial) or hasattr(value, "__qualname__"):
        return _label(value, around)
    inside = around | {id(value)}
    if isinstance(value, np.ndarray):
        words = f"{value.dtype} {_said(value.tolist(), inside)}"
        return f"array({hashlib.sha256(words.encode()).hexdigest()[:16]})"
    if type(value) in (list, tuple):
        words = ", ".join(_said(one, inside) for one in value)
        return f"[{words}]" if isinstance(value, list) else f"({words}{',' * (len(value) == 1)})"
    if isinstance(value, set | frozenset):  # whose order is not the same in every process
        return f"{type(value).__name__}({sorted(_said(one, inside) for one in value)})"
    if isinstance(value, Mapping):
        items = (f"{_said(k, inside)}: {_said(one, inside)}" for k, one in value.items())
        return f"{{{', '.join(items)}}}"
    text = repr(value)
    return _qualified(value) if _ADDRESS.search(text) else text


def _qualified(given: Any) -> str:
    name = getattr(given, "__qualname__", type(given).__qualname__)
    return f"{getattr(given, '__module__', None) or type(given).__module__}.{name}"
