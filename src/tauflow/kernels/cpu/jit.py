"""How numba kernels are compiled and kept, and run in parallel.

Their functions have types of numba's own.

Python runs signal handlers between two lines, and what a handler raises within a callback of
``ctypes`` is dropped together with the rest of the callback. So what the threads of a parallel
region call is compiled, and Python sees a signal when all slices are done.
"""

# mypy: ignore-errors

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.ma
from llvmlite import ir
from numba import types
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel import ArgPacker
from numba.extending import intrinsic

from tauflow._internal.fork_safety import acquire_before_fork, compile_lock

from .binding import OpenMPTeam
from .cache import KernelCache

FAST_MATH = {"contract", "arcp", "nsz"}
"""Freedoms that keep NaN and infinity: fused multiply-adds, reciprocals, the sign of zero."""

EXACT_DIVISION = FAST_MATH - {"arcp"}
"""The same, for a quotient that must not become a product with a reciprocal."""

FAST_SUMS = FAST_MATH | {"reassoc"}
"""The same, and sums in any order, for loops that reduce."""

f4 = np.float32

# In this order, as numba takes them; the second serves the garbage collector as well.
acquire_before_fork(global_compiler_lock)
_llvm_lock = getattr(llvmlite.binding.ffi.lib, "_lock", None)  # private, so it may go
if hasattr(_llvm_lock, "_lock"):
    acquire_before_fork(_llvm_lock._lock)

_log = logging.getLogger("tauflow")
_KERNELS_FOLDER = Path(__file__).parents[1]


@cache
def digest_sources(*folders: Path) -> str:
    """Return a digest of the files that a kernel may take functions and numbers from."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_function_names: set[tuple[str, str]] = set()


def _register_name(function: Callable[..., Any], name: str | None) -> None:
    """See that no other function of its file has the name that its machine code will have.

    Numba tells functions of one name apart by counting them, in each process again. Where kernels
    that different processes compiled come from the cache, one would call what another meant.
    """
    if name is not None:
        function.__qualname__ += f".{name}"
    key = function.__module__, function.__qualname__
    made = "<locals>" in key[1] or "<lambda>" in key[1]
    if key in _function_names or (made and name is None):
        raise ValueError(
            f"the function {key[1]} of {key[0]} could be taken for another one of that name in "
            "kernels from the cache. Give each a name of its own: name=..."
        )
    _function_names.add(key)


def inline(
    function: Callable[..., Any] | None = None,
    *,
    math: set[str] = FAST_MATH,
    force: bool = False,
    name: str | None = None,
) -> Any:
    """Compile a function that kernels call.

    Args:
        function: to compile.
        math: freedoms of its arithmetic.
        force: whether to inline it however long it is: a loop with a call in it is no vector loop.
        name: tells a function that another one makes, or one without a name, from its like.

    Raises:
        ValueError: a function of its file has the same name.
    """
    if function is None:
        return lambda decorated: inline(decorated, math=math, force=force, name=name)
    _register_name(function, name)
    return numba.njit(
        fastmath=math,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=force,
    )(function)


def kernel(
    function: Callable[..., Any] | None = None, *, source_folders: tuple[str, ...] = ()
) -> Any:
    """Compile a function that Python calls: it runs without the GIL and is cached on disk.

    Entries are named by what is in all files that the kernel is made of, since it holds functions
    of other files as they were: those of its own folder, of this one and of the engine.

    Args:
        function: the kernel.
        source_folders: other folders of kernels that it calls functions of.
    """
    if function is None:
        return lambda decorated: kernel(decorated, source_folders=source_folders)
    compiled = numba.njit(fastmath=FAST_MATH, error_model="numpy", nogil=True)(function)
    own = Path(function.__code__.co_filename).parent
    compiled._cache = KernelCache(
        function,
        digest_sources(own, *(_KERNELS_FOLDER / f for f in _SHARED_FOLDERS + source_folders)),
    )
    return compiled


_SHARED_FOLDERS = ("cpu", "engine")


def log_compilation(kernel_name: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    for one in kernels:
        if one.signatures:
            continue
        if not one._cache.has_entries(one.targetctx):
            folder = one.stats.cache_path
            where = f"kept in {folder}" if folder else "no folder to keep them can be written"
            # A warning, which shows where nobody set up logging: half a minute of nothing worries.
            _log.warning(
                "compiling the %s kernels once, some 10 to 30 seconds; %s", kernel_name, where
            )
            return


def run_region(
    team: OpenMPTeam, function: Any, count: int, slices: int, arguments: tuple[Any, ...]
) -> None:
    """Call ``function(slice, low, high, *arguments)`` for every slice on a thread of the team.

    Args:
        team: that runs it.
        function: a kernel.
        count: sequences in the batch.
        slices: into how many they are cut.
        arguments: shared by all slices.

    Raises:
        RuntimeError: a slice was not computed.
    """
    done = _parallel_region(
        team, _get_compiled_address(function, team, arguments), count, slices, arguments
    )
    if done != slices:
        raise RuntimeError(f"{slices - done} of {slices} slices of the batch were not computed")


def _get_compiled_address(function: Any, team: OpenMPTeam, arguments: tuple[Any, ...]) -> int:
    """Return where the machine code of a kernel for such arguments begins."""
    key = function, compute_fingerprint(arguments)
    if key not in _addresses:
        signature = tuple(map(function.typeof_pyval, (0, 0, 0, *arguments)))
        with compile_lock:  # one thread compiles, or reads the cache; a fork waits
            function.compile(signature)
            _parallel_region.compile(
                tuple(map(_parallel_region.typeof_pyval, (team, 0, 0, 0, arguments)))
            )
            compiled = function.overloads[signature]
            name = compiled.fndesc.llvm_func_name
            _addresses[key] = compiled.library.get_pointer_to_function(name)
    return _addresses[key]


_addresses: dict[tuple[Callable[..., None], bytes], int] = {}


@kernel
def _parallel_region(team, function, count, slices, arguments):
    return _start_region(team, function, count, slices, arguments)


@intrinsic
def _start_region(context, team, function, count, slices, arguments):
    """Let a team call a function for every slice; return how many it has computed, or raise."""
    signature = slices(team, function, count, slices, arguments)

    def generate(context, builder, signature, values):
        convention = context.call_conv
        kinds = (*[slices] * 3, *arguments)
        function_type = convention.get_function_type(types.none, kinds)
        empty = function_type.args[1].pointee(None)  # no error
        outcome = [
            alloca_value(builder, one) for one in (values[3].type(0), ir.IntType(32)(0), empty)
        ]
        shared = cgutils.pack_struct(builder, [*values, *outcome])
        task = _make_task(context, builder.module, kinds, function_type, shared.type)
        number = ir.IntType(32)
        start = ir.FunctionType(ir.VoidType(), [task.type, cgutils.voidptr_t, number, number])
        given = builder.bitcast(alloca_value(builder, shared), cgutils.voidptr_t)
        pool = builder.inttoptr(builder.extract_value(values[0], 0), start.as_pointer())
        builder.call(pool, [task, given, builder.trunc(values[3], number), number(0)])
        done, code, error = map(builder.load, outcome)
        status = convention._get_return_status(builder, code, error)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return done

    return signature, generate


alloca_value = cgutils.alloca_once_value


def _make_task(context, module, kinds, function_type, shared):
    """Return what each thread of a team calls with the address of what all of them share.

    Args:
        context: numba's.
        module: that receives it.
        kinds: types of the arguments of the function that is to be called.
        function_type: of that function.
        shared: type of a structure: arguments of ``_start``, and the addresses of its outcome.
    """
    name = module.get_unique_name("slices")
    task = ir.Function(module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t]), name)
    task.linkage = "internal"
    builder = ir.IRBuilder(task.append_basic_block())
    held = builder.load(builder.bitcast(task.args[0], shared.as_pointer()))
    team, address, count, slices, arguments, done, code, error = cgutils.unpack_tuple(builder, held)
    ask = ir.FunctionType(ir.IntType(32), []).as_pointer()
    rank, size = (
        builder.sext(builder.call(builder.inttoptr(one, ask), []), slices.type)
        for one in cgutils.unpack_tuple(builder, team)[1:]
    )
    result, raised = (cgutils.alloca_once(builder, one.pointee) for one in function_type.args[:2])
    packer = ArgPacker(context.data_model_manager, kinds)
    with cgutils.for_range_slice(builder, rank, slices, size) as (index, _):
        ends = [index, builder.add(index, index.type(1))]
        rows = [builder.sdiv(builder.mul(count, one), slices) for one in ends]
        given = [index, *rows, *cgutils.unpack_tuple(builder, arguments)]
        function = builder.inttoptr(address, function_type.as_pointer())
        found = builder.call(function, [result, raised, *packer.as_arguments(builder, given)])
        with builder.if_else(cgutils.is_null(builder, found)) as (succeeded, failed):
            with succeeded:
                builder.atomic_rmw("add", done, done.type.pointee(1), "seq_cst")
            with failed:
                builder.store(builder.load(raised), error)
                builder.store(found, code)
    builder.ret_void()
    return task
