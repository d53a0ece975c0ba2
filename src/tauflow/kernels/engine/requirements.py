"""What a backend cannot take of any cell."""

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_jit_tracing, is_tracing
from tauflow.cells.base import first_parameter

from .kernel_call import KernelCall
from .torch_state import (
    assume_constant_result,
    has_storage,
    is_autocast_available,
    is_exporting,
    is_under_transform_or_forward_mode,
)


class BackendRequirements(NamedTuple):
    """What the kernels of a backend ask of a call.

    Args:
        backend: its name.
        dtypes: of the tensors.
        dtype_message: says so.
        environment_check: returns what is missing on the machine, or of the device of the tensors.
        is_traceable: whether compilers can trace them.
        supports_autocast: whether they do; then dtypes may differ under it.
        mixed_dtype_message: says that they must not differ otherwise.
    """

    backend: str
    dtypes: tuple[torch.dtype, ...]
    dtype_message: str
    environment_check: Callable[[Sequence[Tensor]], str | None]
    is_traceable: bool = False
    supports_autocast: bool = False
    mixed_dtype_message: str = ""

    def unsupported_reason(self, call: KernelCall) -> str | None:
        """Return why no kernel of the backend can serve a call."""
        us = f"the {self.backend} kernels"
        if not self.is_traceable and is_tracing():
            return f"{us} cannot be traced"
        if self.backend == "numba":  # one stands for all: parameters that differ are not served
            first = first_parameter(call.cell)  # a user's cell may have none
            parameters: tuple[Tensor, ...] = () if first is None else (first,)
        else:
            parameters = tuple(call.cell.parameters())
        tensors = (call.x, call.h, call.dt, *parameters)
        reason = self.environment_check(tensors) or self._context_unsupported_reason(
            call.x.device.type
        )
        if reason is not None:
            return reason.format(us=us)
        if not (is_tracing() or all(map(has_storage, tensors))):
            return f"{us} read memory, which fake tensors and the like have not"
        if any(tensor.dtype not in self.dtypes for tensor in tensors):
            return f"{us} {self.dtype_message}"
        if self.mixed_dtype_message and any(tensor.dtype is not call.x.dtype for tensor in tensors):
            autocast = self.supports_autocast and torch.is_autocast_enabled(call.x.device.type)
            if not autocast:
                return f"{us} {self.mixed_dtype_message}"
        if call.observed is not None:
            return f"{us} take no mask of observed features"
        if call.x.shape[0] == 0 or call.x.shape[1] == 0:
            return f"{us} need at least one sequence and one step"
        return None

    def _context_unsupported_reason(self, device: str) -> str | None:
        """Return what surrounds the call that the kernels do not follow."""
        mixed = is_autocast_available(device) and torch.is_autocast_enabled(device)
        if mixed and not self.supports_autocast:
            return "{us} do not follow autocast"
        if self.is_traceable and is_jit_tracing():
            return "torch.jit cannot trace {us}"
        if is_exporting():
            return "a program of torch.export, which runs without tauflow, cannot hold {us}"
        if is_under_transform_or_forward_mode():
            return "{us} do not run under torch.func transforms or forward-mode gradients"
        return None


@assume_constant_result
def _is_numba_installed() -> bool:
    return has_numba()


@cache
def has_numba() -> bool:
    """Whether there are compiled loops on this machine; warns if numba cannot be imported."""
    if find_spec("numba") is None:
        return False
    try:
        from numba.core import config
    except Exception as error:  # such as of a NumPy that it does not know
        warnings.warn(
            f"numba cannot be imported ({type(error).__name__}: {error}), so that nothing is "
            "compiled.",
            stacklevel=2,
        )
        return False
    return not getattr(config, "DISABLE_JIT", False)


def _cpu_unsupported_reason(tensors: Sequence[Tensor]) -> str | None:
    if not _is_numba_installed():
        return (
            "numba is not installed or cannot be imported, or NUMBA_DISABLE_JIT is set; pip "
            "install 'numba>=0.61', and unset the variable"
        )
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return "{us} run on the CPU"
    return None


def _device_unsupported_reason(tensors: Sequence[Tensor]) -> str | None:
    device = tensors[0].device
    if any(tensor.device != device for tensor in tensors):
        return "{us} need all tensors on one device"
    return None


def _get_triton_version() -> tuple[int, ...]:
    """Return major and minor version of the Triton that is installed, or nothing."""
    try:
        return tuple(int(number) for number in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return ()


_TRITON_VERSION = _get_triton_version()
_MIN_TRITON_VERSION = (3, 3)  # has tl.gather
_MIN_COMPUTE_CAPABILITY = (8, 0)
TRITON_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in (
    "1",
    "true",
    "yes",
    "on",
    "y",
)
"""Whether Triton runs kernels on the CPU, slowly, to test them. It asks when it is imported."""


def _gpu_unsupported_reason(tensors: Sequence[Tensor]) -> str | None:
    if not _TRITON_VERSION:
        return "triton is not installed; pip install 'triton>=3.3' on Linux"
    if _TRITON_VERSION < _MIN_TRITON_VERSION:
        return "{us} need triton 3.3 or newer, which torch 2.7 and newer bring"
    device = tensors[0].device
    if device.type != ("cpu" if TRITON_INTERPRETED else "cuda"):
        if TRITON_INTERPRETED:
            return "TRITON_INTERPRET=1 is set, under which {us} run on the CPU"
        return "{us} run on NVIDIA GPUs; their interpreter needs TRITON_INTERPRET=1"
    reason = _device_unsupported_reason(tensors)
    if reason is not None or device.type == "cpu":
        return reason
    if torch.version.hip is not None:
        return "{us} have been built for NVIDIA GPUs only"
    if torch.compiler.is_compiling():
        return None  # the tracer cannot ask the driver
    if torch.cuda.get_device_capability(device) < _MIN_COMPUTE_CAPABILITY:
        return "{us} need an NVIDIA GPU of compute capability 8.0 or newer"
    return None


NUMBA = BackendRequirements(
    "numba", (torch.float32,), "compute in float32", _cpu_unsupported_reason, is_traceable=True
)
CUDA_GRAPH = BackendRequirements(
    "graph",
    (torch.float32, torch.float64),
    "compute in float32 or float64, with all tensors alike",
    _device_unsupported_reason,
    supports_autocast=True,
    mixed_dtype_message="compute in float32 or float64, with all tensors alike",
)
TORCH_SCAN = BackendRequirements(
    "torch",
    (torch.float32, torch.float64),
    "compute in float32 or float64",
    _device_unsupported_reason,
    is_traceable=True,
    supports_autocast=True,
    mixed_dtype_message="compute in float32 or float64, with all tensors alike",
)
STORAGE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What inputs, states and parameters of Triton kernels may be stored in; sums are in float32."""

TRITON = BackendRequirements(
    "triton",
    STORAGE_DTYPES,
    "store float32, bfloat16 or float16, and sum in float32",
    _gpu_unsupported_reason,
    is_traceable=True,
    supports_autocast=True,
    mixed_dtype_message="take inputs and parameters of one dtype, except under autocast",
)
