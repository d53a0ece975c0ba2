"""Files appear whole, and those that belong together appear together or not at all."""

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from tauflow._internal.atomic_write import atomic_write_many, atomic_writer
from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.errors import ModelFileError


@pytest.fixture
def disk(monkeypatch):
    """Return what is put on disk and named, in order; ``disk.full`` files further on it is full."""

    class Disk(list):
        room = 10**9

    disk, fsync, replace = Disk(), os.fsync, os.replace

    def put(number):
        if disk.count("put") == disk.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(number)
        if stat.S_ISREG(os.fstat(number).st_mode):
            disk.append("put")

    def name(partial, path):
        disk.append("named")
        replace(partial, path)

    monkeypatch.setattr(os, "fsync", put)
    monkeypatch.setattr(os, "replace", name)
    return disk


def texts(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_all_are_on_disk_before_one_is_named(tmp_path, disk):
    contents = {tmp_path / name: name.encode() for name in "abc"}
    atomic_write_many(contents)
    assert disk == ["put"] * 3 + ["named"] * 3
    assert texts(tmp_path) == {name: name for name in "abc"}


@pytest.mark.skipif(os.name != "posix", reason="named pipes are POSIX")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic_writer(pipe) as file:
            file.write(b"first")
        assert os.read(reader, 99) == b"first"
        atomic_write_many({pipe: b"second", tmp_path / "a": b"a"})
        assert os.read(reader, 99) == b"second"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "pipe"]


@pytest.mark.parametrize("exists", [True, False])
def test_what_a_link_leads_to_is_replaced(exists, tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    link.symlink_to(target)
    if exists:
        target.write_bytes(b"old")
    with atomic_writer(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["target"]


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_full_disk_leaves_all_of_the_old_ones(room, tmp_path, disk):
    (tmp_path / "a").write_text("old a")
    (tmp_path / "c").write_text("old c")
    disk.room = room
    with pytest.raises(OSError, match="No space left") as caught:
        atomic_write_many({tmp_path / name: b"new" for name in "abc"})
    assert caught.value.filename == str(tmp_path / "abc"[room])
    assert texts(tmp_path) == {"a": "old a", "c": "old c"}


def test_a_file_appears_when_it_is_on_disk(tmp_path, disk):
    with atomic_writer(tmp_path / "a") as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()
    assert disk == ["put", "named"]
    assert texts(tmp_path) == {"a": "new"}
    with pytest.raises(TypeError), atomic_writer(tmp_path / "a") as file:
        file.writelines([b"newer", "text"])
    assert texts(tmp_path) == {"a": "new"}


@pytest.mark.parametrize("kind", [{"a": 1}, ["model"], 3, None, True])
def test_a_kind_that_is_no_text_raises_an_error(kind, tmp_path):
    (tmp_path / "m").write_bytes(encode_tensor_file(kind, {}, {}))
    with pytest.raises(ModelFileError, match="is a safetensors file, but not one of tauflow"):
        read_tensor_file(tmp_path / "m", "model", error=ModelFileError, advice="")


@pytest.mark.skipif(sys.platform != "linux", reason="makes files as Linux has them")
@pytest.mark.parametrize("path", [Path("/proc/self/mem"), Path("/dev/null"), Path("/proc")])
def test_what_is_not_a_regular_file_raises_the_error_of_its_caller(path):
    with pytest.raises(ModelFileError, match=rf"{path} (is a|cannot be read: Input).*Copy it"):
        read_tensor_file(path, "model", error=ModelFileError, advice="Copy it again.")
