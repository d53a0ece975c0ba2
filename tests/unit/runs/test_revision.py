"""The revision that a run is recorded with."""

import shutil
import subprocess

import pytest

from tauflow.runs import results


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_tree_is_changed_where_the_package_is_not_where_results_are(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def revision():
        results.get_commit.cache_clear()
        return results.get_commit()

    module = tmp_path / "src/tauflow/runs/results.py"
    table = tmp_path / "results/table.jsonl"
    for file in (module, table):
        file.parent.mkdir(parents=True)
        file.write_text("1\n")
    monkeypatch.setattr(results, "__file__", str(module))
    try:
        assert revision() is None
        git("init")
        assert revision() is None  # nothing is committed
        git("add", ".")
        git("commit", "-m", "all")
        clean = revision()
        assert len(clean) >= 7
        table.write_text("2\n")
        assert revision() == clean
        module.write_text("2\n")
        assert revision() == f"{clean}-dirty"
    finally:
        results.get_commit.cache_clear()
