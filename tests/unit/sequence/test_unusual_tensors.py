"""Tensors without memory or of a subclass, and checkpoints around a first call."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError


class Tagged(Tensor):
    """A tensor that computes as any other."""


def release(tensor: Tensor) -> None:
    tensor.untyped_storage().resize_(0)


@pytest.mark.parametrize("name", list(MODELS))
def test_released_memory_is_refused(name: str) -> None:
    """Operators of torch read it unchecked, and the process ends."""
    rnn = tauflow.build(name, 3, 6)
    arguments = {"x": torch.rand(4, 5, 3), "dt": torch.rand(4, 5), "mask": torch.rand(4, 5) < 0.7}
    arguments |= {"hx": torch.zeros(4, rnn.state_size), "episode_start": torch.rand(4, 5) < 0.3}
    if rnn.uses_observed:
        arguments["observed"] = torch.rand(4, 5, 3) < 0.7
    for released in arguments:
        call = {key: value.clone() for key, value in arguments.items()}
        release(call[released])
        with pytest.raises(ArgumentError, match="has no memory"):
            rnn(**call)
    part, packed = torch.zeros(1, 4, 6), pack_sequence([torch.rand(5, 3)])
    release(part)
    release(packed.data)
    for call in ({"x": arguments["x"], "hx": (part, part)}, {"x": packed}):
        with pytest.raises(ArgumentError, match="has no memory"):
            rnn(**call)
    call = {"x": torch.rand(3), "h": torch.zeros(rnn.state_size), "dt": torch.tensor(1.0)}
    for released in call:
        step = {key: value.clone() for key, value in call.items()}
        release(step[released])
        with pytest.raises(ArgumentError, match="has no memory"):
            rnn.step(**step)
    parameter = next(p for p in rnn.parameters() if p.numel())
    release(parameter.data)
    with pytest.raises(ArgumentError, match="has no memory"):
        rnn(arguments["x"])
    with pytest.raises(ArgumentError, match="has no memory"):
        rnn.stream()


def test_streams_refuse_released_memory() -> None:
    rnn = tauflow.build("gru-d", 3, 6)
    x, dt, observed = torch.rand(1, 3), torch.rand(1), torch.rand(1, 3) < 0.7
    for released in range(3):
        call = [x.clone(), dt.clone(), observed.clone()]
        release(call[released])
        with pytest.raises(ArgumentError, match="has no memory"):
            rnn.stream().step(call[0], call[1], observed=call[2])
    h, rows = torch.zeros(1, rnn.state_size), torch.ones(1, dtype=torch.bool)
    release(h)
    release(rows)
    for arguments in ({"h": h}, {"rows": rows}):
        with pytest.raises(ArgumentError, match="has no memory"):
            rnn.stream().reset(**arguments)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("released", ["weight", "last weight", "flat"])
@pytest.mark.parametrize("name", ["cfc", "ltc", "gru", "lru", "cru"])
def test_memory_released_after_calls_is_refused(name: str, released: str) -> None:
    torch.manual_seed(0)
    rnn = tauflow.build(name, 3, 6, num_layers=2)
    x = torch.randn(4, 12, 3)
    parameters = [p for p in rnn.parameters() if p.numel()]
    tensors = {"weight": parameters[0], "last weight": parameters[-1]}
    if released == "flat":  # parameters are views of one tensor
        tensors["flat"] = torch.zeros(10 + sum(p.numel() for p in parameters))
        parts = tensors["flat"][10:].split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view_as(parameter)
    for _ in range(2):
        rnn(x)
    release(tensors[released])
    with pytest.raises(ArgumentError, match="has no memory"):
        rnn(x)


@pytest.mark.parametrize("name", ["cfc", "ltc", "gru", "lru"])
def test_parameters_of_a_class_of_their_own_compute_the_same(name: str) -> None:
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 6, num_layers=2), torch.randn(4, 12, 3)
    expected = rnn(x)[0]
    path, parameter = next(iter(rnn.cell.named_parameters()))
    owner, _, attribute = path.rpartition(".")
    tagged = nn.Parameter(parameter.detach().as_subclass(Tagged))
    rnn.cell.get_submodule(owner)._parameters[attribute] = tagged
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
    gradients = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad(rnn(x)[0].square().sum(), leaves, allow_unused=True)
    torch.testing.assert_close(gradients, expected)
