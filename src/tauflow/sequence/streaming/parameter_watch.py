"""What became of the tensors and parts of a module since they were looked at."""

from collections.abc import Callable, Iterable
from functools import cache
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from tauflow._internal.module_hooks import FORWARD_HOOKS

from .parts import is_dropout

_get_item: Callable[[Any, str], object] = dict.get


class ParameterWatch:
    """Remember which tensors and parts are where, and how often a tensor was changed.

    Args:
        modules: the module and all its parts, itself first.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        modules = list(modules)
        places = [
            (place, name, value)
            for part in modules
            for place in (part._parameters, part._buffers, part._modules)
            for name, value in place.items()  # ``None`` too, in whose place something may come
        ]
        self._holders = [place for place, _, _ in places]
        self._names = [name for _, name, _ in places]
        self._present = [value for _, _, value in places]
        tensors = [value for value in self._present if isinstance(value, Tensor)]
        self._counting = [tensor for tensor in tensors if not tensor.is_inference()]
        self._versions = [tensor._version for tensor in self._counting]
        # where parts, methods and hooks may be added
        self._sized = [part.__dict__ for part in modules]
        self._sized += [part.__dict__[kind] for part in modules for kind in FORWARD_HOOKS]
        self._sized += [part._modules for part in modules]
        self._sizes = [*map(len, self._sized)]
        self._dropping = [part for part in modules if is_dropout(part)]
        self._training = [part.training for part in self._dropping]
        self._first = next(iter(tensors), torch.empty(0))
        self._dtype = self._first.dtype
        _count_fused_steps()

    def is_stale(self) -> bool:
        """Whether a tensor was changed, another tensor or part is in its place, or a hook came.

        So has what drops units when it trains, after ``train()`` or ``eval()``. A change through
        ``.data`` leaves no trace but that of ``.to(dtype)``, which changes all, nor does one of a
        tensor made in inference mode.
        """
        return bool(
            [*map(len, self._sized)] != self._sizes
            or self._first.dtype is not self._dtype
            or [tensor._version for tensor in self._counting] != self._versions
            or not all(map(is_, map(_get_item, self._holders, self._names), self._present))
            or [part.training for part in self._dropping] != self._training
        )


@cache
def _count_fused_steps() -> None:
    """Let the steps of fused optimizers count as changes, as those of all others do."""

    def count(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            if group.get("fused"):
                increment_version([p for p in group["params"] if p.grad is not None])

    register_optimizer_step_post_hook(count)
