"""Between torch and compiled loops: arrays, threads, and the BLAS inside torch.

Torch's own call of a matrix product costs a few microseconds before the first multiplication; the
library behind it costs a fraction of one, and exports the function. Its address works with numba's
disk cache, which refuses to store a foreign function.

Torch's own OpenMP pool is used where it is found (Linux): its idle threads spin for a while after
an operation, so a second pool would fight them for the cores. Elsewhere, and in a forked child,
where that pool cannot be used, it is a pool of Python threads; the kernels release the GIL.
"""

import ctypes
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.errors import DtypeError
from tauflow.forks import Lock, building
from tauflow.kernels.engine.torch_state import constant_when_traced
from tauflow.solvers import TABLEAUS

_READ = (torch.float32, torch.bool)


def as_array(tensor: Tensor) -> Any:
    """Return a tensor's entries for a loop that reads them; a copy unless they lie in a row.

    Raises:
        DtypeError: the loop, and the BLAS that it calls, would misread them.
    """
    if tensor.dtype not in _READ:
        raise DtypeError(
            f"a compiled loop reads torch.float32, got {tensor.dtype}. Use backend='reference', or "
            "let what computes the parameter keep its dtype."
        )
    return _plain(tensor).contiguous().numpy()


def written(tensor: Tensor) -> Any:
    """Return a tensor's own memory for a loop that writes into it."""
    assert tensor.is_contiguous(), "the loop would write into a copy, which nobody reads"
    return _plain(tensor).numpy()


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor without its graph; a look costs less than another view of one without."""
    return tensor.detach() if tensor.requires_grad else tensor


def carried(pull: Tensor | None, like: Tensor) -> Tensor:
    """Return the gradient of a last state in memory that the loop back may overwrite.

    Args:
        pull: the incoming gradient, which stays as it is; ``None`` if the state was not used.
        like: what has the state's shape, dtype and device.
    """
    if pull is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    # a plain clone keeps the strides of, for instance, a transposed gradient
    return pull.clone(memory_format=torch.contiguous_format)


_EMPTY = {
    (axes, dtype): np.empty((0,) * axes, dtype)
    for axes in (1, 2, 3, 4)
    for dtype in ("float32", "bool")
}


def array_or_empty(tensor: Tensor | None, axes: int, dtype: str = "float32") -> Any:
    """Return the array of a tensor to read, or an empty one of as many axes."""
    return _EMPTY[axes, dtype] if tensor is None else as_array(tensor)


def written_or_empty(tensor: Tensor | None, axes: int = 2) -> Any:
    """Return the array on a tensor's own memory, or an empty one of as many axes."""
    return _EMPTY[axes, "float32"] if tensor is None else written(tensor)


class Blas(NamedTuple):
    """Addresses of C functions.

    Args:
        sgemm: the Fortran interface, which takes pointers only.
        set_threads: sets the number of threads of the calling thread's products, and returns the
            number before.
    """

    sgemm: int
    set_threads: int


@cache
def find_blas() -> Blas | None:
    """Return the functions of the library that torch has loaded, or ``None`` where it hides them.

    Both are asked for, since a product that starts threads of its own would fight the threads
    that call it.
    """
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    mode = getattr(os, "RTLD_NOLOAD", None)
    if mode is None:
        return None
    try:
        library = ctypes.CDLL(str(path), mode=mode)
        functions = library.sgemm_, library.MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):
        return None
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    return Blas(*(address or 0 for address in addresses))


@cache
def loops_of(module: str) -> Any:
    """Import a module of compiled loops, which takes seconds where numba is not imported yet.

    A fork waits until it is done: its child would find the module half made, and locked.
    """
    with building:
        return import_module(f"tauflow.kernels.{module}")


def announce(what: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    loops_of("cpu.jit").announce(what, *kernels)


@constant_when_traced
def why_no_blas() -> str | None:
    """Return why compiled loops cannot multiply matrices."""
    if find_blas() is None:
        return "torch's CPU library shows no matrix product to compiled loops on this platform"
    return None


@cache
def make_steps(solver: str) -> tuple[Any, Any]:
    """Return an explicit solver's weights of earlier stages (s, s), and in the step (s,)."""
    table = TABLEAUS[solver]
    stages = len(table.b)
    a = np.zeros((stages, stages), np.float32)
    for row, weights in enumerate(table.a):
        a[row, : len(weights)] = weights
    return a, np.array(table.b, np.float32)


Task = Callable[[int], None]


def slice_count(count: int) -> int:
    """Return into how many slices :func:`run_slices` cuts a batch of ``count`` sequences."""
    return max(1, min(torch.get_num_threads(), count))


def run_slices(
    kernel: Callable[..., None], count: int, *arguments: Any, slices: int | None = None
) -> None:
    """Call ``kernel(slice, low, high, *arguments)`` for every slice of a batch.

    Args:
        kernel: compiled without the GIL; ``slice`` numbers its own accumulators.
        count: sequences in the batch.
        arguments: passed on, shared by all slices.
        slices: into how many the batch is cut; by default :func:`slice_count`.
    """
    slices = slice_count(count) if slices is None else slices
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
