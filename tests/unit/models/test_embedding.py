import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import tauflow
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.export import load, save
from tauflow.models import TokenEmbedding


def model(**options):
    torch.manual_seed(0)
    body = tauflow.CfC(3, 4, return_sequences=False)
    return tauflow.SequenceModel(body, 2, vocabulary=7, **options)


def test_tokens_are_replaced_by_their_vectors():
    network, ids = model(), torch.randint(0, 7, (5, 6, 1))
    vectors = network.embedding.table.weight[ids[..., 0]]
    mask = torch.arange(6).expand(5, 6) >= torch.tensor([0, 1, 2, 3, 5]).unsqueeze(1)
    y, h = network(ids, mask=mask)
    expected, state = network.rnn(vectors, mask=mask)
    torch.testing.assert_close(y, network.head(expected))
    torch.testing.assert_close(h, state)
    torch.testing.assert_close(network(ids.int(), mask=mask)[0], y)


def test_unbatched_and_packed_input():
    network, long, short = model(), torch.randint(0, 7, (5, 1)), torch.randint(0, 7, (2, 1))
    y, _ = network(pack_sequence([long, short]))
    torch.testing.assert_close(y[0], network(long)[0])
    torch.testing.assert_close(y[1], network(short)[0])


def test_vectors_are_drawn_as_in_keras_and_learn():
    table = TokenEmbedding(1000, 50).table.weight
    assert 0.0499 < table.abs().max() <= 0.05
    assert table.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.01)
    network, ids = model(), torch.tensor([[[1], [4]]])
    network(ids)[0].sum().backward()
    moved = network.embedding.table.weight.grad.abs().sum(1) > 0
    assert moved.nonzero().flatten().tolist() == [1, 4]


def test_dropout_only_while_training():
    network, ids = model(embedding_dropout=0.5), torch.randint(0, 7, (20, 30, 1))
    assert (network.embedding(ids) == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert (network.eval().embedding(ids) != 0).all()


def test_a_saved_model_embeds_alike(tmp_path):
    network, ids = model(embedding_dropout=0.1).eval(), torch.randint(0, 7, (2, 3, 1))
    save(network, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").eval()
    assert torch.equal(again(ids)[0], network(ids)[0])


@pytest.mark.parametrize("batched", [True, False])
def test_padding_may_hold_anything(batched):
    network, ids = model(), torch.tensor([[1, 2, -1], [3, 99, -100]]).unsqueeze(-1)
    lengths = torch.tensor([2, 1])
    want = network(torch.tensor([[1, 2, 0], [3, 0, 0]]).unsqueeze(-1), lengths=lengths)[0]
    mask = torch.arange(3) < lengths[:, None]
    if batched:
        torch.testing.assert_close(network(ids, lengths=lengths)[0], want)
        torch.testing.assert_close(network(ids, mask=mask)[0], want)
    else:
        torch.testing.assert_close(network(ids[0], lengths=2)[0], want[0])
        torch.testing.assert_close(network(ids[1], mask=mask[1])[0], want[1])
    with pytest.raises(ArgumentError, match="x holds ids from -1 to 99"):
        network(ids.clamp(min=-1), mask=torch.ones(2, 3, dtype=torch.bool))


def test_what_is_no_token_is_refused():
    network = model()
    with pytest.raises(DtypeError, match=r"x has dtype torch\.float32, expected int64 or int32"):
        network(torch.zeros(2, 3, 1))
    with pytest.raises(ShapeError, match=r"x has shape \(2, 3\), expected \(B, T, 1\), an id per"):
        network(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ArgumentError, match=r"ids from 0 to 7, expected 0 to 6\. Enlarge"):
        network(torch.arange(8)[None, :, None])
    with pytest.raises(ArgumentError, match=r"embedding_dropout=0\.5 without a vocabulary"):
        tauflow.SequenceModel(tauflow.CfC(3, 4), 2, embedding_dropout=0.5)
    with pytest.raises(ArgumentError, match="width must be at least 1"):
        TokenEmbedding(3, 0)
