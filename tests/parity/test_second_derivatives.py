"""Gradients of gradients, and many gradients at once: kernels hand both to plain operations."""

import pytest
import torch
from kernel_variants import ROWS, example, name_of, takes_masks
from torch import Tensor

import tauflow
from tauflow.kernels import KernelCall
from tauflow.sequence import reference_loop

OWN = [row for row in ROWS if takes_masks(row[0])]
LOSSES = {
    # with constant incoming gradients, which alone would not ask for a graph
    "linear-in-outputs": lambda y, last: y.sum(),
    "linear-in-last": lambda y, last: last.sum(),
    "curved": lambda y, last: y.square().sum() + last.sum(),
}


def leaves(call: KernelCall) -> list[Tensor]:
    return [call.x, call.h, call.dt, *call.cell.parameters()]


def own_example(row, *size, masked=False) -> KernelCall:
    return example(row[0], *size, masked=masked, **row[1])


def assert_close(actual: list[Tensor | None], expected: list[Tensor | None]) -> None:
    """Compare, where ``None`` is zero, in units of the largest entry in single precision."""
    for derivative, other in zip(actual, expected, strict=True):
        if derivative is None or other is None:
            left = other if derivative is None else derivative
            assert left is None or not left.any()
        elif derivative.dtype is torch.float64:
            torch.testing.assert_close(derivative, other, rtol=1e-9, atol=1e-10)
        else:
            unit = max(1.0, other.abs().max().item())
            torch.testing.assert_close(derivative, other, rtol=1e-4, atol=2e-5 * unit)


def penalty_gradients(run, call: KernelCall, loss) -> list[Tensor | None]:
    """Return the gradients of a loss, and those of their norm."""
    options = {"create_graph": True, "allow_unused": True}
    first = torch.autograd.grad(loss(*run(call)), leaves(call), **options)
    penalty = sum(gradient.square().sum() for gradient in first if gradient is not None)
    return [*first, *torch.autograd.grad(penalty, leaves(call), allow_unused=True)]


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize(
    ("loss", "masked"),
    [("linear-in-outputs", True), ("linear-in-last", False), ("curved", False), ("curved", True)],
)
def test_gradients_may_be_differentiated(row, loss, masked):
    call = own_example(row, 2, 5, 4, masked=masked)
    expected = penalty_gradients(reference_loop, call, LOSSES[loss])
    assert_close(penalty_gradients(row[0].run, call, LOSSES[loss]), expected)


@pytest.mark.parametrize("row", OWN, ids=name_of)
def test_gradients_may_be_vectorised(row):
    call = own_example(row, 2, 5, 4)
    gradients = []
    for run in (row[0].run, reference_loop):
        y, _ = run(call)
        pulls = torch.linspace(-1, 1, 3 * y.numel(), dtype=y.dtype).view(3, *y.shape)
        options = {"is_grads_batched": True, "allow_unused": True}
        gradients.append(torch.autograd.grad(y, leaves(call), pulls, **options))
    assert_close(*gradients)


@pytest.mark.parametrize("row", OWN, ids=name_of)
@pytest.mark.parametrize("wanted", ["input", "state", "parameters"])
def test_second_derivatives_of_some_leaves_only(row, wanted):
    """What wants no gradient is saved as a value, and may be changed by the caller meanwhile."""
    call = own_example(row, 2, 5, 4)
    leaves_by_kind = {
        "input": [call.x],
        "state": [call.h],
        "parameters": list(call.cell.parameters()),
    }
    for leaf in leaves(call):
        leaf.requires_grad_(any(leaf is tensor for tensor in leaves_by_kind[wanted]))
    derivatives = []
    for run in (row[0].run, reference_loop):
        h = call.h if wanted == "state" else call.h.clone()
        y, _ = run(KernelCall(call.cell, call.x, h, call.dt))
        if wanted != "state" and run is row[0].run:
            h.zero_()
        first = torch.autograd.grad(
            y.sum(), leaves_by_kind[wanted], create_graph=True, allow_unused=True
        )
        penalty = sum(g.square().sum() for g in first if g is not None)
        derivatives.append([*first])
        if penalty.requires_grad:  # not where states and outputs are linear in the state
            derivatives[-1] += torch.autograd.grad(
                penalty, leaves_by_kind[wanted], allow_unused=True
            )
    assert_close(*derivatives)


@pytest.mark.parametrize("name", ["cfc", "wired-cfc", "cfc-mmrnn", "ltc", "ct-rnn", "ode-lstm"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"checkpoint_every": 2}], ids=str)
def test_a_gradient_penalty_trains_the_module(name, options):
    """As for :func:`torch.autograd.grad` of the outputs' sum, the usual penalty."""
    gradients = []
    rnn = tauflow.build(name, 3, 4, **options)
    for backend in ("auto", "reference"):
        rnn.backend = backend
        x = torch.linspace(-1, 1, 30).view(2, 5, 3).requires_grad_()
        (slope,) = torch.autograd.grad(rnn(x)[0].sum(), x, create_graph=True)
        parameters = list(rnn.parameters())
        penalty = slope.square().sum()
        gradients.append(torch.autograd.grad(penalty, parameters, allow_unused=True))
    assert_close(*gradients)


@pytest.mark.parametrize("name", ["cfc", "ltc", "ode-lstm"])
def test_a_jacobian_may_be_vectorised(name):
    rnn = tauflow.build(name, 3, 4)
    x = torch.randn(1, 4, 3)
    jacobians = []
    for backend in ("auto", "reference"):
        rnn.backend = backend
        for vectorize in (True, False):
            jacobians.append(
                torch.autograd.functional.jacobian(lambda x: rnn(x)[0], x, vectorize=vectorize)
            )
    for jacobian in jacobians[:-1]:
        torch.testing.assert_close(jacobian, jacobians[-1], rtol=1e-4, atol=1e-5)
