"""A lock on a folder, for one writing process at a time."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from tauflow.errors import ArgumentError, BusyError

LOCK_FILE = ".lock"
_POLL_INTERVAL = 0.2  # seconds between two looks at whether the holder is done
_UNSUPPORTED_ERRNOS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

log = logging.getLogger("tauflow")


@contextmanager
def lock_folder(folder: Path, *, advice: str | None = None, timeout: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, making the folder if need be.

    The operating system gives the lock back when the process ends, however it ends, so that a
    killed program leaves nothing to clean up. The file itself stays. A process forked meanwhile
    does not hold the lock, and may outlive the one that does.

    Args:
        folder: what to lock.
        advice: what to do if the lock is taken, which ends the message; without it, wait.
        timeout: seconds to wait before advising: a program that was killed takes a moment to end.

    Raises:
        BusyError: with ``advice``: another program, or another part of this one, holds the lock.
        ArgumentError, OSError: the folder cannot be made or written.
    """
    from filelock import FileLock, Timeout

    make_folder(folder)
    path = folder / LOCK_FILE
    lock = FileLock(
        path, poll_interval=_POLL_INTERVAL, fallback_to_soft=False, on_acquired=_write_holder
    )
    try:
        try:
            lock.acquire(timeout=timeout)
        except Timeout as error:
            if advice is not None:
                raise BusyError(f"{folder} is in use by {_read_holder(path)}. {advice}") from error
            log.warning("%s is in use by %s; waiting for it to end.", folder, _read_holder(path))
            lock.acquire(timeout=-1)
    except OSError as error:
        if error.errno not in _UNSUPPORTED_ERRNOS:
            raise
        log.warning("%s cannot be locked here; let only one program use it.", folder)
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == pid:  # and not a forked child, which holds nothing
            lock.release()


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


def _write_holder(descriptor: int) -> None:
    """Say in the file whose the lock is."""
    with suppress(OSError):  # a full disk: the lock holds without saying whose it is
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}, since {now}".encode())


def _read_holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") or "another process"
    except OSError:  # Windows does not let others read it
        return "another process"
