"""What every numba kernel is built from: how it is compiled, and functions that LLVM vectorises.

Single precision only.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.ma
from numba.core.compiler_lock import global_compiler_lock

from tauflow.forks import await_before_fork

from .kernel_cache import KernelCache

FAST = {"contract", "arcp", "nsz"}
"""Freedoms that keep NaN and infinity: fused multiply-adds, reciprocals, the sign of zero."""

EXACT_DIVISION = FAST - {"arcp"}
"""The same, for a quotient that must not become a product with a reciprocal."""

FAST_SUMS = FAST | {"reassoc"}
"""The same, and sums in any order, for loops that reduce."""

f4 = np.float32
LOG2E = f4(1.4426950408889634)

_LARGEST = f4(128.0)  # 2^128 is infinite, and so 1 / (1 + 2^128) is 0, as far away it must be
_SMALLEST = f4(-126.0)  # 2^-126 is a normal number
_ROUND = f4(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, left in the low bits
_BIAS = np.int32(127)
_MANTISSA_BITS = np.int32(23)
# Minimax polynomial of 2^f on [-1/2, 1/2] with p(0) = 1; relative error 9e-8.
_P1, _P2, _P3, _P4, _P5 = (
    f4(coefficient)
    for coefficient in (0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647273)
)

# In this order, as numba takes them; the second serves the garbage collector as well.
await_before_fork(global_compiler_lock)
_llvm_lock = getattr(llvmlite.binding.ffi.lib, "_lock", None)  # private, so it may go
if hasattr(_llvm_lock, "_lock"):
    await_before_fork(_llvm_lock._lock)

_log = logging.getLogger("tauflow")
_COMPILED = ("numba_*.py", "*_arrays.py", "activation_codes.py")


def sources_digest(folder: Path) -> str:
    """Return a digest of the files that compiled kernels may take functions and numbers from."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _COMPILED for path in folder.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_SOURCES = sources_digest(Path(__file__).parent)


def inlined(function: Callable[..., Any] | None = None, *, math: set[str] = FAST) -> Any:
    """Compile a function that kernels call."""
    if function is None:
        return lambda decorated: inlined(decorated, math=math)
    return numba.njit(fastmath=math, error_model="numpy")(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: it runs without the GIL and is cached on disk.

    Entries are named by what is in all files that kernels are made of, since a kernel holds
    functions of other files as they were.
    """
    compiled = numba.njit(fastmath=FAST, error_model="numpy", nogil=True)(function)
    compiled._cache = KernelCache(function, _SOURCES)
    return compiled


def announce(what: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    for one in kernels:
        if one.signatures:
            continue
        if not one._cache.has_entries(one.targetctx):
            folder = one.stats.cache_path
            where = f"kept in {folder}" if folder else "no folder to keep them can be written"
            _log.info("compiling the %s kernels, once; %s", what, where)
            return


@inlined
def exp2(z):
    """Return 2^z to 2e-7, at least 2^-126; NaN stays NaN."""
    z = _LARGEST if z > _LARGEST else z
    z = _SMALLEST if z < _SMALLEST else z
    shifted = np.float32(z + _ROUND)
    f = z - (shifted - _ROUND)
    p = f4(1.0) + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * _P5))))
    # The shift drops all of _ROUND's own bits, so that only the integer reaches the exponent.
    power = np.int32((shifted.view(np.int32) + _BIAS) << _MANTISSA_BITS)
    return p * power.view(np.float32)


@inlined
def sigmoid2(z):
    """Return 1 / (1 + 2^z), which is sigmoid(x) at z = -x log2(e)."""
    return f4(1.0) / (f4(1.0) + exp2(z))


@inlined
def sigmoid(x):
    """Return the logistic sigmoid to 2e-7."""
    return sigmoid2(-LOG2E * x)
