"""What a backend cannot take in general, of any cell: one place, one wording."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple, cast

import torch
from torch import Tensor

from tauflow.cells.base import first_parameter

from .program import KernelCall
from .torch_state import (
    constant_when_traced,
    is_exported,
    is_jit_traced,
    is_traced,
    under_transform_or_forward_mode,
)


class Needs(NamedTuple):
    """What the kernels of a backend ask of a call.

    Args:
        backend: its name.
        dtypes: of the tensors.
        in_which: says so.
        surroundings: returns what is missing on the machine, or of the device of the tensors.
        traced: whether compilers can trace them.
        follows_autocast: whether they do; then dtypes may differ under it.
        mixed: says that they must not differ otherwise.
    """

    backend: str
    dtypes: tuple[torch.dtype, ...]
    in_which: str
    surroundings: Callable[[Sequence[Tensor]], str | None]
    traced: bool = False
    follows_autocast: bool = False
    mixed: str = ""

    def why_not(self, call: KernelCall) -> str | None:
        """Return why no kernel of the backend can serve a call."""
        us = f"the {self.backend} kernels"
        if not self.traced and is_traced():
            return f"{us} cannot be traced"
        if self.backend == "numba":  # one stands for all: parameters that differ are not served
            parameters: Sequence[Tensor] = (cast(Tensor, first_parameter(call.cell)),)
        else:
            parameters = tuple(call.cell.parameters())
        tensors = (call.x, call.h, call.dt, *parameters)
        reason = self.surroundings(tensors) or self._why_not_now(call.x.device.type)
        if reason is not None:
            return reason.format(us=us)
        if any(tensor.dtype not in self.dtypes for tensor in tensors):
            return f"{us} {self.in_which}"
        if self.mixed and any(tensor.dtype is not call.x.dtype for tensor in tensors):
            autocast = self.follows_autocast and torch.is_autocast_enabled(call.x.device.type)
            if not autocast:
                return f"{us} {self.mixed}"
        if call.observed is not None:
            return f"{us} take no mask of observed features"
        if call.x.shape[0] == 0 or call.x.shape[1] == 0:
            return f"{us} need at least one sequence and one step"
        return None

    def _why_not_now(self, device: str) -> str | None:
        """Return what surrounds the call that the kernels do not follow."""
        has_autocast = torch.amp.is_autocast_available(device)
        if not self.follows_autocast and has_autocast and torch.is_autocast_enabled(device):
            return "{us} do not follow autocast"
        if self.traced and is_jit_traced():
            return "torch.jit cannot trace {us}"
        if is_exported():
            return "a program of torch.export, which runs without tauflow, cannot hold {us}"
        if under_transform_or_forward_mode():
            return "{us} do not run under torch.func transforms or forward-mode gradients"
        return None


@constant_when_traced
def _numba_is_installed() -> bool:
    return _numba_is_found()


@cache
def _numba_is_found() -> bool:
    return find_spec("numba") is not None


def _on_a_cpu(tensors: Sequence[Tensor]) -> str | None:
    if not _numba_is_installed():
        return "numba is not installed; pip install 'numba>=0.61'"
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return "{us} run on the CPU"
    return None


def _on_one_device(tensors: Sequence[Tensor]) -> str | None:
    device = tensors[0].device
    if any(tensor.device != device for tensor in tensors):
        return "{us} need all tensors on one device"
    return None


def _release() -> tuple[int, ...]:
    """Return major and minor version of the Triton that is installed, or nothing."""
    try:
        return tuple(int(number) for number in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return ()


_RELEASE = _release()
_OLDEST_RELEASE = (3, 3)  # has tl.gather
_OLDEST_CAPABILITY = (8, 0)
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")
"""Whether Triton runs kernels on the CPU, slowly, to test them. It asks when it is imported."""


def _on_a_gpu(tensors: Sequence[Tensor]) -> str | None:
    if not _RELEASE:
        return "triton is not installed; pip install 'triton>=3.3' on Linux"
    if _RELEASE < _OLDEST_RELEASE:
        return "{us} need triton 3.3 or newer, which torch 2.7 and newer bring"
    device = tensors[0].device
    if device.type != ("cpu" if INTERPRETED else "cuda"):
        if INTERPRETED:
            return "TRITON_INTERPRET=1 is set, under which {us} run on the CPU"
        return "{us} run on NVIDIA GPUs; their interpreter needs TRITON_INTERPRET=1"
    reason = _on_one_device(tensors)
    if reason is not None or device.type == "cpu":
        return reason
    if torch.version.hip is not None:
        return "{us} have been built for NVIDIA GPUs only"
    if torch.compiler.is_compiling():
        return None  # the tracer cannot ask the driver
    if torch.cuda.get_device_capability(device) < _OLDEST_CAPABILITY:
        return "{us} need an NVIDIA GPU of compute capability 8.0 or newer"
    return None


NUMBA = Needs("numba", (torch.float32,), "compute in float32", _on_a_cpu, traced=True)
TORCH = Needs(
    "torch",
    (torch.float32, torch.float64),
    "compute in float32 or float64, with all tensors alike",
    _on_one_device,
    mixed="compute in float32 or float64, with all tensors alike",
)
STORED = (torch.float32, torch.bfloat16, torch.float16)
"""What inputs, states and parameters of Triton kernels may be stored in; sums are in float32."""

TRITON = Needs(
    "triton",
    STORED,
    "store float32, bfloat16 or float16, and sum in float32",
    _on_a_gpu,
    traced=True,
    follows_autocast=True,
    mixed="take inputs and parameters of one dtype, except under autocast",
)
