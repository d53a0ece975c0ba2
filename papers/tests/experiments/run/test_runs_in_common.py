"""A run that two tables ask for is made once, and counts in both."""

import json
from dataclasses import replace

import pytest
from tiny_experiment import parsed, tiny

from tauflow_papers.experiments import collect, list_experiments, load_experiment, reproduce
from tauflow_papers.experiments.report.results_summary import summarize_results
from tauflow_papers.experiments.report.summary_page import list_notes, make_tiles


def second(**changes):
    """Return a table that names one row otherwise and trains the other one longer."""
    first, two, _ = parsed()["row"]
    two = {**two, "recipe": {"lr": 0.02, "epochs": 3}}
    rows = [{**first, "name": "gated"}, two]
    return tiny(name="second", runs_of=["tiny"], row=rows, **changes)


def test_only_what_is_missing_is_run(tmp_path):
    places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs"}
    first = reproduce(tiny(), seeds=2, progress=False, **places)
    messages = []
    grid = reproduce(second(), seeds=2, progress=False, say=messages.append, **places)
    assert messages[0] == "2 of 4 runs are there already: they were made for tiny"
    assert {(r.row, r.seed) for r in grid.records} == {
        (row, seed) for row in ("gated", "elman") for seed in (0, 1)
    }
    scores = {r.seed: r.test for r in first.records if r.row == "gru"}
    gated = [r for r in grid.records if r.row == "gated"]
    assert {r.seed: r.test for r in gated} == scores
    assert {r.experiment for r in gated} == {"tiny"}
    lines = (tmp_path / "results" / "second.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["row"] for line in lines} == {"elman"}
    assert collect(second(), results_dir=places["results_dir"]).records == grid.records
    alone = replace(second(), runs_of=())
    assert len(collect(alone, results_dir=places["results_dir"]).records) == 2


def test_a_report_counts_them_once_and_says_whose_they_are(tmp_path):
    reproduce(tiny(), seeds=1, results_dir=tmp_path, runs_dir=tmp_path / "runs", progress=False)
    files = []
    for name, text in {"tiny": parsed(), "second": {**parsed(), "name": "second"}}.items():
        text = {**text, "runs_of": ["tiny"] if name == "second" else []}
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(toml_of(text), encoding="utf-8")
    summary = summarize_results(tmp_path, files)
    first, two = (table for table in summary.tables if table.experiment.name in ("tiny", "second"))
    assert (len(first.measured), len(two.measured)) == (2, 2)
    took = sum(entry.records[0].seconds for entry in first.measured)
    assert dict(make_tiles(summary))["runs"] == f"2, {took:.1f} s"
    assert "GRU, Elman <b>: runs made for tiny." in [*list_notes(first), *list_notes(two)]


def toml_of(table):
    """Return plain values as TOML; JSON writes words, numbers and lists in the same way."""
    lines = [f"{k} = {inline(v)}" for k, v in table.items()]
    return "\n".join([*lines, ""])


def inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("name", list_experiments())
def test_tables_name_each_other(name):
    for other in load_experiment(name).runs_of:
        assert name in load_experiment(other).runs_of


def test_there_are_tables_that_name_each_other():
    assert any(load_experiment(name).runs_of for name in list_experiments())


def twins(**changes):
    """Return a table two of whose rows train the same and search; the third one differs."""
    first, two, _ = parsed()["row"]
    rows = [first, {**first, "name": "twin"}, {**two, "recipe": {}}]
    search = {"recipe": {"lr": [0.01, 0.02]}}
    return tiny(name="twins", row=rows, search=search, **changes)


def test_rows_that_train_the_same_share_their_runs(tmp_path):
    places = {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs", "progress": False}
    messages = []
    grid = reproduce(twins(), models=["twin"], seeds=1, **places)
    assert {(r.row, r.seed) for r in grid.records} == {("gru", 0), ("twin", 0)}
    grid = reproduce(twins(), seeds=2, say=messages.append, **places)
    assert messages[0].startswith("2 of 6 runs are there already")
    lines = (tmp_path / "results" / "twins.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line)["row"] for line in lines]
    assert sorted(rows) == ["elman"] * 3 + ["gru"] + ["twin"] * 2  # two settings, one more seed
    scores = {name: [r.test for r in grid.get_runs(twins().row(name))] for name in ("gru", "twin")}
    assert scores["gru"] == scores["twin"]
    assert len(scores["gru"]) == 2
