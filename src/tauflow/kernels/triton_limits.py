"""What all Triton kernels ask of a call, and how they are launched."""

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .spec import KernelCall


def _release() -> tuple[int, ...]:
    """Return major and minor version of the Triton that is installed, or nothing."""
    try:
        return tuple(int(number) for number in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return ()


_RELEASE = _release()
_OLDEST_RELEASE = (3, 3)  # has tl.gather
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")
"""Whether Triton runs kernels on the CPU, slowly, to test them. It asks when it is imported."""

STORED = (torch.float32, torch.bfloat16, torch.float16)
"""What inputs, states and parameters may be stored in; sums are in float32 throughout."""

_OLDEST_CAPABILITY = (8, 0)
_PROCESSORS_OF_THE_INTERPRETER = 2  # so that a batch of three has tiles of more than one sequence


def triton_limits(call: KernelCall) -> str | None:
    """Return why no Triton kernel can serve the call."""
    if not _RELEASE:
        return "triton is not installed; pip install 'triton>=3.3' on Linux"
    if _RELEASE < _OLDEST_RELEASE:
        return "the triton kernels need triton 3.3 or newer, which torch 2.7 and newer bring"
    tensors = (call.x, call.h, call.dt, *call.cell.parameters())
    reason = _device_limits(tensors) or _transform_limits()
    if reason is not None:
        return reason
    if any(tensor.dtype not in STORED for tensor in tensors):
        return "the triton kernels store float32, bfloat16 or float16, and sum in float32"
    mixed = any(tensor.dtype is not call.x.dtype for tensor in tensors)
    if mixed and not torch.is_autocast_enabled(call.x.device.type):
        return "the triton kernels take inputs and parameters of one dtype, except under autocast"
    if call.observed is not None:
        return "the triton kernels take no mask of observed features"
    if call.x.shape[0] == 0 or call.x.shape[1] == 0:
        return "the triton kernels need at least one sequence and one step"
    return None


def _device_limits(tensors: tuple[Tensor, ...]) -> str | None:
    device = tensors[0].device
    if device.type != ("cpu" if INTERPRETED else "cuda"):
        if INTERPRETED:
            return "TRITON_INTERPRET=1 is set, under which the triton kernels run on the CPU"
        return "the triton kernels run on NVIDIA GPUs; their interpreter needs TRITON_INTERPRET=1"
    if any(tensor.device != device for tensor in tensors):
        return "the triton kernels need all tensors on one device"
    if device.type == "cpu":
        return None
    if torch.version.hip is not None:
        return "the triton kernels have been built for NVIDIA GPUs only"
    if torch.compiler.is_compiling():
        return None  # the tracer cannot ask the driver
    if torch.cuda.get_device_capability(device) < _OLDEST_CAPABILITY:
        return "the triton kernels need an NVIDIA GPU of compute capability 8.0 or newer"
    return None


def _transform_limits() -> str | None:
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return "torch.jit cannot trace the triton kernels"
    if torch.compiler.is_compiling():
        return None  # the tracer cannot look at what follows
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "the triton kernels do not run under torch.func transforms or forward-mode gradients"
    return None


def needs_backward(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def processors(device: torch.device) -> int:
    """Return how many programs run at once; asked of the driver once, without waiting for it."""
    if device.type != "cuda":
        return _PROCESSORS_OF_THE_INTERPRETER
    return torch.cuda.get_device_properties(device).multi_processor_count


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Make a tensor's device the one that kernels are launched on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below ``size``: what tiles are made of."""
    return 1 << max(size - 1, 0).bit_length()


def batch_tile(batch: int, device: torch.device, most: int) -> int:
    """Return how many sequences a program takes: few enough to occupy every processor."""
    return min(most, power_of_two(-(-batch // processors(device))))
