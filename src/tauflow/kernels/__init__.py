"""Fused twins of some cells, and the rule that picks one."""

from .catalog import BACKENDS, KERNELS, kernels_of, pick
from .engine.program import KernelCall, KernelSpec
from .engine.workspace import release_memory
from .stream import StepEngine, engine_of

__all__ = [
    "BACKENDS",
    "KERNELS",
    "KernelCall",
    "KernelSpec",
    "StepEngine",
    "engine_of",
    "kernels_of",
    "pick",
    "release_memory",
]
