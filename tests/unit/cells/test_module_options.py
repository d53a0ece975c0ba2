"""Cells that take modules and parameters as options: every layer and direction has its own."""

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError


class FieldCell(AbstractCell):
    """A flow by whatever networks it is given."""

    paper = "a test"

    def __init__(self, input_size: int, hidden_size: int, *, net, nets=(), tau=1.0) -> None:
        super().__init__(input_size, hidden_size)
        self.net, self.nets, self.tau = net, nn.ModuleList(nets), tau
        self.W = nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        flow = self.net(h)
        for net in self.nets:
            flow = flow + net(h)
        return h + dt * (torch.tanh(flow + self.W(x)) - h) / self.tau


def frozen(module):
    return module.requires_grad_(False)


def test_every_layer_and_direction_has_parameters_of_its_own():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    tau = nn.Parameter(torch.full((4,), 2.0))
    cell = FieldCell(3, 4, net=net, nets=[nn.Linear(4, 4)], tau=tau)
    rnn = tauflow.RNN(cell, num_layers=2, bidirectional=True)
    per_direction = 20 + 20 + 4
    assert sum(p.numel() for p in rnn.parameters()) == 2 * (per_direction + 4 * 4) + 2 * (
        per_direction + 4 * 9
    )
    for name in ("net.0.weight", "nets.0.weight"):
        drawn = [cell.get_parameter(name) for cell in rnn.cells]
        assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
    assert rnn.cells[0].net is net  # the given one, as given
    assert [cell.tau.tolist() for cell in rnn.cells] == [[2.0] * 4] * 4  # which are not drawn
    y, _ = rnn(torch.randn(2, 5, 3))
    y.square().sum().backward()
    assert all(p.grad.any() for p in rnn.parameters())


def test_modules_that_do_not_train_are_copied_as_they_are():
    net = frozen(nn.Linear(4, 4))
    above = FieldCell(3, 4, net=net).with_input_size(5)
    assert above.net is not net
    torch.testing.assert_close(above.net.weight, net.weight, rtol=0, atol=0)


def test_one_module_for_two_options_stays_one():
    net = nn.Linear(4, 4)
    above = FieldCell(3, 4, net=net, nets=[net]).with_input_size(5)
    assert above.net is above.nets[0] is not net


def test_an_activation_with_parameters_is_not_shared_either():
    rnn = tauflow.CTRNN(3, 4, activation=nn.PReLU(), num_layers=2)
    assert rnn.cells[0].phi.weight is not rnn.cells[1].phi.weight
    assert sum(p.numel() for p in rnn.parameters()) == 2 * (16 + 4 + 4 + 1) + 12 + 16


def test_options_taken_by_position_only_are_named():
    class Positional(AbstractCell):
        paper = "a test"

        def __init__(self, input_size: int, hidden_size: int, *taus: float) -> None:
            super().__init__(input_size, hidden_size)

        def step(self, x, h, dt):
            return h

    with pytest.raises(ArgumentError, match=r"Positional .* takes 'taus' by position only"):
        tauflow.RNN(Positional(3, 4, 1.0), num_layers=2)
