"""What the README says is so."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sources import ROOT
from typer.testing import CliRunner

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.cli.main import app

sys.path.insert(0, str(ROOT))
from benchmarks import plot_speed

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


PYTHON = [text for language, text in BLOCKS if language == "python"]


@pytest.mark.slow
def test_the_tensor_example_learns(capsys):
    torch.manual_seed(0)
    assert len(PYTHON[0].strip().splitlines()) <= 16
    exec(PYTHON[0], {"__name__": "__main__"})
    error, variance = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert error < 0.1 * variance


@pytest.mark.slow
def test_the_table_example_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    visits = pd.DataFrame({"patient": np.arange(2000) // 10})
    visits["hours"] = rng.exponential(2.0, 2000)
    visits["hours"] = visits.groupby("patient")["hours"].cumsum()
    visits["died"] = visits["patient"] % 3 == 0
    visits["pulse"] = rng.normal(80 + 8 * visits["died"], 8)
    visits.loc[rng.random(2000) < 0.2, "pulse"] = np.nan  # empty cells, as the page allows
    visits.to_csv("visits.csv", index=False)
    visits.drop(columns="died").to_csv("new_visits.csv", index=False)
    namespace = {"tauflow": tauflow}
    (block,) = PYTHON[1:]
    exec(block, namespace)
    probabilities = namespace["probabilities"]
    assert list(probabilities.columns) == ["patient", "False", "True"]
    died = probabilities["patient"].astype(int) % 3 == 0
    assert sorted(probabilities["patient"].astype(int)) == list(range(200))
    assert ((probabilities["True"] > 0.5) == died).mean() > 0.75  # two thirds survive
    assert namespace["result"].test > 0.75


def test_the_example_with_more_data_than_memory_learns(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "more-than-memory.md").read_text(encoding="utf-8")
    namespace = {}
    exec(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1], namespace)
    variance = float(namespace["data"].test.y.var())
    assert float(capsys.readouterr().out.split()[-1]) < 0.2 * variance


def test_it_is_short():
    assert len(README.splitlines()) <= 80


def test_it_counts_the_cells_of_the_registry():
    assert re.findall(r"(\d+) recurrent cells", README) == [str(len(MODELS))]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_its_links_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert len(targets) > 15
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_chinese_one_has_the_same_examples_and_count():
    text = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks == BLOCKS
    assert re.findall(r"(\d+) 种循环单元", text) == [str(len(MODELS))]


def test_its_picture_is_on_the_page_about_speed():
    """Whose pictures and tables ``python -m benchmarks plot-speed`` makes of the newest results."""
    page = plot_speed.PAGE.read_text(encoding="utf-8")
    assert len(plot_speed.QUESTIONS) > 5
    for name, make in plot_speed.QUESTIONS.items():
        question = make()
        assert plot_speed.MARKER.format(name) + plot_speed.describe(name, question) in page
        picture = (plot_speed.PICTURES / f"speed-{name}.svg").read_text(encoding="utf-8")
        cases = [case for rows in question.panels.values() for case in rows]
        assert len(cases) > 5
        assert [case for case in cases if f">{case}<" not in picture] == []
    assert "docs/_static/speed-cpu.svg" in README


def test_the_commands_exist():
    shell = "\n".join(text for language, text in BLOCKS if not language)
    commands = re.findall(r"^tauflow (\w+)", shell, re.MULTILINE)
    assert set(commands) == {"run", "predict"}
    for name in commands:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_the_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = set(re.findall(r"`make (\w+)`", README))
    assert shown
    assert shown <= set(targets)
