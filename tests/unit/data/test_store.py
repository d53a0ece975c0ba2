import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tauflow.data import store
from tauflow.data.card import DatasetCard
from tauflow.data.real.half_cheetah import HALF_CHEETAH
from tauflow.data.real.walker2d import WALKER2D
from tauflow.errors import ChecksumError, DataNotFoundError

CONTENT = {"a.npy": b"first file", "b.npy": b"second file", "c.npy": b"third file"}

CARD = DatasetCard(
    name="toy",
    title="Toy",
    task="regress",
    input_size=1,
    target_size=1,
    time_unit="s",
    sizes=(1, 1, 1),
    source="a test",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
    folder="toy_files",
    files={name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()},
)


def fill(root: Path, names=tuple(CONTENT)) -> Path:
    folder = root / CARD.folder
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(CONTENT[name])
    return folder


class Server:
    """Serves files on this machine; what it sends can be spoiled per file."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent = dict(CONTENT)
        self.announced = {name: len(content) for name, content in CONTENT.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                outer.asked.append(name)
                self.send_response(200 if name in outer.sent else 404)
                self.send_header("Content-Length", str(outer.announced.get(name, 0)))
                self.end_headers()
                self.wfile.write(outer.sent.get(name, b""))

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.card = replace(CARD, base_url=f"http://127.0.0.1:{self.http.server_port}/files/")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(store, "_ATTEMPTS", 0)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv(store.DATA_VARIABLE, raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "tauflow" / "data"


def test_root_is_the_only_place(monkeypatch, tmp_path):
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "other"))
    assert store.places(CARD, tmp_path) == [tmp_path / "toy_files"]


def test_variable_comes_before_the_cache(monkeypatch, cache, tmp_path):
    assert store.places(CARD) == [cache / "toy_files"]
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    assert store.places(CARD) == [tmp_path / "mine" / "toy_files", cache / "toy_files"]


def test_complete_cache_is_found_behind_an_incomplete_folder(monkeypatch, cache, tmp_path):
    fill(tmp_path / "mine", ["a.npy"])
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mine"))
    assert store.find(CARD) is None
    complete = fill(cache)
    assert store.find(CARD) == complete
    assert store.locate(CARD) == [complete / name for name in CONTENT]


def test_repacked_files_do_as_well_where_the_published_ones_are_not(tmp_path):
    packed = hashlib.sha256(b"all in one").hexdigest()
    card = replace(CARD, repacked={"abc.tar.xz": packed})
    folder = fill(tmp_path, ["a.npy"])
    assert store.find(card, tmp_path) is None
    (folder / "abc.tar.xz").write_bytes(b"all in one")
    assert store.find(card, tmp_path) == folder
    assert store.locate(card, tmp_path, download=False) == [folder / "abc.tar.xz"]
    (folder / "abc.tar.xz").write_bytes(b"damaged")
    with pytest.raises(ChecksumError, match=r"abc\.tar\.xz is damaged"):
        store.locate(card, tmp_path)
    for name in ("b.npy", "c.npy"):
        (folder / name).write_bytes(CONTENT[name])
    assert store.locate(card, tmp_path) == [folder / name for name in CONTENT]


def test_large_files_are_streamed(server, tmp_path):
    paths = store.locate(replace(server.card, streamed=True), tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())


def test_file_without_a_published_digest_is_taken_as_it_is(server, tmp_path):
    unknown = {**CARD.files, "b.npy": ""}
    paths = store.locate(replace(server.card, files=unknown), tmp_path)
    paths[1].write_bytes(b"whatever")
    assert store.locate(replace(CARD, files=unknown), tmp_path) == paths
    paths[0].write_bytes(b"whatever")
    with pytest.raises(ChecksumError, match=r"a\.npy is damaged"):
        store.locate(replace(CARD, files=unknown), tmp_path)


def test_missing_file_says_what_where_and_how(tmp_path):
    fill(tmp_path, ["a.npy", "c.npy"])
    pattern = (
        rf"toy: b\.npy not found in {tmp_path}/toy_files, and downloads are switched off\. "
        "Set TAUFLOW_DATA .*'toy_files', or run 'tauflow data get toy'"
    )
    with pytest.raises(DataNotFoundError, match=pattern):
        store.locate(CARD, tmp_path, download=False)


@pytest.mark.parametrize("content", [CONTENT["b.npy"][:-1], b"", b"second filE"])
def test_wrong_bytes_are_refused_and_left_alone(tmp_path, content):
    path = fill(tmp_path) / "b.npy"
    path.write_bytes(content)
    pattern = rf"b\.npy is damaged or changed: it has {len(content)} bytes .*'tauflow data get toy'"
    with pytest.raises(ChecksumError, match=pattern):
        store.locate(CARD, tmp_path)
    assert path.read_bytes() == content


def test_download_fetches_only_what_is_missing(server, tmp_path):
    folder = fill(tmp_path, ["b.npy"])
    paths = store.locate(server.card, tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(server.asked) == ["a.npy", "c.npy"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(CONTENT)


def test_a_variable_that_names_no_directory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(store.DATA_VARIABLE, str(tmp_path / "mistyped"))
    with pytest.raises(DataNotFoundError, match=r"TAUFLOW_DATA names .*mistyped, which is not"):
        store.locate(CARD)
    assert not (tmp_path / "mistyped").exists()


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


def test_interrupted_download_leaves_no_half_file_and_can_go_on(server, tmp_path):
    server.sent["b.npy"] = CONTENT["b.npy"][:4]
    with pytest.raises(DataNotFoundError, match="downloading failed"):
        store.locate(server.card, tmp_path)
    assert {path.name for path in (tmp_path / "toy_files").iterdir()} <= {"a.npy", "c.npy"}
    server.sent["b.npy"] = CONTENT["b.npy"]
    assert len(store.locate(server.card, tmp_path)) == 3


def test_nothing_is_drawn_without_a_terminal(server, tmp_path, capfd):
    store.locate(server.card, tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("card", "count"), [(HALF_CHEETAH, 31), (WALKER2D, 400)])
def test_packaged_checksums_are_complete(card, count):
    assert len(card.files) == len(set(card.files.values())) == count
    assert {len(digest) for digest in card.files.values()} == {64}


def test_addresses_name_a_pinned_commit():
    assert CARD.urls["a.npy"] == "a.npy"
    for card in (HALF_CHEETAH, WALKER2D):
        commit = card.source.rsplit("@", 1)[-1]
        assert f"/{commit}" in card.base_url
        assert card.base_url.endswith("/")
