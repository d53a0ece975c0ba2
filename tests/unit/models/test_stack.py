"""Stacked modules compute, and are trained to, what each module is alone."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import tauflow
from tauflow.errors import ArgumentError, ShapeError, TimeError
from tauflow.models import SequenceModel

n, B, T, D, N = 3, 4, 5, 3, 8


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.norm, self.scale = tauflow.CfC(D, N), nn.LayerNorm(N), 2.0

    def forward(self, x, dt=None, mask=None):
        y, h = self.rnn(x, dt=dt, mask=mask)
        return self.scale * self.norm(y), h


NETWORKS = {
    "CfC": lambda: tauflow.CfC(D, N),
    "CfC, pure": lambda: tauflow.CfC(D, N, mode="pure"),
    "CfC, no gate": lambda: tauflow.CfC(D, N, mode="no_gate", backbone_layers=0),
    "CfC, last output": lambda: tauflow.CfC(D, N, return_sequences=False, backbone_layers=2),
    "CfC, two layers, two directions": lambda: tauflow.CfC(D, N, num_layers=2, bidirectional=True),
    "CfC, wired": lambda: tauflow.WiredCfC(D, tauflow.AutoNCP(N, 3)),
    "CfC with a memory": lambda: tauflow.MixedMemory(D, N, core="cfc"),
    "CfC and a head": lambda: SequenceModel(tauflow.CfC(D, N), 2),
    "CfC in a network of one's own": Own,
    "LTC": lambda: tauflow.LTC(D, N),
    "GRU-D": lambda: tauflow.GRUD(D, N),
    "ODE-LSTM": lambda: tauflow.ODELSTM(D, N),
    "LSTM": lambda: tauflow.LSTM(D, N),
    "GRU": lambda: tauflow.GRU(D, N),
    "gated neural ODE": lambda: tauflow.GNODE(D, N),
}


def make(name, dtype=torch.float32):
    torch.manual_seed(0)
    return [NETWORKS[name]().to(dtype) for _ in range(n)]


def close(actual, expected, dtype):
    scale = max(1.0, float(expected.detach().abs().max()))
    atol = (1e-12 if dtype is torch.float64 else 1e-5) * scale
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_values_and_gradients_are_those_of_each_module(name, dtype, masked):
    modules = make(name, dtype)
    stack = tauflow.stack_modules(modules)
    x, dt = torch.randn(n, B, T, D, dtype=dtype), torch.rand(n, B, T, dtype=dtype) + 0.1
    times = {"dt": dt, **({"mask": torch.rand(n, B, T) > 0.3} if masked else {})}
    x.requires_grad_()
    results = stack(x, **times)
    sum(part.square().sum() for part in results).backward()
    grad_x, x.grad = x.grad, None
    for i, module in enumerate(modules):
        alone = module(x[i], **{key: value[i] for key, value in times.items()})
        for part, expected in zip(results, alone, strict=True):
            close(part[i], expected, dtype)
        sum(part.square().sum() for part in alone).backward()
        stacked = dict(stack.module.named_parameters())
        for key, parameter in module.named_parameters():
            if parameter.grad is None:
                assert stacked[key].grad is None or not stacked[key].grad.any()
            else:
                close(stacked[key].grad[i], parameter.grad, dtype)
    close(grad_x, x.grad, dtype)


@pytest.mark.parametrize("name", ["CfC", "CfC and a head", "LTC"])
@pytest.mark.parametrize("how", ["number", "t", "lengths", "state", "shared"])
def test_other_arguments_are_those_of_the_module(name, how):
    modules = make(name)
    stack = tauflow.stack_modules(modules)
    x = torch.randn(n, B, T, D)
    arguments = {
        "number": {"dt": 0.5},
        "t": {"t": torch.rand(n, B, T).cumsum(-1)},
        "lengths": {"lengths": torch.randint(1, T + 1, (n, B))},
        "state": {"hx": torch.rand(n, B, N)},
        "shared": {},
    }[how]
    x = x[0].expand(n, B, T, D) if how == "shared" else x
    y, h = stack(x, **arguments)
    for i, module in enumerate(modules):
        own = {k: v[i] if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        expected = module(x[i], **own)
        close(y[i], expected[0], torch.float32)
        close(h[i], expected[1], torch.float32)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_networks_are_cut_between_threads(threads):
    modules = make("CfC")
    stack, x = tauflow.stack_modules(modules), torch.randn(n, B, T, D)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        y, _ = stack(x)
        y.square().sum().backward()
    finally:
        torch.set_num_threads(before)
    for i, module in enumerate(modules):
        expected, _ = module(x[i])
        close(y[i], expected, torch.float32)
        expected.square().sum().backward()
        for key, parameter in stack.module.named_parameters():
            close(parameter.grad[i], module.get_parameter(key).grad, torch.float32)


@pytest.mark.parametrize("masked", [False, True])
def test_second_derivatives_are_those_of_each_module(masked):
    modules = make("CfC")
    stack, x = tauflow.stack_modules(modules), torch.randn(n, B, T, D, requires_grad=True)
    mask = torch.rand(n, B, T) > 0.3 if masked else torch.ones(n, B, T, dtype=torch.bool)

    def second(y):
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    together = second(stack(x, mask=mask)[0])
    for i, module in enumerate(modules):
        close(together[i], second(module(x[i], mask=mask[i])[0])[i], torch.float32)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("name", ["CfC and a head", "LTC", "LSTM"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_optimizer_trains_each_network_as_one_of_its_own(name, optimizer, dtype):
    modules = make(name, dtype)
    stack = tauflow.stack_modules(modules)
    x = torch.randn(n, B, T, D, dtype=dtype)
    options = {"lr": 0.01} if optimizer is torch.optim.SGD else {"lr": 0.01, "eps": 1e-3}
    one_for_all = optimizer(stack.parameters(), **options)
    for _ in range(4):
        one_for_all.zero_grad()
        stack(x)[0].square().mean((1, 2, 3)).sum().backward()
        one_for_all.step()
    for i, (module, trained) in enumerate(zip(modules, stack.unstack(), strict=True)):
        own = optimizer(module.parameters(), **options)
        for _ in range(4):
            own.zero_grad()
            module(x[i])[0].square().mean().backward()
            own.step()
        for key, parameter in module.named_parameters():
            close(trained.get_parameter(key), parameter, dtype)


def set_method(head):
    own = head.forward
    head.forward = lambda x: own(x) + 1


def add_hook(head):
    head.register_forward_hook(lambda module, given, out: out + 1)


@pytest.mark.parametrize("change", [add_hook, set_method, lambda head: setattr(head, "bias", None)])
def test_what_is_done_to_a_part_counts(change):
    modules = make("CfC and a head")
    stack, x = tauflow.stack_modules(modules), torch.randn(n, B, T, D)
    for one in (stack.module, *modules):
        change(one.head)
    y, _ = stack(x)
    for i, module in enumerate(modules):
        close(y[i], module(x[i])[0], torch.float32)


def test_copies_and_state_dicts():
    stack, x = tauflow.stack_modules(make("CfC and a head")), torch.randn(n, B, T, D)
    torch.manual_seed(1)
    other = tauflow.stack_modules([NETWORKS["CfC and a head"]() for _ in range(n)])
    copied = deepcopy(stack)
    other.load_state_dict(stack.state_dict())
    expected = stack(x)[0]
    with torch.no_grad():
        stack.module.head.bias += 1.0
    assert torch.equal(copied(x)[0], expected)
    assert torch.equal(other(x)[0], expected)
    assert not torch.equal(stack(x)[0], expected)


def test_errors_are_those_of_the_module():
    stack = tauflow.stack_modules(make("CfC"))
    with pytest.raises(ArgumentError, match="no axis of 3 networks"):
        stack(torch.randn(B, T, D))
    with pytest.raises(ShapeError, match="x has shape"):
        stack(torch.randn(n, B, T, D + 1))
    with pytest.raises(TimeError):
        stack(torch.randn(n, B, T, D), dt=-torch.ones(n, B, T))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: tauflow.CfC(D, N + 1), "other options"),
        (lambda: tauflow.LTC(D, N), "is a LTC"),
        (lambda: tauflow.CfC(D, N).eval(), "another mode"),
        (lambda: tauflow.CfC(D, N).double(), "other parameters"),
    ],
)
def test_modules_that_differ_are_refused(other, reason):
    with pytest.raises(ArgumentError, match=reason):
        tauflow.stack_modules([tauflow.CfC(D, N), other()])
    with pytest.raises(ArgumentError, match="no modules"):
        tauflow.stack_modules([])
    own = Own(), Own()
    own[1].scale = 3.0
    with pytest.raises(ArgumentError, match="scale"):
        tauflow.stack_modules(own)
