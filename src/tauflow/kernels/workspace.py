"""Memory that kernels keep for the backward pass, used again from call to call.

The system gives large blocks back as soon as they are free, and fills the next one with zeros, page
by page, which takes a tenth of a training step. Blocks are therefore kept when the tensors on them
are gone, up to :data:`KEPT_BYTES` in all.
"""

import math
import weakref
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow.forks import Lock

KEPT_BYTES = 1 << 30
"""Bytes kept for reuse at most."""

_LEAST_BYTES = 1 << 20  # smaller blocks are cheap to get from the system
_WASTE = 1.25  # a block serves sizes down to this part of its own

Block = NDArray[np.float32]

_free: list[Block] = []  # oldest first
_returned: deque[Block] = deque()  # by the garbage collector, which must not wait for the lock
_lock = Lock()


def empty(*shape: int) -> Tensor:
    """Return an uninitialised float32 tensor on the CPU, on memory used before if possible."""
    size = math.prod(shape)
    if size * 4 < _LEAST_BYTES:
        return torch.empty(shape, dtype=torch.float32)
    block = _take(size)
    entries = block[:size]
    weakref.finalize(entries, _returned.append, block).atexit = False
    return torch.from_numpy(entries).view(shape)


def release() -> None:
    """Give all kept memory back to the system."""
    with _lock:
        _returned.clear()
        _free.clear()


def _take(size: int) -> Block:
    with _lock:
        while _returned:
            _free.append(_returned.popleft())
        while sum(block.nbytes for block in _free) > KEPT_BYTES:
            _free.pop(0)
        fitting = [i for i, block in enumerate(_free) if size <= block.size <= _WASTE * size]
        if fitting:
            return _free.pop(min(fitting, key=lambda i: _free[i].size))
    return np.empty(size, np.float32)
