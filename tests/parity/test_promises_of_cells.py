"""What may change around a cell between two calls: it is followed, or refused where it is set."""

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.kernels import KernelCall, get_kernels
from tauflow.kernels.trace.lower import lower_step
from tauflow.kernels.trace.program import TracingError

pytest.importorskip("numba")
SCALE = 1.0


class Stepped(AbstractCell):
    """A user's cell that says nothing: it is called at every step."""

    gain = 1.0

    def __init__(self, settings: object = None) -> None:
        super().__init__(3, 6)
        self.lin = nn.Linear(9, 6, bias=False)
        self.act = nn.LeakyReLU(0.5)
        self.settings = settings or [1.0]

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        u = self.act(self.gain * self.settings[0] * SCALE * self.lin(torch.cat([x, h], 1)))
        return u + (h - u) * torch.exp(-dt)


class Compiled(Stepped):
    compiled = True


def outputs(rnn: tauflow.RNN, backend: str = "auto") -> list[Tensor]:
    rnn.backend = backend
    x = torch.linspace(-1, 1, 4 * 12 * 3).view(4, 12, 3)
    y, h = rnn(x, dt=torch.linspace(0.1, 1, 48).view(4, 12))
    grads = torch.autograd.grad(y.square().sum(), list(rnn.parameters()), allow_unused=True)
    return [y, h, *(torch.zeros(()) if gradient is None else gradient for gradient in grads)]


def assert_followed(rnn: tauflow.RNN) -> None:
    for output, expected in zip(outputs(rnn), outputs(rnn, "reference"), strict=True):
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


def why_not(cell: AbstractCell) -> str:
    call = KernelCall(cell, torch.randn(4, 12, 3), torch.zeros(4, 6), torch.ones(4, 12, 1))
    return get_kernels(cell)[0].unsupported_reason(call) or ""


def doubling_hook(module, args, out):
    return 2 * out


_CHANGES = {
    "part": lambda cell, _: setattr(cell, "act", nn.Sigmoid()),
    "option of a part": lambda cell, _: setattr(cell.act, "negative_slope", 0.1),
    "option in place": lambda cell, _: cell.settings.append(cell.settings.pop() * 2),
    "class attribute": lambda cell, _: setattr(type(cell), "gain", 3.0),
    "method": lambda cell, _: setattr(
        cell, "step", lambda x, h, dt: 0.5 * h + cell.lin(torch.cat([x, h], 1))
    ),
    "global": lambda cell, patch: patch.setitem(globals(), "SCALE", 2.0),
    "hook": lambda cell, _: cell.lin.register_forward_hook(doubling_hook),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_a_cell_that_says_nothing_is_called_at_every_step(change, monkeypatch):
    class Own(Stepped):
        pass

    rnn = tauflow.RNN(Own())
    assert "Own does not say compiled = True" in why_not(rnn.cell)
    before = outputs(rnn)[0]
    change(rnn.cell, monkeypatch)
    assert_followed(rnn)
    assert not torch.allclose(outputs(rnn)[0], before)


@pytest.mark.parametrize("name", ["part", "option of a part", "hook"])
def test_parts_and_hooks_of_a_compiled_cell_are_followed(name, monkeypatch):
    rnn = tauflow.RNN(Compiled())
    assert not why_not(rnn.cell)
    before = outputs(rnn)[0]
    _CHANGES[name](rnn.cell, monkeypatch)
    assert_followed(rnn)
    assert not torch.allclose(outputs(rnn)[0], before)


def test_options_are_fixed_and_a_stream_agrees():
    rnn = tauflow.RNN(Compiled())
    stream, x = rnn.stream(2), torch.randn(2, 9, 3)
    with pytest.raises(ArgumentError, match=r"settings is fixed .* cell\.replace\(settings=\.\.\."):
        rnn.cell.settings = [2.0]
    stepped = torch.stack([stream.step(sample) for sample in x.unbind(1)], 1)
    torch.testing.assert_close(stepped, rnn(x)[0].detach())


class Temporary(Compiled):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        z = self.lin.weight[:, 0] * 2
        a = self.lin(torch.cat([x, h], 1)) + z
        z += 1.0
        return h + dt * (torch.tanh(a) * z - h)


class Branching(Compiled):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        u = torch.tanh(self.lin(torch.cat([x, h], 1)))
        return h + dt * u if bool((dt > 0).any()) else h


class Detaching(Compiled):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        u = torch.tanh(self.lin(torch.cat([x, h], 1)))
        return h + dt * (torch.round(u) - u).detach() + dt * u


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (Temporary, "changes what was read before"),
        (Branching, "looks at numbers"),
        (Detaching, "calls detach"),
    ],
)
def test_what_a_trace_cannot_hold_is_stepped_all_the_same(build, reason):
    rnn, x = tauflow.RNN(build()), torch.randn(4, 12, 3)
    assert re.search(f"cannot be traced: .*{reason}", why_not(rnn.cell))
    with torch.no_grad():
        rnn(x, dt=torch.zeros(4, 12))
    assert_followed(rnn)


class Power(Compiled):
    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return torch.tanh(self.lin(torch.cat([x, h], 1))) / 2**dt


@pytest.mark.parametrize("rows", [1, 4])
def test_a_power_of_one_row_is_no_constant(rows):
    rnn, x = tauflow.RNN(Power()), torch.randn(rows, 12, 3)
    for dt in (torch.ones(rows, 12), 3 * torch.rand(rows, 12)):
        rnn.backend = "auto"
        y = rnn(x, dt=dt)[0]
        rnn.backend = "reference"
        torch.testing.assert_close(y, rnn(x, dt=dt)[0])


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_a_power_does_not_depend_on_the_value_of_a_tensor(exponent):
    example_inputs = torch.ones(1, 1), torch.full((1, 1), exponent)
    with pytest.raises(TracingError, match="no powers of tensors"):
        lower_step(lambda h, dt: (h, h * 2**dt), *example_inputs)


def _first_linear(cell: AbstractCell) -> nn.Linear:
    return next(part for part in cell.modules() if isinstance(part, nn.Linear))


_REFUSED = {
    "option": lambda rnn: setattr(rnn.cell, next(iter(rnn.cell.options)), 3),
    "part of a cell": lambda rnn: setattr(rnn.cell, "backbone", nn.Linear(9, 6)),
    "new part": lambda rnn: setattr(rnn.cell, "extra", nn.Linear(9, 6)),
    "part by add_module": lambda rnn: rnn.cell.add_module("extra", nn.Linear(9, 6)),
    "layer of a part": lambda rnn: rnn.cell.backbone.layers.__setitem__(0, nn.Linear(9, 6)),
    "deleted part": lambda rnn: delattr(rnn.cell, "backbone"),
    "cell": lambda rnn: rnn.cells.__setitem__(0, tauflow.CfC(3, 8).cell),
    "more cells": lambda rnn: rnn.cells.append(tauflow.CfC(6, 6).cell),
    "cells": lambda rnn: setattr(rnn, "cells", nn.ModuleList([tauflow.CfC(3, 8).cell])),
    "step": lambda rnn: setattr(rnn.cell, "step", lambda x, h, dt: h),
    "forward": lambda rnn: setattr(rnn.cell, "forward", lambda x, h, dt: h),
    "readout": lambda rnn: setattr(rnn.cell, "readout", lambda h: h),
    "hook": lambda rnn: rnn.cell.register_forward_hook(doubling_hook),
    "hook before": lambda rnn: rnn.cell.register_forward_pre_hook(lambda *_: None),
    "hook backwards": lambda rnn: rnn.cell.register_full_backward_hook(lambda *_: None),
    "hook of a part": lambda rnn: rnn.cell.backbone.register_forward_hook(doubling_hook),
    "hook of a layer": lambda rnn: _first_linear(rnn.cell).register_forward_hook(doubling_hook),
    "forward of a layer": lambda rnn: setattr(_first_linear(rnn.cell), "forward", torch.neg),
    "option of a layer": lambda rnn: setattr(_first_linear(rnn.cell), "in_features", 7),
    "pruned layer": lambda rnn: prune.l1_unstructured(_first_linear(rnn.cell), "weight", 0.5),
    "normalised layer": lambda rnn: nn.utils.spectral_norm(_first_linear(rnn.cell)),
}


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("change", _REFUSED.values(), ids=_REFUSED)
def test_what_is_fixed_of_a_built_cell_is_refused_where_it_is_set(change, called):
    torch.manual_seed(0)
    rnn, x = tauflow.CfC(3, 6, num_layers=2), torch.randn(4, 12, 3)
    before = rnn(x)[0] if called else None
    names = [name for name, _ in rnn.named_modules()]
    with pytest.raises(ArgumentError, match=r"fixed|outer module"):
        change(rnn)
    assert [name for name, _ in rnn.named_modules()] == names
    if before is not None:
        torch.testing.assert_close(rnn(x)[0], before, rtol=0, atol=0)


@pytest.mark.parametrize("name", tauflow.cells.MODELS)
def test_every_part_of_pytorch_in_a_cell_is_fixed(name):
    rnn = tauflow.build(name, 3, tauflow.AutoNCP(7, 2) if name in ("ltc", "wired-cfc") else 4)
    for part in rnn.cell.modules():
        with pytest.raises(ArgumentError, match="takes no hooks"):
            part.register_forward_pre_hook(lambda *_: None)
        with pytest.raises(ArgumentError, match="fixed when it is built"):
            part.forward = torch.neg
    rnn(torch.randn(2, 3, 3))


@pytest.mark.parametrize("name", ["cfc", "gnode"])
def test_a_tensor_of_a_layer_may_go(name):
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 6, num_layers=2), torch.randn(4, 12, 3)
    before = rnn(x)[0]
    linear = next((part for part in rnn.cell.modules() if isinstance(part, nn.Linear)), None)
    if linear is None:
        pytest.skip("the cell has no layer of PyTorch")
    nn.init.ones_(linear.bias)
    linear.bias = None
    after = rnn(x)[0]
    rnn.backend = "reference"
    torch.testing.assert_close(after, rnn(x)[0], rtol=1e-4, atol=1e-5)
    assert before.shape == after.shape


@pytest.mark.parametrize("name", ["cfc", "ltc", "gru", "gnode"])
def test_features_of_torch_go_on_working(name):
    torch.manual_seed(0)
    rnn, x = tauflow.build(name, 3, 6, num_layers=2), torch.randn(4, 12, 3)
    expected = rnn(x)[0]
    copies = [copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))]
    copies.append(tauflow.build(name, 3, 6, num_layers=2))
    copies[2].load_state_dict(rnn.state_dict())
    for twin in copies:
        torch.testing.assert_close(twin(x)[0], expected, rtol=0, atol=0)
        with pytest.raises(ArgumentError, match="fixed"):
            twin.cells[0] = rnn.cell
    torch.testing.assert_close(
        torch.func.functional_call(rnn, dict(rnn.named_parameters()), (x,))[0], expected
    )
    rnn.apply(lambda module: None)
    rnn.train().eval().requires_grad_(False).requires_grad_(True)
    seen: list[int] = []
    handle = rnn.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(rnn(x)[0], expected, rtol=0, atol=0)
    handle.remove()
    assert seen == [1]
    assert rnn.double()(x.double())[0].dtype is torch.float64
    torch.testing.assert_close(rnn.float()(x)[0], expected)
    path, weight = next((n, p) for n, p in rnn.cell.named_parameters() if p.ndim == 2)
    owner, _, name_of_weight = path.rpartition(".")
    part = rnn.cell.get_submodule(owner)
    parametrizations.weight_norm(part, name_of_weight)
    torch.testing.assert_close(rnn(x)[0], expected, rtol=1e-4, atol=1e-5)
    rnn(x)[0].sum().backward()
    nn.utils.parametrize.remove_parametrizations(part, name_of_weight)
    torch.testing.assert_close(rnn(x)[0], expected, rtol=1e-4, atol=1e-5)
    assert weight.shape == getattr(part, name_of_weight).shape
