"""Checkpoints and run folders that were damaged: refused, or gone on from."""

import json
import random

import pytest
import torch
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

import tauflow
from tauflow.training import Recipe
from tauflow.training.checkpoint import read_checkpoint
from tauflow.training.run_directory import RunDirectory

PARTS = range(4)


def train(folder, *, epochs, resume=False):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 24).reshape(4, 3, 2)
    data = tauflow.SequenceBatch(x, x[..., :1])
    return tauflow.train(
        tauflow.SequenceModel(tauflow.Elman(2, 2, backend="reference"), 1),
        train=data,
        valid=data,
        test=data,
        loss="mse",
        metric="mse",
        recipe=Recipe(epochs=epochs, batch_size=4),
        seed=0,
        run_dir=folder,
        resume=resume,
        progress=False,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(folder, epochs=2)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, run, tmp_path):
    path = tmp_path / "last.safetensors"
    for seed in seeds(part, tries("checkpoints, bytes", few=40, full=3000)):
        path.write_bytes(mutate_bytes(run["last.safetensors"], random.Random(seed)))
        survives(lambda: read_checkpoint(path), f"checkpoint, bytes, seed {seed}")


@pytest.mark.parametrize("part", PARTS)
def test_absurd_descriptions_of_a_run(part, tries, run, tmp_path):
    description = json.loads(run["run.json"])
    for seed in seeds(part, tries("run folders, descriptions", few=30, full=2000)):
        rng = random.Random(seed)
        for name, content in run.items():
            (tmp_path / name).write_bytes(content)
        damaged = json.dumps(mutate_tree(description, rng)).encode()
        (tmp_path / "run.json").write_bytes(
            damaged if rng.randrange(2) else mutate_bytes(run["run.json"], rng)
        )
        survives(
            lambda: RunDirectory(tmp_path, description).read_last_checkpoint(),
            f"run folder, seed {seed}",
        )
