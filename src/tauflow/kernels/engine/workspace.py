"""Memory that kernels keep for the backward pass, used again from call to call.

The system gives large blocks back as soon as they are free, and fills the next one with zeros, page
by page, which takes a tenth of a training step. Blocks are therefore kept when the tensors on them
are gone: twice as much as was lately in use at once, and no more than :data:`KEPT_BYTES`. Sizes are
rounded up to a few, so that batches of varying lengths share blocks. :func:`release` gives all of
them back.
"""

import math
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._subclasses import FakeTensor

from tauflow.forks import make_lock

KEPT_BYTES = 1 << 30
"""Bytes kept for reuse at most."""

_LEAST_BYTES = 1 << 20  # smaller blocks are cheap to get from the system
_UNIT = _LEAST_BYTES // 4  # floats of the smallest block
_WASTE = 1.25  # a block is at most so many times as large as asked for
_SPARE = 2.0  # kept, in units of what was in use at once
_FADING = 0.99  # of what was in use at once, with every block taken

Block = NDArray[np.float32]

_free: list[Block] = []  # oldest first
_returned: deque[Block] = deque()  # by the garbage collector, which must not wait for the lock
_lock = make_lock()


def empty(*shape: int) -> Tensor:
    """Return an uninitialised float32 tensor on the CPU, on memory used before if possible."""
    size = math.prod(shape)
    if size * 4 < _LEAST_BYTES:
        return torch.empty(shape, dtype=torch.float32)
    block = _take(size)
    entries = block[:size]
    weakref.finalize(entries, _returned.append, block).atexit = False
    return torch.from_numpy(entries).view(shape)


def new_for(like: Tensor) -> Callable[..., Tensor]:
    """Return :func:`empty`, or what makes tensors without numbers beside one that has none."""
    return like.new_empty if like.is_meta or isinstance(like, FakeTensor) else empty


def release() -> None:
    """Give all kept memory back to the system."""
    global _most
    with _lock:
        _collect()
        _free.clear()
        _most = 0.0


_used = 0
_most = 0.0
"""Bytes in use, and the most of late."""


def _take(size: int) -> Block:
    global _used, _most
    with _lock:
        _collect()
        fitting = [i for i, block in enumerate(_free) if size <= block.size <= _WASTE * size]
        found = _free.pop(min(fitting, key=lambda i: _free[i].size)) if fitting else None
        block = np.empty(_rounded(size), np.float32) if found is None else found
        _used += block.nbytes
        _most = max(_used, _FADING * _most)
        kept = sum(block.nbytes for block in _free)
        while kept > min(KEPT_BYTES, _SPARE * _most):
            kept -= _free.pop(0).nbytes
    return block


def _collect() -> None:
    """Take in what the garbage collector returned."""
    global _used
    while _returned:
        block = _returned.popleft()
        _used -= block.nbytes
        _free.append(block)


def _rounded(size: int) -> int:
    """Return the next size of blocks, of which there are about three from one power of 2 on."""
    steps = math.ceil(math.log(size / _UNIT, _WASTE)) if size > _UNIT else 0
    return max(size, math.floor(_UNIT * _WASTE**steps))


def release_memory() -> None:
    """Give back the memory that kernels keep for their next call.

    On the CPU that is up to three times what a training step needs for its backward pass, and at
    most :data:`KEPT_BYTES` more than what is in use; on a GPU the tensors of recorded
    loops, 1 GB. Worth a call when training is over and the process goes on. Tensors that are still
    in use, and so the backward passes to come, are not touched.
    """
    for give_back in _givers:
        give_back()


def on_release(give_back: Callable[[], None]) -> None:
    """Let :func:`release_memory` call a function, too."""
    _givers.append(give_back)


_givers: list[Callable[[], None]] = [release]
