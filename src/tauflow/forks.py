"""Locks in a process that forks, as the workers of a DataLoader do.

A child gets a copy of every lock, but of the threads only the one that forked: a lock that another
thread holds at that moment would stay shut in the child for ever.
"""

import os
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakSet


class _Acquirable(Protocol):
    def acquire(self) -> Any: ...
    def release(self) -> None: ...


class Lock(AbstractContextManager[None]):
    """A lock that is open in a forked child: for what is whole again between any two statements."""

    def __init__(self) -> None:
        self._renew()
        _renewed.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_renewed: WeakSet[Lock] = WeakSet()
building = threading.RLock()
"""Held while something is built that no child could finish: a fork waits until it is."""

_awaited: list[_Acquirable] = [building]


def await_before_fork(lock: _Acquirable) -> None:
    """Let a fork wait until no other thread holds a lock that may be acquired again by its holder.

    Whoever holds :data:`building` may wait for it, but not the other way round.
    """
    with building:
        _awaited.append(lock)


def _before() -> None:
    for lock in _awaited:
        lock.acquire()


def _after() -> None:
    for lock in reversed(_awaited):
        lock.release()


def _after_in_child() -> None:
    _after()
    for lock in _renewed:
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
