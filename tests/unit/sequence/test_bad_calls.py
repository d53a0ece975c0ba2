"""Small, empty and wrong calls as a user meets them through the public names."""

import math
import re

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import tauflow
from tauflow.errors import (
    ArgumentError,
    BackendError,
    OptionError,
    ShapeError,
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
            marks=pytest.mark.untyped,  # the checker of annotations refuses it first
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


def test_messages_name_the_module():
    with pytest.raises(ShapeError, match=re.escape("CfC")):
        tauflow.CfC(3, 4)(torch.randn(2, 5, 2))
