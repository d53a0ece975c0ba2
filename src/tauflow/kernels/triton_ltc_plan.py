"""How the LTC's Triton kernels are cut into tiles: from sizes alone, so that results repeat.

A tile has 8 to 16 synapses per thread, so that a thread has several sigmoids under way and what it
sums still fits its registers. The numbers are reasoned and checked against what the compiler
reports (no spills), not timed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .triton_limits import power_of_two, processors

ONE_BLOCK = 64
"""Widest state whose synapses, and the sums of their gradients, fit a program's registers."""

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


def options(warps: int) -> dict[str, Any]:
    """Return the launch options; left unsaid, newer versions warn about multiply-add."""
    return {"num_warps": warps, "enable_fp_fusion": True}


def _warps(elements: int) -> int:
    return min(_MOST_WARPS, max(1, elements // _PER_WARP))


def chunks_of(rows: int, tiles: int, multiple: int, device: torch.device) -> tuple[int, int]:
    """Return into how many chunks rows are cut, to occupy the device, and how many each has."""
    most = max(1, rows // (8 * multiple))
    count = min(most, max(1, 4 * processors(device) // tiles))
    chunk = -(-rows // count)
    chunk = -(-chunk // multiple) * multiple
    return -(-rows // chunk), chunk
