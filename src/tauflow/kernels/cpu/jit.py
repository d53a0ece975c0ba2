"""How numba kernels are compiled and kept, and call the BLAS inside torch.

Their functions have types of numba's own.
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
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from tauflow.forks import await_before_fork

from .cache import KernelCache

FAST = {"contract", "arcp", "nsz"}
"""Freedoms that keep NaN and infinity: fused multiply-adds, reciprocals, the sign of zero."""

EXACT_DIVISION = FAST - {"arcp"}
"""The same, for a quotient that must not become a product with a reciprocal."""

FAST_SUMS = FAST | {"reassoc"}
"""The same, and sums in any order, for loops that reduce."""

f4 = np.float32

# In this order, as numba takes them; the second serves the garbage collector as well.
await_before_fork(global_compiler_lock)
_llvm_lock = getattr(llvmlite.binding.ffi.lib, "_lock", None)  # private, so it may go
if hasattr(_llvm_lock, "_lock"):
    await_before_fork(_llvm_lock._lock)

_log = logging.getLogger("tauflow")
_KERNELS = Path(__file__).parents[1]


@cache
def sources_digest(*folders: Path) -> str:
    """Return a digest of the files that a kernel may take functions and numbers from."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_named: set[tuple[str, str]] = set()


def _name(function: Callable[..., Any], name: str | None) -> None:
    """See that no other function of its file has the name that its machine code will have.

    Numba tells functions of one name apart by counting them, in each process anew. Where kernels
    that different processes compiled come from the cache, one would call what another meant.
    """
    if name is not None:
        function.__qualname__ += f".{name}"
    key = function.__module__, function.__qualname__
    made = "<locals>" in key[1] or "<lambda>" in key[1]
    if key in _named or (made and name is None):
        raise ValueError(
            f"the function {key[1]} of {key[0]} could be taken for another one of that name in "
            "kernels from the cache. Give each a name of its own: name=..."
        )
    _named.add(key)


def inlined(
    function: Callable[..., Any] | None = None,
    *,
    math: set[str] = FAST,
    always: bool = False,
    name: str | None = None,
) -> Any:
    """Compile a function that kernels call.

    Args:
        function: to compile.
        math: freedoms of its arithmetic.
        always: whether to inline it however long it is: a loop with a call in it is no vector loop.
        name: tells a function that another one makes, or one without a name, from its like.

    Raises:
        ValueError: a function of its file has the same name.
    """
    if function is None:
        return lambda decorated: inlined(decorated, math=math, always=always, name=name)
    _name(function, name)
    return numba.njit(
        fastmath=math,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=always,
    )(function)


def kernel(function: Callable[..., Any] | None = None, *, of: tuple[str, ...] = ()) -> Any:
    """Compile a function that Python calls: it runs without the GIL and is cached on disk.

    Entries are named by what is in all files that the kernel is made of, since it holds functions
    of other files as they were: those of its own folder, of this one and of the engine.

    Args:
        function: the kernel.
        of: other folders of kernels that it calls functions of.
    """
    if function is None:
        return lambda decorated: kernel(decorated, of=of)
    compiled = numba.njit(fastmath=FAST, error_model="numpy", nogil=True)(function)
    own = Path(function.__code__.co_filename).parent
    compiled._cache = KernelCache(
        function, sources_digest(own, *(_KERNELS / f for f in _SHARED + of))
    )
    return compiled


_SHARED = ("cpu", "engine")


def announce(what: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    for one in kernels:
        if one.signatures:
            continue
        if not one._cache.has_entries(one.targetctx):
            folder = one.stats.cache_path
            where = f"kept in {folder}" if folder else "no folder to keep them can be written"
            # A warning, which shows where nobody set up logging: half a minute of nothing worries.
            _log.warning("compiling the %s kernels once, some 10 to 30 seconds; %s", what, where)
            return


_AS_STORED, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))


@intrinsic
def _sgemm(
    context, sgemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
):  # fmt: skip
    """Call the Fortran sgemm at an address; a, b and c are addresses too."""
    size, address = types.int64, types.intp
    signature = types.void(
        address, types.int8, types.int8, size, size, size, types.float32, address, size,
        address, size, types.float32, address, size,
    )  # fmt: skip

    def generate(context, builder, signature, arguments):
        pointer = ir.IntType(8).as_pointer()

        def by_reference(value):
            with builder.goto_entry_block():
                slot = builder.alloca(value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        # Sizes are stored in 64 bits, of which a library with 32-bit sizes reads the lower half.
        passed = [
            builder.inttoptr(value, pointer) if kind == address and at in (7, 9, 12)
            else by_reference(value)
            for at, (value, kind) in enumerate(zip(arguments, signature.args, strict=True))
            if at > 0
        ]  # fmt: skip
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(passed))
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _call_with_int(context, function, value):
    """Call the C function ``int f(int)`` at an address."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [arguments[1]])

    return types.int32(types.intp, types.int32), generate


@inlined
def set_blas_threads(blas, count):
    """Set the threads of this thread's products; 0 means the library's default."""
    return _call_with_int(blas.set_threads, np.int32(count))


@inlined
def matmul(blas, left, right, out, columns, inner, transposed, accumulate):
    """Write ``left @ right`` to ``out``, or add it.

    Only the first ``inner`` columns of ``left`` are read and the first ``columns`` of ``out``
    written: both may be wider.

    Args:
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        left: (M, >= inner).
        right: (inner, columns), or (columns, inner) if ``transposed``.
        out: (M, >= columns).
        columns: columns of the product.
        inner: terms of each sum.
        transposed: whether ``right`` is stored transposed.
        accumulate: whether to add to ``out``.
    """
    # Fortran sees the transpose of each matrix, so it is asked for out^T = right^T left^T.
    _sgemm(
        blas.sgemm,
        _TRANSPOSED if transposed else _AS_STORED,
        _AS_STORED,
        columns,
        left.shape[0],
        inner,
        f4(1.0),
        right.ctypes.data,
        right.shape[1],
        left.ctypes.data,
        left.shape[1],
        f4(1.0) if accumulate else f4(0.0),
        out.ctypes.data,
        out.shape[1],
    )


@inlined
def matmul_transposed(blas, left, step, right, out):
    """Add ``left.T @ right`` to ``out``.

    Args:
        blas: a :class:`~tauflow.kernels.cpu.binding.Blas`.
        left: entries of a matrix of as many rows as ``right``, ``step`` apart, in a row.
        step: from row to row.
        right: (K, N).
        out: (M, N).
    """
    _sgemm(
        blas.sgemm,
        _AS_STORED,
        _TRANSPOSED,
        right.shape[1],
        out.shape[0],
        right.shape[0],
        f4(1.0),
        right.ctypes.data,
        right.shape[1],
        left.ctypes.data,
        step,
        f4(1.0),
        out.ctypes.data,
        out.shape[1],
    )
