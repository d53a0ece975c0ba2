import pickle

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import tauflow
from tauflow.errors import ArgumentError, StreamError, UnknownNameError


def model(**options):
    torch.manual_seed(0)
    return tauflow.SequenceModel(tauflow.CfC(3, 200, **options), 50)


def test_prediction_is_the_head_on_the_body():
    network, x, dt = model(), torch.randn(4, 6, 3), torch.rand(4, 6)
    y, h = network.rnn(x, dt=dt)
    prediction, state = network(x, dt=dt)
    expected = torch.einsum("bth,oh->bto", y, network.head.weight) + network.head.bias
    torch.testing.assert_close(prediction, expected)
    torch.testing.assert_close(state, h)


def test_one_prediction_per_sequence():
    network, x = model(return_sequences=False), torch.randn(4, 6, 3)
    prediction, _ = network(x, lengths=[6, 1, 3, 0])
    assert prediction.shape == (4, 50)
    alone, _ = network(x[2:3, :3])
    torch.testing.assert_close(prediction[2:3], alone)


def test_a_packed_sequence_stays_packed():
    network, long, short = model(), torch.randn(5, 3), torch.randn(2, 3)
    packed, _ = network(pack_sequence([long, short]))
    padded, _ = network(torch.stack([long, torch.cat([short, torch.zeros(3, 3)])]), lengths=[5, 2])
    assert isinstance(packed, PackedSequence)
    unpacked, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    torch.testing.assert_close(unpacked[0], padded[0])
    torch.testing.assert_close(unpacked[1, :2], padded[1, :2])


@pytest.mark.parametrize(
    ("head_init", "bound", "std"),
    [
        ("torch", 200**-0.5, 200**-0.5 / 3**0.5),  # U(-1/sqrt(N), 1/sqrt(N))
        ("keras", (6 / 250) ** 0.5, (2 / 250) ** 0.5),  # Glorot uniform
        ("truncated-0.05", 0.1, 0.05 * 0.8796),  # a normal cut off at two deviations
    ],
)
def test_head_is_drawn_as_asked(head_init, bound, std):
    torch.manual_seed(0)
    head = tauflow.SequenceModel(tauflow.CfC(3, 200), 50, head_init=head_init).head
    assert bound * 0.99 < head.weight.abs().max() <= bound
    assert head.weight.std().item() == pytest.approx(std, rel=0.02)
    assert (head.bias == 0).all() == (head_init != "torch")


def test_wrong_parts_are_refused():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'keras'"):
        tauflow.SequenceModel(tauflow.CfC(3, 4), 1, head_init="kears")
    with pytest.raises(ArgumentError, match="output_size must be at least 1, got 0"):
        tauflow.SequenceModel(tauflow.CfC(3, 4), 0)
    with pytest.raises(ArgumentError, match=r"tauflow\.RNN\(cell\)"):
        tauflow.SequenceModel(tauflow.CfC(3, 4).cell, 1)
    with pytest.raises(ArgumentError, match=r"RNNVAE predicts by itself\. Train it as it is"):
        tauflow.SequenceModel(tauflow.RNNVAE(3, 4), 1)


def test_predictions_come_one_by_one():
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.CfC(3, 5), 2)
    x, dt, done = torch.randn(4, 6, 3), torch.rand(4, 6), torch.rand(4, 6) < 0.3
    expected, last = model(x, dt=dt, episode_start=done)
    stream, h = model.stream(4), model.initial_state(4)
    for k in range(6):
        stream.reset(rows=done[:, k])
        y, h = model.step(x[:, k], h, dt[:, k], episode_start=done[:, k])
        torch.testing.assert_close(y, expected[:, k])
        torch.testing.assert_close(stream.step(x[:, k], dt[:, k]), expected[:, k].detach())
    torch.testing.assert_close(h, last)
    again = pickle.loads(pickle.dumps(stream))
    assert torch.equal(again.step(x[:, 0]), stream.step(x[:, 0]))
    with torch.no_grad():
        model.head.bias += 1.0
    with pytest.raises(StreamError, match="has changed"):
        stream.step(x[:, 0])
    before = again.step(x[:, 1])
    stream.refresh()
    stream.step(x[:, 0])
    assert not torch.allclose(stream.step(x[:, 1]), before)


def test_predictions_of_tokens_come_one_by_one():
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.GRU(3, 5, return_sequences=False), 2, vocabulary=9)
    ids = torch.randint(0, 9, (2, 4, 1))
    stream, h = model.stream(2), None
    for k in range(4):
        prediction = stream.step(ids[:, k])
        y, h = model.step(ids[:, k], h)
        torch.testing.assert_close(prediction, y.detach())
    torch.testing.assert_close(prediction, model(ids)[0].detach())
    assert stream.step(ids[:, 0].numpy()).shape == (2, 2)


def test_models_that_read_whole_sequences_have_no_steps():
    model = tauflow.SequenceModel(tauflow.models.Transformer(3, 4), 2)
    with pytest.raises(StreamError, match=r"SequenceModel\.stream: Transformer reads sequences as"):
        model.stream()
