"""Run jobs in separate processes, which end with the process that started them."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

_POLL_SECONDS = 0.2  # seconds between two looks at whether the parent lives


@contextmanager
def worker_processes() -> Iterator[None]:
    """Let worker processes be cleared away where this one is stopped.

    SIGTERM, by which batch systems and ``timeout`` stop a program, ends a process on the spot.
    Joblib's tracker then finds semaphores and folders in shared memory, removes them, and says so
    at length. Here it leads out of the block, as Ctrl-C does, and ends the program with code 143; a
    second one ends it on the spot.
    """
    ours = threading.current_thread() is threading.main_thread()  # none else may set handlers
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def exit_with_parent(parent: int) -> None:
    """End this process soon after the one that started it has died.

    A worker whose parent was killed would train on unseen, and keep the run from the next call. A
    process that ``parent`` did not start, as on another machine, is left alone.

    Args:
        parent: number of the process that asks for work.
    """
    started_by = multiprocessing.parent_process()  # says so even after that one has died
    if started_by is None or started_by.pid != parent:
        return

    def watch() -> None:
        if sys.platform == "win32":  # does not tell that a parent is gone
            started_by.join()
        while os.getppid() == parent and sys.platform != "win32":
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
