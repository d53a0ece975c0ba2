"""In which order kernels walk the synapses of LTC and LRC, and the arrays they read and write."""

import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MAX_PACKED_DENSITY = 0.4
"""Share of existing synapses below which they are packed into lists.

A packed synapse costs more than a dense one: it is looked up, and four sequences do not share its
weights.
"""

LANES = 16
"""Synapses are packed in multiples of this many, those of the widest vector."""

SynapseOrder = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]
"""``(starts, counts, other, position)`` as :mod:`.numba_synapses` explains; unsigned, as numba
tests the sign of others.

``starts`` is empty for a dense layout.
"""


Array = Any


class SynapseArrays(NamedTuple):
    """A matrix of synapses: weights (4, K) in the order that follows."""

    weights: Array
    starts: Array
    counts: Array
    other: Array
    position: Array


class SynapseInputs(NamedTuple):
    """What is read at every step.

    Args:
        u: (B, T, D), mapped inputs.
        delta: (B, T), lengths of sub-steps.
        mask: (B, T) bool, or (B, 0) for none.
    """

    u: Array
    delta: Array
    mask: Array


class SolverArrays(NamedTuple):
    """The solver, and what neurons have beside synapses.

    Args:
        substeps: per step.
        a: (stages, stages), weights of the earlier stages; empty for the fused solver, and (1, 1)
            for the exponential one.
        b: (stages,), weights in the sub-step; empty for both.
        leak: (2, N), g_l V_l and g_l, with epsilon for the fused solver.
        C: (N,).
    """

    substeps: int
    a: Array
    b: Array
    leak: Array
    C: Array


class LTCActivations(NamedTuple):
    """What the loop back reads; empty where nothing is kept. E is substeps times stages.

    Args:
        evaluations: (2, B, T, E, N): the potentials at which synapses were summed up, and 1 / m of
            the fused solver, or the conductances of the others.
        slopes: (B, T, E, N): of the gap, or of the stages.
    """

    evaluations: Array
    slopes: Array


class LRCParameters(NamedTuple):
    """The solver of cells whose rates and drives saturate, and what neurons have beside synapses.

    Args:
        substeps: per step.
        implicit: whether the linear state is taken at the new time.
        neurons: (2, N), g and e.
        drive: (B, T, N), the inputs' share of q; (0, 0, 0) without an elastance.
        W: (N N,), its matrix, forwards by source and backwards by target.
        s: (N,), its shift; (0,) if it is not symmetric.
    """

    substeps: int
    implicit: bool
    neurons: Array
    drive: Array
    W: Array
    s: Array


class LRCGradients(NamedTuple):
    """What the loop back writes.

    Args:
        h, u, sensory, recurrent: as :class:`LTCGradients` has them.
        delta: (B, T), of the gap.
        neurons: (slices, 3, N), of g, e and s.
        q: (B, T, E, N), of q in every sub-step; (0, 0, 0, 0) without an elastance.
    """

    h: Array
    u: Array
    delta: Array
    sensory: Array
    recurrent: Array
    neurons: Array
    q: Array


class LTCGradOutputs(NamedTuple):
    """Potentials after each step (B, T, N), and the incoming gradients of them, or none."""

    out: Array
    grad_out: Array


class LTCGradients(NamedTuple):
    """What the loop back writes.

    Args:
        h: (B, N), of the last state on entry, of the first on return.
        u: (B, T, D).
        delta: (B, T).
        sensory: (slices, 4, ...), without the factors that all terms of a sum share.
        recurrent: (slices, 4, ...), likewise.
        neurons: (slices, 3, N), of leak and C.
    """

    h: Array
    u: Array
    delta: Array
    sensory: Array
    recurrent: Array
    neurons: Array


@dataclass(frozen=True)
class SynapseLayout:
    """The orders of one matrix of synapses, sources by targets.

    Args:
        forward: by target.
        backward: by source.
        forward_index: entries of the flattened matrix in forward order, where the number of all
            entries stands for none; ``None`` if dense.
        backward_index: the same in backward order.
    """

    forward: SynapseOrder
    backward: SynapseOrder
    forward_index: Tensor | None = None
    backward_index: Tensor | None = None


def to_packed_order(weights: Tensor, index: Tensor | None) -> Tensor:
    """Return weights (4, S, N) as (4, K), in the order of a layout, padded by zeros."""
    flat = weights.flatten(1)
    if index is None:
        return flat
    last = flat.shape[1] - 1
    return flat.index_select(1, index.clamp(max=last)).masked_fill_(index > last, 0.0)


def from_packed_order(values: Tensor, index: Tensor | None, like: Tensor) -> Tensor:
    """Return values (4, K) in an order as matrices (4, S, N)."""
    if index is None:
        return values.view_as(like)
    last = like[0].numel() - 1
    present = values.masked_fill(index > last, 0.0)
    flat = values.new_zeros(4, last + 1)
    return flat.index_add_(1, index.clamp(max=last), present).view_as(like)


_EMPTY_INDICES = np.empty(0, np.uint32)
DENSE_LAYOUT = SynapseLayout((_EMPTY_INDICES,) * 4, (_EMPTY_INDICES,) * 4)
"""All synapses exist."""


def get_layout(cell: nn.Module, name: str) -> SynapseLayout:
    """Return the layout of a cell's buffer (S, N), which is zero where no synapse exists.

    It is remembered for as long as the buffer has the same entries.
    """
    synapses: Tensor = getattr(cell, name)
    known = _layout_cache.setdefault(cell, {})
    matrix, layout = known.get(name, (None, DENSE_LAYOUT))
    if matrix is None or not torch.equal(matrix, synapses):
        matrix = synapses.detach().clone()
        layout = _make_layout(matrix.numpy())
        known[name] = matrix, layout
    return layout


def get_buffer_layout(synapses: Tensor) -> SynapseLayout:
    """Return the layout of a buffer itself, remembered by its entries."""
    exists = synapses.detach().numpy() != 0
    return _get_cached_layout(exists.tobytes(), exists.shape)


@lru_cache(maxsize=64)
def _get_cached_layout(entries: bytes, shape: tuple[int, ...]) -> SynapseLayout:
    return _make_layout(np.frombuffer(entries, bool).reshape(shape))


def _make_layout(matrix: NDArray[Any]) -> SynapseLayout:
    return (
        _make_packed_layout(matrix)
        if np.count_nonzero(matrix) < MAX_PACKED_DENSITY * matrix.size
        else DENSE_LAYOUT
    )


_layout_cache: weakref.WeakKeyDictionary[nn.Module, dict[str, tuple[Tensor, SynapseLayout]]]
_layout_cache = weakref.WeakKeyDictionary()


def _make_packed_layout(matrix: NDArray[Any]) -> SynapseLayout:
    S, N = matrix.shape
    source, target = (index.astype(np.int64) for index in np.nonzero(matrix))
    places_by_target, by_target = _make_order(target, source, N)
    places_by_source, by_source = _make_order(source, target, S)
    indices = []
    for order, places in ((by_target, places_by_target), (by_source, places_by_source)):
        index = np.full(order[0][-1], S * N)
        index[places] = source * N + target
        indices.append(torch.from_numpy(index))
    return SynapseLayout(by_target, by_source, *indices)


def _make_order(
    index: NDArray[np.int64], other: NDArray[np.int64], neurons: int
) -> tuple[NDArray[np.int64], SynapseOrder]:
    """Sort synapses by their rank at their own neuron; neurons with the most come first.

    Returns:
        The place of each synapse in the order, and the order.
    """
    degrees = np.bincount(index, minlength=neurons)
    position = np.empty(neurons, np.int64)
    position[np.argsort(-degrees, kind="stable")] = np.arange(neurons)
    grouped = np.argsort(index, kind="stable")
    rank = np.empty_like(index)
    rank[grouped] = np.arange(len(index)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    counts = np.bincount(rank)
    starts = np.concatenate([[0], np.cumsum(-(-counts // LANES) * LANES)])
    places = starts[rank] + position[index]
    others = np.zeros(starts[-1], np.int64)
    others[places] = other
    return places, tuple(a.astype(np.uint32) for a in (starts, counts, others, position))  # type: ignore[return-value]
