"""In which order the kernels of the LTC walk its synapses."""

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

PACK_BELOW = 0.4
"""Share of existing synapses below which they are packed into lists.

A packed synapse costs more than a dense one: it is looked up, and four sequences do not share its
weights.
"""

LANES = 16
"""Synapses are packed in multiples of this many, those of the widest vector."""

Order = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]
"""``(starts, counts, other, position)`` as :mod:`.numba_synapses` explains; unsigned, as numba
tests the sign of others.

``starts`` is empty for a dense layout.
"""


@dataclass(frozen=True)
class Layout:
    """The orders of one matrix of synapses, sources by targets.

    Args:
        forward: by target.
        backward: by source.
        backward_index: entries of the flattened matrix in backward order, where the number of all
            entries stands for none; ``None`` if dense.
        to_forward: brings weights from backward to forward order, where their number stands for
            none; ``None`` if dense.
    """

    forward: Order
    backward: Order
    backward_index: Tensor | None = None
    to_forward: Tensor | None = None

    def matrices(self, weights: Tensor, sources: int, targets: int) -> Tensor:
        """Return weights (4, K), in backward order if packed, as matrices (4, sources, targets)."""
        if self.backward_index is not None:
            entries = sources * targets
            table = weights.new_zeros(4, entries + 1)  # the last one is where none is
            weights = table.index_add(1, self.backward_index, weights)[:, :entries].contiguous()
        return weights.view(4, sources, targets)


_NOTHING = np.empty(0, np.uint32)
_DENSE = Layout((_NOTHING,) * 4, (_NOTHING,) * 4)


def layout_of(cell: nn.Module, name: str) -> Layout:
    """Return the layout of a cell's buffer (S, N), which is zero where no synapse exists.

    It is remembered for as long as the buffer has the same entries.
    """
    synapses: Tensor = getattr(cell, name)
    known = _remembered.setdefault(cell, {})
    matrix, layout = known.get(name, (None, _DENSE))
    if matrix is None or not torch.equal(matrix, synapses):
        matrix = synapses.detach().clone()
        packed = matrix.count_nonzero() < PACK_BELOW * matrix.numel()
        layout = _packed(matrix.numpy()) if packed else _DENSE
        known[name] = matrix, layout
    return layout


_remembered: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, Layout]]]
_remembered = weakref.WeakKeyDictionary()


def _packed(matrix: NDArray[np.float32]) -> Layout:
    S, N = matrix.shape
    source, target = (index.astype(np.int64) for index in np.nonzero(matrix))
    places_by_target, by_target = _order(target, source, N)
    places_by_source, by_source = _order(source, target, S)
    backward_index = np.full(by_source[0][-1], S * N)
    backward_index[places_by_source] = source * N + target
    to_forward = np.full(by_target[0][-1], len(backward_index))
    to_forward[places_by_target] = places_by_source
    return Layout(
        by_target, by_source, torch.from_numpy(backward_index), torch.from_numpy(to_forward)
    )


def _order(
    own: NDArray[np.int64], other: NDArray[np.int64], neurons: int
) -> tuple[NDArray[np.int64], Order]:
    """Sort synapses by their rank at their own neuron; neurons with the most come first.

    Returns:
        The place of each synapse in the order, and the order.
    """
    degrees = np.bincount(own, minlength=neurons)
    position = np.empty(neurons, np.int64)
    position[np.argsort(-degrees, kind="stable")] = np.arange(neurons)
    grouped = np.argsort(own, kind="stable")
    rank = np.empty_like(own)
    rank[grouped] = np.arange(len(own)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    counts = np.bincount(rank)
    starts = np.concatenate([[0], np.cumsum(-(-counts // LANES) * LANES)])
    places = starts[rank] + position[own]
    others = np.zeros(starts[-1], np.int64)
    others[places] = other
    return places, tuple(a.astype(np.uint32) for a in (starts, counts, others, position))  # type: ignore[return-value]
