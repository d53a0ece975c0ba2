"""Hooks: of users' cells called at every step, of the library's refused."""

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, BackendError, ExportError, StreamError
from tauflow.export import program, program_step

X = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0))
DT = torch.rand(2, 10, generator=torch.Generator().manual_seed(1)) + 0.1
NAMES = sorted(tauflow.cells.MODELS)


def built(name, **options):
    torch.manual_seed(0)
    size = tauflow.AutoNCP(7, 2) if name in ("ltc", "wired-cfc") else 4
    return tauflow.build(name, 3, size, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_of_the_library_takes_no_hooks(name):
    rnn = built(name)
    before = rnn(X, dt=DT)[0]
    for register in KINDS.values():
        with pytest.raises(ArgumentError, match=r"takes no hooks.* on the outer module"):
            register(rnn.cell, list)
    assert torch.equal(rnn(X, dt=DT)[0], before)


class Decay(AbstractCell):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.lin = nn.Linear(input_size + hidden_size, hidden_size)

    def step(self, x, h, dt):
        u = torch.tanh(self.lin(torch.cat([x, h], 1)))
        return u + (h - u) * torch.exp(-dt)


KINDS = {
    "forward": lambda part, f: part.register_forward_hook(lambda *_: f()),
    "forward pre": lambda part, f: part.register_forward_pre_hook(lambda *_: f()),
    "backward": lambda part, f: part.register_full_backward_hook(lambda *_: f()),
    "backward pre": lambda part, f: part.register_full_backward_pre_hook(lambda *_: f()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_hook_of_a_users_cell_is_called_once_for_each_step(kind):
    rnn, calls = tauflow.RNN(Decay(3, 4)), []
    rnn(X, dt=DT)  # from which something might be kept
    KINDS[kind](rnn.cell, lambda: calls.append(1))
    rnn(X.clone().requires_grad_(), dt=DT)[0].sum().backward()
    assert len(calls) == X.shape[1]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    ("name", "part"),
    [("ode-lstm", "flow"), ("bidirectional-rnn", "lstm"), ("cfc-mmrnn", "core")],
)
def test_nor_does_a_cell_within_a_cell(name, part, backend):
    rnn = built(name, backend=backend)
    with pytest.raises(ArgumentError, match="takes no hooks"):
        rnn.cell.get_submodule(part).register_forward_hook(lambda *_: None)
    rnn(X, dt=DT)


def test_what_would_leave_the_hooks_of_a_cell_out_raises_an_error():
    rnn = tauflow.RNN(Decay(3, 4))
    rnn.cell.register_forward_hook(lambda *_: None)
    with pytest.raises(StreamError, match="RNN has a cell with hooks, which a stream would"):
        rnn.stream()
    for write in (program, program_step):
        with pytest.raises(ExportError, match="RNN has a cell with hooks, which a program would"):
            write(rnn)
    rnn.backend = "numba"
    with pytest.raises(BackendError, match="own step has hooks"):
        rnn(X, dt=DT)
