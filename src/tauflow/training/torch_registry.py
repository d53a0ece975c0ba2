"""PyTorch's own optimizers and learning-rate schedules, by name."""

import inspect

import torch
from torch.optim import lr_scheduler

from tauflow._internal.registry import Registry

OPTIMIZERS: Registry[type[torch.optim.Optimizer]] = Registry(
    "optimizer",
    {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        # The first is abstract, the second evaluates a step more than once, the third is for
        # sparse gradients only.
        and name not in ("Optimizer", "LBFGS", "SparseAdam")
    },
)
"""Classes of ``torch.optim`` by their names in lower case."""

SCHEDULERS: Registry[type[lr_scheduler.LRScheduler]] = Registry(
    "schedule",
    {
        name: getattr(lr_scheduler, name)
        for name in lr_scheduler.__all__
        if name.endswith("LR") or name.startswith("CosineAnnealing")
        # These take functions or other schedulers.
        if name not in ("LambdaLR", "MultiplicativeLR", "SequentialLR")
    },
)
"""Classes of ``torch.optim.lr_scheduler`` by name, that numbers and words describe whole."""


def scheduler_class(name: str) -> type:
    """Return the class of a schedule that PyTorch computes."""
    defaults = {
        "cosine": lr_scheduler.CosineAnnealingLR,
        "one_cycle": lr_scheduler.OneCycleLR,
        "plateau": lr_scheduler.ReduceLROnPlateau,
    }
    return defaults.get(name) or SCHEDULERS[name]


def has_option(kind: type, name: str) -> bool:
    """Whether the constructor of an optimizer takes an option."""
    return name in inspect.signature(kind).parameters
