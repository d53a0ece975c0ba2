"""Sequence modules in the place of torch.nn.LSTM and GRU."""

import pytest
import torch

import tauflow
from tauflow.compat.torch_nn import TorchRNN
from tauflow.errors import ArgumentError

B, T, D, N = 3, 6, 4, 5


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_outputs_and_states_equal_those_of_torch(kind, batch_first):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(D, N, 2, batch_first=batch_first, bidirectional=True)
    ours = TorchRNN(tauflow.from_torch(theirs), batch_first=batch_first)
    ours.flatten_parameters()
    assert (ours.input_size, ours.hidden_size, ours.num_layers) == (D, N, 2)
    assert len(ours.all_weights) == 4
    x = torch.randn(B, T, D) if batch_first else torch.randn(T, B, D)
    for input_of_call in (x, x[:, 0]):
        (expected, state), (y, ours_state) = theirs(input_of_call), ours(input=input_of_call)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(ours_state, state)
        torch.testing.assert_close(ours(input_of_call, state)[0], theirs(input_of_call, state)[0])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [T, 4, 2][:B], batch_first=batch_first)
    torch.testing.assert_close(ours(packed)[0].data, theirs(packed)[0].data)


def test_time_steps_have_the_axes_of_the_input():
    torch.manual_seed(0)
    rnn = tauflow.CfC(D, N)
    x, dt, lengths = torch.randn(B, T, D), torch.rand(B, T), torch.tensor([6, 1, 3])
    expected, h = rnn(x, dt=dt, lengths=lengths)
    y, state = TorchRNN(rnn)(x.transpose(0, 1), dt=dt.T, lengths=lengths)
    torch.testing.assert_close(y.transpose(0, 1), expected)
    torch.testing.assert_close(state[0], h)


def test_other_modules_are_refused():
    with pytest.raises(ArgumentError, match="a sequence module that returns sequences"):
        TorchRNN(tauflow.CfC(D, N, return_sequences=False))
