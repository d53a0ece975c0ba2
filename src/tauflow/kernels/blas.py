"""The single-precision matrix product of the BLAS inside torch, for compiled loops.

Torch's own call costs a few microseconds before the first multiplication; the library behind it
costs a fraction of one, and exports the function. Its address works with numba's disk cache, which
refuses to store a foreign function.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch


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
