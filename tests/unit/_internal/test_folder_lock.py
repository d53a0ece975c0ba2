import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tauflow._internal import locks
from tauflow._internal.locks import LOCK_FILE, lock_folder
from tauflow.errors import BusyError


def test_a_taken_lock_is_refused_with_advice(tmp_path):
    with lock_folder(tmp_path / "new", advice="Wait."):
        with (
            pytest.raises(BusyError, match=r"new is in use by process \d+, since 20.*UTC\. Wait\."),
            lock_folder(tmp_path / "new", advice="Wait."),
        ):
            pass
        with lock_folder(tmp_path, advice="Wait."):  # another folder has another lock
            pass
    with lock_folder(tmp_path / "new", advice="Wait."):
        assert (tmp_path / "new" / LOCK_FILE).is_file()


def test_without_advice_a_taken_lock_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(locks, "_POLL_INTERVAL", 0.01)
    inside, order = threading.Event(), []

    def hold():
        with lock_folder(tmp_path):
            inside.set()
            time.sleep(0.1)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with caplog.at_level(logging.WARNING, "tauflow"), lock_folder(tmp_path):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert [record.message.partition(" by ")[0] for record in caplog.records] == (
        [f"{tmp_path} is in use"]  # once, however long it takes
    )


def test_a_holder_that_ends_soon_is_waited_for_before_advice(tmp_path):
    inside = threading.Event()

    def hold():
        with lock_folder(tmp_path):
            inside.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with lock_folder(tmp_path, advice="Wait.", timeout=60):
        thread.join()


def test_waiting_for_oneself_is_an_error_and_no_wait_for_ever(tmp_path):
    with (
        lock_folder(tmp_path),
        pytest.raises(RuntimeError, match=r"[Dd]eadlock"),
        lock_folder(tmp_path),
    ):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path):
    program = Path(__file__).with_name("fork_while_locked.py")
    child = subprocess.Popen([sys.executable, str(program), str(tmp_path)], stdout=subprocess.PIPE)
    grandchild = int(child.stdout.readline())
    child.kill()
    child.wait()
    os.kill(grandchild, 0)  # lives
    try:
        with lock_folder(tmp_path, advice="Wait."):
            pass
    finally:
        os.kill(grandchild, signal.SIGKILL)
        child.stdout.close()


def test_a_folder_on_a_full_disk_can_be_locked(tmp_path, monkeypatch):
    def fill(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fill)
    with (
        lock_folder(tmp_path),
        pytest.raises(BusyError, match="by another process"),
        lock_folder(tmp_path, advice="Wait."),
    ):
        pass


@pytest.mark.parametrize("number", locks._UNSUPPORTED_ERRNOS)
def test_a_folder_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog, number):
    fcntl = pytest.importorskip("fcntl")

    def take(file, how):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", take)
    with caplog.at_level(logging.WARNING, "tauflow"), lock_folder(tmp_path, advice="Wait."):
        pass
    assert "cannot be locked here" in caplog.text
