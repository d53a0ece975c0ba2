"""Arguments of compiled loops for many networks: each gets its own, and what all share."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from tauflow.kernels.cpu.binding import ConstantArgument
from tauflow.kernels.cpu.jit import kernel
from tauflow.kernels.stacked.launch import parallel_for_stack


class NetworkPair(NamedTuple):
    values: object
    out: object


@kernel
def weigh(index, low, high, pair, scale, shift):
    for row in range(low, high):
        if pair.values[row, 0] < 0.0:
            raise ValueError("negative")
        total = 0.0
        for column in range(pair.values.shape[1]):
            total += pair.values[row, column]
        pair.out[row] += total * scale[0] + shift[row]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(("networks", "rows"), [(1, 5), (2, 1), (5, 7)])
def test_each_network_has_its_own_arguments(threads, networks, rows):
    values, shift = torch.rand(networks, rows, 3), torch.rand(rows)
    out = torch.zeros(networks, rows, dtype=torch.float64)
    scale = ConstantArgument(np.array([2.0]))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        shared = shift.expand(networks, rows)
        parallel_for_stack(weigh, networks, rows, NetworkPair(values, out), scale, shared)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(out, values.double().sum(2) * 2.0 + shift.double())


def test_an_error_of_a_kernel_is_raised():
    values, out = torch.rand(3, 2, 3), torch.zeros(3, 2, dtype=torch.float64)
    values[1, 0, 0] = -1.0
    scale = ConstantArgument(np.array([2.0]))
    with pytest.raises(ValueError, match="negative"):
        parallel_for_stack(weigh, 3, 2, NetworkPair(values, out), scale, torch.zeros(3, 2))
    pair = NetworkPair(values.mT.contiguous().mT, out)
    with pytest.raises(AssertionError, match="beside"):
        parallel_for_stack(weigh, 3, 2, pair, scale, torch.zeros(3, 2))
