"""The options that a model was built with, as the directory of its run tells them from others."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.module_hooks import find_tied_names
from tauflow._internal.tensor_file import hash_tensors

_EXECUTION_OPTIONS = frozenset({"backend", "checkpoint_every"})
"""Options that say how to compute, not what: a run may go on with others, as on another machine."""


def collect_model_options(model: nn.Module) -> dict[str, Any]:
    """Return the recorded options of a model and of its parts by name, as JSON can hold them.

    And which names are of one tensor, as of tied weights. Weights have shapes, but a time constant
    or a solver has not: with the shapes alone, a run would go on with other dynamics. What is no
    number or text is told from others as far as it can be: tensors by a digest, functions by their
    names, anything unknown by its class.
    """
    collected: dict[str, Any] = {"tied tensors": find_tied_names(model)}
    for path, part in model.named_modules():
        options = getattr(part, "options", None)
        if not isinstance(options, Mapping):
            continue
        prefix = f"{path}." if path else ""
        collected[f"{prefix}class"] = type(part).__name__
        for name, value in options.items():
            if name not in _EXECUTION_OPTIONS and not isinstance(
                value, nn.Module
            ):  # those are parts themselves
                collected[f"{prefix}{name}"] = _to_json_value(value)
    return collected


def _to_json_value(value: Any) -> Any:
    """Return what stands for an option in JSON: itself, if JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # NaN differs from itself
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype == object else torch.as_tensor(value)
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)}, {hash_tensors({'': value})[:16]}"
    if isinstance(value, Mapping):
        return str({str(key): _to_json_value(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return [_to_json_value(inner) for inner in value]
    if callable(described := getattr(value, "to_dict", None)):  # as wirings have it
        return _to_json_value(described())
    return getattr(value, "__name__", type(value).__name__)
