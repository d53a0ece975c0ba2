"""A lock on a folder: two programs that write into one folder would undo each other's work."""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from tauflow.errors import ArgumentError, BusyError

LOCK_FILE = ".lock"
_PAUSE = 0.2  # seconds between two looks at whether the holder is done
_held: set[int] = set()  # descriptors of this process
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

log = logging.getLogger("tauflow")


@contextmanager
def locked(folder: Path, *, advice: str | None = None, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, making the folder if need be.

    The operating system gives the lock back when the process ends, however it ends, so that a
    killed program leaves nothing to clean up. The file itself stays. A process forked meanwhile
    does not hold the lock, and may outlive the one that does.

    Args:
        folder: what to lock.
        advice: what to do if the lock is taken, which ends the message; without it, wait.
        patience: seconds to wait before advising: a program that was killed takes a moment to end.

    Raises:
        BusyError: with ``advice``: another program, or another part of this one, holds the lock.
        ArgumentError, OSError: the folder cannot be made or written.
    """
    make_folder(folder)
    path = folder / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(descriptor)
    try:
        _acquire(descriptor, path, advice, patience)
        with suppress(OSError):  # a full disk: the lock holds without saying whose it is
            now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}, since {now}".encode())
        yield
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, if need be.

    Raises:
        ArgumentError: a file, or a link to nothing, stands in its place.
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ArgumentError(
            f"{error.filename} is a file, or a link to nothing, and was to be a folder. Remove it, "
            "or choose another folder."
        ) from error


def _let_go() -> None:
    """Close, in a forked child, what its parent locks: an open file keeps the lock."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _acquire(descriptor: int, path: Path, advice: str | None, patience: float) -> None:
    told = False
    end = time.monotonic() + patience
    while True:
        try:
            _take(descriptor)
            return
        except (BlockingIOError, PermissionError) as error:
            if advice is not None and time.monotonic() >= end:
                raise BusyError(f"{path.parent} is in use by {_holder(path)}. {advice}") from error
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            log.warning("%s cannot be locked here; let only one program use it.", path.parent)
            return
        if not told:
            log.warning("%s is in use by %s; waiting for it to end.", path.parent, _holder(path))
            told = True
        time.sleep(_PAUSE)


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:  # Windows does not let others read it
        return "another process"


if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
