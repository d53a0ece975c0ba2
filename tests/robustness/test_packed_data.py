"""Packed data folders whose facts or arrays were damaged: refused, or opened and read through."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard, open_task, write_task
from tauflow.errors import TauflowError

PARTS = range(4)
CARD = DatasetCard(
    name="sensors",
    title="Sensors",
    task="regress",
    input_size=2,
    target_size=1,
    time_unit="s",
    sizes=(0, 0, 0),
    source="invented",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
    targets=("level",),
    files={"sensors.csv": "0" * 64},
)


def batch(sequences):
    x = torch.arange(sequences * 6.0).reshape(sequences, 3, 2)
    return SequenceBatch(x, x[..., :1], torch.ones(sequences, 3), torch.ones(sequences, 3) > 0)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact") / "sensors"
    return write_task(folder, CARD, train=batch(4), valid=batch(2), test=batch(3))


def read_through(folder, *, verify):
    """Open a data set, and touch every value."""
    data = open_task(folder, verify=verify)
    batches = [
        arrow_table
        for arrow_table in (data.train, data.valid, data.test)
        if arrow_table is not None
    ]
    return data, sum(t.nan_to_num().double().sum() for b in batches for t in b.tensors().values())


@pytest.mark.parametrize("part", PARTS)
def test_absurd_metadata(part, tries, intact, tmp_path):
    content = json.loads((intact / "task.json").read_text())
    folder, refused = tmp_path / "sensors", 0
    shutil.copytree(intact, folder)
    for seed in seeds(part, tries("packed data, facts", few=40, full=2500)):
        rng = random.Random(seed)
        (folder / "task.json").write_text(json.dumps(mutate_tree(content, rng)))
        what = f"packed data, facts, seed {seed}"
        result = survives(lambda seed=seed: read_through(folder, verify=seed % 2 == 0), what)
        refused += isinstance(result, TauflowError)
    assert refused > 10


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, intact, tmp_path):
    folder = tmp_path / "sensors"
    shutil.copytree(intact, folder)
    files = sorted(path.relative_to(intact) for path in intact.rglob("*") if path.is_file())
    for seed in seeds(part, tries("packed data, bytes", few=30, full=1500)):
        rng = random.Random(seed)
        file = rng.choice([Path("task.json"), *files])
        (folder / file).write_bytes(mutate_bytes((intact / file).read_bytes(), rng))
        what = f"packed data, {file}, seed {seed}"
        survives(lambda seed=seed: read_through(folder, verify=seed % 2 == 0), what)
        shutil.copyfile(intact / file, folder / file)
