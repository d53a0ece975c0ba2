"""Memory that kernels keep for the backward pass, used again from call to call.

The system gives large blocks back as soon as they are free, and fills the next one with zeros, page
by page, which takes a tenth of a training step. Blocks are therefore kept when the tensors on them
are gone: twice as much as was lately in use at once, and no more than :data:`MAX_CACHED_BYTES`.
Sizes are rounded up to a few, so that batches of varying lengths share blocks.
:func:`release_memory` gives all of them back.
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

from tauflow._internal.fork_safety import make_fork_safe_lock

MAX_CACHED_BYTES = 1 << 30
"""Bytes kept for reuse at most."""

_MIN_BLOCK_BYTES = 1 << 20  # smaller blocks are cheap to get from the system
_MIN_BLOCK_FLOATS = _MIN_BLOCK_BYTES // 4  # floats of the smallest block
_MAX_SIZE_RATIO = 1.25  # a block is at most so many times as large as asked for
_CACHE_RATIO = 2.0  # kept, in units of what was in use at once
_PEAK_DECAY = 0.99  # of what was in use at once, with every block taken

Block = NDArray[np.float32]

_cached_blocks: list[Block] = []  # oldest first
_returned_blocks: deque[Block] = (
    deque()
)  # by the garbage collector, which must not wait for the lock
_lock = make_fork_safe_lock()


def empty(*shape: int) -> Tensor:
    """Return an uninitialised float32 tensor on the CPU, on memory used before if possible."""
    size = math.prod(shape)
    if size * 4 < _MIN_BLOCK_BYTES:
        return torch.empty(shape, dtype=torch.float32, device="cpu")
    block = _take_block(size)
    entries = block[:size]
    weakref.finalize(entries, _returned_blocks.append, block).atexit = False
    return torch.from_numpy(entries).view(shape)


def get_allocator(like: Tensor) -> Callable[..., Tensor]:
    """Return :func:`empty`, or what makes tensors without numbers beside one that has none."""
    return like.new_empty if like.is_meta or isinstance(like, FakeTensor) else empty


def clear_cached_blocks() -> None:
    """Give all kept memory back to the system."""
    global _peak_bytes
    with _lock:
        _collect_returned_blocks()
        _cached_blocks.clear()
        _peak_bytes = 0.0


_used_bytes = 0
_peak_bytes = 0.0
"""Bytes in use, and the most of late."""


def _take_block(size: int) -> Block:
    global _used_bytes, _peak_bytes
    with _lock:
        _collect_returned_blocks()
        fitting = [
            i
            for i, block in enumerate(_cached_blocks)
            if size <= block.size <= _MAX_SIZE_RATIO * size
        ]
        free_block = (
            _cached_blocks.pop(min(fitting, key=lambda i: _cached_blocks[i].size))
            if fitting
            else None
        )
        block = np.empty(_round_up_size(size), np.float32) if free_block is None else free_block
        _used_bytes += block.nbytes
        _peak_bytes = max(_used_bytes, _PEAK_DECAY * _peak_bytes)
        cached_bytes = sum(block.nbytes for block in _cached_blocks)
        while cached_bytes > min(MAX_CACHED_BYTES, _CACHE_RATIO * _peak_bytes):
            cached_bytes -= _cached_blocks.pop(0).nbytes
    return block


def _collect_returned_blocks() -> None:
    """Take in what the garbage collector returned."""
    global _used_bytes
    while _returned_blocks:
        block = _returned_blocks.popleft()
        _used_bytes -= block.nbytes
        _cached_blocks.append(block)


def _round_up_size(size: int) -> int:
    """Return the next size of blocks, of which there are about three from one power of 2 on."""
    steps = (
        math.ceil(math.log(size / _MIN_BLOCK_FLOATS, _MAX_SIZE_RATIO))
        if size > _MIN_BLOCK_FLOATS
        else 0
    )
    return max(size, math.floor(_MIN_BLOCK_FLOATS * _MAX_SIZE_RATIO**steps))


def release_memory() -> None:
    """Give back the memory that kernels keep for their next call.

    On the CPU that is up to three times what a training step needs for its backward pass, and at
    most :data:`MAX_CACHED_BYTES` more than what is in use; on a GPU the tensors of recorded
    loops, 1 GB. Worth a call when training is over and the process goes on. Tensors that are still
    in use, and so the backward passes to come, are not touched.
    """
    for give_back in _release_callbacks:
        give_back()


def register_release_callback(callback: Callable[[], None]) -> None:
    """Let :func:`release_memory` call a function, too."""
    _release_callbacks.append(callback)


_release_callbacks: list[Callable[[], None]] = [clear_cached_blocks]
