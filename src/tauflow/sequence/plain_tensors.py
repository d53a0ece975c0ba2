"""Tensors that compiled loops read where they are, and values that they look at in one pass."""

import math
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES
from tauflow.kernels.cpu.binding import NULL_PAGE, import_kernels
from tauflow.kernels.engine.requirements import has_numba

_TIME_DTYPES = (torch.float32, torch.float64, torch.int64)
"""Those of times, in the order of the compiled ``subtract_times``."""


def is_plain(tensor: Any, dtype: torch.dtype) -> bool:
    """Whether something is a tensor of torch's own that kernels read; by metadata and address."""
    return (
        type(tensor) in PLAIN_TENSOR_TYPES
        and tensor.dtype is dtype
        and tensor.is_cpu
        and not tensor.is_neg()
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and (tensor.data_ptr() >= NULL_PAGE or not tensor.numel())
    )


def find_bad_values(gaps: Tensor | None, states: Tensor | None = None) -> int:
    """Return which values a call is refused for; see :func:`tauflow.kernels.cpu.values`.

    Args:
        gaps: contiguous, in float32, or ``None``.
        states: likewise.

    Returns:
        1 if a time step is negative or not finite, and 2 more if a state is not finite.
    """
    if not has_numba():
        bad = gaps is not None and not bool(((gaps >= 0) & (gaps < math.inf)).all())
        return bad + 2 * (states is not None and not bool(states.isfinite().all()))
    at, count = (0, 0) if gaps is None else (gaps.data_ptr(), gaps.numel())
    to, total = (0, 0) if states is None else (states.data_ptr(), states.numel())
    flags: int = import_kernels("cpu.values").find_bad_values(at, count, to, total)
    return flags


def subtract_times(
    t: Any, mask: Tensor | None, steps: tuple[int, int], has_initial_state: bool
) -> Tensor | None:
    """Return the time steps between times, (B, T, 1), by a compiled loop.

    Returns:
        The time steps, or ``None`` where times are not plain, or odd, or in error.
    """
    B, T = steps
    dtype, shape = getattr(t, "dtype", None), (B, T + has_initial_state)
    if dtype not in _TIME_DTYPES or not is_plain(t, dtype) or t.requires_grad or not has_numba():
        return None
    if t.shape not in (shape, (*shape, 1)):
        return None
    t, gaps = t.contiguous(), torch.empty((B, T, 1), dtype=torch.float32)
    valid = None if mask is None else mask.contiguous()
    is_clear = import_kernels("cpu.values").subtract_times(
        t.data_ptr(),
        _TIME_DTYPES.index(dtype),
        0 if valid is None else valid.data_ptr(),
        B,
        T,
        has_initial_state,
        gaps.data_ptr(),
    )
    return gaps if is_clear else None
