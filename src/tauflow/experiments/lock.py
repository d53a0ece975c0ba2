"""A lock on a folder: two programs that train into one folder would undo each other's work."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from tauflow.errors import BusyError

LOCK_FILE = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

log = logging.getLogger("tauflow")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, making the folder if need be.

    The operating system gives the lock back when the process ends, however it ends, so that a
    killed program leaves nothing to clean up. The file itself stays.

    Raises:
        BusyError: another program, or another part of this one, holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    with path.open("a+", encoding="utf-8") as file:  # "w" would empty the holder's file
        try:
            _take(file)
        except (BlockingIOError, PermissionError) as error:
            raise BusyError(
                f"{folder} is in use by {_holder(path)}. Wait until it ends, or stop it: every "
                "finished epoch is kept. To run several models at a time, give one command with "
                "--jobs; for something else, choose another folder with --runs."
            ) from error
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            log.warning("%s cannot be locked here; let only one program use it.", folder)
        file.truncate(0)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.write(f"process {os.getpid()}, since {now}")
        file.flush()
        yield


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
