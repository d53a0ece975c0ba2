"""What the README says is so."""

import re

import pytest
from sources import ROOT
from typer.testing import CliRunner

from tauflow.cells.registry import MODELS
from tauflow.cli.main import app
from tauflow.models import WHOLE_MODELS

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_example_runs_and_learns(capsys):
    code = next(text for language, text in BLOCKS if language == "python")
    assert len(code.strip().splitlines()) <= 22
    exec(code, {"__name__": "__main__"})
    error, variance = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert error < 0.1 * variance


@pytest.mark.slow
def test_every_python_block_runs():
    blocks = [text for language, text in BLOCKS if language == "python"]
    assert len(blocks) == 3
    namespace = {}
    exec(blocks[1], namespace)
    assert namespace["action"].shape == (64,)
    assert namespace["state"].shape == (1, 64)


def test_the_example_with_a_table_learns(capsys):
    block = next(text for language, text in BLOCKS if "from_table" in text)
    namespace = {}
    exec(block, namespace)
    ours, classifier = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert min(ours, classifier) > 0.75  # two thirds survive
    assert len(namespace["p"]) == 200
    assert next(iter(namespace["p"].columns)) == "patient"


def test_the_example_with_more_data_than_memory_learns(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "more-than-memory.md").read_text(encoding="utf-8")
    namespace = {}
    exec(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1], namespace)
    variance = float(namespace["data"].test.y.var())
    assert float(capsys.readouterr().out.split()[-1]) < 0.2 * variance


def test_it_is_short():
    assert len(README.splitlines()) <= 200


def test_it_counts_the_models_of_the_catalog():
    recurrent, whole = len(MODELS), len(WHOLE_MODELS)
    assert re.findall(r"(\d+) by name", README) == [str(recurrent)]
    assert f"**{recurrent} recurrent and {whole} whole models, one call.**" in README


def test_the_commands_exist():
    shell = "\n".join(text for language, text in BLOCKS if not language)
    commands = re.findall(r"^tauflow (\w+)(?: (list|get))?", shell, re.MULTILINE)
    assert {name for name, _ in commands} == {
        "data",
        "run",
        "inspect",
        "predict",
        "reproduce",
        "tune",
        "info",
        "show",
    }
    for name, sub in set(commands):
        words = [word for word in (name, sub) if word]
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def test_the_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) <= set(targets)


def test_its_numbers_are_those_of_the_report():
    report = (ROOT / "papers" / "results" / "REPORT.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^- (.*rows.*?): (.*)$", report, re.MULTILINE))
    measured, rows = re.findall(r"\d+", found["rows measured"])
    words = ("as published", "better", "worse", "unfinished")
    counts = ", ".join(f"{found[f'rows {word}']} {word}" for word in words)
    assert f"Of {rows} rows {measured} are measured: {counts}." in README
    twice = found["rows whose runs another table shows, too"].partition(" ")[0]
    assert f"{twice} of these stand in two tables" in README.replace("\n", " ")
