"""Files beside somebody's data are never run in the place of modules of those names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tauflow
from tauflow._internal.import_path import safe_path_of_children

SHADOWS = ("random.py", "html/__init__.py", "colorsys.py", "queue.py", "numba.py", "jinja2.py")


@pytest.fixture
def folder(tmp_path):
    for name in SHADOWS:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise SystemExit('ran {name}')\n")
    return tmp_path


def run(folder, *words):
    source = str(Path(tauflow.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_command_runs_nothing_of_the_working_folder(folder):
    ended = run(folder, "-m", "tauflow", "models")
    assert ended.returncode == 0, ended.stderr
    assert "Liquid time-constant" in ended.stdout or "ltc" in ended.stdout


@pytest.mark.thorough
def test_what_is_nowhere_else_is_still_found_there(tmp_path):
    (tmp_path / "mine.py").write_text("found = 1\n")
    code = (
        "import sys; sys.argv[0] = '-m'; sys.orig_argv[1:] = ['-m', 'tauflow'];"
        "import tauflow._internal.import_path, mine;"
        "print(sys.path[0] != '', sys.path[-1] == '', mine.found)"
    )
    assert run(tmp_path, "-c", code).stdout.split() == ["True", "True", "1"]


@pytest.mark.thorough
def test_the_path_of_others_is_theirs(tmp_path):
    code = "import sys; before = list(sys.path); import tauflow; print(sys.path == before)"
    assert run(tmp_path, "-c", code).stdout.strip() == "True"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no such setting")
def test_workers_begin_without_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    command = [sys.executable, "-c", "import random"]
    with safe_path_of_children():
        assert subprocess.run(command, capture_output=True).returncode == 0
    assert "PYTHONSAFEPATH" not in os.environ
    assert subprocess.run(command, capture_output=True).returncode == 1
