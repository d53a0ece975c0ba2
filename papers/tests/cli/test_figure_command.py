"""``tauflow figure``."""

import json

import pytest

from tauflow_papers.figures import FIGURES, gallery


def test_the_list(call):
    printed = call("figure").output
    for name, entry in FIGURES.items():
        assert name in printed
        assert all(alias in printed for alias in entry.aliases)


@pytest.mark.slow
def test_one_figure(call, tmp_path):
    words = ("--size", "small", "--seed", 3, "--format", "png", "--out", "pictures")
    printed = call("figure", "cfc-figure-5", *words).output
    files = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert files == [f"cfc-figure-5.{suffix}" for suffix in ("json", "npz", "png")]
    assert all(name in printed for name in files)
    record = json.loads((tmp_path / "pictures" / "cfc-figure-5.json").read_text(encoding="utf-8"))
    assert (record["size"], record["seed"]) == ("small", 3)


def test_a_page_alone(call, tmp_path):
    assert "README.md" in call("figure", "--page", "--out", "pictures").output
    files = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert files == ["README.md", "cfc.md", "gnode.md", "ltc.md", "ode-lstm.md"]


def test_pages_ask_for_figures_that_there_are():
    assert {name for names in gallery._QUESTIONS.values() for name in names} == set(FIGURES)


def test_mistakes(call, tmp_path):
    assert "Did you mean 'ltc-figure-4'" in call("figure", "ltc-figure-44", code=1).stderr
    assert "svg" in call("figure", "cfc-figure-5", "--format", "gif", code=1).stderr
    assert "full" in call("figure", "cfc-figure-5", "--size", "tiny", code=1).stderr
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.slow
def test_all_of_them(call, tmp_path, monkeypatch):
    for name in set(FIGURES) - {"cfc-figure-5", "cfc-figure-3"}:
        monkeypatch.delitem(FIGURES._entries, name)
    call("figure", "all", "--size", "small", "--format", "svg", "--page", "--out", "g")
    pictures = sorted(path.name for path in (tmp_path / "g").glob("*.svg"))
    assert pictures == ["cfc-figure-3.svg", "cfc-figure-5.svg"]
    assert (tmp_path / "g" / "README.md").is_file()
