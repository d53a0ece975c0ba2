"""A directory of a run has one owner at a time."""

import json
import subprocess
import sys

import pytest
import torch
from tiny_training_task import tiny_model, tiny_splits

from tauflow.errors import BusyError
from tauflow.training import Recipe, run_directory, train

HOLD = """
import sys
from pathlib import Path
from tauflow.training.run_directory import lock_run_directory
with lock_run_directory(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def fit(directory, epochs=3, **changes):
    arguments = {**tiny_splits(), "loss": "mse", "metric": "mse", "seed": 0, **changes}
    recipe = Recipe(lr=0.1, epochs=epochs, batch_size=8)
    return train(tiny_model(), run_dir=directory, recipe=recipe, **arguments)


def lines(directory):
    rows = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(row).items() if k != "seconds"} for row in rows]


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_training_in_a_directory_is_refused_and_nothing_is_mixed(
    tmp_path, monkeypatch, resume
):
    monkeypatch.setattr(run_directory, "_LOCK_TIMEOUT", 0.0)
    refused = []

    def begin_another(row):
        busy = pytest.raises(BusyError, match=r"run is in use by process \d+.* mix their files")
        with torch.random.fork_rng(), busy:
            fit(tmp_path / "run", resume=resume)
        refused.append(row["epoch"])

    fit(tmp_path / "run", callbacks=[begin_another])
    fit(tmp_path / "alone")
    assert refused == [1, 2, 3]
    assert lines(tmp_path / "run") == lines(tmp_path / "alone")
    assert fit(tmp_path / "run", resume=True).epochs == 3  # it was given back


def test_a_directory_whose_owner_was_killed_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "_LOCK_TIMEOUT", 0.0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"in use by process {holder.pid}"):
            fit(tmp_path)
        assert not (tmp_path / "run.json").exists()
    finally:
        holder.kill()
        holder.communicate()
    assert fit(tmp_path).epochs == 3
