"""``tauflow run FOLDER``: a data set that ``write_task`` wrote is run like one of the catalog."""

import re

import pytest

from tauflow.data import load_task, write_task

TINY = ("--model", "elman", "--hidden-size", 4, "--epochs", 1)


@pytest.fixture
def folder(tmp_path):
    data = load_task("pendulum", sizes=(40, 10, 10), steps=6)
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    return write_task(tmp_path / "swing", data.card, **parts)


def scores(output):
    return re.findall(r"^(\S.*?)  +\S+ +([\d.]+) +[\d,]+$", output, re.MULTILINE)


def test_it_is_run_resumed_and_shown(call, folder):
    first = call("run", "swing", *TINY).output
    assert [name for name, _ in scores(first)] == ["elman", "persistence", "training mean"]
    run = re.search(r"^Run: +(.*)$", first, re.MULTILINE)[1]
    assert "Report: " in call("show", run).output
    again = call("run", folder, *TINY, "--resume").output
    assert scores(again) == scores(first)
    assert "Run: " + run in re.sub(" +", " ", again)


def test_other_content_is_another_run(call, folder):
    call("run", "swing", *TINY)
    data = load_task("pendulum", sizes=(30, 10, 10), steps=6)
    write_task(folder.with_name("other"), data.card, train=data.train, test=data.test)
    message = call("run", "other", *TINY, "--resume", code=1).output
    assert "there is no run with these arguments to resume" in message


def test_a_folder_of_something_else_is_refused(call, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty holds no data set" in call("run", "empty", *TINY, code=1).output
    assert "Did you mean 'pendulum'" in call("run", "pendulun", *TINY, code=1).output
