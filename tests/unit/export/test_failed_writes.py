"""An export that fails while it is written leaves what was there, all of it."""

import errno
import os
import shutil

import pytest

import tauflow
from tauflow.export import to_c, to_onnx, to_program


def as_onnx(model, folder):
    to_onnx(model, folder / "m.onnx", mode="step")


def as_program(model, folder):
    to_program(model, folder / "m.pt2", mode="step")


def as_c(model, folder):
    to_c(model, folder / "m")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def full(monkeypatch):
    """Return a function that lets a disk have room for some files only."""
    fsync = os.fsync

    def only(count):
        left = iter(range(count))

        def put(number):
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(number)

        monkeypatch.setattr(os, "fsync", put)

    yield only
    monkeypatch.undo()


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("write", "files"), [(as_c, 6), (as_onnx, 2), (as_program, 2)])
def test_a_full_disk_leaves_the_files_before(write, files, tmp_path, full):
    if write is as_c and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    full(files - 1)
    with pytest.raises(OSError, match="No space left"):
        write(tauflow.Elman(2, 3).eval(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    full(10**6)
    write(tauflow.Elman(2, 3).eval(), tmp_path)
    before = contents(tmp_path)
    assert len(before) == files
    full(files - 1)
    with pytest.raises(OSError, match="No space left"):
        write(tauflow.Elman(2, 5).eval(), tmp_path)
    assert contents(tmp_path) == before
