"""Conductance-based synapses in torch operations: what is sent forward, and what is pulled back.

A synapse conducts ``w s`` with ``s = sigmoid(sigma (u - mu))`` and pulls its target towards E. All
arrays over synapses and rows of sources are (targets, rows, sources): a sum over sources is then
one matrix product for every target, and a sum over targets one for every row.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_BYTES = {"cpu": 1 << 20}  # an array that stays in the cache with four others
_BLOCK_BYTES_ELSEWHERE = 1 << 26  # an array that keeps a GPU busy for longer than its launch takes
_FEWEST_ROWS = 64


def block_size(like: Tensor) -> int:
    """Return how many entries an array over synapses and rows of sources may have."""
    return _BLOCK_BYTES.get(like.device.type, _BLOCK_BYTES_ELSEWHERE) // like.element_size()


def rows_per_block(weights: Tensor, rows: int) -> int:
    """Return how many of ``rows`` rows to take at once, where all are at hand.

    Those that fill a block with all targets, but not so few that a product has too little to do.
    """
    whole = block_size(weights) // (weights.shape[1] * weights.shape[2])
    return min(rows, max(_FEWEST_ROWS, whole))


class Block(NamedTuple):
    """Some targets of a matrix of synapses; tensors (n, ., S), slices made once."""

    targets: slice
    tensors: tuple[Tensor, ...]


class Synapses:
    """Synapses of N targets and S sources, and memory for arrays over them and rows of sources.

    Args:
        tensors: for every synapse, (N, ., S).
        rows: of sources, at most, in one call.
        arrays: how many arrays are needed at once.
    """

    def __init__(self, tensors: tuple[Tensor, ...], rows: int, arrays: int) -> None:
        N, _, S = tensors[0].shape
        targets = max(1, min(N, block_size(tensors[0]) // (rows * S)))
        self.rows, self.sources = rows, S
        self.blocks = [
            Block(part, tuple(tensor[part] for tensor in tensors))
            for part in (slice(first, first + targets) for first in range(0, N, targets))
        ]
        self._memory = tensors[0].new_empty(arrays, targets * rows * S).unbind()
        self._arrays: dict[tuple[int, int], list[Tensor]] = {}

    def arrays(self, block: Block, rows: int) -> list[Tensor]:
        """Return the memory as arrays (targets of the block, rows, S)."""
        shape = block.tensors[0].shape[0], rows
        if shape not in self._arrays:
            size = shape[0] * rows * self.sources
            self._arrays[shape] = [
                memory[:size].view(*shape, self.sources) for memory in self._memory
            ]
        return self._arrays[shape]


def by_target(weights: Tensor) -> tuple[Tensor, ...]:
    """Return sigma, mu, w and E, (4, S, N), as (N, 1, S) each."""
    return weights.detach().transpose(1, 2).contiguous().unsqueeze(2).unbind()


class Conductors(Synapses):
    """Synapses on the way forward.

    Args:
        weights: sigma, mu, w and E, (4, S, N).
        rows: of sources, at most, in one call.
    """

    def __init__(self, weights: Tensor, rows: int) -> None:
        sigma, mu, w, E = by_target(weights)
        super().__init__((sigma, -sigma * mu, torch.cat((w * E, w), dim=1)), rows, arrays=1)

    def conduct(self, u: Tensor, base: Tensor, out: Tensor) -> None:
        """Write to ``out`` what sources u (R, S) send, drive and conductance, plus ``base``.

        Both are (N, 2, R).
        """
        for block in self.blocks:
            sigma, shift, factors = block.tensors
            (s,) = self.arrays(block, u.shape[0])
            torch.addcmul(shift, sigma, u, out=s).sigmoid_()
            at = block.targets
            torch.baddbmm(base[at], factors, s.transpose(1, 2), out=out[at])


class Pulled(NamedTuple):
    """Derivatives by synapse and row, (n, R, S), of the pulls on one block of targets."""

    s: Tensor  # sigmoids
    pull: Tensor  # by w
    slope: Tensor  # by sigma (u - mu), without w
    lever: Tensor  # slope (u - mu)
    to_source: Tensor  # by u


class Pullers(Synapses):
    """Synapses on the way back, which add up their gradients.

    Args:
        weights: sigma, mu, w and E, (4, S, N).
        rows: of sources, at most, in one call.
    """

    def __init__(self, weights: Tensor, rows: int) -> None:
        sigma, mu, w, E = by_target(weights)
        self._w, self._reach = w, sigma * w
        self._gradients = torch.zeros_like(sigma.expand(4, *sigma.shape)).unbind()
        super().__init__((sigma, mu, E, self._reach, *self._gradients), rows, arrays=5)

    def derivatives(
        self, u: Tensor, drive: Tensor | None, conductance: Tensor, block: Block
    ) -> Pulled:
        """Return the derivatives at sources u (R, S) of ``drive D + conductance G``.

        Both factors are (N, R); a ``drive`` of ``None`` is 1.
        """
        sigma, mu, E, reach = block.tensors[:4]
        s, pull, slope, lever, to_source = self.arrays(block, u.shape[0])
        gap = torch.sub(u, mu, out=lever)
        torch.mul(gap, sigma, out=s).sigmoid_()
        conductance = conductance[block.targets].unsqueeze(2)
        if drive is None:
            torch.add(E, conductance, out=pull)
        else:
            torch.addcmul(conductance, drive[block.targets].unsqueeze(2), E, out=pull)
        pull.mul_(s)
        torch.addcmul(pull, pull, s, value=-1, out=slope)
        torch.mul(slope, reach, out=to_source)
        return Pulled(s, pull, slope, lever.mul_(slope), to_source)

    def add(self, at: Pulled, unit: Tensor, drive: Tensor, block: Block) -> None:
        """Add up gradients, which still lack the factors that all rows share.

        Args:
            at: derivatives.
            unit: what multiplies them, (N, R).
            drive: gradient of the drive, (N, R).
            block: the targets.
        """
        # contiguous, or torch multiplies target by target
        drive_rows = drive[block.targets].contiguous().unsqueeze(1)
        same = drive is unit
        unit_rows = drive_rows if same else unit[block.targets].contiguous().unsqueeze(1)
        g_sigma, g_mu, g_w, g_E = block.tensors[4:]
        g_sigma.baddbmm_(unit_rows, at.lever)
        g_mu.baddbmm_(unit_rows, at.slope)
        g_w.baddbmm_(unit_rows, at.pull)
        g_E.baddbmm_(drive_rows, at.s)

    def total(self) -> Tensor:
        """Return the gradients of sigma, mu, w and E, (4, S, N)."""
        g_sigma, g_mu, g_w, g_E = self._gradients
        full = torch.stack((g_sigma * self._w, -g_mu * self._reach, g_w, g_E * self._w))
        return full.squeeze(2).transpose(1, 2)
