"""Checkpoints and run folders that were damaged: refused, or gone on from."""

import json
import random

import pytest
import torch
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

import tauflow
from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.errors import CheckpointError, TauflowError
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


@pytest.fixture(scope="module")
def checkpoint(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "last.safetensors"
    path.write_bytes(run["last.safetensors"])
    return read_tensor_file(path, "checkpoint", error=CheckpointError, advice="")


@pytest.mark.parametrize("part", PARTS)
def test_absurd_metadata(part, tries, checkpoint, tmp_path):
    tensors, metadata = checkpoint
    path, refused = tmp_path / "last.safetensors", 0
    for seed in seeds(part, tries("checkpoints, facts", few=40, full=3000)):
        rng = random.Random(seed)
        path.write_bytes(encode_tensor_file("checkpoint", tensors, mutate_tree(metadata, rng)))
        result = survives(lambda: read_checkpoint(path), f"checkpoint, facts, seed {seed}")
        refused += isinstance(result, TauflowError)
    assert refused > 5


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


@pytest.mark.parametrize("part", PARTS)
def test_training_goes_on_or_says_why_not(part, tries, run, checkpoint, tmp_path):
    tensors, metadata = checkpoint
    for seed in seeds(part, tries("run folders, resumed", few=3, full=200)):
        rng = random.Random(seed)
        for name, content in run.items():
            (tmp_path / name).write_bytes(content)
        changed = dict(tensors)
        key = rng.choice(sorted(changed))
        changed[key] = rng.choice((torch.zeros(1), changed[key].reshape(-1), torch.ones(3, 3)))
        damaged = encode_tensor_file("checkpoint", changed, mutate_tree(metadata, rng))
        (tmp_path / "last.safetensors").write_bytes(damaged)
        what = f"run folder, resumed, seed {seed}"
        survives(lambda: train(tmp_path, epochs=3, resume=True), what, seconds=20)
