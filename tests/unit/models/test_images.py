"""Models of images, as experiments build them."""

import pytest
import torch

from tauflow import CfC, SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import ArgumentError, OptionError
from tauflow.models import ConvolutionalSequenceModel
from tauflow.models.spec import ModelSpec, build_model


def images(*, per_step=True):
    x = torch.rand(2, 3, 3, 72, 128)
    batch = SequenceBatch(x, torch.zeros(2, 3, 2) if per_step else torch.zeros(2, 2))
    card = DatasetCard(
        name="own",
        title="Own",
        task="regress",
        input_size=3 * 72 * 128,
        image_size=(3, 72, 128),
        target_size=2,
        per_step=per_step,
        time_unit="s",
        sizes=(2, 0, 2),
        source="a test",
        licence="none",
        split="none",
        loss="mse",
        metric="mse",
    )
    return TaskData(card, train=batch, valid=None, test=batch)


def test_a_cell_gets_a_convolutional_head():
    data = images()
    model = build_model(ModelSpec("cfc", 5, options={"backbone_units": 7}), data.card)
    assert isinstance(model, ConvolutionalSequenceModel)
    assert isinstance(model.rnn, CfC)
    y, h = model(data.test.x)
    assert y.shape == (2, 3, 2)
    assert h.shape == (2, 5)


def test_the_entry_of_convolutional_models_takes_the_cell_as_an_option():
    model = build_model(
        ModelSpec("convolutional", 5, options={"cell": "lstm"}), images(per_step=False).card
    )
    y, _ = model(images().test.x)
    assert y.shape == (2, 2)


def test_a_wiring_can_be_described():
    wiring = {"kind": "auto-ncp", "output_size": 2, "seed": 1}
    model = build_model(ModelSpec("ltc", 9, options={"wiring": wiring}), images().card)
    assert model.rnn.cell.hidden_size == 9


def test_what_does_not_take_images_is_refused():
    with pytest.raises(ArgumentError, match=r"own has images, .*'transformer' takes features"):
        build_model(ModelSpec("transformer", 4), images().card)
    with pytest.raises(OptionError, match="their own readout"):
        build_model(ModelSpec("cfc", 4, head_init="keras"), images().card)
    with pytest.raises(OptionError, match="'gru' is a cell itself; leave out the option 'cell'"):
        build_model(ModelSpec("gru", 4, options={"cell": "lstm"}), images().card)
    with pytest.raises(OptionError, match="'own' has images; leave them out"):
        build_model(ModelSpec("gru", 4, embedding_size=3), images().card)
    with pytest.raises(OptionError, match=r"no option 'append'\. Did you mean 'append_dt'"):
        build_model(ModelSpec("gru", 4, options={"append": True}), images().card)
