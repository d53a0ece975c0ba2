"""Results of traced steps do not depend on what a forward pass saves for the backward pass."""

import pytest
import torch

import tauflow
from tauflow.kernels.engine.kernel_spec import KernelCall
from tauflow.kernels.trace import traced_kernel

pytest.importorskip("numba")

B, T, D, N = 5, 20, 3, 4
CELLS = ("cfc", "gru-d", "ode-lstm", "stc", "gnode")


def run(cell, x, dt, mask):
    call = KernelCall(cell, x, cell.initial_state(x[:, 0]), dt, mask)
    assert traced_kernel.traced_unsupported_reason(call) is None
    return traced_kernel.run_traced(call)


def make_batch(name, steps=T):
    torch.manual_seed(0)
    cell = tauflow.build(name, D, N).cell
    x = torch.randn(B, steps, D, requires_grad=True)
    return cell, x, torch.rand(B, steps, 1, requires_grad=True), torch.rand(B, steps) > 0.3


def differentiate(cell, x, dt, mask):
    y, last = run(cell, x, dt, mask)
    inputs = [x, dt, *cell.parameters()]
    return y, torch.autograd.grad(y.sin().sum() + last.sum(), inputs, allow_unused=True)


@pytest.mark.parametrize("name", CELLS)
def test_the_budget_does_not_change_a_bit(name, monkeypatch):
    monkeypatch.setattr(traced_kernel, "_MIN_PRODUCT_ROWS", 16)  # several products a sequence
    batch = make_batch(name)
    y, gradients = differentiate(*batch)
    monkeypatch.setattr(traced_kernel, "MAX_SAVED_BYTES", 1)  # the least number of steps at a time
    fewer, others = differentiate(*batch)
    assert torch.equal(y, fewer)
    assert all(map(_is_same, gradients, others))


@pytest.mark.parametrize("steps", [3, T])
@pytest.mark.parametrize("name", CELLS)
def test_saving_does_not_change_a_bit(name, steps):
    cell, x, dt, mask = make_batch(name, steps)
    y, last = run(cell, x, dt, mask)
    with torch.no_grad():
        plain, plain_last = run(cell, x, dt, mask)
    assert torch.equal(y, plain)
    assert torch.equal(last, plain_last)


@pytest.mark.parametrize("name", CELLS)
def test_a_graph_can_be_gone_through_twice(name):
    cell, x, dt, mask = make_batch(name)
    y, last = run(cell, x, dt, mask)
    loss, inputs = y.sin().sum() + last.sum(), [x, dt, *cell.parameters()]
    first = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
    second = torch.autograd.grad(loss, inputs, allow_unused=True)
    assert all(map(_is_same, first, second))


def _is_same(one, other):
    return one is other or torch.equal(one, other)
