"""How Triton kernels are cut into tiles and launched, and what of a cell stays on the chip."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.requirements import TRITON_INTERPRETED
from tauflow.kernels.engine.torch_state import assume_constant_result

_INTERPRETER_PROCESSOR_COUNT = 2  # so that a batch of three has tiles of more than one sequence
ROWS = 16
"""Sequences of a program: the least that matrix units take."""

MAX_LAYERS = 3
"""Backbone layers whose weights a program may hold."""

_MIN_SHARED_BYTES = 99 * 1024  # bytes that every processor of compute capability 8.0 and newer has
_MAX_NARROW_WIDTH = 32


@dataclass(frozen=True)
class CorePlan:
    """A closed-form cell as a kernel sees it.

    Args:
        units: of a backbone layer, filled up to a power of two; neurons without a backbone.
        width: neurons, filled up likewise.
        layers: of the backbone.
        heads: four, three without a time bias, or one in the pure form.
        memory: whether a memory stands beside the core.
        reads_state: whether the core of such a cell reads the state too.
    """

    units: int
    width: int
    layers: int
    heads: int
    memory: bool = False
    reads_state: bool = False

    @classmethod
    def choose(
        cls,
        layers: int,
        heads: int,
        neurons: int,
        units: int,
        *,
        memory: bool = False,
        reads_state: bool = False,
    ) -> "CorePlan":
        """Return the plan of a core with so many neurons and backbone units."""
        width = max(16, next_power_of_two(neurons))
        wide = max(16, next_power_of_two(units)) if layers else width
        return cls(wide, width, layers, heads, memory, reads_state)

    @property
    def matrices(self) -> int:
        """Matrices that the recurrence multiplies by."""
        first = (2 if self.memory and self.reads_state else 1) if self.layers else 0
        return self.heads + first + max(self.layers - 1, 0) + (4 if self.memory else 0)

    @property
    def weights(self) -> int:
        """Their entries."""
        U, N = self.units, self.width
        first = U * N * (2 if self.memory and self.reads_state else 1) if self.layers else 0
        deep = max(self.layers - 1, 0) * U * U
        return first + deep + self.heads * U * N + (4 * N * N if self.memory else 0)

    def shared_bytes(self, dtype: torch.dtype, precision: str) -> int:
        """Return what a program takes of shared memory: weights, and room to exchange tiles.

        In three products of tf32, weights lie there in two parts. The room is what the compiler
        was seen to take, rounded up.
        """
        parts = 2 if precision == "tf32x3" else 1
        room = (5 * self.matrices + 4) * ROWS * max(self.units, self.width) // 2
        return (self.weights * parts + room) * dtype.itemsize + 4096

    def launch_arguments(self) -> dict[str, Any]:
        """Return the arguments of the kernels."""
        small = max(self.units, self.width) <= _MAX_NARROW_WIDTH and not self.memory
        tile = {"ROWS": ROWS, "UNITS": self.units, "WIDTH": self.width}
        return {**tile, **launch_options(4 if small else 8)}


@assume_constant_result
def get_dot_precision(dtype: torch.dtype) -> str:
    """Return how tiles are multiplied: float32 as torch has been told to multiply matrices.

    Full precision takes three products of tf32, whose errors are those of float32 sums. The
    interpreter multiplies bfloat16 after conversion only, which changes nothing.
    """
    if dtype is not torch.float32:
        return "converted" if TRITON_INTERPRETED else "ieee"
    return "tf32" if _tf32_is_allowed() else "tf32x3"


def _tf32_is_allowed() -> bool:
    matmul = torch.backends.cuda.matmul
    newer = getattr(matmul, "fp32_precision", None)  # the older name raises if this one was used
    return bool(matmul.allow_tf32) if newer is None else newer == "tf32"


@assume_constant_result  # the tracer cannot ask the driver, and the answer never changes
def persistent_unsupported_reason(
    device: torch.device,
    dtype: torch.dtype,
    layers: int,
    heads: int,
    neurons: int,
    units: int,
    memory: bool = False,
    reads_state: bool = False,
) -> str | None:
    """Return why a cell cannot keep its weights on the chip.

    Args:
        device: where it runs.
        dtype: of the factors of products.
        layers, heads, neurons, units, memory, reads_state: see :class:`CorePlan`.
    """
    if layers > MAX_LAYERS:
        return f"its weights stay on the chip with at most {MAX_LAYERS} backbone layers"
    if memory and not layers:
        return "beside a memory its weights stay on the chip with a backbone only"
    plan = CorePlan.choose(layers, heads, neurons, units, memory=memory, reads_state=reads_state)
    precision = get_dot_precision(dtype)
    needed, there = plan.shared_bytes(dtype, precision), _get_shared_memory(device)
    if needed <= there:
        return None
    name = str(dtype).removeprefix("torch.")
    return (
        f"its weights would take {needed // 1024} KB of shared memory in {name} ({precision}), and "
        f"a program has {there // 1024} KB"
    )


def _get_shared_memory(device: torch.device) -> int:
    if device.type != "cuda":
        return _MIN_SHARED_BYTES
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", _MIN_SHARED_BYTES))


def launch_options(warps: int) -> dict[str, Any]:
    """Return the launch options; left unsaid, newer versions warn about multiply-add."""
    return {"num_warps": warps, "enable_fp_fusion": True}


def count_processors(device: torch.device) -> int:
    """Return how many programs run at once; asked of the driver once, without waiting for it."""
    if device.type != "cuda":
        return _INTERPRETER_PROCESSOR_COUNT
    return torch.cuda.get_device_properties(device).multi_processor_count


def next_power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below ``size``: what tiles are made of."""
    return 1 << max(size - 1, 0).bit_length()


def choose_batch_tile(batch: int, device: torch.device, max_rows: int) -> int:
    """Return how many sequences a program takes: few enough to occupy every processor."""
    return min(max_rows, next_power_of_two(-(-batch // count_processors(device))))


def to_mask_bytes(mask: Tensor | None, other: Tensor) -> Tensor:
    """Return a mask as a kernel reads it, or any tensor in place of none."""
    return other if mask is None else mask.contiguous().view(torch.uint8)


def get_matmul_dtype(call: KernelCall) -> torch.dtype:
    """Return the dtype of the factors of matrix products."""
    kind = call.x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else call.x.dtype
