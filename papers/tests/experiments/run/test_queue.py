"""A queue of rows: read, planned, trained, continued after a kill, and collected."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tiny_experiment import TINY

from tauflow.errors import ArgumentError, SpecificationError
from tauflow.runs.results import RunRecord
from tauflow_papers.experiments.report.queue_plan import plan_queue
from tauflow_papers.experiments.run import queue as queue_module
from tauflow_papers.experiments.run.queue import collect_results, read_queue, run_queue
from tauflow_papers.experiments.run.result_file import compact_history, read_records
from tauflow_papers.experiments.run.run_job import Paths

SEARCH = (
    'model = { cell = "gru" }\nsearch.recipe.lr = [0.01, 0.1]\nsearch.recipe.eps = [1e-8, 1e-7]'
)


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "nice", lambda _: 0)  # it would last for all other tests

    def write(runs, table=TINY):
        (tmp_path / "tiny.toml").write_text(table, encoding="utf-8")
        path = tmp_path / "queue.toml"
        path.write_text(runs.replace("TINY", str(tmp_path / "tiny.toml")), encoding="utf-8")
        return path

    return write


def paths(tmp_path):
    return Paths(tmp_path / "results", tmp_path / "runs")


def test_rows_are_trained_in_order_and_once(written, tmp_path):
    path = written(
        '[[run]]\ntable = "TINY"\nrows = ["elman"]\n'
        '[[run]]\ntable = "TINY"\nrows = ["gru", "elman"]\nseeds = 2\n'
    )
    lines = []
    assert run_queue(path, paths=paths(tmp_path), say=lines.append) == []
    records, _ = read_records(tmp_path / "results" / "tiny.jsonl")
    assert [(r.row, r.seed) for r in records] == [
        ("elman", 0),
        ("gru", 0),
        ("gru", 1),
        ("elman", 1),
    ]
    assert all(r.processor_seconds > 0 and r.machine["threads"] == 1 for r in records)
    assert all(r.command.startswith("tauflow") for r in records)
    assert run_queue(path, paths=paths(tmp_path)) == []
    assert len(read_records(tmp_path / "results" / "tiny.jsonl")[0]) == 4
    assert list(plan_queue(path, tmp_path / "results")) == []


def test_a_plan_counts_each_run_once(written, tmp_path):
    path = written(
        '[[run]]\ntable = "TINY"\nrows = ["gru"]\n'
        '[[run]]\ntable = "TINY"\nrows = ["gru"]\nseeds = 3\n'
    )
    assert [(planned.row.name, planned.missing) for planned in plan_queue(path, tmp_path)] == [
        ("gru", 1),
        ("gru", 2),
    ]


def test_a_plan_takes_times_from_runs_that_are_finished(written, tmp_path):
    """Processor time of the row's own runs; of old ones, which lack it, wall time."""
    run_table = '[[run]]\ntable = "TINY"\nrows = ["gru"]\n'
    run_queue(written(run_table), paths=paths(tmp_path))
    path, results = written(run_table + "seeds = 4\n"), tmp_path / "results" / "tiny.jsonl"
    (record,), _ = read_records(results)
    (planned,) = plan_queue(path, results.parent)
    assert (planned.missing, planned.seconds) == (3, record.processor_seconds)
    old = replace(record, processor_seconds=None, seconds=5.0)
    results.write_text(f"{old.to_json()}\n", encoding="utf-8")
    (planned,) = plan_queue(path, results.parent)
    assert planned.seconds == 5.0


def test_only_some_settings_of_a_search_are_tried(written, tmp_path):
    table = TINY.replace('model = { cell = "gru" }', SEARCH).replace('"pendulum"', '"pendulum"')
    path = written(
        '[[run]]\ntable = "TINY"\nrows = ["gru"]\nonly = { "recipe.eps" = 1e-7 }\n', table
    )
    assert [planned.missing for planned in plan_queue(path, tmp_path)] == [2]
    run_queue(path, paths=paths(tmp_path))
    records, _ = read_records(tmp_path / "results" / "tiny.jsonl")
    assert {r.config["recipe"]["eps"] for r in records} == {1e-7}
    assert {r.config["recipe"]["lr"] for r in records} == {0.01, 0.1}
    assert [planned.missing for planned in plan_queue(path, tmp_path / "results")] == []


@pytest.mark.parametrize(
    ("run", "match"),
    [
        ('table = "TINY"\nrows = ["grv"]', "run 1: tiny has no row 'grv'"),
        ('table = "TINY"\nrow = ["gru"]', "unknown key 'row'"),
        ('table = "TINY"', "the key 'rows' is missing"),
        ('table = "TINY"\nrows = ["gru"]\nonly = { "recipe.lr" = 1 }', "searches no setting"),
    ],
)
def test_wrong_entries_are_refused_before_anything_runs(written, run, match):
    with pytest.raises(SpecificationError, match=match):
        read_queue(written(f"[[run]]\n{run}\n"))


def test_a_row_that_fails_leaves_the_others_alone(written, tmp_path):
    path = written(
        '[[run]]\ntable = "TINY"\nrows = ["gru"]\n[[run]]\ntable = "TINY"\nrows = ["elman"]\n',
        TINY.replace('cell = "gru"', 'cell = "gru", init = "zero"'),
    )
    (failed,) = run_queue(path, paths=paths(tmp_path))
    assert failed.row == "gru"
    records, _ = read_records(tmp_path / "results" / "tiny.jsonl")
    assert [(r.row, r.status) for r in records] == [("gru", "failed"), ("elman", "done")]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_queue_goes_on_from_its_checkpoint(written, tmp_path):
    path = written(
        '[[run]]\ntable = "TINY"\nrows = ["gru"]\n', TINY.replace("epochs = 2", "epochs = 400")
    )
    command = [sys.executable, "-m", "tauflow", "queue", str(path), "--run"]
    command += ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command, start_new_session=True, **quiet)
    deadline = time.monotonic() + 300
    while not any(log.stat().st_size for log in tmp_path.glob("runs/tiny/*/log.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "results" / "tiny.jsonl").exists()
    (log,) = tmp_path.glob("runs/tiny/*/log.jsonl")
    before = log.read_text().splitlines()
    assert 0 < len(before) < 400
    subprocess.run(command, check=True, capture_output=True)
    assert log.read_text().splitlines()[: len(before) - 1] == before[:-1]
    (record,), _ = read_records(tmp_path / "results" / "tiny.jsonl")
    assert record.epochs == 400


def test_results_of_another_folder_are_added_once(written, tmp_path):
    path = written('[[run]]\ntable = "TINY"\nrows = ["gru"]\n')
    run_queue(path, paths=paths(tmp_path))
    here = tmp_path / "here"
    assert collect_results(tmp_path / "results", here) == {"tiny.jsonl": 1}
    assert collect_results(tmp_path / "results", here) == {}
    (stored,), _ = read_records(here / "tiny.jsonl")
    (record,), _ = read_records(tmp_path / "results" / "tiny.jsonl")
    assert replace(stored, history=()) == replace(record, history=())
    assert [set(epoch) for epoch in stored.history] == 2 * [
        {"epoch", "train_loss", "valid", "test"}
    ]
    for short, full in zip(stored.history, record.history, strict=True):
        assert short["test"] == pytest.approx(full["test"], rel=1e-5)


def test_long_histories_keep_what_reports_show():
    scores = [abs(epoch - 333) for epoch in range(1, 501)]
    rows = [
        {"epoch": epoch, "train_loss": 1 / 3, "valid": None, "test": score}
        for epoch, score in enumerate(scores, start=1)
    ]
    record = RunRecord("t", "r", 0, {}, "", "done", "mse", "", best_epoch=77, history=tuple(rows))
    history = compact_history(record).history
    epochs = [row["epoch"] for row in history]
    assert epochs == sorted({*range(1, 501, 16), 500, 77, 333})  # 1 has the highest score
    assert all(row["test"] == scores[row["epoch"] - 1] for row in history)
    assert compact_history(replace(record, history=history)).history == history


def test_untraceable_results_are_not_collected(written, tmp_path, monkeypatch):
    path = written('[[run]]\ntable = "TINY"\nrows = ["gru"]\n')
    run_queue(path, paths=paths(tmp_path))

    def refuse(record, results_dir):
        raise ArgumentError(f"{record.row}: no clean ancestor of main")

    monkeypatch.setattr(queue_module, "check_origin", refuse)
    with pytest.raises(ArgumentError, match="gru: no clean ancestor"):
        collect_results(tmp_path / "results", tmp_path / "here")
    assert not (tmp_path / "here" / "tiny.jsonl").exists()
