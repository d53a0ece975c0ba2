"""The arguments of a call that has a plan: looked at in few steps, and left alone if in doubt.

What is not in the form that is met most, and whatever may be in error, is not judged here: the
caller then takes the long way, which finds the words.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.kernels.cpu.binding import import_kernels
from tauflow.kernels.engine.requirements import has_numba

from .cell_record import PLAIN_TENSOR_TYPES
from .inputs import mask_from_lengths

UNREADABLE = "x and parameters have to be float32, on the CPU, and of no class of their own"
_BAD_TIMES = "dt has to be a number or float32, (B, T); t in order and precise; both finite"
_TIME_DTYPES = (torch.float32, torch.float64, torch.int64)
"""Those of times, in the order of ``subtract_times``."""


class PlannedInputs(NamedTuple):
    """A call in the form that kernels take; see :class:`~tauflow.sequence.inputs.SequenceInputs`.

    Args:
        x: (B, T, I).
        hx: (B, S), or ``None``.
        dt: (B, T, 1).
        mask: (B, T) bool, or ``None``.
        observed: (B, T, I) bool, or ``None``.
        batched: whether the caller passed a batch axis.
    """

    x: Tensor
    hx: Tensor | None
    dt: Any
    mask: Any
    observed: Any
    batched: bool


def read_inputs(
    module: str,
    given: PlannedInputs,
    t: Any,
    lengths: Any,
    gaps_shape: tuple[int, int, int],
    state_shape: tuple[int, int],
    is_compiled: bool,
) -> PlannedInputs | str:
    """Return the inputs of a call, or what kernels cannot take as it is.

    Args:
        module: name of the class, for messages.
        given: what the caller gave, with a batch axis.
        t: times, likewise.
        lengths: as given.
        gaps_shape: (B, T, 1).
        state_shape: (B, S).
        is_compiled: whether gaps are looked at when compiled loops have read them.
    """
    x, hx, dt, mask, observed, batched = given
    if t is hx is mask is lengths is observed is None:  # as in most calls
        gaps = _read_gaps(dt, x, None, gaps_shape, is_compiled=is_compiled)
        return _BAD_TIMES if gaps is None else given._replace(dt=gaps)
    reason, mask = _read_marks(module, given, lengths, gaps_shape, state_shape)
    if reason:
        return reason
    if t is None:
        gaps = _read_gaps(dt, x, mask, gaps_shape, is_compiled=is_compiled)
    else:
        gaps = None if dt is not None else _subtract_times(t, mask, gaps_shape, hx is not None)
    if gaps is None:
        return _BAD_TIMES
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
    return PlannedInputs(x, hx, gaps, mask, observed, batched)


def _read_marks(
    module: str,
    given: PlannedInputs,
    lengths: Any,
    gaps_shape: tuple[int, int, int],
    state_shape: tuple[int, int],
) -> tuple[str, Tensor | None]:
    """Return what kernels cannot take of state, mask and measured features, and the mask."""
    x, hx, _, mask, observed, batched = given
    if hx is not None and not (is_plain(hx, torch.float32) and hx.shape == state_shape):
        return "hx has to be a float32 state, (B, S)", None
    if observed is not None and not (is_plain(observed, torch.bool) and observed.shape == x.shape):
        return "observed has to be bool, as x", None
    if lengths is not None:
        if mask is not None or not batched:
            return "lengths are given with a mask, or for a single sequence", None
        mask = mask_from_lengths(f"{module}.forward", lengths, x, batched)
    elif mask is not None:
        if not (is_plain(mask, torch.bool) and mask.shape == gaps_shape[:2]):
            return "mask has to be bool, (B, T)", None
        # the caller may fill it again before the backward pass
        mask = mask.clone() if torch.is_grad_enabled() else mask
    return "", mask


def _read_gaps(
    dt: Any, x: Tensor, mask: Tensor | None, shape: tuple[int, int, int], *, is_compiled: bool
) -> Tensor | None:
    """Return the gaps of a call, or ``None`` where they are odd or in error."""
    gaps: Tensor
    kind = type(dt)
    if dt is None:
        gaps = x.new_ones(shape)
    elif kind is float or kind is int:
        if not 0 <= dt < math.inf:
            return None
        gaps = x.new_full(shape, dt)
    elif is_plain(dt, torch.float32) and (dt.shape == shape[:2] or dt.shape == shape):
        gaps = dt.contiguous().view(shape)
    else:
        return None
    if mask is not None:
        gaps = gaps.masked_fill(~mask.unsqueeze(-1), 0.0)
    if is_compiled or kind not in PLAIN_TENSOR_TYPES:
        return gaps
    return None if find_bad_values(gaps) else gaps


def _subtract_times(
    t: Any, mask: Tensor | None, shape: tuple[int, int, int], has_initial_state: bool
) -> Tensor | None:
    """Return the gaps between times, or ``None`` where they are odd or in error."""
    B, T, _ = shape
    dtype, steps = getattr(t, "dtype", None), (B, T + has_initial_state)
    if dtype not in _TIME_DTYPES or not is_plain(t, dtype) or t.requires_grad:
        return None
    if t.shape != steps and t.shape != (*steps, 1):
        return None
    if not has_numba():
        return None
    t, gaps = t.contiguous(), torch.empty(shape, dtype=torch.float32)
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


def find_bad_values(gaps: Tensor | None, states: Tensor | None = None) -> int:
    """Return which values a call is refused for; see :func:`tauflow.kernels.cpu.values`.

    Args:
        gaps: contiguous, in float32, or ``None``.
        states: likewise.

    Returns:
        1 if a gap is negative or not finite, and 2 more if a state is not finite.
    """
    if not has_numba():
        bad = gaps is not None and not bool(((gaps >= 0) & (gaps < math.inf)).all())
        return bad + 2 * (states is not None and not bool(states.isfinite().all()))
    at, count = (0, 0) if gaps is None else (gaps.data_ptr(), gaps.numel())
    to, total = (0, 0) if states is None else (states.data_ptr(), states.numel())
    found: int = import_kernels("cpu.values").find_bad_values(at, count, to, total)
    return found


def may_have_nan(x: Tensor) -> bool:
    """Return whether some of the inputs are not finite, or cannot be looked at in one pass."""
    return not x.is_contiguous() or find_bad_values(None, x) != 0


def is_plain(tensor: Any, dtype: torch.dtype) -> bool:
    """Whether something is a tensor of torch's own that kernels read; by metadata."""
    return (
        type(tensor) in PLAIN_TENSOR_TYPES
        and tensor.dtype is dtype
        and tensor.is_cpu
        and not tensor.is_neg()
        and tensor.layout is torch.strided
        and not tensor.is_nested
    )


def add_batch_axis(value: Any) -> Any:
    """Return a tensor with a batch axis in front, and all else as it is."""
    return value.unsqueeze(0) if isinstance(value, Tensor) and value.ndim else value


def needs_grad(value: Any) -> bool:
    """Whether something is a tensor that wants gradients."""
    return isinstance(value, Tensor) and value.requires_grad
