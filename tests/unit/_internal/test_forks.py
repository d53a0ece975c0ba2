"""Locks that a forked child finds open, or that a fork waits for."""

import ast
import os
import threading
import time
from pathlib import Path

import pytest

import tauflow
from tauflow._internal import fork_safety
from tauflow.kernels.cpu import binding as numba_threads
from tauflow.kernels.engine import workspace
from tauflow.kernels.gpu import graph_loop as cuda_graphs

SOURCES = Path(tauflow.__file__).parent
PRIMITIVES = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


class Holder(threading.Thread):
    """Another thread, which holds a lock until it is told to let go."""

    def __init__(self, lock):
        super().__init__()
        self.lock, self.held, self.let_go = lock, threading.Event(), threading.Event()

    def run(self):
        with self.lock:
            self.held.set()
            self.let_go.wait(60)

    def __enter__(self):
        self.start()
        assert self.held.wait(60)
        return self

    def __exit__(self, *_):
        self.let_go.set()
        self.join()


def child_takes(lock) -> bool:
    """Fork, and return whether the child could take and give back a lock within some seconds."""
    child = os.fork()
    if child == 0:
        try:
            with lock:
                os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def locks_of_the_library():
    return {
        "new": fork_safety.make_fork_safe_lock(),
        "workspace": workspace._lock,
        "threads": numba_threads._lock,
        "recordings": cuda_graphs._lock,
    }


@needs_fork
@pytest.mark.parametrize("name", ["new", "workspace", "threads", "recordings"])
def test_a_child_finds_every_lock_open(name):
    lock = locks_of_the_library()[name]
    assert isinstance(lock, type(threading.Lock()))  # which signals cannot leave shut
    with Holder(lock):
        assert child_takes(lock)
        assert not lock.acquire(blocking=False)  # the parent's is held as before
    with lock:
        pass


@needs_fork
@pytest.mark.parametrize("name", ["building", "numba"])
def test_a_fork_waits_for_what_is_being_built(name):
    lock = fork_safety.compile_lock
    if name == "numba":
        pytest.importorskip("tauflow.kernels.cpu.jit")
        lock = pytest.importorskip("numba.core.compiler_lock").global_compiler_lock
    with Holder(lock) as holder:
        threading.Timer(0.3, holder.let_go.set).start()
        assert child_takes(lock)
        assert holder.let_go.is_set()
    assert child_takes(lock)


@needs_fork
def test_who_builds_may_fork():
    with fork_safety.compile_lock:
        assert child_takes(fork_safety.compile_lock)


def test_no_lock_is_made_elsewhere():
    """One that no rule for forks knows."""
    for path in SOURCES.rglob("*.py"):
        if path.name == "fork_safety.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = set()
            if isinstance(node, ast.ImportFrom) and node.module == "threading":
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = {node.attr} if node.value.id == "threading" else set()
            assert not names & PRIMITIVES, (
                f"{path}: {names}; take tauflow._internal.fork_safety.make_lock"
            )
