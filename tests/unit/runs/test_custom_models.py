"""Runs of models that are not tauflow's, and of models that no file can hold."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import MODELS, AbstractCell, ModelEntry
from tauflow.data import TableOptions, load_task
from tauflow.runs.report.next_steps import make_predict_command
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task
from tauflow.training import Callback

SMALL = {"sizes": (12, 6, 6), "steps": 5}
SHORT = replace(DEFAULT_RECIPE, epochs=1, batch_size=6)


class PlainCell(AbstractCell):
    paper = "own"

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.inward = nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        return torch.tanh(self.inward(x)) + h * torch.exp(-dt)


class ShapedCell(PlainCell):
    """Has an option that no file can hold."""

    def __init__(self, input_size, hidden_size, *, shape=lambda x: x):
        super().__init__(input_size, hidden_size)


@pytest.fixture
def registered(monkeypatch):
    for name, cell in (("plain", PlainCell), ("shaped", ShapedCell)):
        monkeypatch.setitem(MODELS._entries, name, ModelEntry(name, name, cell))


def short_run(name, folder, source="pendulum", **changes):
    options = {"dataset_options": SMALL} if source == "pendulum" else {}
    options |= {"hidden_size": 3, "recipe": SHORT, "progress": False, "runs_dir": folder}
    return run_task(Run(source, name, **{**options, **changes}))


def test_a_run_of_a_registered_cell_leaves_a_predictor(tmp_path, registered):
    run = short_run("plain", tmp_path)
    assert run.notes == ()
    test = load_task("pendulum", **SMALL).test
    again = tauflow.load_predictor(run.directory)
    torch.testing.assert_close(again.predict(test), run.predictor.predict(test), rtol=0, atol=0)


def test_a_model_that_no_file_can_hold_is_trained(tmp_path, registered):
    run = short_run("shaped", tmp_path)
    assert run.record.test is not None
    assert (run.directory / "record.json").is_file()
    assert not (run.directory / "predictor.safetensors").exists()
    assert "ShapedCell: the option shape" in run.notes[0]
    assert "There is no predictor" in write_run_report(run).read_text(encoding="utf-8")


def test_no_command_is_shown_for_a_predictor_that_is_not_there(tmp_path, registered):
    table = tmp_path / "t.csv"
    rows = [f"{i // 4},{i % 4},{i % 5},{i // 4 % 2}" for i in range(80)]
    table.write_text("\n".join(["who,when,x,y", *rows]) + "\n")
    file = CsvFile(table, TableOptions(id="who", time="when", target="y"))
    run = short_run("shaped", tmp_path / "runs", source=file)
    assert make_predict_command(run) == ""
    assert make_predict_command(short_run("plain", tmp_path / "runs", source=file))


class Altering(Callback):
    """Changes what the constructor of the model says."""

    def on_end(self, training):
        training.model.rnn.cell.inward.out_features = 7


def test_a_predictor_of_before_does_not_stay_beside_other_weights(tmp_path, registered):
    run = short_run("plain", tmp_path)
    assert (run.directory / "predictor.safetensors").exists()
    again = short_run("plain", tmp_path, resume=True, callbacks=[Altering()])
    assert again.directory == run.directory
    assert "out_features is 7" in again.notes[0]
    assert not (run.directory / "predictor.safetensors").exists()


PLUGIN = """
from dataclasses import replace
from tauflow.cells import MODELS, GRUCell, ModelEntry
from tauflow.data import register
from tauflow.data.datasets.pendulum import PENDULUM, load_pendulum

class OwnCell(GRUCell):
    pass

def load(root=None, *, download=True, seed=0):
    data = load_pendulum(root, sizes=(12, 6, 6), steps=5, seed=seed)
    return replace(data, card=replace(data.card, name="swing"))

MODELS.add("own", ModelEntry("own", "Own", OwnCell))
register(replace(PENDULUM, name="swing", sizes=(12, 6, 6)), load)
"""
TABLE = """
name = "own"
title = "Own"
source = "invented"
dataset = "swing"
loss = "mse"
metric = "mse"
seeds = 2
recipe = { lr = 0.01, epochs = 1, batch_size = 6 }

[[row]]
name = "own"
title = "Own"
model = { cell = "own", hidden_size = 3 }
published = { mean = 0.5 }
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_a_command_and_its_workers_know_what_a_plugin_adds(tmp_path):
    (tmp_path / "swinging.py").write_text(PLUGIN)
    (tmp_path / "own.toml").write_text(TABLE)
    places = [str(tmp_path), str(Path(tauflow.__file__).parents[1])]
    known = {"PYTHONPATH": os.pathsep.join(places), "TAUFLOW_PLUGINS": "swinging"}
    words = ["reproduce", str(tmp_path / "own.toml"), "--jobs", "2"]
    folders = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "tauflow", *words, *folders]
    ended = subprocess.run(
        command, env={**os.environ, **known}, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "results" / "own.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["done", "done"]
