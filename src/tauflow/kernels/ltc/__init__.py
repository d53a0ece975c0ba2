"""In which order kernels walk the synapses of LTC and LRC, and the arrays they read and write."""

import weakref
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tauflow.kernels.cpu.binding import ConstantArgument, input_array

MAX_PACKED_DENSITY = 0.4
"""Share of existing synapses below which they are packed into lists.

A packed synapse costs more than a dense one: it is looked up, and four sequences do not share its
weights.
"""

LANES = 16
"""Synapses are packed in multiples of this many, those of the widest vector."""

Array = Any


class SynapseOrder(NamedTuple):
    """In which order synapses are walked; all empty for a dense matrix.

    The last four are explained in :mod:`.numba_synapses`; unsigned, as numba tests the sign of
    others.

    Args:
        entries: of the flattened matrix in this order, where the number of all entries stands
            for none.
        starts, counts, other, position: of the ranks.
    """

    entries: NDArray[np.int64]
    starts: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    other: NDArray[np.uint32]
    position: NDArray[np.uint32]


class SynapseArrays(NamedTuple):
    """A matrix of synapses: the weights of a cell, (4, S, N), and the order in which to walk them.

    Packed for a loop the weights are (4, K), in that order.
    """

    weights: Array
    entries: Array
    starts: Array
    counts: Array
    other: Array
    position: Array


class SynapseInputs(NamedTuple):
    """What is read at every step.

    Args:
        u: (B, T, D), mapped inputs; (B, T, D + N) with the inputs' share of an LRC's q.
        sources: D.
        dt: (B, T), the time to cover.
        mask: (B, T) bool, or empty for none.
    """

    u: Array
    sources: int
    dt: Array
    mask: Array


class LTCSolver(NamedTuple):
    """The solver, and what neurons have beside synapses.

    Args:
        substeps: per step.
        stages: of an explicit solver; else 0.
        conductance: the row of ``leak`` that conductances begin with.
        a: (stages, stages), weights of the earlier stages; empty for the fused solver, and (1, 1)
            for the exponential one.
        b: (stages,), weights in the sub-step; empty for both.
        leak: (2, N), g_l V_l and g_l, with epsilon for the fused solver.
        C: (N,).
        W: empty; an LRC has an elastance here.
    """

    substeps: int
    stages: int
    conductance: int
    a: Array
    b: Array
    leak: Array
    C: Array
    W: Array


class LRCSolver(NamedTuple):
    """The solver of cells whose rates and drives saturate, and what neurons have beside synapses.

    Args:
        substeps: per step.
        stages: 0.
        conductance: the row of ``leak`` that rates, as drives, begin with.
        implicit: whether the linear state is taken at the new time.
        leak: (2, N), g and e.
        W: (N N,), the elastance's matrix, forwards by source and backwards by target; or empty.
        s: (N,), its shift; (0,) if it is not symmetric.
    """

    substeps: int
    stages: int
    conductance: int
    implicit: bool
    leak: Array
    W: Array
    s: Array


class SynapseGradOutputs(NamedTuple):
    """Potentials after each step (B, T, N), and the incoming gradients of them, or none."""

    out: Array
    grad_out: Array


class SynapseGradients(NamedTuple):
    """What the loop back writes.

    Args:
        h: (B, N), of the last state on entry, of the first on return.
        u: as ``SynapseInputs`` has it.
        dt: (B, T), of the lengths of sub-steps; of the time steps of an LRC.
        sensory: (slices, 4, S, N).
        recurrent: (slices, 4, N, N).
        neurons: (slices, 3, N), of leak and C; of g, e and s.
        q: (B, T, E, N), of q in every sub-step; empty without an elastance.
    """

    h: Array
    u: Array
    dt: Array
    sensory: Array
    recurrent: Array
    neurons: Array
    q: Array


class SynapseLayout:
    """The orders of one matrix of synapses, sources by targets.

    Args:
        forward: by target.
        backward: by source.
    """

    def __init__(self, forward: SynapseOrder, backward: SynapseOrder) -> None:
        self.forward, self.backward = forward, backward
        self._arguments = {
            is_backward: tuple(map(ConstantArgument, order))
            for is_backward, order in enumerate((forward, backward))
        }

    def pack(self, weights: Tensor, *, is_backward: bool = False) -> SynapseArrays:
        """Return weights, (4, S, N), as a loop takes them."""
        return SynapseArrays(input_array(weights), *self._arguments[is_backward])


DENSE_LAYOUT = SynapseLayout(
    *[SynapseOrder(np.empty(0, np.int64), *[np.empty(0, np.uint32)] * 4)] * 2
)
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
    entries = source * N + target, S * N
    return SynapseLayout(
        _make_order(target, source, N, *entries), _make_order(source, target, S, *entries)
    )


def _make_order(
    near: NDArray[np.int64],
    other: NDArray[np.int64],
    neurons: int,
    entries: NDArray[np.int64],
    count: int,
) -> SynapseOrder:
    """Sort synapses by their rank at their own neuron; neurons with the most come first.

    Args:
        near: neuron of each synapse.
        other: what is at its other end.
        neurons: how many there are.
        entries: of the flattened matrix.
        count: of all entries.
    """
    degrees = np.bincount(near, minlength=neurons)
    position = np.empty(neurons, np.int64)
    position[np.argsort(-degrees, kind="stable")] = np.arange(neurons)
    grouped = np.argsort(near, kind="stable")
    rank = np.empty_like(near)
    rank[grouped] = np.arange(len(near)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    counts = np.bincount(rank)
    starts = np.concatenate([[0], np.cumsum(-(-counts // LANES) * LANES)])
    places = starts[rank] + position[near]
    others, index = np.zeros(starts[-1], np.int64), np.full(starts[-1], count)
    others[places], index[places] = other, entries
    return SynapseOrder(index, *(a.astype(np.uint32) for a in (starts, counts, others, position)))
