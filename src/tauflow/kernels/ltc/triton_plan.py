"""How the LTC's Triton kernels are cut into tiles, and launches of those without a recurrence.

Tiles follow from sizes alone, so that results repeat.

A tile has 8 to 16 synapses per thread, so that a thread has several sigmoids under way and what it
sums still fits its registers. The numbers are reasoned and checked against what the compiler
reports (no spills), not timed.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tauflow.kernels.gpu.plan import count_processors, launch_options, next_power_of_two

MAX_ONE_BLOCK_WIDTH = 64
"""Widest state whose synapses, and the sums of their gradients, fit a program's registers."""

LOG2E = math.log2(math.e)

_TILE_SYNAPSES = 4096
_SYNAPSES_PER_WARP = 256
_MAX_WARPS = 8
_MIN_BLOCK = 4


@dataclass(frozen=True)
class StepPlan:
    """Tiles of the recurrence.

    Args:
        rows: sequences of a program.
        block: neurons whose synapses are taken at once.
        width: neurons, filled up to a power of two.
        warps: of a program.
    """

    MAX_ROWS: ClassVar[int] = 8

    rows: int
    block: int
    width: int
    warps: int

    @classmethod
    def choose(cls, rows: int, neurons: int, *, backward: bool) -> "StepPlan":
        """Return the plan for a tile of ``rows`` sequences."""
        width = max(16, next_power_of_two(neurons))
        if width <= MAX_ONE_BLOCK_WIDTH:
            rows = min(rows, _TILE_SYNAPSES // width**2)
            warps = (
                16
                if backward and width == MAX_ONE_BLOCK_WIDTH
                else _choose_warps(rows * width * width)
            )
            return cls(rows, width, width, warps)
        rows = min(rows, _TILE_SYNAPSES // (_MIN_BLOCK * width))
        block = _TILE_SYNAPSES // (width * rows)
        return cls(rows, block, width, _choose_warps(rows * block * width))

    def launch_arguments(self) -> dict[str, Any]:
        """Return the arguments of the kernels."""
        tile = {"ROWS": self.rows, "BLOCK": self.block, "WIDTH": self.width}
        return {**tile, **launch_options(self.warps)}


@dataclass(frozen=True)
class RowPlan:
    """Tiles of what has no recurrence: rows, sources, targets."""

    rows: int
    sources: int
    targets: int
    warps: int = 4

    @classmethod
    def choose(cls, sources: int, targets: int, *, sums: bool = False) -> "RowPlan":
        """Return the plan; ``sums`` if each synapse is summed over rows."""
        if sums:
            tile = cls(1, min(16, next_power_of_two(sources)), min(32, next_power_of_two(targets)))
            return cls(1024 // (tile.sources * tile.targets), tile.sources, tile.targets)
        tile = cls(1, min(8, next_power_of_two(sources)), min(64, next_power_of_two(targets)))
        return cls(max(1, 2048 // (tile.sources * tile.targets)), tile.sources, tile.targets)

    def launch_arguments(self) -> dict[str, Any]:
        """Return the arguments of the kernels."""
        tile = {"ROWS": self.rows, "SOURCES": self.sources, "TARGETS": self.targets}
        return {**tile, **launch_options(self.warps)}


def _choose_warps(elements: int) -> int:
    return min(_MAX_WARPS, max(1, elements // _SYNAPSES_PER_WARP))


def choose_chunks(rows: int, tiles: int, multiple: int, device: torch.device) -> tuple[int, int]:
    """Return into how many chunks rows are cut, to occupy the device, and how many each has."""
    most = max(1, rows // (8 * multiple))
    count = min(most, max(1, 4 * count_processors(device) // tiles))
    chunk = -(-rows // count)
    chunk = -(-chunk // multiple) * multiple
    return -(-rows // chunk), chunk


def make_forward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them forwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w, w * E))


def make_backward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them backwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w * sigma, E))


def apply_factors(sums: Tensor, weights: Tensor) -> Tensor:
    """Apply the factors that the kernels leave out."""
    sigma, _, w, _ = weights
    grad_sigma, grad_mu, grad_w, grad_E = sums
    return torch.stack((w * grad_sigma, -w * sigma * grad_mu, grad_w, w * grad_E))


def compute_sensory_sums(u: Tensor, weights: Tensor, leak: Tensor) -> tuple[Tensor, Tensor]:
    """Return what sensory synapses and leak contribute at every step, (B, T, N) each."""
    from .triton_loop import synaptic_currents

    (B, T, D), N = u.shape, leak.shape[1]
    drive, conductance = u.new_empty(2, B, T, N)
    plan = RowPlan.choose(D, N)
    synaptic_currents[(-(-B * T // plan.rows), -(-N // plan.targets))](
        u.contiguous(),
        weights,
        leak.contiguous(),
        drive,
        conductance,
        B * T,
        D,
        N,
        **plan.launch_arguments(),
    )
    return drive, conductance


def compute_source_gradients(
    z: Tensor, weights: Tensor, grad_drive: Tensor, grad_conductance: Tensor
) -> Tensor:
    """Return the gradient of the sources z, (M, S)."""
    from .triton_loop import sources_backward

    (M, S), N = z.shape, weights.shape[2]
    grad_z = torch.empty_like(z, memory_format=torch.contiguous_format)
    plan = RowPlan.choose(S, N)
    sources_backward[(-(-M // plan.rows), -(-S // plan.sources))](
        z.contiguous(),
        make_backward_weights(weights),
        grad_drive,
        grad_conductance,
        grad_z,
        M,
        S,
        N,
        **plan.launch_arguments(),
    )
    return grad_z


def compute_weight_gradients(
    z: Tensor, weights: Tensor, grad_drive: Tensor, grad_conductance: Tensor | None
) -> Tensor:
    """Return the sums for the gradients of weights, (4, S, N)."""
    from .triton_loop import weights_backward

    (M, S), N = z.shape, weights.shape[2]
    plan = RowPlan.choose(S, N, sums=True)
    tiles = (-(-S // plan.sources), -(-N // plan.targets))
    count, chunk = choose_chunks(M, tiles[0] * tiles[1], plan.rows, z.device)
    grad_weights = z.new_empty(count, 4, S, N)
    grid = (*tiles, count)
    weights_backward[grid](
        z.contiguous(),
        make_backward_weights(weights),
        grad_drive,
        grad_drive if grad_conductance is None else grad_conductance,
        grad_weights,
        M,
        S,
        N,
        chunk,
        AFTER=grad_conductance is None,
        **plan.launch_arguments(),
    )
    return grad_weights.sum(0)
