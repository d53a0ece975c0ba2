"""Tensors of a cell replaced or computed: what the cell's own step computes is computed."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import tauflow
from tauflow.errors import BackendError, ShapeError, StreamError
from tauflow.kernels import KernelCall, select_kernel

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def cfc(**options):
    torch.manual_seed(0)
    rnn = tauflow.CfC(3, 5, backbone_units=6, **options).eval()
    nn.init.ones_(rnn.cell.backbone.layers[0].bias)
    return rnn


def stepped(rnn, x):
    """Return the outputs by the cell's step alone."""
    h, outputs = torch.zeros(len(x), rnn.cell.state_size), []
    for t in range(x.shape[1]):
        h = rnn.cell.step(x[:, t], h, torch.ones(len(x), 1))
        outputs.append(rnn.cell.readout(h))
    return torch.stack(outputs, 1)


def check_everywhere(rnn, x=X):
    """Compare the module, its gradient and its stream with the cell's step."""
    expected = stepped(rnn, x)
    torch.testing.assert_close(rnn(x)[0], expected)
    stream = rnn.stream(len(x))
    outputs = torch.stack([stream.step(sample) for sample in x.unbind(1)], 1)
    torch.testing.assert_close(outputs, expected.detach())


def test_a_kernel_asked_for_by_name_says_what_was_altered():
    rnn = cfc(backend="numba")
    rnn.cell.backbone.layers[0].bias = None
    with pytest.raises(BackendError, match=r"its backbone\.layers\.0\.bias is a NoneType now"):
        rnn(X)
    call = KernelCall(rnn.cell, X, torch.zeros(2, 5), torch.ones(2, 5, 1))
    spec = select_kernel(KernelCall(cfc().cell, call.x, call.h, call.dt), "numba")
    with pytest.raises(BackendError, match="cannot serve this call: its"):
        spec.run(call)
    rnn.backend = "auto"
    check_everywhere(rnn)


@pytest.mark.parametrize(
    ("name", "part", "parameter", "options"),
    [
        ("cfc", "heads", "weight", {"backbone_units": 6}),
        ("cfc", "heads", "w_tau", {"backbone_units": 6, "mode": "pure"}),
        ("cfc", "backbone.layers.0", "weight", {"backbone_units": 6}),
        ("cfc", "backbone.layers.1", "bias", {"backbone_units": 6, "backbone_layers": 2}),
        ("cfc-mmrnn", "core.heads", "bias", {"backbone_units": 6}),
        ("wired-cfc", "layers.0", "weight", {}),
        ("ode-lstm", "flow", "W_h", {}),
    ],
)
class TestComputedParameters:
    def build(self, name, part, options):
        torch.manual_seed(0)
        rnn = tauflow.build(name, 3, 5, **options).eval()
        return rnn, rnn.cell.get_submodule(part)

    def test_they_are_read_where_they_are_computed(self, name, part, parameter, options):
        rnn, module = self.build(name, part, options)
        parametrize.register_parametrization(module, parameter, Halved())
        assert select_kernel(KernelCall(rnn.cell, X, *self.rest(rnn)), "auto") is not None
        check_everywhere(rnn)

    def rest(self, rnn):
        return torch.zeros(2, rnn.cell.state_size), torch.ones(2, 5, 1)

    @pytest.mark.parametrize("extra", [slice(None, -1), slice(1, None), slice(0, 1)], ids=str)
    def test_one_of_another_shape_never_meets_a_kernel(self, name, part, parameter, options, extra):
        """It is refused, or is what the plain steps read, as ``unsafe=True`` asks for."""

        class Cut(nn.Module):
            def forward(self, weight):
                return weight[extra]

        rnn, module = self.build(name, part, options)
        parametrize.register_parametrization(module, parameter, Cut(), unsafe=True)
        outcomes = []
        for rnn.backend in ("auto", "reference"):
            try:
                outcomes.append(rnn(X)[0])
            except (ShapeError, RuntimeError) as error:
                outcomes.append(error)
        if isinstance(outcomes[0], torch.Tensor):
            torch.testing.assert_close(*outcomes)


def test_a_stream_notices_another_tensor():
    rnn = cfc()
    stream = rnn.stream(2)
    stream.step(X[:, 0])
    rnn.cell.backbone.layers[0].bias = None
    with pytest.raises(StreamError, match="has changed"):
        stream.step(X[:, 1])
    stream.refresh()
    torch.testing.assert_close(stream.step(X[:, 1]), stepped(rnn, X)[:, 1].detach(), atol=1, rtol=1)


def test_a_users_cell_may_grow():
    """Only the library's cells are held to their shapes: no kernel reads another one."""

    class Growing(tauflow.cells.AbstractCell):
        def __init__(self, input_size, hidden_size):
            super().__init__(input_size, hidden_size)
            self.W = nn.Parameter(torch.randn(hidden_size, input_size))

        def step(self, x, h, dt):
            return torch.tanh(h + x @ self.W.T.sum(1, keepdim=True) * dt)

    rnn = tauflow.RNN(Growing(3, 5))
    rnn.cell.W = nn.Parameter(torch.randn(9, 3))
    assert rnn(X)[0].shape == (2, 5, 5)


def test_a_copy_is_held_to_the_same_shapes():
    rnn = cfc()
    for twin in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        torch.testing.assert_close(twin(X)[0], rnn(X)[0])
        twin.cell.heads.bias = nn.Parameter(torch.zeros(1))
        with pytest.raises(ShapeError, match=r"heads\.bias has shape \(1,\), expected \(20,\)"):
            twin(X)


@pytest.mark.parametrize(
    "cell", [tauflow.cells.CTRNNCell, tauflow.cells.ODELSTMCell, tauflow.cells.LTCCell]
)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_step_of_ones_own_is_called(cell, backend):
    """Also of a cell that computes part of its step ahead of the loop."""

    class Doubled(cell):
        def step(self, x, h, dt):
            return 2 * super().step(x, h, dt)

    torch.manual_seed(0)
    doubled = Doubled(3, 4)
    x = torch.randn(2, 5, 3)
    h = torch.zeros(2, doubled.state_size)
    for step in range(5):
        h = doubled.step(x[:, step], h, torch.full((2, 1), 0.5))
    _, last = tauflow.RNN(doubled, backend=backend)(x, dt=0.5)
    torch.testing.assert_close(last, h)
