"""Lines of results files that are not what they should be."""

import base64
import json
import xml.etree.ElementTree
from dataclasses import asdict

import pytest
import torch
from tiny_experiment import tiny

from tauflow.errors import DataError, SpecificationError
from tauflow.runs.report.document import collect_environment
from tauflow.runs.report.page import make_run_page, write_page
from tauflow.runs.report.plots import CurvePanel, plot_learning_curves
from tauflow.runs.results import DONE, RunRecord, describe_machine
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.result_file import find_divergence, read_records
from tauflow_papers.experiments.run.row_jobs import make_job

ROW = {"epoch": 1, "step": 1, "train_loss": 1.0, "valid": 0.5, "test": 0.6, "seconds": 0.1}


def record(**changes):
    job = make_job(tiny(), tiny().rows[0], 0)
    values = {
        **{"experiment": "tiny", "row": "gru", "seed": 0, "config": job.config},
        **{"config_hash": job.hash, "status": DONE, "metric": "mse", "started": "2024-05-31"},
        **{"valid": 0.5, "test": 0.6, "last_test": 0.6, "best_epoch": 1, "epochs": 1},
        **{"parameters": 12, "seconds": 0.1, "seconds_per_epoch": 0.1, "history": [ROW]},
    }
    return json.dumps({**values, **changes})


def test_a_whole_line_is_read(tmp_path):
    read_record = RunRecord.from_json(record())
    assert RunRecord.from_json(read_record.to_json()) == read_record
    assert asdict(read_record)["history"][0] == ROW


@pytest.mark.parametrize(
    ("epochs", "best", "diverged"), [(4, 1, 4), (5, 1, None), (5, 4, 5), (6, 4, None), (5, None, 5)]
)
def test_epochs_of_a_curriculum_count_for_no_patience(epochs, best, diverged):
    stages = {"curriculum": [3], "curriculum_epochs": 3, "patience": 2, "on_divergence": "stop"}
    config = {"recipe": {"epochs": 10, **stages}}
    read_record = RunRecord.from_json(record(config=config, epochs=epochs, best_epoch=best))
    assert find_divergence(read_record) == diverged


BROKEN = {
    "a list": ("[1]", "is not a mapping"),
    "an unknown key": (record(metrc="x"), "unexpected keyword argument 'metrc'"),
    "no status": (record().replace('"status": "done", ', ""), "'status'"),
    "thousands of digits": (
        record().replace("0.25", "x").replace("12,", "9" * 5000 + ","),
        "digits",
    ),
    "deep nesting": (
        record(machine={"x": 0}).replace('"x": 0', '"x": ' + "[" * 990 + "]" * 990),
        "deep",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_is_named_with_what_is_wrong(case, tmp_path):
    line, message = BROKEN[case]
    path = tmp_path / "tiny.jsonl"
    path.write_text(f"{record()}\n{line}\n")
    with pytest.raises(
        DataError, match=f"line 2 is not a run record: .*{message}.*Remove the line"
    ):
        read_records(path)


def test_a_torn_line_is_left_out_still(tmp_path):
    path = tmp_path / "tiny.jsonl"
    path.write_text(f"{record()}\n{record()[:50]}\n")
    records, warnings = read_records(path)
    assert len(records) == 1
    assert "line 2 is torn" in warnings[0]


def test_control_characters_reach_no_report(tmp_path):
    read_record = RunRecord.from_json(record(row="a\x1b[31m", machine={"cpu": ["x"]}))
    picture = plot_learning_curves([CurvePanel(read_record.row, [read_record])], "mse")
    svg = base64.b64decode(picture.uri.partition(",")[2])
    xml.etree.ElementTree.fromstring(svg)  # which refuses control characters
    assert "a\ufffd[31m".encode() in svg
    page = make_run_page(
        read_record, title=read_record.row, source="", baselines=(), pictures=[picture]
    )
    write_page(page, tmp_path / "page.html")
    assert b"\x1b" not in (tmp_path / "page.html").read_bytes()


SPECIFICATIONS = {
    "bytes that are no text": (b"name = '\xff'", "is not valid TOML in UTF-8"),
    "thousands of digits": (b"seeds = " + b"9" * 5000, "is not valid TOML in UTF-8: .*digits"),
    "very deep nesting": (b"a = " + b"[" * 5000 + b"]" * 5000, "is not valid TOML in UTF-8"),
}


@pytest.mark.parametrize("case", SPECIFICATIONS)
def test_files_that_are_no_specification(case, tmp_path):
    content, message = SPECIFICATIONS[case]
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(SpecificationError, match=message):
        load_experiment(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": [1]}, "row must hold a dict in each place, got 1"),
        ({"row": {}}, "row must be a list"),
        ({"recipes": {"x": 1}}, "recipes must hold a dict"),
        ({"notes": [{}]}, "notes must hold a str"),
        ({"name": "../x"}, "cannot name the files of results"),
        ({"name": ".."}, "cannot name the files of results"),
        ({"name": "a\x1b"}, "cannot name the files of results"),
        ({"name": "a" * 201}, "cannot name the files of results. Use up to 200 letters"),
        ({"seeds": -1}, "seeds must be from 1 to 1000, got -1"),
        ({"ddof": 7}, "ddof must be from 0 to 1, got 7"),
        ({"published": {"std": float("nan")}}, "std must be a finite number, got nan"),
        ({"published": {"std": 10**400}}, "std must be a finite number, got 1000"),
        ({"search": {"model": {k: list(range(50)) for k in "ab"}}}, "more than 1,000 combinations"),
    ],
)
def test_absurd_values_of_a_specification(changes, message):
    with pytest.raises(SpecificationError, match=message):
        tiny(**changes)


def test_a_run_that_was_not_on_the_cpu_says_where(monkeypatch):
    assert describe_machine() == describe_machine("cpu")
    assert "device" not in describe_machine()
    assert describe_machine("meta")["device"] == "meta"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"an accelerator, {device}")
    run = RunRecord.from_json(record(machine=describe_machine("cuda:1")))
    assert dict(collect_environment([run]))["device"] == "an accelerator, cuda:1"
