"""Keeping only some states for the backward pass changes memory, and nothing else."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad

import tauflow
from tauflow.errors import ArgumentError

B, T, D, N = 3, 11, 2, 5
NAMES = ["ltc", "cfc", "cfc-mmrnn", "wired-cfc", "lstm", "ltc-neuronal"]


def gradients(rnn: torch.nn.Module, x: Tensor, hx: Tensor, **call: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_(), hx.clone().requires_grad_(), *rnn.parameters()]
    y, h = rnn(leaves[0], leaves[1], **call)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    pulled = torch.autograd.grad((y * weights).sum() + h.sum(), leaves, allow_unused=True)
    return [y, h, *(torch.zeros(()) if g is None else g for g in pulled)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [1, 4, T, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_stay(name, every, dtype):
    torch.manual_seed(0)
    rnn = tauflow.build(name, D, N).to(dtype)
    saving = tauflow.build(name, D, N, checkpoint_every=every).to(dtype)
    saving.load_state_dict(rnn.state_dict())
    x, dt = torch.randn(B, T, D, dtype=dtype), torch.rand(B, T, dtype=dtype)
    hx, mask = torch.rand(B, rnn.state_size, dtype=dtype), torch.rand(B, T) > 0.3
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype is torch.float64 else {}
    expected = gradients(rnn, x, hx, dt=dt, mask=mask)
    for gradient, other in zip(gradients(saving, x, hx, dt=dt, mask=mask), expected, strict=True):
        torch.testing.assert_close(gradient, other, **tolerance)


def test_dropout_is_drawn_once():
    torch.manual_seed(0)
    rnn = tauflow.build("cfc", D, N, backbone_layers=2, backbone_dropout=0.5, checkpoint_every=3)
    x = torch.randn(B, T, D)
    y, _ = rnn(x)
    torch.manual_seed(7)
    first, _ = rnn(x)
    first.sum().backward()
    with_pieces = rnn.cell.backbone.dense()[0].weight.grad.clone()
    plain = tauflow.build("cfc", D, N, backbone_layers=2, backbone_dropout=0.5)
    plain.load_state_dict(rnn.state_dict())
    torch.manual_seed(7)
    second, _ = plain(x)
    second.sum().backward()
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(with_pieces, plain.cell.backbone.dense()[0].weight.grad)
    assert not torch.equal(y, first)


@pytest.mark.parametrize("name", ["ltc", "cfc"])
def test_what_is_kept_does_not_grow_with_the_length(name):
    """Counts what autograd saves, apart from inputs and outputs."""

    def count_bytes(steps: int) -> int:
        rnn = tauflow.build(name, D, N, checkpoint_every=16)
        x, total = torch.randn(B, steps, D), 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            rnn(x)
        return total

    per_step = (count_bytes(1600) - count_bytes(800)) / 800
    assert per_step < B * N  # a state for every 16 steps, views of the inputs, parameters


def test_a_stretch_has_at_least_one_step():
    with pytest.raises(ArgumentError, match="checkpoint_every"):
        tauflow.build("cfc", D, N, checkpoint_every=0)


def test_transforms_take_no_checkpoints_and_give_the_same():
    torch.manual_seed(0)
    rnn, x = tauflow.CTRNN(D, N, checkpoint_every=2), torch.randn(B, T, D)
    parameters = dict(rnn.named_parameters())
    gradients_of_functional = grad(lambda p: functional_call(rnn, p, (x,))[0].square().sum())(
        parameters
    )
    rnn(x)[0].square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients_of_functional[name], parameter.grad)
