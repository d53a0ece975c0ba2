import io
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import tauflow
from tauflow.cli import main as cli
from tauflow.data import DATASETS
from tauflow.data.store import list_data_folders
from tauflow.errors import ModelFileError
from tauflow.models.spec import build_model
from tauflow.runs.job import load_dataset
from tauflow.training import read_checkpoint


def test_runs_that_were_cut_short_are_pointed_to(call, table):
    call("reproduce", table, "--seeds", 1, "--epochs", 1)
    hint = f"There are runs of 1 epoch too: tauflow show {table} --epochs 1"
    assert hint in call("show", table).output
    shown = call("show", table, "--epochs", 1).output
    assert "There are runs of" not in shown
    assert re.search(r"GRU.*\d\.\d+ \(1\)", shown)


def test_a_traceback_may_be_asked_for_in_any_place(call):
    for words in (("run", "--traceback", "pendulun"), ("run", "pendulun", "--traceback")):
        assert "Traceback" in call(*words, code=1).stderr
    assert "Traceback" in call("data", "get", "pendulun", "--traceback", code=1).stderr
    other = call("show", "--", "--traceback", code=1).stderr  # the name of a run
    assert "there is no run or table '--traceback'" in other
    assert "Traceback" not in other


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("models",), "phased-lstm"),
        (("data", "list"), "half-cheetah"),
        (("show", "ltc-table-6"), "Half-Cheetah"),
    ],
)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_cannot_write_everything_is_written_to(
    tmp_path, monkeypatch, words, shown, encoding
):
    monkeypatch.chdir(tmp_path)
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["tauflow", *words])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # as it was, after
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    stream.flush()
    assert shown in written.getvalue().decode(encoding)


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_a_link_to_nothing_in_the_place_of_runs_is_told(call, table, tmp_path, command):
    (tmp_path / "runs").symlink_to("nowhere")
    words = ("run", "pendulum", "--epochs", 1) if command == "run" else ("reproduce", table)
    assert "runs is a file, or a link to nothing" in call(*words, code=1).stderr


def test_a_home_that_the_shell_left_is_expanded(call, table, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    call("reproduce", table, "--seeds", 1, "--epochs", 1, "--runs=~/r", "--results=~/s")
    assert (tmp_path / "home" / "s" / "tiny.jsonl").is_file()
    assert list((tmp_path / "home" / "r").glob("tiny/*/record.json"))
    assert not (tmp_path / "~").exists()
    assert list_data_folders(DATASETS["ozone"], "~/d") == [tmp_path / "home" / "d" / "ozone"]


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_no_name_leads_a_run_out_of_its_folder(table, name):
    from tauflow_papers.experiments import load_experiment
    from tauflow_papers.experiments.run.row_jobs import make_job

    experiment = load_experiment(str(table))
    job = replace(make_job(experiment, experiment.row("gru"), 0), experiment=name)
    directory = job.directory(Path("runs"))
    assert directory.parent.parent == Path("runs")
    assert ".." not in directory.parts


def test_weights_of_a_run_say_what_they_are_and_how_they_are_used(call, table, tmp_path):
    from tauflow_papers.experiments import load_experiment

    call("reproduce", table, "--seeds", 1)
    (best,) = tmp_path.glob("runs/tiny/*/best.safetensors")
    with pytest.raises(ModelFileError, match=r"weights file, expected a model\. .*load_state_dict"):
        tauflow.load(best)
    last = best.with_name("last.safetensors")
    with pytest.raises(ModelFileError, match=r"checkpoint, expected a model\. .*read_checkpoint"):
        tauflow.load(last)
    experiment = load_experiment(str(table))
    row = experiment.row("gru")
    model = build_model(row.model, load_dataset(row.part).card)
    model.load_state_dict(safetensors.torch.load_file(best))
    model.load_state_dict(read_checkpoint(last).model)
    tauflow.save(model, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors").state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(loaded[key], value)
