"""Layers, directions, projections and dropout against single layers put together by hand."""

import inspect
import pydoc

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tauflow
import tauflow.zoo  # which has modules, too
from tauflow.cells import MODELS, AbstractCell, CfCCell, LTCCell
from tauflow.errors import ArgumentError, DtypeError, OptionError, ShapeError
from tauflow.sequence import RNN, CatalogRNN, SequenceModule

B, T, D, H = 3, 6, 2, 4
MODULES = CatalogRNN.module_of_cell
NAMES = ["ltc", "cfc", "cfc-mmrnn", "augmented-lstm"]


def backward_run(rnn: RNN, x: Tensor, dt: Tensor, lengths: list[int], h: Tensor):
    """Run each row alone on its reversed samples; a gap lies between two samples."""
    outputs, states = [], []
    for row, length in enumerate(lengths):
        gaps = torch.cat([dt[row, :1], dt[row, 1:length].flip(0)])
        y, last = rnn(x[row, :length].flip(0), h[row], dt=gaps)
        held = torch.zeros(T - length, y.shape[-1], dtype=y.dtype)
        outputs.append(torch.cat([y.flip(0), held]))
        states.append(last)
    return torch.stack(outputs), torch.stack(states)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("proj_size", [0, 3])
def test_deep_bidirectional_module_equals_its_cells_composed_by_hand(name, proj_size):
    lengths = [4, 6, 2]
    rnn = tauflow.build(name, D, H, num_layers=3, bidirectional=True, proj_size=proj_size).double()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() + 0.1
    hx = torch.rand(B, rnn.state_size).double()
    starts = iter(hx.split([cell.state_size for cell in rnn.cells], -1))
    signal, states = x, []
    for layer in range(3):
        forward, backward = (RNN(rnn.cells[2 * layer + k]) for k in (0, 1))
        y_f, h_f = forward(signal, next(starts), dt=dt, lengths=lengths)
        y_b, h_b = backward_run(backward, signal, dt, lengths, next(starts))
        if proj_size:
            y_f = y_f @ rnn.projections[2 * layer].weight.T
            y_b = y_b @ rnn.projections[2 * layer + 1].weight.T
        signal = torch.cat([y_f, y_b], -1)
        states += [h_f, h_b]
    y, h = rnn(x, hx, dt=dt, lengths=lengths)
    valid = torch.arange(T) < torch.tensor(lengths)[:, None]
    torch.testing.assert_close(y[valid], signal[valid], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(h, torch.cat(states, -1), rtol=1e-9, atol=1e-11)
    assert y.shape[-1] == rnn.output_size == 2 * (proj_size or rnn.cell.output_size)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_on_what_passes_between_layers_only(name):
    rnn = tauflow.build(name, D, H, num_layers=3, dropout=0.4).double()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() + 0.1
    torch.manual_seed(5)
    y, _ = rnn(x, dt=dt)
    torch.manual_seed(5)
    signal = x
    for layer, cell in enumerate(rnn.cells):
        signal = F.dropout(signal, 0.4) if layer else signal
        signal, _ = RNN(cell)(signal, dt=dt)
    torch.testing.assert_close(y, signal, rtol=1e-9, atol=1e-11)
    assert not torch.allclose(y, rnn.eval()(x, dt=dt)[0])


def test_one_layer_has_nothing_to_drop():
    with pytest.raises(ArgumentError, match=r"dropout=0.9 acts between layers"):
        tauflow.LTC(D, H, dropout=0.9)


def test_cells_of_a_stack_share_options_but_no_parameters():
    rnn = tauflow.CfC(D, H, num_layers=2, bidirectional=True, mode="no_gate", backbone_units=9)
    assert [cell.input_size for cell in rnn.cells] == [D, D, 2 * H, 2 * H]
    for cell in rnn.cells:
        assert cell.heads.mode == "no_gate"
        assert cell.backbone.layers[0].out_features == 9
    pointers = [p.data_ptr() for p in rnn.parameters()]
    assert len(set(pointers)) == len(pointers)
    first, second = rnn.cells[0].heads.weight, rnn.cells[1].heads.weight
    assert not torch.equal(first, second)


def test_state_of_a_stack_is_split_by_cell_and_part():
    rnn = tauflow.LSTM(D, H, num_layers=2, bidirectional=True)
    h = torch.arange(2.0 * rnn.state_size).view(2, -1)
    parts = rnn.split_state(h)
    assert [list(p) for p in parts] == [["h", "c"]] * 4
    assert parts[2]["c"].tolist() == [[20, 21, 22, 23], [52, 53, 54, 55]]


def test_wiring_makes_layers_of_motor_width():
    wiring = tauflow.AutoNCP(10, 3)
    rnn = tauflow.LTC(D, wiring, num_layers=2)
    assert [cell.input_size for cell in rnn.cells] == [D, 3]
    y, h = rnn(torch.zeros(B, T, D))
    assert y.shape == (B, T, 3)
    assert h.shape == (B, 20)


@pytest.mark.parametrize("module", MODULES.values(), ids=lambda m: m.__name__)
def test_signature_shows_the_options_of_cell_and_layers_with_their_defaults(module):
    shown = inspect.signature(module).parameters
    cell = inspect.signature(module.cell_class.__init__).parameters
    layer = inspect.signature(SequenceModule.__init__).parameters
    for source in (cell, layer):
        for name, parameter in source.items():
            if name not in ("self", "cell"):
                assert shown[name].default == parameter.default, name
                if name != "num_layers":  # which torch's modules have third
                    assert shown[name].kind == parameter.kind, name
    assert list(shown)[:2] == ["input_size", "hidden_size"]
    assert inspect.getdoc(module.cell_class).splitlines()[-1] in inspect.getdoc(module)


@pytest.mark.parametrize("name", MODELS)
def test_options_are_recorded_and_build_the_module_again(name):
    rnn = tauflow.build(name, D, H, num_layers=2, proj_size=3)
    again = type(rnn)(**rnn.options)
    again.load_state_dict(rnn.state_dict())
    x = torch.randn(B, T, D)
    assert torch.equal(rnn(x)[0], again(x)[0])


def test_every_catalogued_cell_has_one_module():
    assert {entry.cell for entry in MODELS.values()} == MODULES.keys()
    assert len(set(MODULES.values())) == len(MODULES)
    assert all(module.cell_class is cell for cell, module in MODULES.items())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_layers": 1.5}, "num_layers must be an integer"),
        ({"dropout": -0.1}, "dropout must be .*from 0 to 1"),
        ({"proj_size": -1}, "proj_size must be at least 0"),
        ({"bidirectional": "no"}, "bidirectional must be .*got 'no'"),
        ({"return_sequences": "no"}, "return_sequences must be"),
    ],
)
@pytest.mark.parametrize("build", [tauflow.LTC, lambda i, n, **o: RNN(LTCCell(i, n), **o)])
def test_wrong_arguments_of_the_module(build, options, match):
    with pytest.raises((ArgumentError, DtypeError), match=match):
        build(D, H, **options)


def test_a_misspelt_layer_argument_names_the_nearest():
    with pytest.raises(OptionError, match=r"'num_layer'.*Did you mean 'num_layers'"):
        tauflow.LTC(D, H, num_layer=2)


def test_rnn_wants_a_cell():
    with pytest.raises(
        (ArgumentError, DtypeError), match=r"cell must be an AbstractCell, got str.*tauflow\.LTC"
    ):
        RNN("ltc")


def test_a_cell_in_rnn_equals_its_module():
    cell = CfCCell(D, H)
    module = tauflow.CfC(D, H)
    module.cell.load_state_dict(cell.state_dict())
    x, dt = torch.randn(B, T, D), torch.rand(B, T)
    assert torch.equal(RNN(cell)(x, dt=dt)[0], module(x, dt=dt)[0])
    assert RNN(cell).cell is cell


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_further_layers_have_the_dtype_of_the_given_cell(dtype):
    rnn = RNN(CfCCell(D, H).to(dtype), num_layers=2, bidirectional=True, proj_size=3)
    assert {p.dtype for p in rnn.parameters()} == {dtype}
    assert rnn(torch.randn(B, T, D, dtype=dtype))[0].dtype is dtype


class Narrow(AbstractCell):
    """Forgets all neurons but one."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.W = torch.nn.Parameter(torch.ones(1, input_size))

    def step(self, x, h, dt, observed=None):
        return x @ self.W.T + 0 * h[:, :1] * dt


def test_a_step_that_returns_another_width_is_refused():
    with pytest.raises(ShapeError, match=r"Narrow\.step: the new state has shape \(3, 1\)"):
        RNN(Narrow(D, H))(torch.randn(B, T, D))


@pytest.mark.parametrize(
    "built", [tauflow.RNN, tauflow.SequenceModel, tauflow.cells.CfCCell, tauflow.models.Transformer]
)
def test_the_signature_of_a_class_is_that_of_its_constructor(built):
    shown = inspect.signature(built)
    parameters = list(inspect.signature(built.__init__).parameters.values())[1:]
    assert list(shown.parameters.values()) == parameters
    assert "*args" not in str(shown)
    assert "*args" not in pydoc.render_doc(built).split("Method resolution order")[0]


def test_a_call_of_a_module_has_a_signature_of_its_own():
    rnn = tauflow.RNN(tauflow.cells.CfCCell(2, 3))
    assert list(inspect.signature(rnn.forward).parameters)[:2] == ["x", "hx"]
    assert "cell" not in inspect.signature(rnn).parameters
