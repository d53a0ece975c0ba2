"""Options of a built cell are fixed; ``replace`` returns one with others and the same weights."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import tauflow
from tauflow._internal.fixed_options import FixedOptionsModule
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, OptionError

X = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0))
DT = torch.rand(2, 10, generator=torch.Generator().manual_seed(1)) + 0.1
NAMES = sorted(tauflow.cells.MODELS)
OTHERS = {
    "lstm": {"append_dt": False},
    "lem": {"scheme": "forward", "tau": 2.0},
    "ct-gru": {"decay": "since-previous"},
    "ct-rnn": {"activation": "relu", "substeps": 5, "damping": 0.5},
    "ltc": {"solver": "rk4", "time_scale": 2.0},
    "lrc": {"solver": "hybrid"},
    "gru-ode": {"solver": "rk4"},
    "gnode": {"tau": 3.0, "final_activation": "tanh"},
    "cfc": {"backbone_activation": "relu", "time_sign": 1},
    "phased-lstm": {"leak": 0.1},
    "lmu": {"theta": 3.0},
}
"""Options that leave the shapes of parameters alone, by cell."""


def built(name, **options):
    torch.manual_seed(0)
    size = tauflow.AutoNCP(7, 2) if name in ("ltc", "wired-cfc") else 4
    rnn = tauflow.build(name, 3, size, **options)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return rnn


def output(rnn):
    with torch.no_grad():
        return rnn(X.to(next(rnn.parameters())), dt=DT)[0]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_is_set_on_a_cell_or_its_parts_can_be_set_again(name):
    rnn = built(name)
    before = output(rnn)
    for part in rnn.cell.modules():
        if not isinstance(part, FixedOptionsModule):
            continue
        for option in {**part.__dict__.get("options", {}), **dict(part._options_when_built)}:
            with pytest.raises(ArgumentError, match=rf"{option} is fixed when it is built"):
                setattr(part, option, 1.5)
            if option in vars(part):
                with pytest.raises(ArgumentError, match=rf"{option} is fixed when it is built"):
                    delattr(part, option)
    for option in rnn.cell.options:
        if callable(getattr(rnn, option, print)):  # not there, or a method of the same name
            with pytest.raises(ArgumentError, match=rf"module.replace\({option}=...\)"):
                setattr(rnn, option, 1.5)
    assert torch.equal(output(rnn), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_replaced_by_its_like_has_its_parameters_and_none_of_its_memory(name):
    rnn = built(name).double().eval()
    first = next(rnn.cell.parameters())
    first.requires_grad_(False)
    state = torch.random.get_rng_state()
    other = rnn.cell.replace()
    assert torch.equal(output(rnn.replace(return_sequences=True)), output(rnn))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(output(tauflow.RNN(other)), output(rnn))
    assert not other.training
    for (name_of, weight), (_, two) in zip(
        rnn.cell.named_parameters(), other.named_parameters(), strict=True
    ):
        assert weight is not two, name_of
        assert (weight.dtype, weight.requires_grad) == (two.dtype, two.requires_grad), name_of
        assert weight.data_ptr() != two.data_ptr(), name_of


@pytest.mark.parametrize(("name", "options"), OTHERS.items(), ids=OTHERS)
def test_a_replaced_cell_is_the_one_that_is_built_with_these_options(name, options):
    rnn = built(name)
    for option, value in options.items():
        expected = built(name, **{option: value})
        expected.load_state_dict(dict(rnn.named_parameters()), strict=False)
        for other in (
            rnn.replace(**{option: value}),
            tauflow.RNN(rnn.cell.replace(**{option: value})),
        ):
            assert torch.equal(output(other), output(expected)), option
            assert other.cell.options[option] == value


@pytest.mark.parametrize("name", ["gnode", "gru-euler", "lem"])
def test_an_option_with_the_name_of_a_method_is_no_method(name):
    rnn = built(name, initial_state="learned")
    other = rnn.replace(initial_state="learned", num_layers=1)
    assert torch.equal(output(other), output(rnn))
    assert rnn.cell.options["initial_state"] == "learned"
    with pytest.raises(ArgumentError, match=r"initial_state is fixed .* with 'learned' here"):
        rnn.initial_state = "zeros"
    assert rnn.initial_state(2).shape == (2, rnn.state_size)


def test_what_cannot_be_replaced_says_why():
    rnn = built("lstm")
    with pytest.raises(ArgumentError, match=r"parameter W_x would have shape \(16, 4\), but it"):
        rnn.cell.replace(append_dt=True)
    with pytest.raises(OptionError, match="LSTMCell has no option 'tau'"):
        rnn.cell.replace(tau=1.0)
    with pytest.raises(ArgumentError, match="append_dt must be True or False"):
        rnn.cell.replace(append_dt="no")


def test_a_stream_an_export_and_a_call_cannot_disagree():
    rnn = tauflow.LEM(3, 4)
    stream = rnn.stream(2)
    with pytest.raises(ArgumentError, match=r"tau is fixed .* cell\.replace\(tau=\.\.\.\)"):
        rnn.cell.tau = 5.0
    streamed = torch.stack([stream.step(X[:, k], DT[:, k]) for k in range(10)], 1)
    torch.testing.assert_close(streamed, output(rnn))
    assert not torch.allclose(output(rnn.replace(tau=5.0)), output(rnn))


def test_options_within_options_are_fixed():
    with pytest.raises(FrozenInstanceError):
        tauflow.GRUODE(3, 4).cell.flow_solver.substeps = 7
    with pytest.raises(FrozenInstanceError):
        tauflow.LTC(3, tauflow.AutoNCP(7, 2)).cell.wiring.units = 7
    for part, option in (("heads", "mode"), ("backbone", "phi"), ("backbone", "dropout")):
        with pytest.raises(ArgumentError, match=rf"{option} is fixed .* cell\.replace"):
            setattr(getattr(tauflow.CfC(3, 4, backbone_units=5).cell, part), option, None)


def test_tensors_and_what_pytorch_sets_can_be_set():
    rnn = built("cfc", backbone_units=5)
    cell, layer = rnn.cell, rnn.cell.backbone.layers[0]
    cell.train(False).requires_grad_(False).double().float()
    parametrizations.weight_norm(layer, "weight")
    with pytest.raises(ArgumentError, match="takes no hooks"):
        prune.l1_unstructured(cell.heads, "weight", 0.5)
    output(rnn)
    parametrizations.orthogonal(cell.heads, "weight")
    cell.heads.weight = torch.eye(*cell.heads.weight.shape)
    cell.heads.bias = nn.Parameter(torch.ones_like(cell.heads.bias))
    cell.note = "kept"
    del cell.note
    output(rnn)
    for twin in (copy.copy(cell), copy.deepcopy(cell)):
        with pytest.raises(ArgumentError, match="init is fixed when it is built"):
            twin.init = "torch"
    twin = pickle.loads(pickle.dumps(built("ltc").cell))
    with pytest.raises(ArgumentError, match="solver is fixed when it is built"):
        twin.solver = "euler"


class Own(AbstractCell):
    gain = 1.0

    def __init__(self, input_size, hidden_size, slope=1.0):
        super().__init__(input_size, hidden_size)
        self.W = nn.Parameter(torch.randn(hidden_size, input_size))
        self.slope, self.calls = slope, 0
        self.register_buffer("mean", torch.zeros(hidden_size))

    def step(self, x, h, dt):
        return h + dt * torch.tanh(self.gain * self.slope * (x @ self.W.T) - h)


class Counting(Own):
    def step(self, x, h, dt):
        self.calls += 1
        return super().step(x, h, dt)


def test_a_users_cell_is_held_to_the_same():
    cell = Own(3, 4)
    for name in ("slope", "calls", "gain", "is_flow"):
        with pytest.raises(ArgumentError, match=f"Own: {name} is fixed when it is built"):
            setattr(cell, name, 2.0)
    cell.mean = torch.ones(4)
    other = cell.replace(slope=2.0)
    assert torch.equal(other.W, cell.W)
    assert torch.equal(other.mean, torch.ones(4))
    assert not torch.equal(output(tauflow.RNN(other)), output(tauflow.RNN(cell)))
    with pytest.raises(ArgumentError, match=r"calls is fixed .* into the state, or into a buffer"):
        tauflow.RNN(Counting(3, 4))(X)
