"""Tensors without memory or of a class of their own, and checkpoints around a first call."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tauflow
from tauflow.errors import ArgumentError


class Tagged(Tensor):
    """A tensor that computes as any other."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("released", ["weight", "last weight", "flat", "x", "dt", "hx", "mask"])
@pytest.mark.parametrize("name", ["cfc", "ltc", "gru", "lru"])
def test_released_memory_is_refused(name: str, released: str, grad: bool) -> None:
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 6, num_layers=2)
    given = {"dt": torch.rand(4, 12), "mask": torch.rand(4, 12) < 0.7}
    given["hx"] = torch.zeros(4, rnn.state_size)
    x = torch.randn(4, 12, 3)
    own = [p for p in rnn.parameters() if p.numel()]
    tensors = {"x": x, **given, "weight": own[0], "last weight": own[-1]}
    if released == "flat":  # parameters are views of one tensor
        tensors["flat"] = torch.zeros(10 + sum(p.numel() for p in own))
        parts = tensors["flat"][10:].split([p.numel() for p in own])
        for parameter, part in zip(own, parts, strict=True):
            parameter.data = part.view_as(parameter)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            rnn(x, **given)
        tensors[released].untyped_storage().resize_(0)
        with pytest.raises((ArgumentError, RuntimeError), match=r"has no memory|storage"):
            rnn(x, **given)


@pytest.mark.parametrize("name", ["cfc", "ltc", "gru", "lru"])
def test_parameters_of_a_class_of_their_own_compute_the_same(name: str) -> None:
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 6, num_layers=2), torch.randn(4, 12, 3)
    expected = rnn(x)[0]
    path, parameter = next(iter(rnn.cell.named_parameters()))
    owner, _, own = path.rpartition(".")
    tagged = nn.Parameter(parameter.detach().as_subclass(Tagged))
    rnn.cell.get_submodule(owner)._parameters[own] = tagged
    y = rnn(x)[0]
    torch.testing.assert_close(y.as_subclass(Tensor), expected, rtol=1e-5, atol=1e-6)
    y.sum().backward()
    assert tagged.grad is not None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["gru", "ct-rnn", "gru-d", "gnode", "lem", "cfc", "ltc"])
def test_a_first_call_in_a_checkpoint_gives_the_gradients_of_any_other(
    name: str, layers: int
) -> None:
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 6, num_layers=layers)
    x = torch.randn(4, 12, 3, requires_grad=True)
    y = checkpoint(lambda z: rnn(z)[0], x, use_reentrant=False)
    leaves = [x, *rnn.parameters()]
    found = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad(rnn(x)[0].square().sum(), leaves, allow_unused=True)
    torch.testing.assert_close(found, expected)
