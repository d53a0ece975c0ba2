"""What torch tells in private: each answer changes with what it is about, in this version too."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import vmap

from tauflow._internal import checks
from tauflow.kernels.engine import torch_state


def test_nothing_surrounds_a_plain_call():
    assert not checks.is_tracing()
    assert not checks.is_jit_tracing()
    assert not torch_state.is_forward_mode()
    assert not torch_state.is_under_transform_or_forward_mode()
    assert not torch_state.has_functorch_tensor([torch.ones(2)])
    assert not torch_state.is_batched_gradient(torch.ones(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit itself
def test_a_trace_shows():
    states = []

    def ask(x):
        states.append((checks.is_jit_tracing(), checks.is_tracing()))
        return x + 1

    torch.jit.trace(ask, torch.ones(2), check_trace=False)
    assert states[0] == (True, True)


def test_a_transform_shows():
    states = []

    def ask(x):
        states.append(torch_state.is_under_transform_or_forward_mode())
        states.append(torch_state.has_functorch_tensor([torch.ones(2), x]))
        return x

    vmap(ask)(torch.ones(3, 2))
    assert states == [True, True]
    assert not torch_state.is_forward_mode()


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")  # torch's own, from within
def test_forward_mode_shows():
    with forward_ad.dual_level():
        assert torch_state.is_forward_mode()
        assert torch_state.is_under_transform_or_forward_mode()


class Asked(torch.autograd.Function):
    """Ask while a backward pass runs."""

    is_batched: bool

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, pull):
        Asked.is_batched = torch_state.is_batched_gradient(pull)
        return pull.clone()


def test_gradients_that_stand_for_many_show():
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Asked.apply(x), x, torch.ones(3, 2), is_grads_batched=True)
    assert Asked.is_batched
    Asked.apply(x).sum().backward()
    assert not Asked.is_batched


def test_a_compiler_takes_a_marked_answer_as_it_is():
    asked = []

    @torch_state.assume_constant_result
    def answer(value: int) -> int:
        asked.append(value)  # which fullgraph=True could not trace into a graph
        return value + 1

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * answer(2), fullgraph=True, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    assert asked == [2]
    torch._dynamo.reset()
