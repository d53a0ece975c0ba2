"""Numbers too small to matter, which processors compute with slowly."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SMALLEST_DENORMAL = 5e-324  # a variable: Python would fold a product of constants


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Let this thread take subnormal numbers, below 1.2e-38 in float32, as zero for a while.

    States that decay and weights that a penalty shrinks end there, and Intel's processors take a
    hundred times as long over each of them. Torch's other threads keep their mode, as does a
    processor that knows none.
    """
    if _SMALLEST_DENORMAL * 1.0 == 0.0:  # somebody asked for it already
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
