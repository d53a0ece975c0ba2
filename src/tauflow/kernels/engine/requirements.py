"""What a backend cannot take of any cell, and what every call is held to before a kernel reads it.

Compiled loops check no bounds.
"""

import os
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow._internal.checks import is_jit_tracing, is_tracing, shape_error
from tauflow._internal.module_hooks import has_global_hooks
from tauflow.cells.base import AbstractCell, first_parameter
from tauflow.cells.built_tensors import find_unusual_tensor
from tauflow.cells.registry import MODELS
from tauflow.errors import BackendError, DtypeError

from .kernel_spec import KernelCall, KernelFunction, KernelSpec
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
    """Whether there are compiled loops on this machine."""
    return find_spec("numba") is not None


def _cpu_unsupported_reason(tensors: Sequence[Tensor]) -> str | None:
    if not _is_numba_installed():
        return "numba is not installed; pip install 'numba>=0.61'"
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


def find_cell_modification(cell: AbstractCell) -> str | None:
    """Return why only the step of a cell serves now: other tensors, or hooks for all modules.

    Raises:
        ShapeError: not even the step does, see :mod:`tauflow.cells.built_tensors`.
    """
    if torch.compiler.is_compiling():
        return cell._find_unusual_tensor()
    if is_jit_tracing():
        return None  # operations look at shapes by themselves, and a trace is to hold no look
    return "there are hooks for all modules" if has_global_hooks() else find_unusual_tensor(cell)


assume_constant_result(AbstractCell._find_unusual_tensor)  # a trace is to hold no look at modules


def check_call(call: KernelCall) -> None:
    """Raise unless the tensors of a call fit its cell and each other.

    Raises:
        ShapeError, DtypeError: one does not.
    """
    cell, x, mask, observed = call.cell, call.x, call.mask, call.observed
    where = type(cell).__name__
    if x.ndim != 3 or x.shape[2] != cell.input_size:
        raise shape_error(where, "x", x, f"(B, T, {cell.input_size})", "Features come last.")
    B, T, _ = x.shape
    _check_shape(where, "h", call.h, (B, cell.state_size))
    _check_shape(where, "dt", call.dt, (B, T, 1))
    for name, marks, shape in (("mask", mask, (B, T)), ("observed", observed, tuple(x.shape))):
        if marks is not None:
            _check_shape(where, name, marks, shape)
            if marks.dtype is not torch.bool:
                raise DtypeError(
                    f"{where}: {name} has dtype {marks.dtype}, expected torch.bool. Convert it "
                    f"with {name}.bool()."
                )


def _check_shape(where: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise shape_error(where, name, tensor, str(shape), "It goes with x, (B, T, I).")


def validate_call(run: KernelFunction, backend: str) -> KernelFunction:
    """Return a kernel that looks at its call first, whoever calls it."""

    @wraps(run)
    def checked(call: KernelCall) -> tuple[Tensor, Tensor]:
        if not is_tracing():
            changes_of_own = (
                find_cell_modification(call.cell) if is_builtin_cell(call.cell) else None
            )
            reason = changes_of_own or _find_dtype_mismatch(call, backend)
            if reason is not None:
                raise BackendError(
                    f"backend {backend!r} cannot serve this call: {reason}. Use "
                    "backend='reference'."
                )
            check_call(call)
        return run(call)

    return checked


def _find_dtype_mismatch(call: KernelCall, backend: str) -> str | None:
    """Return which tensor the loops would misread for one of another dtype."""
    if backend == "numba":
        first = first_parameter(call.cell)
        for tensor in (call.x, call.h, call.dt, *(() if first is None else (first,))):
            if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
                return "the numba kernels compute in float32, on the CPU"
    return None


def run_selected_kernel(spec: KernelSpec, call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run the row that :func:`~tauflow.kernels.select.select_kernel` chose for this call just now.

    Its cell has been looked at, and is not looked at twice.
    """
    if not is_tracing():
        check_call(call)
    run: KernelFunction = getattr(spec.run, "__wrapped__", spec.run)
    return run(call)


def require_unmodified(
    unsupported_reason: Callable[[KernelCall], str | None],
) -> Callable[[KernelCall], str | None]:
    """Return the limits of a kernel, which serves no cell that has changed."""

    @wraps(unsupported_reason)
    def limits(call: KernelCall) -> str | None:
        return find_cell_modification(call.cell) or unsupported_reason(call)

    return limits


def check_builtin_call(call: KernelCall) -> None:
    """Hold a call that the cell's own step serves to the same shapes, unless the cell is a user's.

    A model must not depend on which backend runs it. What a user's own cell does with its
    parameters is its own affair; no kernel reads them.
    """
    if is_tracing():
        return
    if is_builtin_cell(call.cell):
        find_unusual_tensor(call.cell)
        check_call(call)


def is_builtin_cell(cell: AbstractCell) -> bool:
    """Whether a cell is one of the library's, whatever became of it."""
    return type_before_parametrizations(cell) in _BUILTIN_CELLS


_BUILTIN_CELLS = {entry.cell for entry in MODELS.values()}


def add_builtin_cell(cell: type[AbstractCell]) -> None:
    """Count a class that the library registers later among its own."""
    _BUILTIN_CELLS.add(cell)
