"""Project parameters into their range after each step of an optimizer."""

from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

_CONSTRAINED_MODULES: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()


def project_parameters(module: nn.Module) -> None:
    """Call ``module.project_()`` after every optimizer step that has changed a parameter of it.

    A module calls this once it is built, and in ``__setstate__``, for a copy is another module. It
    holds for every ``torch.optim.Optimizer`` and leaves the parameters alone until one has moved
    them, so that imported values compute as they did where they come from. Who changes parameters
    by hand calls ``project_()`` by hand.

    Args:
        module: with a method ``project_()``, which changes its own parameters in place.
    """
    _CONSTRAINED_MODULES[id(module)] = module
    _register_optimizer_hook()


@cache
def _register_optimizer_hook() -> None:
    register_optimizer_step_post_hook(_project_after_step)


@_disable_dynamo  # which, unlike torch.compiler.disable, loads the compiler when it is needed
def _project_after_step(optimizer: Optimizer, *_: Any) -> None:
    watched = [module for ref in _CONSTRAINED_MODULES.valuerefs() if (module := ref()) is not None]
    if not watched:
        return
    moved = {
        id(parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    }
    with torch.no_grad():
        for module in watched:
            if any(id(parameter) in moved for parameter in module.parameters(recurse=False)):
                module.project_()  # type: ignore[operator]
