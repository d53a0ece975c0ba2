"""The lock on a folder of runs: two programs that train into one would undo each other's work."""

from contextlib import AbstractContextManager
from pathlib import Path

from tauflow import lock
from tauflow.lock import LOCK_FILE

__all__ = ["LOCK_FILE", "locked"]

_ADVICE = (
    "Wait until it ends, or stop it: every finished epoch is kept. To run several models at a "
    "time, give one 'tauflow reproduce' with --jobs; for something else, choose another folder "
    "with --runs."
)


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of a folder of runs, making the folder if need be.

    Raises:
        BusyError: another program, or another part of this one, holds the lock.
    """
    return lock.locked(folder, advice=_ADVICE)
