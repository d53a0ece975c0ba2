"""A path of something else than a file says what that is, and what was expected."""

import os
import socket

import pytest

import tauflow
from tauflow._internal.regular_file import check_file_path
from tauflow.data import read_csv
from tauflow.errors import ArgumentError, CheckpointError, DataError, DataNotFoundError, DtypeError
from tauflow.estimators import SequenceClassifier
from tauflow.runs.toml_files import read_toml
from tauflow.training import read_checkpoint

READERS = {
    "a model file": tauflow.load,
    "a predictor": tauflow.load_predictor,
    "an estimator": SequenceClassifier.load,
    "a checkpoint": read_checkpoint,
    "a specification file": read_toml,
}


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(str(path))


PLACES = {
    "a folder": os.mkdir,
    "a pipe": getattr(os, "mkfifo", None),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": make_socket,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("expected", READERS)
@pytest.mark.parametrize("what", PLACES)
def test_what_is_there_is_named(tmp_path, monkeypatch, expected, what):
    monkeypatch.chdir(tmp_path)  # for the path of a socket is a short one
    PLACES[what](tmp_path / "it" if what == "a device" else "it")
    error = CheckpointError if expected == "a checkpoint" else DataNotFoundError
    if (expected, what) == ("a predictor", "a folder"):
        with pytest.raises(error, match=r"it holds no predictor\.safetensors"):
            READERS[expected]("it")
        return
    for path in ("it", tmp_path / "it"):
        with pytest.raises(error, match=f"it is {what}, expected {expected}"):
            READERS[expected](path)


@pytest.mark.parametrize("expected", READERS)
def test_paths_that_lead_nowhere(tmp_path, expected):
    error = CheckpointError if expected == "a checkpoint" else DataNotFoundError
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    for name, why in {
        "no": "does not exist",
        "file/no": "does not exist",
        "link": "is a link to nothing",
        "circle": "cannot be opened: .*symbolic links",
        "x" * 300: "cannot be opened: File name too long",
        "a\0b": r"cannot be opened: (stat: )?embedded null",
    }.items():
        with pytest.raises(error, match=why):
            READERS[expected](tmp_path / name)


@pytest.mark.parametrize("expected", [*READERS, "a table"])
def test_no_path_at_all(expected):
    read = READERS.get(expected, read_csv)
    with pytest.raises(ArgumentError, match=f"the path is empty, expected that of {expected}"):
        read("")
    for path in (None, 5, b"it", ["it"]):
        with pytest.raises(ArgumentError if expected == "a table" else DtypeError, match="got"):
            read(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_table_in_a_pipe_is_told(tmp_path):
    os.mkfifo(tmp_path / "it")
    with pytest.raises(DataError, match="a device or a pipe may never end"):
        read_csv(tmp_path / "it", id="a", time="t", target="y")


def test_a_link_to_a_file_is_followed(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    path = check_file_path(str(tmp_path / "link"), "a file", advice="")
    assert path == tmp_path / "link"
