import importlib
import threading
from dataclasses import replace

import pytest
from file_server import Server

from tauflow._internal import locks
from tauflow._internal.locks import LOCK_FILE
from tauflow.data import download, registry
from tauflow.errors import DataError


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


PAGES = {
    "gesture": ("gesture_phase_dataset.zip", "cannot be unpacked (File is not a zip file)"),
    "occupancy": ("occupancy_data.zip", "cannot be unpacked (File is not a zip file)"),
    "traffic": ("metro+interstate+traffic+volume.zip", "cannot be unpacked (File is not a zip"),
    "har": ("human+activity+recognition+using+smartphones.zip", "cannot be unpacked (File is"),
    "power": ("household_power_consumption.zip", "cannot be unpacked (File is not a zip file)"),
    "person-activity": ("ConfLongDemo_JSI.txt", ", line 1 has 1 field, expected 8"),
}


@pytest.mark.parametrize("name", PAGES)
def test_page_in_place_of_a_file_without_a_digest_is_refused(server, monkeypatch, tmp_path, name):
    file, reason = PAGES[name]
    card = registry.DATASETS[name]
    assert card.files == {file: ""}
    module = importlib.import_module(f"tauflow_papers.datasets.real.{name.replace('-', '_')}")
    constant = name.replace("-", "_").upper()
    monkeypatch.setattr(module, constant, replace(card, base_url=server.card.base_url))
    server.sent[file] = b"<html>Be back soon</html>"
    server.announced[file] = len(server.sent[file])
    with pytest.raises(DataError, match=rf"^{name}: what http://127\..* sent is not") as refused:
        registry.fetch_dataset(name, tmp_path)
    assert reason in str(refused.value)
    assert names_in(tmp_path / card.folder) == set()
    (tmp_path / card.folder / file).write_bytes(server.sent[file])
    with pytest.raises(DataError, match=r"get it again|Get the file again"):
        registry.fetch_dataset(name, tmp_path)
