"""Downloads: complete or not at all, and going on where they stopped."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import CARD, CONTENT, Server, fill

from tauflow.data import resume, store
from tauflow.errors import ChecksumError, DataNotFoundError


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(store, "_ATTEMPTS", 0)
    monkeypatch.setattr(resume, "_BLOCK", 2)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


def test_file_without_a_published_digest_is_taken_as_it_is(server, tmp_path):
    unknown = {**CARD.files, "b.npy": ""}
    paths = store.locate(replace(server.card, files=unknown), tmp_path)
    paths[1].write_bytes(b"whatever")
    assert store.locate(replace(CARD, files=unknown), tmp_path) == paths
    paths[0].write_bytes(b"whatever")
    with pytest.raises(ChecksumError, match=r"a\.npy is damaged"):
        store.locate(replace(CARD, files=unknown), tmp_path)


def test_download_fetches_only_what_is_missing(server, tmp_path):
    folder = fill(tmp_path, ["b.npy"])
    paths = store.locate(server.card, tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(server.asked) == ["a.npy", "c.npy"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(CONTENT)


def test_download_goes_to_the_folder_of_the_variable(server, monkeypatch, cache, tmp_path):
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    store.locate(server.card)
    assert store.find(CARD, tmp_path / "mine") is not None
    assert not cache.exists()


def test_file_the_server_lacks_is_not_found(server, tmp_path):
    del server.sent["b.npy"], server.announced["b.npy"]
    with pytest.raises(DataNotFoundError, match=r"downloading failed \(404 .*TAUFLOW_DATA"):
        store.locate(server.card, tmp_path)


def test_no_connection_is_not_found(server, tmp_path):
    card = replace(CARD, base_url="http://127.0.0.1:9/")
    with pytest.raises(DataNotFoundError, match=r"a\.npy and 2 more files .*downloading failed"):
        store.locate(card, tmp_path)


def test_download_of_other_bytes_keeps_nothing(server, tmp_path):
    server.sent["b.npy"] = b"SECOND FILE"
    with pytest.raises(ChecksumError, match=r"toy: .* sent other bytes than the published ones"):
        store.locate(server.card, tmp_path)
    assert {path.name for path in (tmp_path / "toy_files").iterdir()} <= {"a.npy", "c.npy"}


def stop_after_four_bytes(server, root, name="b.npy"):
    """Let a download break off in the middle of a file."""
    server.sent[name] = CONTENT[name][:4]
    with pytest.raises(DataNotFoundError, match="downloading failed"):
        store.locate(server.card, root)
    server.sent[name] = CONTENT[name]


def part_of(name, root):
    return root / "toy_files" / f".{name}.{CARD.files[name][:8]}.part"


def test_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    stop_after_four_bytes(server, tmp_path)
    assert not (tmp_path / "toy_files" / "b.npy").exists()
    assert part_of("b.npy", tmp_path).read_bytes() == CONTENT["b.npy"][:4]
    paths = store.locate(server.card, tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert server.resumed == [("b.npy", 4)]
    assert {path.name for path in (tmp_path / "toy_files").iterdir()} == set(CONTENT)


def test_server_that_sends_no_parts_sends_the_whole_file_again(server, tmp_path):
    stop_after_four_bytes(server, tmp_path)
    server.sends_parts = False
    assert store.locate(server.card, tmp_path)[1].read_bytes() == CONTENT["b.npy"]


@pytest.mark.parametrize("extra", [b"", b" and more"])
def test_part_that_is_complete_or_too_long(server, tmp_path, extra):
    (tmp_path / "toy_files").mkdir()
    part_of("b.npy", tmp_path).write_bytes(CONTENT["b.npy"] + extra)
    assert store.locate(server.card, tmp_path)[1].read_bytes() == CONTENT["b.npy"]
    assert server.asked.count("b.npy") == (2 if extra else 1)


def test_part_of_another_file_is_not_kept(server, tmp_path):
    (tmp_path / "toy_files").mkdir()
    part_of("b.npy", tmp_path).write_bytes(b"????")
    with pytest.raises(ChecksumError, match="sent other bytes"):
        store.locate(server.card, tmp_path)
    assert store.locate(server.card, tmp_path)[1].read_bytes() == CONTENT["b.npy"]


def test_without_a_digest_every_try_begins_anew(server, tmp_path):
    card = replace(server.card, files={**CARD.files, "b.npy": ""})
    (tmp_path / "toy_files").mkdir()
    (tmp_path / "toy_files" / ".b.npy..part").write_bytes(b"????")
    assert store.locate(card, tmp_path)[1].read_bytes() == CONTENT["b.npy"]
    assert server.resumed == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_full_disk_says_what_to_do(server, tmp_path):
    (tmp_path / "toy_files").mkdir()
    part_of("b.npy", tmp_path).symlink_to("/dev/full")
    with pytest.raises(DataNotFoundError, match=r"toy: the disk of .*toy_files is full.*TAUFLOW_D"):
        store.locate(server.card, tmp_path)


def test_nothing_is_drawn_without_a_terminal(server, tmp_path, capfd):
    store.locate(server.card, tmp_path)
    assert capfd.readouterr() == ("", "")
