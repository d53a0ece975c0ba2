"""Training on files mapped into memory: the numbers of training in memory, and no more memory."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_training_task import tiny_model

from tauflow._internal.tensor_file import hash_tensors
from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard, open_task, write_task
from tauflow.errors import DataError
from tauflow.models import SequenceModel
from tauflow.sequence import build
from tauflow.training import METRICS, Recipe, train

CARD = DatasetCard(
    name="sums",
    title="Running sums",
    task="regress",
    input_size=2,
    target_size=1,
    time_unit="step",
    sizes=(22, 8, 8),
    source="generated",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
)


def splits(*, every_field):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(38, 5, 2, generator=generator)
    data = SequenceBatch(x, x[..., :1].cumsum(1))
    if every_field:
        probabilities = torch.rand(4, 38, 5, 2, generator=generator)
        mask = probabilities[1, ..., 0] < 0.9
        mask[:, 0] = True
        data = replace(
            data,
            dt=probabilities[0, ..., 0],
            mask=mask,
            observed=probabilities[2] < 0.7,
            y_mask=(probabilities[3, ..., :1] < 0.7) & mask.unsqueeze(-1),
        )
    return {"train": data[:22], "valid": data[22:30], "test": data[30:]}


def gru_d():
    torch.manual_seed(0)
    return SequenceModel(build("gru-d", 2, 4), 1)


def cfc():
    torch.manual_seed(0)
    return SequenceModel(build("cfc", 2, 4, backbone_units=8), 1)


@pytest.mark.parametrize(
    ("make", "every_field"), [(tiny_model, False), (gru_d, True), (cfc, False)]
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_numbers_are_those_of_training_in_memory(tmp_path, make, every_field, shuffle):
    held = splits(every_field=every_field)
    write_task(tmp_path / "sums", CARD, **held)
    data = open_task(tmp_path / "sums")
    opened = {"train": data.train, "valid": data.valid, "test": data.test}
    recipe = Recipe(lr=0.02, epochs=3, batch_size=8, shuffle=shuffle)
    came = []
    for name, parts in (("memory", held), ("file", opened)):
        model = make()
        result = train(
            model, **parts, loss="mse", metric="mse", recipe=recipe, seed=7, run_dir=tmp_path / name
        )
        history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
        came.append((history, hash_tensors(model.state_dict())))
    assert came[0] == came[1]
    runs = [json.loads((tmp_path / name / "run.json").read_bytes()) for name in ("memory", "file")]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("numbers", [1, 30, 1 << 22])
@pytest.mark.parametrize("part", ["x", "dt"])
def test_what_is_not_finite_is_found_in_any_piece(monkeypatch, numbers, part):
    monkeypatch.setattr("tauflow.batch._MAX_ELEMENTS", numbers)
    parts = splits(every_field=True)
    data = parts["train"]
    entry = (17, 3, 1) if part == "x" else (17, 3)
    for tensor in (data.mask, data.observed):
        tensor[17, 3] = True
    getattr(data, part)[entry] = torch.nan
    with pytest.raises(
        DataError, match=f"{part} of the train data is not finite at sequence 17, s"
    ):
        train(gru_d(), **parts, loss="mse", metric="mse", recipe=Recipe(epochs=1), seed=0)


@pytest.mark.parametrize("numbers", [1, 30, 1 << 22])
def test_targets_are_looked_at_in_every_piece(monkeypatch, numbers):
    monkeypatch.setattr("tauflow.batch._MAX_ELEMENTS", numbers)
    x, y = torch.zeros(9, 5, 2), torch.ones(9, 5)
    METRICS["bce"].check_targets("test", SequenceBatch(x, y))
    y[8, 4] = 1.5
    mask = torch.ones(9, 5, dtype=torch.bool)
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        METRICS["bce"].check_targets("test", SequenceBatch(x, y, mask=mask))
    mask[8, 4] = False
    METRICS["bce"].check_targets("test", SequenceBatch(x, y, mask=mask))


@pytest.mark.parametrize("block", [1, 50, 1 << 24])
def test_a_digest_does_not_hang_on_the_blocks_it_is_made_of(monkeypatch, block):
    monkeypatch.setattr("tauflow._internal.tensor_file._BLOCK_BYTES", block)
    wide = torch.arange(60.0).view(3, 4, 5)
    tensors = {
        "view": wide.permute(2, 0, 1),
        "row": wide[:1],
        "number": torch.tensor(3),
        "none": torch.zeros(0, 4),
        "flag": wide > 7,
    }
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].numpy()
        digest.update(f"\n{name}:{tensors[name].dtype}:{array.shape};".encode() + array.tobytes())
    assert hash_tensors(tensors) == digest.hexdigest()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limit on data")
def test_more_than_fits_into_memory_is_written_and_trained_on(tmp_path):
    program = Path(__file__).with_name("train_larger_than_memory.py")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(program), str(tmp_path / "here")],
        # A fixed threshold makes glibc give every freed block back: what fits does not depend on
        # how the heap happened to be cut up.
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)},
        capture_output=True,
        text=True,
    )
    assert run.stderr == ""
    first, second = run.stdout.splitlines()
    assert first == "x does not fit"
    assert 0 < float(second.removeprefix("error ")) < 2
    assert list(tmp_path.iterdir()) == []
