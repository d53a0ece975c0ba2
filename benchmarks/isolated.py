"""Run each case in a separate process, so that a case that crashes or hangs stops no other.

An illegal access on a GPU leaves the whole process without its device; so would a case that a
budget cuts short. Children are forked, which takes no time: the parent imports everything, and must
neither compute nor look at a device.
"""

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

Row = dict[str, Any]
"""What a case returns, in plain values."""

_AGAIN = 0.5  # seconds until a child that says nothing is looked at


class Case(NamedTuple):
    """Something to run.

    Args:
        name: of it.
        run: yields what it finds, as soon as it is found.
        seconds: that it may take.
    """

    name: str
    run: Callable[[], Iterable[Row]]
    seconds: float


class _Child(NamedTuple):
    case: Case
    process: BaseProcess
    end: float


def run_cases(
    cases: Sequence[Case],
    *,
    workers: int,
    seconds: float,
    on_row: Callable[[str, Row], None],
    failed: Callable[[str, str], None],
) -> None:
    """Run cases.

    Args:
        cases: in order of importance.
        workers: how many at once.
        seconds: for all of them; what runs then is stopped, and the rest is left out.
        on_row: called with a case's name and each of its rows.
        failed: called with a case's name and what became of it.
    """
    end, waiting = time.monotonic() + seconds, deque(cases)
    running: dict[Connection, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                case = waiting.popleft()
                if time.monotonic() >= end:
                    failed(case.name, "left out: the time was over")
                else:
                    connection, child = _start(case, end)
                    running[connection] = child
            for connection in wait(list(running), _AGAIN):
                assert isinstance(connection, Connection)
                _listen(connection, running, on_row, failed)
            for connection, child in list(running.items()):
                if time.monotonic() >= child.end:
                    _stop(child)
                    failed(child.case.name, "stopped: it took longer than it may")
                    del running[connection]
                elif not child.process.is_alive() and not connection.poll():
                    _lost(connection, running, failed)
    finally:
        for child in running.values():
            _stop(child)


def _start(case: Case, end: float) -> tuple[Connection, _Child]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(case, theirs))
    sys.stdout.flush()  # or the child would write it too
    process.start()
    theirs.close()
    return ours, _Child(case, process, min(end, time.monotonic() + case.seconds))


def _run(case: Case, parent: Connection) -> None:
    """Run a case in the child."""
    os.setsid()  # so that its own children, such as compilers, can be stopped with it
    try:
        for row in case.run():
            parent.send(("found", row))
        sys.stdout.flush()
        parent.send(("done", ""))
    except BaseException as error:
        traceback.print_exc()
        message = (str(error).strip().splitlines() or [""])[0][:200]
        parent.send(("failed", f"{type(error).__name__}: {message}"))


def _listen(
    connection: Connection,
    running: dict[Connection, _Child],
    on_row: Callable[[str, Row], None],
    failed: Callable[[str, str], None],
) -> None:
    """Take one message of a child."""
    child = running[connection]
    try:
        kind, what = connection.recv()
    except (EOFError, OSError):
        return _lost(connection, running, failed)
    if kind == "found":
        return on_row(child.case.name, what)
    _stop(child)  # with what it may have left running
    del running[connection]
    if kind == "failed":
        failed(child.case.name, what)


def _lost(
    connection: Connection,
    running: dict[Connection, _Child],
    failed: Callable[[str, str], None],
) -> None:
    """Note that a child is gone silently."""
    child = running.pop(connection)
    child.process.join(_AGAIN)
    failed(child.case.name, f"its process ended with code {child.process.exitcode}")


def _stop(child: _Child) -> None:
    assert child.process.pid is not None
    try:
        os.killpg(child.process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # all gone, or not yet a separate group
        child.process.kill()
    child.process.join()
