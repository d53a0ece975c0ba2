"""Locks in a process that forks, as the workers of a DataLoader do.

A child gets a copy of every lock, but of the threads only the one that forked: a lock that another
thread holds at that moment would stay shut in the child for ever.
"""

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class _Acquirable(Protocol):
    def acquire(self) -> Any: ...
    def release(self) -> None: ...


def make_fork_safe_lock() -> threading.Lock:
    """Return a lock that is open in a forked child: for what is whole between any two statements.

    It is a lock of Python itself, which a signal handler that raises cannot leave shut: an
    ``__enter__`` or ``__exit__`` in Python can be interrupted between two lines.
    """
    lock = threading.Lock()
    _reinitialised_in_child.add(lock)
    return lock


_reinitialised_in_child: WeakSet[threading.Lock] = WeakSet()
compile_lock = threading.RLock()
"""Held while something is built that no child could finish: a fork waits until it is."""

_acquired_before_fork: list[_Acquirable] = [compile_lock]


def acquire_before_fork(lock: _Acquirable) -> None:
    """Let a fork wait until no other thread holds a lock that may be acquired again by its holder.

    A holder of ``building`` may wait for this lock, but not the other way round.
    """
    with compile_lock:
        _acquired_before_fork.append(lock)


def _acquire_locks() -> None:
    for lock in _acquired_before_fork:
        lock.acquire()


def _release_locks() -> None:
    for lock in reversed(_acquired_before_fork):
        lock.release()


def _reset_locks_in_child() -> None:
    _release_locks()
    for lock in _reinitialised_in_child:
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_locks, after_in_parent=_release_locks, after_in_child=_reset_locks_in_child
    )
