"""Hooks and tied tensors of modules."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
HOOKS = (*FORWARD_HOOKS, "_backward_hooks", "_backward_pre_hooks")
"""Attributes in which modules keep the hooks of their forward and backward passes."""

_STATE_DICT_HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


GLOBAL_HOOKS: tuple[dict[int, Any], ...] = tuple(
    getattr(torch_module, f"_global{kind}") for kind in HOOKS
)
"""Hooks that PyTorch calls for all modules, of the same kinds."""


def has_global_hooks() -> bool:
    """Whether there are hooks for all modules, as ``register_module_forward_hook`` adds them."""
    first, second, third, fourth = GLOBAL_HOOKS
    return bool(first or second or third or fourth)


def has_hooks(module: nn.Module, kinds: Sequence[str] = HOOKS) -> bool:
    """Whether a module has hooks."""
    return any(module.__dict__[kind] for kind in kinds)


def list_hook_kinds(module: nn.Module) -> list[str]:
    """Return what kinds of hooks a module has, in words, once for each hook."""
    return [
        kind.strip("_").replace("_", " ")
        for kind in (*HOOKS, *_STATE_DICT_HOOKS)
        for hook in module.__dict__[kind].values()
        if not _is_torch_hook(hook)
    ]


def _is_torch_hook(hook: Any) -> bool:
    """Whether it is a hook of torch itself, which the names of the tensors that it made show."""
    return str(getattr(hook, "__module__", "")).startswith("torch.nn.utils.")


def find_tied_names(module: nn.Module) -> list[list[str]]:
    """Return the names of each parameter or buffer that has several."""
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    groups: dict[int, list[str]] = {}
    for name, tensor in named:
        groups.setdefault(id(tensor), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def tie_tensors(module: nn.Module, groups: Iterable[Sequence[str]]) -> None:
    """Give all names of a group, from :func:`find_tied_names`, the tensor of the first."""
    for first, *others in groups:
        tensor = _find_tensor_dict(module, first)[first.rpartition(".")[2]]
        for name in others:
            _find_tensor_dict(module, name)[name.rpartition(".")[2]] = tensor


def _find_tensor_dict(module: nn.Module, name: str) -> dict[str, Any]:
    """Return the dictionary in which a parameter or buffer is.

    Raises:
        AttributeError: no attribute has that name.
    """
    owner, _, attribute = name.rpartition(".")
    part = module.get_submodule(owner)
    for tensors in (part._parameters, part._buffers):
        if tensors.get(attribute) is not None:
            return tensors
    raise AttributeError(f"there is no parameter or buffer {name!r}")
