"""Commands read the same results from any folder."""

import pytest

from tauflow_papers.experiments.run import stored_results
from tauflow_papers.experiments.run.stored_results import (
    choose_results,
    get_stored_figures,
    get_stored_results,
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / "repository"
    monkeypatch.setattr(stored_results, "_PACKAGE", root / "papers/src/tauflow_papers")
    monkeypatch.setattr(stored_results, "_IN_WHEEL", root / "papers/src/tauflow_papers/stored")
    (root / "papers/results").mkdir(parents=True)
    (root / "papers/results/one.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    return root


def test_results_come_with_the_package(package, tmp_path):
    assert choose_results(None) == package / "papers/results"
    assert choose_results(None, "one") == package / "papers/results"
    assert choose_results(None, "two").name == "results"
    assert choose_results(tmp_path) == tmp_path
    assert get_stored_figures() == package / "docs/gallery"


def test_results_of_the_current_folder_go_first(package, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    assert choose_results(None) == package / "papers/results"  # which is empty
    (folder / "one.jsonl").write_text("")
    assert choose_results(None, "one").resolve() == folder
    assert choose_results(None).resolve() == folder


def test_a_wheel_holds_them_inside_of_the_package(package):
    inside = package / "papers/src/tauflow_papers/stored"
    for name in ("results", "figures"):
        (inside / name).mkdir(parents=True)
    assert get_stored_results() == inside / "results"
    assert get_stored_figures() == inside / "figures"


def test_one_table_is_shown_from_an_empty_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = call("show", "ltc-table-6").output
    assert "2.214 ± 0.021" in output
    assert not list((tmp_path / "results").glob("*.jsonl"))
