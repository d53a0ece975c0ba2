"""What all compiled kernels of the CPU ask of a call."""

from functools import cache
from importlib.util import find_spec

import torch
from torch.autograd import forward_ad

from .spec import KernelCall


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


def cpu_limits(call: KernelCall) -> str | None:
    """Return why no compiled kernel of the CPU can serve the call."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if torch.compiler.is_compiling() or tracing:
        return "the numba kernels cannot be traced"
    if not _numba_is_installed():
        return "numba is not installed; pip install 'numba>=0.61'"
    # one parameter stands for all: a cell whose parameters differ is served by no kernel
    tensors = (call.x, call.h, call.dt, next(call.cell.parameters()))
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return "the numba kernels run on the CPU"
    if any(tensor.dtype is not torch.float32 for tensor in tensors):
        return "the numba kernels compute in float32"
    if torch.is_autocast_enabled("cpu"):
        return "the numba kernels do not follow autocast"
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "the numba kernels do not run under torch.func transforms or forward-mode gradients"
    if call.observed is not None:
        return "the numba kernels take no mask of observed features"
    if call.x.shape[0] == 0 or call.x.shape[1] == 0:
        return "the numba kernels need at least one sequence and one step"
    return None
