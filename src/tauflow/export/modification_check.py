"""Find how a module differs from one newly built with the same options."""

from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np
from torch import nn

from tauflow._internal.module_hooks import find_tied_names, list_hook_kinds

_KNOWN = ("training", "options")
_ABSENT = "missing"


def describe_modifications(rebuilt: nn.Module, module: nn.Module) -> str:
    """Return what a module has that its description leaves out; "" if there is nothing.

    Looked at are classes of parts, hooks, and what is set on a part: numbers and texts by value,
    anything else by its class, and tensors of a state dict by their shapes.

    Args:
        rebuilt: the module that the description builds.
        module: the module itself.
    """
    ours, theirs = _describe_parts(module), _describe_parts(rebuilt)
    differences = [
        f"{name} is {ours.get(name, _ABSENT)}, was {theirs.get(name, _ABSENT)}"
        for name in dict.fromkeys([*theirs, *ours])
        if ours.get(name) != theirs.get(name)
    ]
    group_of = {name: n for n, names in enumerate(find_tied_names(module)) for name in names}
    for names in find_tied_names(rebuilt):
        if len({group_of.get(name, name) for name in names}) > 1:
            differences.append(f"{' and '.join(names)} are no longer one tensor, as they were")
    return "; ".join(differences)


def _describe_parts(module: nn.Module) -> dict[str, str]:
    """Return what is known of each part and its attributes, as texts by name."""
    descriptions: dict[str, str] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        kind = type(part)
        descriptions[path or "the model itself"] = f"a {kind.__module__}.{kind.__qualname__}"
        if hooks := list_hook_kinds(part):
            descriptions[f"{path or 'the model itself'}: {', '.join(hooks)}"] = "there"
        for name, value in vars(part).items():
            lazy = isinstance(getattr_static(type(part), name, None), cached_property)
            if not name.startswith("_") and name not in _KNOWN and not lazy:
                descriptions[f"{path}.{name}" if path else name] = _format_value(value)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    return {**{name: f"of shape {shape}" for name, shape in shapes.items()}, **descriptions}


def _format_value(value: Any) -> str:
    listed = value if isinstance(value, list | tuple) else [value]
    plain = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not all(value is None or isinstance(value, bool | int | float | str) for value in plain):
        return f"a {type(value).__name__}"
    return repr(plain if listed is value else plain[0])
