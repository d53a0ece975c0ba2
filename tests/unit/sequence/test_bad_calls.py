"""Small, empty and wrong calls as a user meets them through the public names."""

import math
import re

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import tauflow
from tauflow.errors import (
    ArgumentError,
    BackendError,
    OptionError,
    ShapeError,
    TimeError,
    UnknownNameError,
)

B, T, D, H = 4, 6, 3, 4


@pytest.fixture
def rnn():
    torch.manual_seed(0)
    return tauflow.LTC(D, H)


@pytest.fixture
def x():
    return torch.randn(B, T, D)


def test_a_packed_sequence_takes_no_lengths(rnn):
    packed = pack_sequence([torch.randn(4, D), torch.randn(2, D)])
    with pytest.raises(ArgumentError, match="PackedSequence knows its lengths"):
        rnn(packed, lengths=[4, 2])


def test_bad_times_in_padding_do_not_matter(rnn, x):
    dt, mask = torch.ones(B, T), torch.ones(B, T, dtype=torch.bool)
    dt[1, 2], mask[1, 2] = math.nan, False
    y, h = rnn(x, dt=dt, mask=mask)
    assert torch.isfinite(y).all()
    assert torch.isfinite(h).all()


@pytest.mark.parametrize(("shape", "batch"), [((0, T, D), 0), ((1, 1, D), 1), ((B, 1, D), B)])
def test_small_inputs_work(rnn, shape, batch):
    y, h = rnn(torch.randn(shape))
    assert y.shape == (*shape[:2], H)
    assert h.shape == (batch, rnn.state_size)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tauflow.build("ltcc", 3, 4), UnknownNameError, "Did you mean 'ltc'"),
        (lambda: tauflow.build("transformer", 3, 4), UnknownNameError, r"WHOLE_MODELS\[name\]"),
        (lambda: tauflow.LTC(3, 4, solver="rk5"), UnknownNameError, "Did you mean 'rk4'"),
        (lambda: tauflow.LTC(3, 4, sover="rk4"), OptionError, "Did you mean 'solver'"),
        (lambda: tauflow.build("cfc", 3, 4, mode="nogate"), UnknownNameError, "'no_gate'"),
        (lambda: tauflow.LTC(3, 0), ArgumentError, "hidden_size"),
        (lambda: tauflow.LTC(0, 4), ArgumentError, "input_size"),
        (lambda: tauflow.LTC(3, 4, num_layers=0), ArgumentError, "num_layers"),
        (lambda: tauflow.LTC(3, 4, dropout=1.5), ArgumentError, "dropout"),
        pytest.param(
            *(lambda: tauflow.CfC(3, tauflow.AutoNCP(8, 2)), ArgumentError, "WiredCfC"),
        ),
        (lambda: tauflow.CfC(3, 4, mode="pure", time_sign=1), ArgumentError, "do nothing"),
        (
            lambda: tauflow.CfC(3, 4, backbone_layers=0, backbone_dropout=0.1),
            ArgumentError,
            "do nothing",
        ),
        (lambda: tauflow.LTC(3, 4, backend="cuda9"), UnknownNameError, "backend"),
        pytest.param(
            *(
                lambda: tauflow.RNN(torch.nn.LSTMCell(3, 4)),
                ArgumentError,
                "LSTMCell",
            ),  # the checker of annotations refuses it first
        ),
        (lambda: tauflow.SequenceModel(torch.nn.LSTM(3, 4), 1), ArgumentError, "LSTM"),
    ],
)
def test_bad_construction_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_a_backend_asked_for_by_name_is_never_swapped(x):
    lstm = tauflow.LSTM(D, H, backend="torch")
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, -1] = False
    lstm(x)
    with pytest.raises(BackendError, match=r"take no step mask.*backend='auto'"):
        lstm(x, mask=mask)


def test_going_on_with_absolute_times_needs_the_time_before(rnn, x):
    t = torch.rand(B, T).cumsum(1)
    y, h = rnn(x, t=t)
    first, carried = rnn(x[:, :2], t=t[:, :2])
    with pytest.raises(ArgumentError, match=r"5 times per sequence, got 4.*would be lost"):
        rnn(x[:, 2:], carried, t=t[:, 2:])
    second, last = rnn(x[:, 2:], carried, t=t[:, 1:])
    torch.testing.assert_close(torch.cat([first, second], dim=1), y)
    torch.testing.assert_close(last, h)


@pytest.mark.parametrize("model", ["cfc", "lstm"])
@pytest.mark.parametrize("shape", [(B, T), (B, T, 1), (T,), (T, 1)])
def test_gaps_in_the_place_of_the_state_are_known_as_such(x, model, shape):
    rnn = tauflow.build(model, D, H)
    with pytest.raises(ShapeError, match=r"hx has shape .*Time steps go in by name: dt="):
        rnn(x if shape[0] == B else x[0], torch.ones(shape))


def test_a_state_of_the_shape_of_gaps_is_a_state():
    """Of B sequences of as many steps as there are neurons, or of one neuron in B layers."""
    x, h = torch.randn(B, H, D), torch.rand(B, H)
    rnn = tauflow.GRU(D, H)
    y, _ = rnn(x, h)
    torch.testing.assert_close(y[:, 0], rnn.cell.step(x[:, 0], h, torch.ones(B, 1)))
    layers = tauflow.GRU(D, 1, num_layers=B)
    x, h = torch.randn(B, B, D), torch.rand(B, B, 1)
    torch.testing.assert_close(layers(x, h)[0], layers(x, h.permute(1, 0, 2).flatten(1))[0])
    assert not torch.allclose(layers(x, h)[0], layers(x)[0])


@pytest.mark.parametrize("name", ["dt", "t", "mask", "observed", "hx"])
def test_tensors_on_another_device_are_refused_by_name(rnn, x, name):
    values = {
        "dt": torch.ones(B, T),
        "t": torch.ones(B, T),
        "mask": torch.ones(B, T, dtype=torch.bool),
        "observed": torch.ones(B, T, D, dtype=torch.bool),
        "hx": torch.zeros(B, rnn.state_size),
    }
    with pytest.raises(ArgumentError, match=rf"{name} is on meta, but x is on cpu. Move it"):
        rnn(x, **{name: values[name].to("meta")})


def test_a_module_on_another_device_is_refused(rnn, x):
    with pytest.raises(ArgumentError, match="x is on cpu, but the parameters are on meta"):
        rnn.to("meta")(x)


def test_a_gap_too_large_for_half_precision_is_refused(x):
    dt = torch.full((B, T), 7e4)
    with pytest.raises(TimeError, match="time step 70000 at sequence 0, step 0 is too large for"):
        tauflow.CfC(D, H).half()(x.half(), dt=dt)


def test_the_state_can_be_carried_under_autocast(x):
    for name in ("lstm", "ltc", "cfc-mmrnn"):
        module = tauflow.build(name, D, H)
        with torch.autocast("cpu", torch.bfloat16):
            _, h = module(x)
            y, _ = module(x, h)
        assert torch.isfinite(y).all()


def test_a_cell_of_ones_own_needs_little():
    class Leak(tauflow.cells.AbstractCell):
        def step(self, x, h, dt):
            return torch.exp(-dt) * h + x[:, : self.hidden_size]

    both = tauflow.RNN(Leak(D, 2), num_layers=2, bidirectional=True, proj_size=3)
    y, h = both(torch.randn(B, T, D), dt=0.5)
    assert y.shape == (B, T, 6)
    assert h.shape == (B, 8)

    class Other(Leak):
        def __init__(self, width):
            super().__init__(width, 2)

    with pytest.raises(ArgumentError, match="no argument named input_size"):
        tauflow.RNN(Other(3), num_layers=2)


def test_numbers_of_numpy_are_numbers(x, tmp_path):
    module = tauflow.LTC(np.int64(D), np.int64(H), dropout=np.float32(0.5), num_layers=2)
    module.eval()
    torch.testing.assert_close(module(x, dt=np.float32(0.5))[0], module(x, dt=0.5)[0])
    tauflow.save(module, tmp_path / "model.safetensors")
    assert tauflow.load(tmp_path / "model.safetensors").options == module.options


def test_messages_name_the_module():
    with pytest.raises(ShapeError, match=re.escape("CfC")):
        tauflow.CfC(3, 4)(torch.randn(2, 5, 2))


def test_no_sequences_have_no_lengths(rnn):
    x = torch.zeros(0, 4, rnn.input_size)
    assert rnn(x, lengths=[])[0].shape == (0, 4, rnn.output_size)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("batched", [True, False])
def test_times_that_begin_with_that_of_the_state_may_have_an_axis_of_their_own(steps, batched):
    rnn = tauflow.CfC(3, 5)
    x, h, t = torch.randn(4, steps, 3), torch.zeros(4, 5), torch.rand(4, steps + 1).cumsum(1)
    if not batched:
        x, h, t = x[0], h[0], t[0]
    assert torch.equal(rnn(x, h, t=t.unsqueeze(-1))[0], rnn(x, h, t=t)[0])
    for times in (t[..., 1:], t[..., 1:].unsqueeze(-1)):
        with pytest.raises(ArgumentError, match=rf"in front: {steps + 1} times per sequence"):
            rnn(x, h, t=times)
