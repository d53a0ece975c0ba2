"""Models of images, as experiments build them."""

from dataclasses import replace

import pytest
import torch

from tauflow import CfC, SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, OptionError
from tauflow.models import ConvolutionalSequenceModel, driving_model
from tauflow.models.driving import DRIVING_WIRING
from tauflow.models.spec import ModelSpec, build_model
from tauflow.runs.report.page import write_run_report
from tauflow.runs.task import DEFAULT_RECIPE, run_task

LAYERS = ((4, 5, 2), (6, 3, 2))


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


@pytest.mark.papers
def test_the_published_network_is_a_choice_of_options():
    """But for a last layer of one weight; the head has the parameters of Table 3."""
    options = {"wiring": DRIVING_WIRING.to_dict()}
    data = load_task("lane-keeping", sizes=(1, 0, 1), steps=2)
    model = build_model(ModelSpec("wired-cfc", 19, options=options), data.card)
    assert sum(p.numel() for p in model.head.parameters()) == 226_644
    published, batch = driving_model("cfc"), data.test
    shared = {k: v for k, v in model.state_dict().items() if not k.startswith("readout")}
    published.load_state_dict(shared)
    with torch.no_grad():
        expected = model.readout(published(batch.x, dt=batch.dt)[0])
        torch.testing.assert_close(model(batch.x, dt=batch.dt)[0], expected)


@pytest.mark.papers
def test_a_run_on_images_ends_with_a_report(tmp_path):
    run = run_task(
        "lane-keeping",
        "gru",
        hidden_size=3,
        options={"layers": LAYERS, "features": 5},
        recipe=replace(DEFAULT_RECIPE, epochs=2, batch_size=3),
        dataset_options={"sizes": (6, 2, 4), "steps": 3, "image_size": (24, 40)},
        runs_dir=tmp_path,
        progress=False,
    )
    assert run.record.status == "done"
    assert [name for name, _ in run.baselines] == ["training mean"]
    page = write_run_report(run).read_text(encoding="utf-8")
    assert "GRU on Lane keeping" in page
    assert page.count("data:image/svg+xml;base64,") == 2


def test_what_does_not_take_images_is_refused():
    with pytest.raises(ArgumentError, match=r"own has images, .*'transformer' takes features"):
        build_model(ModelSpec("transformer", 4), images().card)
    with pytest.raises(OptionError, match="readout of their own"):
        build_model(ModelSpec("cfc", 4, head_init="keras"), images().card)
    with pytest.raises(OptionError, match="'gru' is a cell itself; leave out the option 'cell'"):
        build_model(ModelSpec("gru", 4, options={"cell": "lstm"}), images().card)
    with pytest.raises(OptionError, match="'own' has images; leave them out"):
        build_model(ModelSpec("gru", 4, embedding_size=3), images().card)
    with pytest.raises(OptionError, match=r"no option 'append'\. Did you mean 'append_dt'"):
        build_model(ModelSpec("gru", 4, options={"append": True}), images().card)
