import json

import pytest
import torch

import tauflow


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    tauflow.save(tauflow.Elman(2, 3), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_step_as_onnx(call, saved, tmp_path):
    options = ("--time-unit", "s", "--inputs", "angle,speed", "--names", "robot", "--gap", "0.1")
    said = call("export", saved, "--to", "onnx-step", "--out", tmp_path / "m.onnx", *options)
    assert "m.onnx and m.json: at most" in said.output
    facts = json.loads((tmp_path / "m.json").read_text())
    assert facts["labels"]["inputs"] == ["angle", "speed"]
    assert list(facts["inputs"]) == ["obs", "h_in"]


def test_a_program_of_one_step(call, saved, tmp_path):
    call("export", saved, "--to", "program-step", "--out", tmp_path / "m.pt2")
    run = torch.export.load(tmp_path / "m.pt2").module()
    y, h = run(x=torch.randn(4, 2), dt=torch.ones(4), h_in=torch.zeros(4, 3))
    assert torch.equal(y, h)


def test_what_is_wrong_is_one_message(call, saved, tmp_path):
    out = ("--out", tmp_path / "m")
    assert "to='onyx' is unknown" in call("export", saved, "--to", "onyx", *out, code=1).output
    assert "does not exist" in call("export", tmp_path / "no", "--to", "c", *out, code=1).output
    assert (
        "identifier of C"
        in call("export", saved, "--to", "c", *out, "--name", "a*/", code=1).output
    )
