"""What a user may get wrong in a call: each mistake has its own message, none passes in silence."""

import math
import re

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import tauflow
from tauflow.errors import (
    ArgumentError,
    BackendError,
    DtypeError,
    OptionError,
    ShapeError,
    TimeError,
    UnknownNameError,
)

B, T, I, H = 4, 6, 3, 4  # B equals H on purpose: (B,) must not broadcast over neurons


@pytest.fixture
def rnn():
    torch.manual_seed(0)
    return tauflow.LTC(I, H)


@pytest.fixture
def x():
    return torch.randn(B, T, I)


def at(value, row=1, step=2):
    times = torch.ones(B, T).cumsum(1)
    times[row, step] = value
    return times


untyped = pytest.mark.untyped  # the checker of annotations would refuse these first

BAD_CALLS = [
    ({"dt": torch.ones(B)}, ShapeError, r"dt has shape \(4,\).*\(B, T\) = \(4, 6\).*dt\[:, None\]"),
    ({"dt": torch.ones(B, H)}, ShapeError, r"dt has shape \(4, 4\)"),
    ({"dt": torch.ones(B, T, H)}, ShapeError, r"dt has shape \(4, 6, 4\).*\(4, 6, 1\)"),
    ({"dt": at(-0.5)}, TimeError, "dt is -0.5 at sequence 1, step 2"),
    ({"dt": at(math.nan)}, TimeError, "dt is not finite at sequence 1, step 2.*mask=False"),
    ({"dt": at(math.inf)}, TimeError, "dt is not finite"),
    ({"dt": -1.0}, TimeError, "dt is -1"),
    ({"dt": math.nan}, TimeError, "dt is not finite"),
    ({"dt": torch.ones(B, T, dtype=torch.bool)}, DtypeError, "dt must be a tensor of real"),
    ({"t": at(0.5)}, TimeError, "time runs backwards by 1.5 at sequence 1, step 2.*Sort"),
    ({"t": at(math.nan)}, TimeError, "t is not finite at sequence 1, step 2"),
    pytest.param(
        *({"t": 3.0}, DtypeError, "t must be a tensor of real numbers, got float"), marks=untyped
    ),
    ({"t": at(3.0), "dt": 1.0}, ArgumentError, "dt .* or t .*, not both"),
    ({"mask": torch.ones(B, T)}, DtypeError, r"mask has dtype torch.float32.*bool\(\)"),
    ({"mask": torch.ones(B, 1, dtype=torch.bool)}, ShapeError, r"mask has shape \(4, 1\)"),
    ({"lengths": [6, 6, 6]}, ShapeError, r"lengths has shape \(3,\).*\(4,\)"),
    ({"lengths": [7, 1, 1, 1]}, ArgumentError, r"between 0 and T = 6, got \[7, 1, 1, 1\]"),
    ({"lengths": [-1, 1, 1, 1]}, ArgumentError, "between 0 and T = 6"),
    ({"lengths": torch.ones(B)}, DtypeError, "lengths has dtype .*expected integers"),
    (
        {"lengths": [1] * B, "mask": torch.ones(B, T, dtype=torch.bool)},
        ArgumentError,
        "mask or lengths, not both",
    ),
    ({"hx": torch.zeros(H)}, ShapeError, r"hx has shape \(4,\)"),
    ({"hx": torch.zeros(B, H + 1)}, ShapeError, r"hx has shape \(4, 5\)"),
    ({"observed": torch.ones(B, T, I, dtype=torch.bool)}, ArgumentError, "observed"),
    ({"observed": torch.ones(B, T, I)}, (DtypeError, ArgumentError), "observed"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_CALLS)
def test_a_bad_call_is_refused_by_name(rnn, x, arguments, error, message):
    with pytest.raises(error, match=message):
        rnn(x, **arguments)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.randn(B, T, I + 1), ShapeError, r"x has shape \(4, 6, 4\), expected \(B, T, 3\)"),
        (torch.randn(I), ShapeError, r"x has shape \(3,\)"),
        (torch.randn(B, 0, I), ShapeError, "T >= 1"),
        (torch.ones(B, T, I, dtype=torch.long), DtypeError, "x has dtype torch.int64"),
        (torch.randn(B, T, I, dtype=torch.float64), DtypeError, "float64"),
    ],
)
def test_bad_inputs_are_refused(rnn, x, error, message):
    with pytest.raises(error, match=message):
        rnn(x)


def test_a_packed_sequence_takes_no_lengths(rnn):
    packed = pack_sequence([torch.randn(4, I), torch.randn(2, I)])
    with pytest.raises(ArgumentError, match="PackedSequence knows its lengths"):
        rnn(packed, lengths=[4, 2])


def test_bad_times_in_padding_do_not_matter(rnn, x):
    dt, mask = at(math.nan), torch.ones(B, T, dtype=torch.bool)
    mask[1, 2] = False
    y, h = rnn(x, dt=dt, mask=mask)
    assert torch.isfinite(y).all()
    assert torch.isfinite(h).all()


@pytest.mark.parametrize(("shape", "batch"), [((0, T, I), 0), ((1, 1, I), 1), ((B, 1, I), B)])
def test_small_inputs_work(rnn, shape, batch):
    y, h = rnn(torch.randn(shape))
    assert y.shape == (*shape[:2], H)
    assert h.shape == (batch, rnn.state_size)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tauflow.build("ltcc", 3, 4), UnknownNameError, "Did you mean 'ltc'"),
        (lambda: tauflow.LTC(3, 4, solver="rk5"), UnknownNameError, "Did you mean 'rk4'"),
        (lambda: tauflow.LTC(3, 4, sover="rk4"), OptionError, "Did you mean 'solver'"),
        (lambda: tauflow.build("cfc", 3, 4, mode="nogate"), UnknownNameError, "'no_gate'"),
        (lambda: tauflow.LTC(3, 0), ArgumentError, "hidden_size"),
        (lambda: tauflow.LTC(0, 4), ArgumentError, "input_size"),
        (lambda: tauflow.LTC(3, 4, num_layers=0), ArgumentError, "num_layers"),
        (lambda: tauflow.LTC(3, 4, dropout=1.5), ArgumentError, "dropout"),
        (lambda: tauflow.LTC(3, 4, backend="cuda9"), UnknownNameError, "backend"),
        pytest.param(
            *(lambda: tauflow.RNN(torch.nn.LSTMCell(3, 4)), ArgumentError, "LSTMCell"),
            marks=untyped,
        ),
        (lambda: tauflow.SequenceModel(torch.nn.LSTM(3, 4), 1), ArgumentError, "LSTM"),
    ],
)
def test_bad_construction_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_a_backend_asked_for_by_name_is_never_swapped(x):
    lstm = tauflow.LSTM(I, H, backend="torch")
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, -1] = False
    lstm(x)
    with pytest.raises(BackendError, match="take no step mask.*backend='auto'"):
        lstm(x, mask=mask)


def test_messages_name_the_module():
    with pytest.raises(ShapeError, match=re.escape("CfC")):
        tauflow.CfC(3, 4)(torch.randn(2, 5, 2))
