"""``tauflow tune``: what is given is not tried, and what it found runs as it did."""

import errno
import json
import os
import re
import sys

import pytest

pytest.importorskip("optuna")
WORDS = ("tune", "pendulum", "--model", "elman", "--trials", "1", "--epochs", "1")
SIZE = ("--vary", "model.hidden_size=[2]")


def recipe_in(folder):
    (file,) = folder.rglob("run.json")
    return json.loads(file.read_text(encoding="utf-8"))["recipe"]


def test_the_best_runs_with_the_score_of_the_study(call, tmp_path):
    settings = ("optimizer=sgd", "optimizer_options.momentum=0.5", "clip=none", "clip_norm=null")
    words = [word for setting in settings for word in ("--set", f"recipe.{setting}")]
    output = call(*WORDS, *SIZE, *words, "--seed", "5").output
    (best,) = tmp_path.rglob("best.toml")
    call("run", "--config", best)
    (record,) = tmp_path.rglob("record.json")
    score = json.loads(record.read_text(encoding="utf-8"))["valid"]
    assert re.search(r"Best validation mse: (\S+)", output)[1] == f"{score:.4g}"
    recipe = recipe_in(tmp_path)
    assert (recipe["optimizer_options"], recipe["clip_norm"]) == ({"momentum": 0.5}, None)


def test_what_is_set_is_not_tried(call):
    shown = call(*WORDS, *SIZE, "--set", "recipe.lr=0.25", "--option", "init=keras").output
    assert "trial 1, complete" in shown
    assert "recipe.lr" not in shown
    shown = call(
        *("tune", "pendulum", "--model", "lmu", "--trials", "1", "--epochs", "1", *SIZE),
        *("--option", "theta=10", "--option", "order=4"),
    ).output
    assert "recipe.lr = " in shown
    assert "model.theta" not in shown


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--vary", "recipe.lr=[0.1]", "--set", "recipe.lr=0.2"), "recipe.lr"),
        (("--vary", "recipe.epochs=[1,2]"), "recipe.epochs"),
        (("--vary", 'model.init=["keras"]', "--option", "init=torch"), "model.init"),
        ((*SIZE, "--hidden-size", "3"), "model.hidden_size"),
    ],
)
def test_what_is_set_is_not_varied(call, tmp_path, words, name):
    assert f"{name} is given and varied too" in call(*WORDS, *words, code=1).stderr
    assert not list(tmp_path.iterdir())


def test_what_is_varied_goes_before_a_file(call, tmp_path):
    (tmp_path / "my.toml").write_text(
        "[recipe]\nlr = 0.25\nweight_decay = 0.125\n[options]\ninit = 'torch'\n", encoding="utf-8"
    )
    varied = ("--vary", "recipe.lr=[0.5]", "--vary", 'model.init=["keras"]')
    shown = call(*WORDS, *SIZE, *varied, "--config", "my.toml").output
    assert "recipe.lr = 0.5" in shown
    assert "model.init = keras" in shown
    (best,) = tmp_path.rglob("best.toml")
    call("run", "--config", best)
    recipe = recipe_in(tmp_path)
    assert (recipe["lr"], recipe["weight_decay"]) == (0.5, 0.125)
    (tmp_path / "runs").rename(tmp_path / "before")
    shown = call(*WORDS, *SIZE, "--config", "my.toml").output  # which counts as given
    assert "recipe.lr" not in shown


def test_a_size_that_is_given_is_not_tried(call, tmp_path):
    assert "model.hidden_size" not in call(*WORDS, "--hidden-size", "3").output
    (best,) = tmp_path.rglob("best.toml")
    assert "hidden_size = 3\n" in best.read_text(encoding="utf-8")
    assert "model.hidden_size = 2" in call(*WORDS, *SIZE, "--config", best).output


def test_what_cannot_be_tried_is_one_line(call, tmp_path):
    shown = call(*WORDS, "--vary", "model.hidden_size=[-1]", code=1)
    assert "model.hidden_size = -1" in shown.stderr
    assert "cannot be tried: hidden_size must be at least 1" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("room", "file", "lost"),
    [(1000, "study.log", 2), (1600, "study.log", 1), (9000, "best.toml", 0)],
)
def test_a_full_disk_is_named_and_nothing_found_is_lost(
    call, tmp_path, monkeypatch, room, file, lost
):
    """The same command then goes on with the trials that ended before."""
    words = ("tune", "pendulum", "--model", "elman", "--trials", "2", "--epochs", "1", *SIZE)
    fsync = os.fsync

    def full(descriptor):
        (journal,) = tmp_path.rglob("study.log")
        state = os.fstat(descriptor)
        if not os.path.samestat(state, journal.stat()) or state.st_size > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(sys, "argv", ["tauflow", *words])
        failed = call(*words, code=1)
    match = re.search(r"^tauflow: No space left on device: (\S+)$", failed.stderr, re.MULTILINE)
    assert match[1].endswith(file)
    assert len(re.findall(r"^trial \d+, complete", failed.stdout, re.MULTILINE)) == 2 - lost
    again = call(*words).output
    assert "2 trials: 2 completed" in again
    assert len(re.findall(r"^trial", again, re.MULTILINE)) == lost


def test_a_portfolio_is_not_tuned(call):
    message = call("tune", "pendulum", "--model", "auto", code=1).stderr
    assert "'tauflow run --model auto' chooses among models" in " ".join(message.split())
