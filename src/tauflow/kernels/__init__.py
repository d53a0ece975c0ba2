"""Fused twins of some cells, and the rule that picks one."""

from .catalog import BACKENDS, KERNELS
from .memory import release_memory
from .pick import pick
from .spec import KernelCall, KernelSpec
from .stream import StepEngine, engine_of

__all__ = [
    "BACKENDS",
    "KERNELS",
    "KernelCall",
    "KernelSpec",
    "StepEngine",
    "engine_of",
    "pick",
    "release_memory",
]
