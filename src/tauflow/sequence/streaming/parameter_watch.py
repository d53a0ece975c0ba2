"""What became of the tensors and parts of a module since they were looked at."""

from collections.abc import Callable, Iterable
from functools import cache
from operator import is_
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from tauflow._internal.fixed_options import list_options
from tauflow._internal.module_hooks import GLOBAL_HOOKS

from .parts import is_dropout

_get_item: Callable[[Any, str], object] = dict.get


class ParameterWatch:
    """Remember which tensors, parts and hooks are where, and how often a tensor was changed.

    Args:
        modules: the module and all its parts, itself first.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        modules = list(modules)
        # others are called as they are
        self._known = [m for m in modules if type(m).__module__.startswith(("torch.", "tauflow."))]
        self._kinds = [*map(type, self._known)]
        places = [
            (place, name, value)
            for part in modules
            for place in (part._parameters, part._buffers, part._modules)
            for name, value in place.items()  # ``None`` too, in whose place something may come
        ]
        places += [
            (part.__dict__, name, value)
            for part in self._known
            if type(part).__module__.startswith("torch.")
            for name, value in list_options(part)
            if name[0] != "_"
        ]
        self._holders = [place for place, _, _ in places]
        self._names = [name for _, name, _ in places]
        self._present = [value for _, _, value in places]
        self._tensors = [value for value in self._present if isinstance(value, Tensor)]
        self._counting = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._versions = [tensor._version for tensor in self._counting]
        self._copies = [
            (tensor, tensor.clone()) for tensor in self._tensors if tensor.is_inference()
        ]
        self._hooks = [
            hooks for part in modules for hooks in (part._forward_hooks, part._forward_pre_hooks)
        ]
        self._hooks += GLOBAL_HOOKS
        self._hook_counts = [*map(len, self._hooks)]
        self._hooked = any(self._hooks)
        containers = nn.Sequential, nn.ModuleList, nn.ModuleDict
        self._sized = [
            module._modules for module in modules if module._modules or type(module) in containers
        ]
        self._sized += [part.__dict__ for part in self._known]
        self._sizes = [*map(len, self._sized)]
        self._dropping = [part for part in modules if is_dropout(part)]
        self._training = [part.training for part in self._dropping]
        self._first = next(iter(self._tensors), torch.empty(0))
        self._dtype = self._first.dtype
        self._stepped = False
        _register_fused_optimizer_hook()
        _ACTIVE_WATCHES.add(self)

    def is_stale(self) -> bool:
        """Whether a tensor was changed, another tensor or part is in its place, or a hook came.

        So has what drops units when it trains, after ``train()`` or ``eval()``, and a module on
        which a method was set, which has another class now, or, if it is of PyTorch, another
        option. A change through ``.data`` leaves no trace but that of ``.to(dtype)``, which changes
        all. Tensors made in inference mode do not count their changes: their entries are compared.
        """
        present = map(_get_item, self._holders, self._names)
        return bool(
            self._stepped
            or [*map(len, self._sized)] != self._sizes
            or [*map(type, self._known)] != self._kinds
            or self._first.dtype is not self._dtype
            or [tensor._version for tensor in self._counting] != self._versions
            or not all(map(is_, present, self._present))
            or ((any(self._hooks) or self._hooked) and self._have_other_hooks())
            or (self._dropping and [part.training for part in self._dropping] != self._training)
            or (
                self._copies and any(not torch.equal(tensor, copy) for tensor, copy in self._copies)
            )
        )

    def _have_other_hooks(self) -> bool:
        return [*map(len, self._hooks)] != self._hook_counts

    def _mark_if_stepped(self, changed: set[int]) -> None:
        """Take note that tensors with these identities have changed."""
        if not changed.isdisjoint(map(id, self._tensors)):
            self._stepped = True


_ACTIVE_WATCHES: WeakSet[ParameterWatch] = WeakSet()


@cache
def _register_fused_optimizer_hook() -> None:
    """Tell of the steps of fused optimisers, which leave no trace in the parameters."""

    def notice(optimizer: Optimizer, *_: Any) -> None:
        groups = [group for group in optimizer.param_groups if group.get("fused")]
        changed = {id(p) for group in groups for p in group["params"] if p.grad is not None}
        for watched in _ACTIVE_WATCHES if changed else ():
            watched._mark_if_stepped(changed)

    register_optimizer_step_post_hook(notice)
