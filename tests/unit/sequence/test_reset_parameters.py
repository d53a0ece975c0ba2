"""Parameters drawn again: other values of the same distributions, in place."""

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.models import ActorModel

NAMES = sorted(tauflow.cells.MODELS)


def built(name, seed=0):
    torch.manual_seed(seed)
    size = tauflow.AutoNCP(7, 2) if name in ("ltc", "wired-cfc") else 4
    rnn = tauflow.build(name, 3, size, num_layers=2, proj_size=3)
    return tauflow.SequenceModel(rnn, 2, head_init="keras")


@pytest.mark.parametrize("name", NAMES)
def test_every_drawn_parameter_is_drawn_again(name):
    first, other, reset = built(name, 0), built(name, 1), built(name, 0)
    x, dt = torch.randn(2, 9, 3), torch.rand(2, 9)
    before = dict(reset.named_parameters())
    reset(x, dt=dt)
    torch.manual_seed(2)
    reset.reset_parameters()
    for key, parameter in reset.named_parameters():
        assert parameter is before[key]
        start, elsewhere = first.get_parameter(key), other.get_parameter(key)
        assert torch.equal(parameter, start) is torch.equal(start, elsewhere), key
    expected = built(name)
    expected.load_state_dict(reset.state_dict())
    assert torch.equal(reset(x, dt=dt)[0], expected(x, dt=dt)[0])


@pytest.mark.parametrize("name", NAMES)
def test_what_training_moved_is_as_newly_drawn(name):
    model = built(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    model.reset_parameters()
    fresh = built(name, 3)
    for key, parameter in model.named_parameters():
        assert not (parameter == 7.0).any() or (fresh.get_parameter(key) == 7.0).any(), key


@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "ltc", "lrc", "ct-rnn", "ct-gru"])
def test_one_seed_gives_the_values_of_a_new_module(name):
    torch.manual_seed(5)
    size = tauflow.AutoNCP(7, 2) if name == "ltc" else 4
    fresh = tauflow.build(name, 3, size, num_layers=2, bidirectional=name != "ltc")
    rnn = tauflow.build(name, 3, size, num_layers=2, bidirectional=name != "ltc")
    torch.manual_seed(5)
    rnn.reset_parameters()
    for key, value in fresh.state_dict().items():
        assert torch.equal(rnn.state_dict()[key], value), key


class Own(AbstractCell):
    def __init__(self, input_size, hidden_size, *, bare=False):
        super().__init__(input_size, hidden_size)
        self.net = nn.Sequential(nn.Linear(input_size + hidden_size, hidden_size), nn.Tanh())
        if bare:
            self.gain = nn.Parameter(torch.ones(hidden_size))

    def step(self, x, h, dt):
        return self.net(torch.cat([x, h], 1))


def test_parts_of_a_users_cell_are_drawn_again():
    rnn = tauflow.RNN(Own(3, 4), num_layers=2)
    before = [parameter.detach().clone() for parameter in rnn.parameters()]
    rnn.reset_parameters()
    assert not any(map(torch.equal, before, rnn.parameters()))


def test_parameters_that_nothing_draws_raise_an_error():
    with pytest.raises(ArgumentError, match=r"Own has parameters and no reset_param"):
        tauflow.RNN(Own(3, 4, bare=True)).reset_parameters()


def test_all_layers_of_a_policy_network_are_drawn_again():
    model = ActorModel(tauflow.CfC(3, 4), 2, hidden_sizes=(5,))
    before = {name: value.clone() for name, value in model.head.named_parameters()}
    model.reset_parameters()
    assert before.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    for name, value in model.head.named_parameters():
        assert not torch.isclose(value, before[name]).any(), name
