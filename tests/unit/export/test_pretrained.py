import json
import sys

import pytest
import torch

import tauflow
from tauflow.data import load_task
from tauflow.errors import DataNotFoundError, MissingExtraError, ModelFileError
from tauflow.export import from_pretrained, save_pretrained
from tauflow.models import SequenceModel


@pytest.fixture
def folder(tmp_path):
    model = SequenceModel(tauflow.LTC(2, tauflow.AutoNCP(8, 2)), 1)
    return model, save_pretrained(model, tmp_path / "model")


def test_a_folder_gives_the_model_back(folder):
    model, path = folder
    assert sorted(p.name for p in path.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    again = from_pretrained(path)
    x = torch.randn(2, 5, 2)
    assert torch.equal(again(x)[0], model(x)[0])
    assert torch.equal(tauflow.load(path / "model.safetensors")(x)[0], model(x)[0])
    config = json.loads((path / "config.json").read_text())
    assert (config["model_type"], config["class"]) == ("tauflow", "SequenceModel")


def test_the_card_says_what_the_model_was_trained_on(tmp_path):
    card = load_task("pendulum", sizes=(4, 2, 2), steps=4).card
    text = (save_pretrained(tauflow.GRU(2, 3), tmp_path / "m", data=card) / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: ")
    for fact in (card.title, card.licence, "parameters"):
        assert fact in text


def test_what_does_not_belong_together_is_refused(folder):
    path = folder[1]
    config = json.loads((path / "config.json").read_text())
    config["options"]["output_size"] = 2
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match="describes another model"):
        from_pretrained(path)
    (path / "config.json").write_text(json.dumps({**config, "format_version": 99}))
    with pytest.raises(ModelFileError, match="newer tauflow"):
        from_pretrained(path)
    (path / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    with pytest.raises(ModelFileError, match="another library"):
        from_pretrained(path)
    (path / "config.json").write_text("[" * 9)
    with pytest.raises(ModelFileError, match="no description"):
        from_pretrained(path)
    (path / "config.json").unlink()
    with pytest.raises(DataNotFoundError, match=r"has no config\.json"):
        from_pretrained(path)


def test_places_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataNotFoundError, match="no folder, nor an owner/name"):
        from_pretrained(tmp_path / "none")
    with pytest.raises(MissingExtraError, match="huggingface_hub is not installed"):
        from_pretrained("owner/name")
    with pytest.raises(DataNotFoundError, match="there is no place for it"):
        save_pretrained(tauflow.GRU(2, 3), tmp_path / "none" / "m")
