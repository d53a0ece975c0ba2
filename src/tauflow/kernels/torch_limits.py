"""What the kernels written in plain torch operations ask of a call."""

import torch
from torch.autograd import forward_ad

from .spec import KernelCall

_DTYPES = (torch.float32, torch.float64)


def torch_limits(call: KernelCall) -> str | None:
    """Return why no sequence kernel of torch operations can serve the call."""
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if torch.compiler.is_compiling() or tracing:
        return "the torch kernels cannot be traced"
    tensors = (call.x, call.h, call.dt, *call.cell.parameters())
    device, dtype = call.x.device, call.x.dtype
    if any(tensor.device != device for tensor in tensors):
        return "the torch kernels need all tensors on one device"
    if dtype not in _DTYPES or any(tensor.dtype is not dtype for tensor in tensors):
        return "the torch kernels compute in float32 or float64, with all tensors alike"
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return "the torch kernels do not follow autocast"
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "the torch kernels do not run under torch.func transforms or forward-mode gradients"
    if call.observed is not None:
        return "the torch kernels take no mask of observed features"
    if call.x.shape[0] == 0 or call.x.shape[1] == 0:
        return "the torch kernels need at least one sequence and one step"
    return None
