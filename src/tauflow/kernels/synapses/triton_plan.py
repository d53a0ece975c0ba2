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

from tauflow.kernels.gpu.plan import options, power_of_two, processors

ONE_BLOCK = 64
"""Widest state whose synapses, and the sums of their gradients, fit a program's registers."""

LOG2E = math.log2(math.e)

_TILE = 4096
_PER_WARP = 256
_MOST_WARPS = 8
_LEAST_BLOCK = 4


@dataclass(frozen=True)
class StepPlan:
    """Tiles of the recurrence.

    Args:
        rows: sequences of a program.
        block: neurons whose synapses are taken at once.
        width: neurons, filled up to a power of two.
        warps: of a program.
    """

    MOST_ROWS: ClassVar[int] = 8

    rows: int
    block: int
    width: int
    warps: int

    @classmethod
    def of(cls, rows: int, neurons: int, *, backward: bool) -> "StepPlan":
        """Return the plan for a tile of ``rows`` sequences."""
        width = max(16, power_of_two(neurons))
        if width <= ONE_BLOCK:
            rows = min(rows, _TILE // width**2)
            warps = 16 if backward and width == ONE_BLOCK else _warps(rows * width * width)
            return cls(rows, width, width, warps)
        rows = min(rows, _TILE // (_LEAST_BLOCK * width))
        block = _TILE // (width * rows)
        return cls(rows, block, width, _warps(rows * block * width))

    def launch(self) -> dict[str, Any]:
        """Return the arguments of the kernels."""
        tile = {"ROWS": self.rows, "BLOCK": self.block, "WIDTH": self.width}
        return {**tile, **options(self.warps)}


@dataclass(frozen=True)
class RowPlan:
    """Tiles of what has no recurrence: rows, sources, targets."""

    rows: int
    sources: int
    targets: int
    warps: int = 4

    @classmethod
    def of(cls, sources: int, targets: int, *, sums: bool = False) -> "RowPlan":
        """Return the plan; ``sums`` if each synapse is summed over rows."""
        if sums:
            tile = cls(1, min(16, power_of_two(sources)), min(32, power_of_two(targets)))
            return cls(1024 // (tile.sources * tile.targets), tile.sources, tile.targets)
        tile = cls(1, min(8, power_of_two(sources)), min(64, power_of_two(targets)))
        return cls(max(1, 2048 // (tile.sources * tile.targets)), tile.sources, tile.targets)

    def launch(self) -> dict[str, Any]:
        """Return the arguments of the kernels."""
        tile = {"ROWS": self.rows, "SOURCES": self.sources, "TARGETS": self.targets}
        return {**tile, **options(self.warps)}


def _warps(elements: int) -> int:
    return min(_MOST_WARPS, max(1, elements // _PER_WARP))


def chunks_of(rows: int, tiles: int, multiple: int, device: torch.device) -> tuple[int, int]:
    """Return into how many chunks rows are cut, to occupy the device, and how many each has."""
    most = max(1, rows // (8 * multiple))
    count = min(most, max(1, 4 * processors(device) // tiles))
    chunk = -(-rows // count)
    chunk = -(-chunk // multiple) * multiple
    return -(-rows // chunk), chunk


def forward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them forwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w, w * E))


def backward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them backwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w * sigma, E))


def with_factors(sums: Tensor, weights: Tensor) -> Tensor:
    """Apply the factors that the kernels leave out."""
    sigma, _, w, _ = weights
    g_sigma, g_mu, g_w, g_E = sums
    return torch.stack((w * g_sigma, -w * sigma * g_mu, g_w, w * g_E))


def sensory_sums(u: Tensor, weights: Tensor, leak: Tensor) -> tuple[Tensor, Tensor]:
    """Return what sensory synapses and leak contribute at every step, (B, T, N) each."""
    from .triton_loop import conduct

    (B, T, D), N = u.shape, leak.shape[1]
    drive, conductance = u.new_empty(2, B, T, N)
    plan = RowPlan.of(D, N)
    conduct[(-(-B * T // plan.rows), -(-N // plan.targets))](
        u.contiguous(),
        weights,
        leak.contiguous(),
        drive,
        conductance,
        B * T,
        D,
        N,
        **plan.launch(),
    )
    return drive, conductance


def source_gradients(z: Tensor, weights: Tensor, g_drive: Tensor, g_conductance: Tensor) -> Tensor:
    """Return the gradient of the sources z, (M, S)."""
    from .triton_loop import pull_sources

    (M, S), N = z.shape, weights.shape[2]
    g_z = torch.empty_like(z, memory_format=torch.contiguous_format)
    plan = RowPlan.of(S, N)
    pull_sources[(-(-M // plan.rows), -(-S // plan.sources))](
        z.contiguous(),
        backward_weights(weights),
        g_drive,
        g_conductance,
        g_z,
        M,
        S,
        N,
        **plan.launch(),
    )
    return g_z


def weight_gradients(
    z: Tensor, weights: Tensor, g_drive: Tensor, g_conductance: Tensor | None
) -> Tensor:
    """Return the sums for the gradients of weights, (4, S, N)."""
    from .triton_loop import pull_weights

    (M, S), N = z.shape, weights.shape[2]
    plan = RowPlan.of(S, N, sums=True)
    tiles = (-(-S // plan.sources), -(-N // plan.targets))
    count, chunk = chunks_of(M, tiles[0] * tiles[1], plan.rows, z.device)
    g_weights = z.new_empty(count, 4, S, N)
    grid = (*tiles, count)
    pull_weights[grid](
        z.contiguous(),
        backward_weights(weights),
        g_drive,
        g_drive if g_conductance is None else g_conductance,
        g_weights,
        M,
        S,
        N,
        chunk,
        AFTER=g_conductance is None,
        **plan.launch(),
    )
    return g_weights.sum(0)
