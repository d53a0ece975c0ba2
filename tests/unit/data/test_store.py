import hashlib
from dataclasses import replace

import pytest
from file_server import CARD, CONTENT, fill

from tauflow.data import store
from tauflow.errors import ChecksumError, DataNotFoundError


def test_root_is_the_only_place(monkeypatch, tmp_path):
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "other"))
    assert store.list_data_folders(CARD, tmp_path) == [tmp_path / "toy_files"]


def test_variable_comes_before_the_cache(monkeypatch, data_cache, tmp_path):
    assert store.list_data_folders(CARD) == [data_cache / "toy_files"]
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    assert store.list_data_folders(CARD) == [
        tmp_path / "mine" / "toy_files",
        data_cache / "toy_files",
    ]


def test_complete_cache_is_found_behind_an_incomplete_folder(monkeypatch, data_cache, tmp_path):
    fill(tmp_path / "mine", ["a.npy"])
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    assert store.find_data_folder(CARD) is None
    complete = fill(data_cache)
    assert store.find_data_folder(CARD) == complete
    assert store.fetch_files(CARD) == [complete / name for name in CONTENT]


def test_repacked_files_do_as_well_where_the_published_ones_are_not(tmp_path):
    packed = hashlib.sha256(b"all in one").hexdigest()
    card = replace(CARD, repacked={"abc.tar.xz": packed})
    folder = fill(tmp_path, ["a.npy"])
    assert store.find_data_folder(card, tmp_path) is None
    (folder / "abc.tar.xz").write_bytes(b"all in one")
    assert store.find_data_folder(card, tmp_path) == folder
    assert store.fetch_files(card, tmp_path, download=False) == [folder / "abc.tar.xz"]
    (folder / "abc.tar.xz").write_bytes(b"damaged")
    with pytest.raises(ChecksumError, match=r"abc\.tar\.xz is damaged"):
        store.fetch_files(card, tmp_path)
    for name in ("b.npy", "c.npy"):
        (folder / name).write_bytes(CONTENT[name])
    assert store.fetch_files(card, tmp_path) == [folder / name for name in CONTENT]


def test_missing_file_says_what_where_and_how(tmp_path):
    fill(tmp_path, ["a.npy", "c.npy"])
    pattern = (
        rf"toy: b\.npy not found in {tmp_path}/toy_files, and downloads are switched off\. "
        "Set TAUFLOW_DATA .*'toy_files', or run 'tauflow data get toy'"
    )
    with pytest.raises(DataNotFoundError, match=pattern):
        store.fetch_files(CARD, tmp_path, download=False)


@pytest.mark.parametrize("content", [CONTENT["b.npy"][:-1], b"", b"second filE"])
def test_wrong_bytes_are_refused_and_left_alone(tmp_path, content):
    path = fill(tmp_path) / "b.npy"
    path.write_bytes(content)
    pattern = rf"b\.npy is damaged or changed: it has {len(content)} bytes .*'tauflow data get toy'"
    with pytest.raises(ChecksumError, match=pattern):
        store.fetch_files(CARD, tmp_path)
    assert path.read_bytes() == content


def test_a_variable_that_names_no_directory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mistyped"))
    with pytest.raises(DataNotFoundError, match=r"TAUFLOW_DATA names .*mistyped, which is not"):
        store.fetch_files(CARD)
    assert not (tmp_path / "mistyped").exists()
