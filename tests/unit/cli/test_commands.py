import json
import logging
import re

import pytest
import torch

import tauflow
from tauflow.cli.argument_parsing import parse_key_values
from tauflow.cli.group import get_continue_command
from tauflow.runs.results import RunRecord

TINY_RUN = ("--model", "elman", "--hidden-size", "4", "--epochs", "1")


@pytest.mark.slow
def test_whole_models_run_like_cells(call):
    output = call(
        "run", "pendulum", "--model", "transformer", "--option", "layers=1", *TINY_RUN[2:]
    )
    assert "persistence" in output.output


def test_generated_data_need_no_download(call):
    assert "is generated, not fetched" in call("data", "get", "pendulum").output


def test_run_then_show(call, tmp_path):
    output = call("run", "pendulum", *TINY_RUN).output
    assert "persistence" in output
    report = re.search(r"^Report: (.*)$", output, re.MULTILINE)[1]
    assert (tmp_path / report).is_file()
    run = re.search(r"^Run: +(.*)$", output, re.MULTILINE)[1]
    shown = call("show", run).output
    assert "training loss" in shown
    assert "Report: " in shown


def test_all_scores_of_a_run_are_shown_in_one_unit(call, tmp_path):
    run = tmp_path / "own"
    run.mkdir()
    history = [{"epoch": 1, "train_loss": 0.5, "valid": 0.25, "test": 0.9091}]
    (run / "run.json").write_text(json.dumps({"recipe": {"epochs": 1}, "metric": "accuracy"}))
    (run / "log.jsonl").write_text(json.dumps(history[0]) + "\n")
    stopped = call("show", run).output
    content = {"config": {"recipe": {"epochs": 1}}, "config_hash": "", "status": "done"}
    content |= {"metric": "accuracy", "started": "2026-01-01T00:00:00+00:00"}
    record = RunRecord("own", "gru", 0, **content, test=0.9091, history=tuple(history))
    (run / "record.json").write_text(record.to_json())
    for shown in (stopped, call("show", run).output):
        assert "accuracy, %" in shown
        assert re.search(r"1 +0\.5 +25\.00 +90\.91", shown)
        assert "0.9091" not in shown


def test_a_run_of_forecast_shows_its_scores(call, tmp_path):
    run = tmp_path / "runs" / "load" / "cfc-forecast-seed0"
    run.mkdir(parents=True)
    (run / "estimator.safetensors").touch()
    (run / "scores.csv").write_text("target,model,mae\nkW,persistence,0.719123456\n")
    shown = call("show", "load/cfc-forecast-seed0").output
    assert re.search(r"^kW +persistence +0\.7191$", shown, re.MULTILINE)
    assert "tauflow predict runs/load/cfc-forecast-seed0 --csv new.csv --at TIMES" in shown
    assert "load/cfc-forecast-seed0" in call("show", "none", code=1).output


@pytest.mark.slow
def test_a_killed_run_is_shown_as_such(call, tmp_path):
    output = call("run", "pendulum", *TINY_RUN).output
    run = tmp_path / re.search(r"^Run: +(.*)$", output, re.MULTILINE)[1]
    (run / "record.json").unlink()
    (run / "log.jsonl").write_text('{"epoch": 1, "trai')  # torn
    shown = call("show", run).output
    assert "is not finished: 0 of 1 epoch" in shown
    assert "--resume" in shown


def test_a_run_of_the_function_is_shown_as_finished(call, tmp_path):
    data = tauflow.SequenceBatch(torch.randn(8, 5, 2), torch.randn(8, 5, 1))
    model = tauflow.SequenceModel(tauflow.GRU(2, 3), 1)
    recipe = tauflow.Recipe(epochs=2, batch_size=4, select="last")
    tauflow.train(model, train=data, recipe=recipe, run_dir=tmp_path / "mine", progress=False)
    shown = call("show", tmp_path / "mine").output
    assert "has trained all of its 2 epochs" in shown
    assert "training loss" in shown


def test_a_traceback_on_request(call):
    assert "Traceback" in call("--traceback", "run", "pendulun", code=1).stderr


def test_missing_data_say_what_to_do(call, monkeypatch, tmp_path):
    pytest.importorskip("tauflow_papers")  # which brings data sets with files
    monkeypatch.setenv("TAUFLOW_DATA", str(tmp_path / "mistyped"))
    result = call("run", "half-cheetah", code=1)
    assert "TAUFLOW_DATA names" in result.stderr
    assert not (tmp_path / "mistyped").exists()


def test_log_lines_reach_standard_error_once(call, capsys):
    call("models")
    call("models")
    logging.getLogger("tauflow").info("compiling")
    assert capsys.readouterr().err == "compiling\n"


def test_values_of_options():
    words = ["a=1", "b=0.5", "c=true", "d=None", "e=silu", "f=[1,2]", "learn-rate=2"]
    assert parse_key_values(words) == {
        **{"a": 1, "b": 0.5, "c": True, "d": None, "e": "silu", "f": [1, 2]},
        "learn_rate": 2,
    }


def test_how_to_continue_is_a_command():
    assert get_continue_command(["run", "pendulum", "--seed", "1"]).endswith(
        "tauflow run pendulum --seed 1 --resume"
    )
    assert get_continue_command(["reproduce", "ltc-table-6"]).endswith(
        "tauflow reproduce ltc-table-6"
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--model", "cfc", "--time-limit", "5min"), "a time limit goes with model 'auto'"),
        (("--model", "gru,auto"), "auto makes its comparison itself"),
        (("--model", "auto", "--time-limit", "soon"), "is not a time span"),
        (("--model", "auto", "--option", "solver=rk4"), "cannot be given"),
    ],
)
def test_automatic_choice_refuses_what_it_cannot_do(call, arguments, match):
    assert match in " ".join(call("run", "pendulum", *arguments, code=1).stderr.split())
