"""The orders in which sparse synapses are walked."""

import numpy as np
import pytest
import torch
from torch import nn

from tauflow.cells import LTCCell
from tauflow.kernels.ltc import LANES, get_layout
from tauflow.wirings import AutoNCP, RandomSparse


def pairs(order, neurons: int) -> list[tuple[int, int]]:
    """Walk an order and return (neuron, other end) of every synapse."""
    starts, counts, other, position = (array.astype(int) for array in order[1:])
    neuron_at = np.argsort(position)
    assert sorted(position) == list(range(neurons))
    assert (starts % LANES == 0).all()
    assert (np.diff(starts) >= counts).all()
    return [
        (int(neuron_at[j]), int(other[start + j]))
        for start, count in zip(starts, counts, strict=False)
        for j in range(count)
    ]


@pytest.mark.parametrize(
    "wiring", [AutoNCP(30, 4, 0.75), RandomSparse(17, sparsity=0.9), RandomSparse(5, sparsity=0.7)]
)
@pytest.mark.parametrize("name", ["synapses", "synapses_x"])
def test_both_orders_hold_every_synapse_once(wiring, name):
    cell = LTCCell(6, wiring)
    matrix = getattr(cell, name)
    existing = [tuple(pair) for pair in matrix.nonzero().tolist()]
    layout = get_layout(cell, name)
    assert layout.backward.entries.size
    S, N = matrix.shape
    backward = pairs(layout.backward, S)
    forward = pairs(layout.forward, N)
    assert sorted(backward) == existing
    assert sorted((source, target) for target, source in forward) == existing
    by_source = np.append(np.arange(S * N), -1)[layout.backward.entries]
    assert [divmod(i, N) for i in by_source.tolist() if i >= 0] == backward
    by_target = np.append(np.arange(S * N), -1)[layout.forward.entries]
    assert [divmod(i, N)[::-1] for i in by_target.tolist() if i >= 0] == forward


def test_a_dense_wiring_is_not_packed():
    assert get_layout(LTCCell(3, 8), "synapses").backward.starts.size == 0


def test_the_layout_is_remembered_until_the_synapses_change():
    cell = LTCCell(3, RandomSparse(20, sparsity=0.9))
    first = get_layout(cell, "synapses")
    assert get_layout(cell, "synapses") is first
    other = LTCCell(3, RandomSparse(20, sparsity=0.9, seed=5))
    cell.load_state_dict(other.state_dict())
    again = get_layout(cell, "synapses")
    assert again is not first
    np.testing.assert_array_equal(
        again.backward.entries, get_layout(other, "synapses").backward.entries
    )


def test_a_matrix_without_synapses():
    class Lonely(nn.Module):
        synapses = torch.zeros(4, 4)

    layout = get_layout(Lonely(), "synapses")
    assert layout.backward.entries.size == 0
    assert pairs(layout.forward, 4) == []
