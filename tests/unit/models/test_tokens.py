from dataclasses import replace

import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import OptionError
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training import Recipe, train

CARD = DatasetCard(
    name="words",
    title="Words",
    task="binary",
    input_size=1,
    target_size=1,
    time_unit="word",
    sizes=(8, 0, 8),
    source="made here",
    licence="none",
    split="two times the same",
    loss="bce",
    metric="binary_accuracy",
    per_step=False,
    vocabulary=9,
)


def words():
    ids = torch.randint(0, 9, (8, 5, 1), generator=torch.Generator().manual_seed(0))
    batch = SequenceBatch(x=ids, y=(ids[:, -1] > 4).float())
    return TaskData(CARD, batch, None, batch)


def test_tokens_are_embedded_and_learned_from():
    model = build_model(ModelSpec("cfc", 4, embedding_size=6, embedding_dropout=0.1), words().card)
    assert (model.rnn.input_size, model.embedding.table.weight.shape) == (6, (9, 6))
    before = model.embedding.table.weight.clone()
    data = words()
    train(
        model,
        train=data.train,
        valid=None,
        test=data.test,
        loss="bce",
        metric="binary_accuracy",
        recipe=Recipe(epochs=1, batch_size=4, select="last", score_last_epoch=True),
        seed=0,
    )
    assert not torch.equal(model.embedding.table.weight, before)


def test_a_vector_is_as_long_as_the_state_unless_said_otherwise():
    assert build_model(ModelSpec("cfc", 4), words().card).rnn.input_size == 4


def test_features_are_not_embedded():
    data = replace(words(), card=replace(CARD, vocabulary=0))
    assert build_model(ModelSpec("cfc", 4), data.card).embedding is None
    with pytest.raises(OptionError, match="are for data sets of tokens, and 'words' has feat"):
        build_model(ModelSpec("cfc", 4, embedding_size=6), data.card)
