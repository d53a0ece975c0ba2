"""Downloads: complete or not at all, and going on where they stopped."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import CARD, CONTENT, Server, fill

from tauflow._internal import locks
from tauflow._internal.locks import LOCK_FILE
from tauflow.data import download, store
from tauflow.errors import ChecksumError, DataError, DataNotFoundError, TimeError

UNKNOWN = {**CARD.files, "b.npy": ""}
"""The digest of the second file is not published."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "_ATTEMPTS", 0)
    monkeypatch.setattr(locks, "_POLL_INTERVAL", 0.01)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


def names_in(folder):
    """Return what lies in a folder beside the lock."""
    return {path.name for path in folder.iterdir()} - {LOCK_FILE}


def test_file_without_a_published_digest_is_taken_as_it_is(server, tmp_path):
    paths = store.fetch_files(replace(server.card, files=UNKNOWN), tmp_path)
    paths[1].write_bytes(b"whatever")
    assert store.fetch_files(replace(CARD, files=UNKNOWN), tmp_path) == paths
    paths[0].write_bytes(b"whatever")
    with pytest.raises(ChecksumError, match=r"a\.npy is damaged"):
        store.fetch_files(replace(CARD, files=UNKNOWN), tmp_path)


@pytest.mark.parametrize("files", [CARD.files, UNKNOWN, dict.fromkeys(CONTENT, "")])
def test_two_downloads_at_once_fetch_every_file_once(server, tmp_path, files):
    server.pause = 0.01
    card = replace(server.card, files=files)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(store.fetch_files, card, tmp_path) for _ in range(2)]
        for paths in (job.result() for job in jobs):
            assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(server.asked) == sorted(CONTENT)
    assert names_in(tmp_path / "toy_files") == set(CONTENT)


def refuse(paths):
    raise DataError(f"{paths[1]}, line 1 holds {paths[1].read_text()!r}. Get the file again.")


def test_download_without_a_digest_is_kept_only_if_it_passes_the_check(server, tmp_path):
    card, folder = replace(server.card, files=UNKNOWN), tmp_path / "toy_files"
    server.sent["b.npy"] = b"<html>Sorry"
    message = (
        r"^toy: what http://.* sent is not this data set: b\.npy, line 1 holds '<html>Sorry'\. "
        r"Nothing of it was kept\. Try again later, or set TAUFLOW_DATA"
    )
    with pytest.raises(DataError, match=message):
        store.fetch_files(card, tmp_path, check=refuse)
    assert names_in(folder) == {"a.npy", "c.npy"}
    seen = []
    paths = store.fetch_files(card, tmp_path, check=seen.extend)
    assert [path.name for path in seen] == list(CONTENT)
    assert (seen[0], seen[2]) == (paths[0], paths[2])
    assert names_in(folder) == set(CONTENT)
    # Files that are there are the loader's to check: it names the one to delete.
    assert store.fetch_files(card, tmp_path, check=refuse) == paths


def test_check_that_fails_in_another_way_leaves_nothing_either(server, tmp_path):
    def fail(paths):
        raise TimeError("times run backwards. Sort them.")

    card = replace(server.card, files=UNKNOWN)
    (tmp_path / "toy_files" / download.UNCHECKED_FOLDER).mkdir(parents=True)
    with pytest.raises(TimeError, match=r"is not this data set: times run backwards\. Nothing"):
        store.fetch_files(card, tmp_path, check=fail)
    with pytest.raises(ZeroDivisionError):
        store.fetch_files(card, tmp_path, check=lambda paths: 1 / 0)
    assert names_in(tmp_path / "toy_files") == {"a.npy", "c.npy"}


def make_read_only(monkeypatch, folder, code):
    """Let a folder refuse to be written, as it does not do to the superuser."""
    original = Path.mkdir

    def mkdir(path, *arguments, **options):
        if path.is_relative_to(folder):
            raise OSError(code, os.strerror(code))
        original(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_download_goes_to_the_first_place_that_can_be_written(
    server, monkeypatch, data_cache, tmp_path, code
):
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    make_read_only(monkeypatch, tmp_path / "mine", code)
    paths = store.fetch_files(server.card)
    assert {path.parent for path in paths} == {data_cache / "toy_files"}
    assert not list((tmp_path / "mine").iterdir())
    make_read_only(monkeypatch, tmp_path, code)
    message = (
        rf"^toy is not here, and there is no place .*: {tmp_path / 'other'}.* cannot be written"
    )
    with pytest.raises(DataNotFoundError, match=message) as refused:
        store.fetch_files(server.card, tmp_path / "other")
    assert os.strerror(code) in str(refused.value)
    assert "Name a directory that you may write to" in str(refused.value)


def test_folder_that_cannot_be_made_for_another_reason_is_said_so(server, tmp_path):
    (tmp_path / "toy_files").write_text("a file")
    with pytest.raises(DataNotFoundError, match=r"downloading failed \(.*toy_files"):
        store.fetch_files(server.card, tmp_path)


def test_download_fetches_only_what_is_missing(server, tmp_path):
    folder = fill(tmp_path, ["b.npy"])
    paths = store.fetch_files(server.card, tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(server.asked) == ["a.npy", "c.npy"]
    assert names_in(folder) == set(CONTENT)


def test_download_goes_to_the_folder_of_the_variable(server, monkeypatch, data_cache, tmp_path):
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    store.fetch_files(server.card)
    assert store.find_data_folder(CARD, tmp_path / "mine") is not None
    assert not data_cache.exists()


def test_file_the_server_lacks_is_not_found(server, tmp_path):
    del server.sent["b.npy"], server.announced["b.npy"]
    with pytest.raises(DataNotFoundError, match=r"downloading failed \(404 .*TAUFLOW_DATA"):
        store.fetch_files(server.card, tmp_path)


def test_no_connection_is_not_found(server, tmp_path):
    card = replace(CARD, base_url="http://127.0.0.1:9/")
    with pytest.raises(DataNotFoundError, match=r"a\.npy and 2 more files .*downloading failed"):
        store.fetch_files(card, tmp_path)


def test_download_of_other_bytes_keeps_nothing(server, tmp_path):
    server.sent["b.npy"] = b"SECOND FILE"
    with pytest.raises(ChecksumError, match=r"toy: .* sent other bytes than the published ones"):
        store.fetch_files(server.card, tmp_path)
    assert names_in(tmp_path / "toy_files") <= {"a.npy", "c.npy"}


def test_interrupted_download_keeps_whole_files_only(server, tmp_path):
    server.sent["b.npy"] = CONTENT["b.npy"][:4]
    with pytest.raises(DataNotFoundError, match="downloading failed"):
        store.fetch_files(server.card, tmp_path)
    assert names_in(tmp_path / "toy_files") <= {"a.npy", "c.npy"}
    server.sent["b.npy"] = CONTENT["b.npy"]
    paths = store.fetch_files(server.card, tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())


def test_nothing_is_drawn_without_a_terminal(server, tmp_path, capfd):
    store.fetch_files(server.card, tmp_path)
    assert capfd.readouterr() == ("", "")
