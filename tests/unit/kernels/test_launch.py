"""Arguments of compiled loops: tensors, arrays, numbers and tuples arrive as they are."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

import tauflow

pytest.importorskip("numba")

from tauflow.kernels.cpu.binding import ConstantArgument, input_array, parallel_for
from tauflow.kernels.cpu.jit import kernel


class Pair(NamedTuple):
    values: object
    out: object


@kernel
def weigh(index, low, high, pair, scale, flip, shift):
    for row in range(low, high):
        total = 0.0
        for column in range(pair.values.shape[1]):
            total += pair.values[row, column]
        pair.out[row] = (total * scale + shift[row]) * (-1.0 if flip else 1.0)


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("scale", [2, 0.5, -np.inf])
@pytest.mark.parametrize("flip", [False, True])
def test_arguments_arrive(slices, scale, flip):
    values, out = torch.rand(7, 3), torch.zeros(7, dtype=torch.float64)
    shift = np.arange(14.0)[::2]  # every second one
    parallel_for(weigh, 7, Pair(values, out), scale, flip, shift, slices=slices)
    expected = (values.double().sum(1).numpy() * scale + shift) * (-1.0 if flip else 1.0)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


def test_other_types_are_compiled_for_and_sizes_may_change():
    for dtype in (torch.float32, torch.float64, torch.int64):
        for rows, columns in ((1, 1), (5, 2), (4, 0)):
            values = torch.ones(rows, columns, dtype=dtype)
            out = torch.zeros(rows, dtype=torch.float64)
            parallel_for(weigh, rows, Pair(values, out), 1, False, np.zeros(rows))
            assert out.tolist() == [columns] * rows


def test_a_constant_argument_is_its_value():
    values, out = torch.rand(4, 3), torch.zeros(4, dtype=torch.float64)
    expected = torch.zeros(4, dtype=torch.float64)
    parallel_for(weigh, 4, ConstantArgument(Pair(values, out)), 1, False, np.zeros(4))
    parallel_for(weigh, 4, Pair(values, expected), 1, False, np.zeros(4))
    assert torch.equal(out, expected)
    assert out.all()


def test_entries_that_do_not_lie_in_a_row_are_no_argument():
    values, out = torch.rand(3, 4).T, torch.zeros(4, dtype=torch.float64)
    with pytest.raises(AssertionError, match="beside the entries"):
        parallel_for(weigh, 4, Pair(values, out), 1, False, np.zeros(4))
    parallel_for(weigh, 4, Pair(input_array(values), out), 1, False, np.zeros(4))
    torch.testing.assert_close(out, values.double().sum(1), rtol=1e-6, atol=0)


def test_a_negative_view_is_read_as_what_it_shows():
    rnn, x = tauflow.CfC(4, 6), torch.randn(3, 5, 4)
    for dt in (None, torch.rand(3, 5)):
        y, _ = rnn(torch._neg_view(x), dt=dt)
        assert torch.equal(y, rnn(-x, dt=dt)[0])
    hx = torch.randn(3, 6)
    assert torch.equal(rnn(x, torch._neg_view(hx))[0], rnn(x, -hx)[0])
