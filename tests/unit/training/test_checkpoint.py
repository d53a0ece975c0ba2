import errno
import os

import pytest
import safetensors.torch
import torch
from torch import nn

from tauflow._internal import tensor_file
from tauflow._internal.atomic_write import add_path_to_errors
from tauflow.errors import CheckpointError
from tauflow.training import Checkpoint, checkpoint, read_checkpoint, write_checkpoint


def example() -> Checkpoint:
    generator = torch.Generator().manual_seed(0)
    return Checkpoint(
        model={
            "rnn.weight": torch.randn(3, 2, generator=generator),
            "rnn.half": torch.randn(2, generator=generator).bfloat16(),
            "count": torch.tensor(7),
            "empty": torch.zeros(0, 4),
            "flag": torch.tensor([True, False]),
        },
        optimizer={0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(3, 2)}, 2: {"lr": 0.1}},
        rng={"cpu": torch.get_rng_state()},
        epoch=4,
        step=12,
        best_epoch=2,
        best_metric=0.1 + 0.2,
        history=[{"epoch": 1, "valid": None}, {"epoch": 2, "valid": 1e-30}],
    )


def assert_same(a: dict, b: dict) -> None:
    assert a.keys() == b.keys()
    for key, value in a.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == b[key].dtype
            assert torch.equal(value, b[key])
        else:
            assert value == b[key]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "last.safetensors"


def test_a_checkpoint_survives_the_disk_exactly(path):
    before = example()
    write_checkpoint(path, before)
    after = read_checkpoint(path)
    assert_same(before.model, after.model)
    assert_same(before.rng, after.rng)
    assert before.optimizer.keys() == after.optimizer.keys()
    for index in before.optimizer:
        assert_same(before.optimizer[index], after.optimizer[index])
    for name in ("epoch", "step", "best_epoch", "best_metric", "history"):
        assert getattr(before, name) == getattr(after, name)


def test_tied_and_transposed_weights_are_saved(path):
    weight = torch.randn(3, 2)
    saved = Checkpoint(model={"a": weight, "b": weight, "c": weight.T}, optimizer={}, rng={})
    write_checkpoint(path, saved)
    assert_same(read_checkpoint(path).model, saved.model)


def test_a_truncated_file_is_refused_at_any_length(path):
    write_checkpoint(path, example())
    data = path.read_bytes()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(
            CheckpointError, match="is truncated, damaged or not a safetensors file"
        ):
            read_checkpoint(path)


def test_one_flipped_bit_is_noticed_wherever_it_is(path):
    write_checkpoint(path, example())
    data = path.read_bytes()
    for position in range(0, len(data), 53):
        broken = bytearray(data)
        broken[position] ^= 1
        path.write_bytes(broken)
        try:
            read_checkpoint(path)
        except CheckpointError:
            continue
        # Only a blank that pads the header may change without changing what the file says.
        assert data[position : position + 1] == b" "


def test_foreign_files_are_refused(path):
    for data in (b"", b"not a tensor", safetensors.torch.save({"w": torch.ones(2)})):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="Restore it from a copy, or delete"):
            read_checkpoint(path)


def test_a_file_of_another_kind_is_refused(path):
    checkpoint.write_tensors(path, "weights file", {"w": torch.ones(2)}, {})
    with pytest.raises(CheckpointError, match="is a weights file, expected a checkpoint"):
        read_checkpoint(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(CheckpointError, match=r"last\.safetensors does not exist"):
        read_checkpoint(path)


def test_a_newer_version_is_refused(path, monkeypatch):
    monkeypatch.setattr(tensor_file.encode_tensor_file, "__kwdefaults__", {"format_version": 2})
    write_checkpoint(path, example())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format version 2, and this tauflow reads up to 1"):
        read_checkpoint(path)


class WithExtraState(nn.Linear):
    def get_extra_state(self):
        return {"count": 1}


def test_extra_state_that_is_no_tensor_is_refused(path):
    saved = Checkpoint(model=WithExtraState(2, 2).state_dict(), optimizer={}, rng={})
    with pytest.raises(CheckpointError, match=r"model\._extra_state is a dict, and only tensors"):
        write_checkpoint(path, saved)
    assert not path.exists()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(path, monkeypatch, call):
    write_checkpoint(path, example())
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, call, fail)
    changed = example()
    changed.epoch = 5
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(path, changed)
    assert path.read_bytes() == before


def test_an_error_of_writing_says_which_file(tmp_path):
    def write(*names):
        with add_path_to_errors(tmp_path / "log"):
            raise OSError(errno.EFBIG, "File too large", *names)

    with pytest.raises(OSError, match=r"File too large: '.*log'"):
        write()
    with pytest.raises(OSError, match="File too large: 'other'"):
        write("other")
    with pytest.raises(OSError, match=r"File too large: '.*log'"):
        write(str(tmp_path / ".log.0123.partial"))


CRAFTED = {
    "no facts": (None, "not one of tauflow"),
    "an optimizer that is a list": ({"optimizer": []}, "is damaged"),
    "a parameter that has no number": ({"optimizer": {"x": {}}}, "is damaged"),
    "an unknown fact": ({"more": 1}, "is damaged"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_unknown_metadata_are_refused(case, path):
    changes, message = CRAFTED[case]
    before = example()
    write_checkpoint(path, before)
    tensors, metadata = checkpoint.read_tensors(path, "checkpoint")
    metadata = None if changes is None else {**metadata, **changes}
    path.write_bytes(tensor_file.encode_tensor_file("checkpoint", tensors, metadata))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path)


@pytest.mark.parametrize("version", [float("inf"), "1", None, [1]])
def test_a_format_version_is_a_number(version, path):
    path.write_bytes(tensor_file.encode_tensor_file("checkpoint", {}, {}, format_version=version))
    with pytest.raises(CheckpointError, match="not one of tauflow"):
        read_checkpoint(path)
