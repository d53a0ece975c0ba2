"""Between torch and compiled loops: arrays and threads.

Torch's own OpenMP pool is used where it is found (Linux): its idle threads spin for a while after
an operation, so a second pool would fight them for the cores. Elsewhere, and in a forked child,
where that pool cannot be used, it is a pool of Python threads; the kernels release the GIL.
"""

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from tauflow._internal.fork_safety import compile_lock, make_fork_safe_lock
from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES
from tauflow.errors import ArgumentError, DtypeError
from tauflow.solvers import TABLEAUS

_READABLE_DTYPES = (torch.float32, torch.bool)


def input_array(tensor: Tensor) -> Tensor:
    """Return a tensor for a loop that reads its memory; a copy unless its entries lie in a row.

    Raises:
        DtypeError: the loop would misread them.
    """
    if tensor.dtype not in _READABLE_DTYPES:
        raise DtypeError(
            f"a compiled loop reads torch.float32, got {tensor.dtype}. Use backend='reference', or "
            "let what computes the parameter keep its dtype."
        )
    if type(tensor) not in PLAIN_TENSOR_TYPES or tensor.is_neg() or tensor._is_zerotensor():
        tensor = tensor.detach().as_subclass(Tensor).resolve_neg()
        tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    return tensor.contiguous()


def initial_grad_state(grad_output: Tensor | None, like: Tensor) -> Tensor:
    """Return the gradient of a last state in memory that the loop back may overwrite.

    Args:
        grad_output: the incoming gradient, which stays as it is; ``None`` if the state was not
            used.
        like: what has the state's shape, dtype and device.
    """
    if grad_output is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    # a plain clone keeps the strides of, for instance, a transposed gradient
    return grad_output.clone(memory_format=torch.contiguous_format)


_EMPTY_ARRAYS = {
    (axes, dtype): torch.empty((0,) * axes, dtype=dtype, device="cpu")
    for axes in (1, 2, 3, 4)
    for dtype in _READABLE_DTYPES
}


def input_array_or_empty(
    tensor: Tensor | None, axes: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return a tensor for a loop that reads it, or an empty one of as many axes."""
    return _EMPTY_ARRAYS[axes, dtype] if tensor is None else input_array(tensor)


def output_array_or_empty(tensor: Tensor | None, axes: int = 2) -> Tensor:
    """Return a tensor for a loop that writes into it, or an empty one of as many axes."""
    return _EMPTY_ARRAYS[axes, torch.float32] if tensor is None else tensor


def pack_arguments(values: tuple[Any, ...], kinds: list[Any], words: list[int]) -> None:
    """Append what arguments of a kernel are, and where they are.

    Args:
        values: contiguous tensors on the CPU, arrays, those of Python with 64-bit integers,
            integers, booleans, floats, and tuples.
        kinds: receives what the compiled types of arguments follow from.
        words: receives addresses, sizes and numbers, each in 64 bits.
    """
    for value in values:
        kind = type(value)
        if kind in PLAIN_TENSOR_TYPES:
            assert value.is_contiguous(), "a loop would read and write beside the entries"
            shape = value.shape
            kinds += (value.dtype, len(shape))
            address = value.data_ptr()
            if address < NULL_PAGE:  # before a backward pass, say
                check_memory(value)
            words.append(address)
            words += shape
        elif kind is ConstantArgument:
            kinds.append(value.kinds)
            words += value.words
        elif kind is int or kind is bool:
            kinds.append(kind)
            words.append(value)
        elif kind is array:
            kinds += (kind, value.typecode)
            words += value.buffer_info()
        elif kind is np.ndarray:
            flags = value.flags
            is_flat = flags.c_contiguous
            kinds += (value.dtype, value.ndim, is_flat, flags.f_contiguous, flags.writeable)
            words.append(value.ctypes.data)
            words += value.shape
            words += () if is_flat else value.strides
        elif issubclass(kind, tuple):
            kinds += (kind, len(value))
            pack_arguments(value, kinds, words)
        elif issubclass(kind, Tensor):  # made like one of a subclass
            pack_arguments((value.as_subclass(Tensor),), kinds, words)
        else:
            kinds.append(kind)
            words.append(int(np.float64(value).view(np.int64)))


def pack_tensors(*tensors: Tensor) -> list[int]:
    """Return the words of contiguous tensors, of types that the caller knows."""
    words: list[int] = []
    for tensor in tensors:
        assert tensor.is_contiguous(), "a loop would read and write beside the entries"
        address = tensor.data_ptr()
        if address < NULL_PAGE and tensor.numel():
            check_memory(tensor)
        words.append(address)
        words += tensor.shape
    return words


NULL_PAGE = 1 << 32
"""Below it are offsets into memory that was released, and what a program without
position-independent code allocates."""


def check_memory(*values: Any) -> None:
    """Look where tensors have their entries, as operators of torch do not.

    Args:
        *values: tensors, tuples of them, and all else, which is left alone.

    Raises:
        ArgumentError: one has none, as its memory was released.
    """
    if torch.compiler.is_compiling():
        return
    for value in values:
        if isinstance(value, tuple):
            check_memory(*value)
        elif isinstance(value, Tensor) and _is_released(value):
            raise ArgumentError(
                f"A tensor of shape {tuple(value.shape)} has no memory: it was released, as by "
                "tensor.untyped_storage().resize_(0). Load or compute it again first."
            )


def _is_released(tensor: Tensor) -> bool:
    if isinstance(tensor, FakeTensor):  # which has none by design
        return False
    try:
        if tensor.data_ptr() >= NULL_PAGE:
            return False
        return bool(tensor.numel()) and not tensor.untyped_storage().nbytes()
    except RuntimeError:  # sparse, or of a transform, which reads none
        return False


class ConstantArgument:
    """An argument that is the same in many calls, whose memory is neither freed nor changed.

    Args:
        value: the argument.
    """

    def __init__(self, value: Any) -> None:
        kinds: list[Any] = []
        words: list[int] = []
        pack_arguments((value,), kinds, words)
        self.value, self.kinds, self.words = value, tuple(kinds), tuple(words)


def _get_address(function: Any) -> int:
    """Return where a function of a C library begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def import_kernels(module: str) -> Any:
    """Import a module of compiled loops, which takes seconds where numba is not imported yet.

    A fork waits until it is done: its child would find the module half made, and locked.
    """
    with compile_lock:
        return import_module(f"tauflow.kernels.{module}")


def log_compilation(kernel_name: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    import_kernels("cpu.jit").log_compilation(kernel_name, *kernels)


@cache
def make_tableau_arrays(solver: str) -> tuple[Any, Any]:
    """Return an explicit solver's weights of earlier stages (s, s), and in the step (s,)."""
    table = TABLEAUS[solver]
    stages = len(table.b)
    a = np.zeros((stages, stages), np.float32)
    for row, weights in enumerate(table.a):
        a[row, : len(weights)] = weights
    return a, np.array(table.b, np.float32)


class OpenMPTeam(NamedTuple):
    """Addresses of functions of an OpenMP library.

    Args:
        start: ``GOMP_parallel``.
        rank: ``omp_get_thread_num``.
        size: ``omp_get_num_threads``, which may be smaller than what was asked for.
    """

    start: int
    rank: int
    size: int


def count_slices(count: int) -> int:
    """Return into how many slices :func:`parallel_for` cuts a batch of ``count`` sequences."""
    return max(1, min(torch.get_num_threads(), count))


def parallel_for(
    kernel: Callable[..., None], count: int, *arguments: Any, slices: int | None = None
) -> None:
    """Call ``kernel(slice, low, high, *arguments)`` for every slice of a batch.

    Args:
        kernel: compiled without the GIL; ``slice`` numbers its own accumulators.
        count: sequences in the batch.
        arguments: passed on, shared by all slices.
        slices: into how many the batch is cut; by default :func:`count_slices`.
    """
    launch, words = prepare_launch(kernel, arguments)
    run_slices(launch, words, count, count_slices(count) if slices is None else slices)


def prepare_launch(kernel: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return a kernel as it is launched with arguments of such types, and the arguments' words."""
    kinds: list[Any] = []
    words: list[int] = []
    pack_arguments(arguments, kinds, words)
    return import_kernels("cpu.launch").find_launch(kernel, kinds, arguments), words


def run_slices(launch: Any, words: Sequence[int], count: int, slices: int) -> None:
    """Launch a kernel for every slice of a batch.

    Args:
        launch: of :func:`prepare_launch`.
        words: of its arguments.
        count: sequences in the batch.
        slices: into how many the batch is cut.
    """
    team = _get_openmp_team() if slices > 1 else None
    if slices == 1 or team is not None:
        launch.run(words, team, count, slices, 0, slices)
        return

    def task(index: int) -> None:
        launch.run(words, None, count, slices, index, index + 1)

    _run_on_python_threads(task, range(slices))


_owner_pid = os.getpid()
_lock = make_fork_safe_lock()
_openmp_teams: list[OpenMPTeam | None] = []  # empty until looked for


def _get_openmp_team() -> OpenMPTeam | None:
    """Return the OpenMP library that torch has loaded, unless this is a forked child."""
    if os.getpid() != _owner_pid:
        return None  # libgomp hangs in a child whose parent has used it
    if not _openmp_teams:
        with _lock:
            _openmp_teams.append(_find_openmp_team())
    return _openmp_teams[0]


def describe_threads() -> str:
    """Return which threads take the slices of a batch, and why."""
    if _get_openmp_team() is not None:
        return "the threads of torch's OpenMP"
    reason = "this is a forked process" if os.getpid() != _owner_pid else "torch brings no libgomp"
    return f"threads of Python, as {reason}"


def _find_openmp_team() -> OpenMPTeam | None:
    folders = [Path(torch.__file__).parent / "lib", Path(torch.__file__).parents[1] / "torch.libs"]
    for path in (path for folder in folders for path in folder.glob("libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)  # only the one torch runs on
        except OSError:
            continue
        return OpenMPTeam(*(_get_address(getattr(library, name)) for name in _OPENMP_FUNCTIONS))
    return None


_OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def _run_on_python_threads(task: Callable[[int], None], indices: Sequence[int]) -> None:
    """Run tasks, the first on this thread.

    The queues are of C: a signal handler that raises here cannot leave a lock of theirs shut.
    """
    inbox, ended = _get_thread_queue(len(indices) - 1), SimpleQueue[BaseException | None]()

    def work(index: int) -> None:
        error = None
        try:
            task(index)
        except BaseException as raised:
            error = raised
        ended.put(error)

    raised: BaseException | None = None
    begun = 0
    try:
        for index in indices[1:]:
            inbox.put(partial(work, index))
            begun += 1
        task(indices[0])
    except BaseException as error:
        raised = error
    while begun:  # whatever came in, as the others use memory that is given back after this
        try:
            error_of_other = ended.get()
            begun -= 1
            raised = raised or error_of_other
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised


class _ThreadPool(NamedTuple):
    """Threads of a process that do what is put in their queue."""

    owner: int
    inbox: SimpleQueue[Callable[[], None]]
    members: list[Thread]

    def work(self) -> None:
        """Do it for ever."""
        while True:
            self.inbox.get()()


_thread_pools: list[_ThreadPool] = []


def _get_thread_queue(size: int) -> SimpleQueue[Callable[[], None]]:
    """Return the queue of at least so many threads of this process; none survives a fork."""
    with _lock:
        if not _thread_pools or _thread_pools[0].owner != os.getpid():
            _thread_pools[:] = [_ThreadPool(os.getpid(), SimpleQueue(), [])]
        threads = _thread_pools[0]
        while len(threads.members) < size:
            thread = Thread(target=threads.work, name="tauflow", daemon=True)
            thread.start()
            threads.members.append(thread)  # which an interrupt may have kept from starting
        return threads.inbox
