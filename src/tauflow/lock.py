"""A lock on a folder: two programs that write into one folder would undo each other's work."""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from tauflow.errors import BusyError

LOCK_FILE = ".lock"
_PAUSE = 0.2  # seconds between two looks at whether the holder is done
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

log = logging.getLogger("tauflow")


@contextmanager
def locked(folder: Path, *, advice: str | None = None) -> Iterator[None]:
    """Hold the lock of a folder, making the folder if need be.

    The operating system gives the lock back when the process ends, however it ends, so that a
    killed program leaves nothing to clean up. The file itself stays.

    Args:
        folder: what to lock.
        advice: what to do if the lock is taken, which ends the message; without it, wait.

    Raises:
        BusyError: with ``advice``: another program, or another part of this one, holds the lock.
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    with path.open("a+", encoding="utf-8") as file:  # "w" would empty the holder's file
        _acquire(file, path, advice)
        file.truncate(0)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.write(f"process {os.getpid()}, since {now}")
        file.flush()
        yield


def _acquire(file: IO[str], path: Path, advice: str | None) -> None:
    told = False
    while True:
        try:
            _take(file)
            return
        except (BlockingIOError, PermissionError) as error:
            if advice is not None:
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
        return path.read_text(encoding="utf-8") or "another process"
    except OSError:  # Windows does not let others read it
        return "another process"


if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[str]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: IO[str]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
