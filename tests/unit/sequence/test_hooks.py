"""Hooks of cells and of their parts: called at every step, or an error says that nothing would."""

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


def by_hand(cell, change):
    """Return the states of a loop over ``cell.step`` whose results a function changes."""
    h = cell.initial_state(X[:, 0])
    for x, dt in zip(X.unbind(1), DT.unsqueeze(-1).unbind(1), strict=True):
        h = change(cell.step(x, h, dt))
    return h


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_on_a_cell_changes_every_step(name):
    rnn = built(name)
    plain = rnn(X, dt=DT)[1]
    handle = rnn.cell.register_forward_hook(lambda cell, given, h: h * 0.5)
    with torch.no_grad():
        expected = by_hand(rnn.cell, lambda h: h * 0.5)
        assert torch.allclose(rnn(X, dt=DT)[1], expected, rtol=1e-4, atol=1e-5)
    handle.remove()
    assert torch.equal(rnn(X, dt=DT)[1], plain)


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
@pytest.mark.parametrize("make", [lambda: built("cfc"), lambda: tauflow.RNN(Decay(3, 4))])
def test_every_kind_of_hook_is_called_once_for_each_step(make, kind):
    rnn, calls = make(), []
    rnn(X, dt=DT)  # from which something might be kept
    KINDS[kind](rnn.cell, lambda: calls.append(1))
    rnn(X.clone().requires_grad_(), dt=DT)[0].sum().backward()
    assert len(calls) == X.shape[1]


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}])
def test_hooks_are_called_on_the_cell_that_has_them(options):
    rnn, calls = built("gru", **options), []
    rnn.cells[1].register_forward_hook(lambda cell, *_: calls.append(cell))
    rnn(X, dt=DT, lengths=torch.tensor([10, 4]))
    assert calls == [rnn.cells[1]] * 10


def test_a_hook_on_a_cell_is_told_what_was_observed():
    rnn, seen = built("gru-d"), []
    rnn.cell.register_forward_pre_hook(lambda cell, given: seen.append(given[3]))
    observed = torch.rand(X.shape) > 0.5
    rnn(X, dt=DT, observed=observed)
    assert torch.equal(torch.stack(seen, 1), observed)


@pytest.mark.parametrize("core", ["cfc", "wired-cfc", "ltc"])
def test_hooks_on_the_core_of_a_memory_are_called(core):
    size = 4 if core == "cfc" else tauflow.AutoNCP(7, 2)
    rnn, calls = tauflow.MixedMemory(3, size, core=core), []
    rnn.cell.core.register_forward_hook(lambda *_: calls.append(1))
    rnn(X, dt=DT)
    assert len(calls) == X.shape[1]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    ("name", "part"),
    [("ode-lstm", "flow"), ("bidirectional-rnn", "lstm"), ("bidirectional-rnn", "ct_rnn")],
)
def test_hooks_on_a_part_that_nothing_calls_raise_an_error(name, part, backend):
    rnn = built(name, backend=backend)
    handle = rnn.cell.get_submodule(part).register_forward_hook(lambda *_: None)
    with pytest.raises(ArgumentError, match=f"its {part} has hooks, which would never be called"):
        rnn(X, dt=DT)
    handle.remove()
    rnn(X, dt=DT)


def test_what_would_leave_the_hooks_of_a_cell_out_raises_an_error():
    rnn = built("cfc")
    rnn.cell.register_forward_hook(lambda *_: None)
    with pytest.raises(StreamError, match="CfC has a cell with hooks, which a stream would"):
        rnn.stream()
    for write in (program, program_step):
        with pytest.raises(ExportError, match="CfC has a cell with hooks, which a program would"):
            write(rnn)
    rnn.backend = "numba"
    with pytest.raises(BackendError, match="its own step has hooks"):
        rnn(X, dt=DT)
