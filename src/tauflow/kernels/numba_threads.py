"""Run a compiled kernel over slices of a batch, one thread each.

Torch's own OpenMP pool is used where it is found (Linux): its idle threads spin for a while after
an operation, so a second pool would fight them for the cores. Elsewhere, and in a forked child,
where that pool cannot be used, it is a pool of Python threads; the kernels release the GIL.
"""

import ctypes
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tauflow.forks import Lock, building

Task = Callable[[int], None]


def slice_count(count: int) -> int:
    """Return into how many slices :func:`run_slices` cuts a batch of ``count`` sequences."""
    return max(1, min(torch.get_num_threads(), count))


def run_slices(kernel: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call ``kernel(slice, low, high, *arguments)`` for every slice of a batch.

    Args:
        kernel: compiled without the GIL; ``slice`` numbers its own accumulators.
        count: sequences in the batch.
        arguments: passed on, shared by all slices.
    """
    slices = slice_count(count)
    if slices == 1 and kernel.overloads:  # type: ignore[attr-defined]
        kernel(0, 0, count, *arguments)
        return

    def task(index: int) -> None:
        kernel(index, count * index // slices, count * (index + 1) // slices, *arguments)

    if kernel.overloads:  # type: ignore[attr-defined]
        _run(task, slices)
        return
    with building:
        task(0)  # compiles, which one thread does alone
    if slices > 1:
        _run(lambda index: task(index + 1), slices - 1)


def _run(task: Task, tasks: int) -> None:
    pool = _openmp_pool()
    if pool is None:
        _run_on_python_threads(task, tasks)
    else:
        _run_on_openmp(pool, task, tasks)


_home = os.getpid()
_lock = Lock()
_found: list[ctypes.CDLL | None] = []  # empty until looked for


def _openmp_pool() -> ctypes.CDLL | None:
    """Return the OpenMP library that torch has loaded, unless this is a forked child."""
    if os.getpid() != _home:
        return None  # libgomp hangs in a child whose parent has used it
    if not _found:
        with _lock:
            _found.append(_find_openmp())
    return _found[0]


def _find_openmp() -> ctypes.CDLL | None:
    folders = [Path(torch.__file__).parent / "lib", Path(torch.__file__).parents[1] / "torch.libs"]
    for path in (path for folder in folders for path in folder.glob("libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)  # only the one torch runs on
        except OSError:
            continue
        library.GOMP_parallel.restype = None
        library.GOMP_parallel.argtypes = [_BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        return library
    return None


_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Team:
    """One parallel region: its threads share the tasks out among themselves."""

    def __init__(self, library: ctypes.CDLL, task: Task, tasks: int) -> None:
        self.library, self.task, self.tasks = library, task, tasks
        self.errors: list[BaseException] = []

    def work(self) -> None:
        try:  # the team may be smaller than asked for
            me, size = self.library.omp_get_thread_num(), self.library.omp_get_num_threads()
            for index in range(me, self.tasks, size):
                self.task(index)
        except BaseException as error:
            self.errors.append(error)


_teams: dict[int, _Team] = {}  # regions under way, by the number that their threads receive
_numbers = itertools.count(1)


@_BODY  # type: ignore[untyped-decorator]
def _enter(number: int) -> None:
    """Work for a region. One callback for all of them: making one takes longer than a call."""
    _teams[number].work()


def _run_on_openmp(library: ctypes.CDLL, task: Task, tasks: int) -> None:
    number, team = next(_numbers), _Team(library, task, tasks)
    _teams[number] = team
    try:
        library.GOMP_parallel(_enter, number, tasks, 0)
    finally:
        del _teams[number]
    if team.errors:
        raise team.errors[0]


_threads: dict[str, tuple[int, int, ThreadPoolExecutor]] = {}


def _run_on_python_threads(task: Task, tasks: int) -> None:
    pool = _python_threads(tasks)
    others = [pool.submit(task, index) for index in range(1, tasks)]
    try:
        task(0)
    finally:
        for other in others:
            other.result()


def _python_threads(size: int) -> ThreadPoolExecutor:
    """Return the pool of this process; threads do not survive a fork."""
    with _lock:
        owner, width, pool = _threads.get("pool", (0, 0, None))
        if pool is None or owner != os.getpid() or width < size:
            pool = ThreadPoolExecutor(size, thread_name_prefix="tauflow")
            _threads["pool"] = (os.getpid(), size, pool)
        return pool
