"""Compiled kernels of cells, and the rule that selects one."""

from .engine.kernel_call import KernelCall
from .engine.kernel_spec import KernelSpec
from .engine.workspace import release_memory
from .select import BACKENDS, KERNELS, get_kernels, select_kernel
from .streaming import StepEngine, make_step_engine

__all__ = [
    "BACKENDS",
    "KERNELS",
    "KernelCall",
    "KernelSpec",
    "StepEngine",
    "get_kernels",
    "make_step_engine",
    "release_memory",
    "select_kernel",
]
