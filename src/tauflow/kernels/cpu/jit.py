"""How numba kernels are compiled and kept.

Their functions have types of numba's own.
"""

# mypy: ignore-errors

import gc
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.ma
from numba.core.compiler_lock import global_compiler_lock

from tauflow._internal.fork_safety import acquire_before_fork

from .cache import KernelCache
from .linked import LinkedCompiler

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
            "kernels from the cache. Give each another name: name=..."
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
        force: whether to inline it however long it is: a loop with a call in it is no vector loop,
            and the process that compiles a kernel may bind a call to another copy of the function,
            with other last bits than the kernel has when it is read from the cache.
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
        pipeline_class=LinkedCompiler,
    )(function)


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    source_folders: tuple[str, ...] = (),
    is_launched: bool = False,
) -> Any:
    """Compile a function that Python or a launch calls, without the GIL; it is cached on disk.

    Entries are named by what is in all files that the kernel is made of, since it holds functions
    of other files as they were: those of its folder, of this one and of the engine.

    Args:
        function: the kernel.
        source_folders: other folders of kernels that it calls functions of.
        is_launched: whether only a launch calls it, so that it needs no wrappers.
    """
    if function is None:
        return lambda decorated: kernel(
            decorated, source_folders=source_folders, is_launched=is_launched
        )
    compiled = numba.njit(
        fastmath=FAST_MATH,
        error_model="numpy",
        nogil=True,
        no_cpython_wrapper=is_launched,
        no_cfunc_wrapper=is_launched,
    )(function)
    folder = Path(function.__code__.co_filename).parent
    compiled._cache = KernelCache(
        function,
        digest_sources(folder, *(_KERNELS_FOLDER / f for f in _SHARED_FOLDERS + source_folders)),
    )
    return compiled


_SHARED_FOLDERS = ("cpu", "engine")


@contextmanager
def pause_gc() -> Iterator[None]:
    """Look for no garbage while kernels are compiled: numba makes millions of objects that stay."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def log_compilation(kernel_name: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    for function in kernels:
        if function.signatures:
            continue
        if not function._cache.has_entries(function.targetctx):
            folder = function.stats.cache_path
            where = f"kept in {folder}" if folder else "no folder to keep them can be written"
            # A warning, which shows where logging is not set up: half a minute of nothing worries.
            _log.warning(
                "compiling the %s kernels once, some 5 to 10 seconds; %s", kernel_name, where
            )
            return
