"""The one door of sequence modules: how a call is read, the commonest form first."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.built_tensors import PLAIN_TENSOR_TYPES
from tauflow.kernels.cpu.binding import check_memory
from tauflow.kernels.engine.torch_state import is_followed

from .inputs import SequenceInputs, mask_from_lengths, prepare_inputs
from .plain_tensors import is_plain, subtract_times
from .time_steps import check_dt_values

_LARGEST = torch.finfo(torch.float32).max


def read_call(
    where: str,
    input_size: int,
    x: Any,
    *,
    dt: Any = None,
    t: Any = None,
    mask: Any = None,
    lengths: Any = None,
    observed: Any = None,
    episode_start: Any = None,
    has_initial_state: bool = False,
) -> SequenceInputs:
    """Return a call in the one form; the values of ``dt`` may be left to be checked.

    Most calls pass float32 tensors of torch's own on the CPU, and are read in a few looks. All
    others, and whatever may be in error, are read by :func:`prepare_inputs`, which has the same
    arguments and finds the words.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError: the call is not valid.
    """
    is_alone = not is_followed()
    if is_alone and episode_start is None and is_plain(x, torch.float32):
        read = _read_plain(where, input_size, x, dt, t, mask, lengths, observed, has_initial_state)
        if read is not None:
            return read
    check_memory(x, dt, t, mask, lengths, observed, episode_start)
    inputs = prepare_inputs(
        where,
        input_size,
        x,
        dt=dt,
        t=t,
        mask=mask,
        lengths=lengths,
        observed=observed,
        episode_start=episode_start,
        has_initial_state=has_initial_state,
    )
    if not is_alone:
        return inputs
    marks = (inputs.mask, inputs.observed)
    return replace(
        inputs,
        is_plain=is_plain(inputs.x, torch.float32)
        and is_plain(inputs.dt, torch.float32)
        and all(mark is None or is_plain(mark, torch.bool) for mark in marks),
    )


def _read_plain(
    where: str,
    input_size: int,
    x: Tensor,
    dt: Any,
    t: Any,
    mask: Any,
    lengths: Any,
    observed: Any,
    has_initial_state: bool,
) -> SequenceInputs | None:
    """Return a call of the commonest form; ``None`` if anything is odd, or may be in error."""
    if x.ndim != 3 or x.shape[2] != input_size or x.shape[1] == 0:
        return None
    if observed is not None and not (is_plain(observed, torch.bool) and observed.shape == x.shape):
        return None
    steps = (x.shape[0], x.shape[1])
    if lengths is not None:
        if mask is not None:
            return None
        check_memory(lengths)
        mask = mask_from_lengths(where, lengths, x, batched=True)
    elif mask is not None:
        if not (is_plain(mask, torch.bool) and mask.shape == steps):
            return None
        # The caller may fill it again before the backward pass.
        mask = mask.clone() if torch.is_grad_enabled() else mask
    if t is None:
        gaps = _read_gaps(dt, x)
    else:
        gaps = None if dt is not None else subtract_times(t, mask, steps, has_initial_state)
    if gaps is None:
        return None
    if mask is not None:
        absent = ~mask.unsqueeze(-1)
        x, gaps = x.masked_fill(absent, 0.0), gaps.masked_fill(absent, 0.0)
    checked = type(dt) not in PLAIN_TENSOR_TYPES
    return SequenceInputs(x, gaps, mask, observed, True, None, t, is_plain=True, is_checked=checked)


def _read_gaps(dt: Any, x: Tensor) -> Tensor | None:
    """Return the time steps of a call, (B, T, 1), or ``None`` where they are odd or in error."""
    steps, kind = (x.shape[0], x.shape[1]), type(dt)
    if dt is None:
        return x.new_ones((*steps, 1))
    if kind is float or kind is int:
        return x.new_full((*steps, 1), dt) if 0 <= dt <= _LARGEST else None
    if is_plain(dt, torch.float32) and dt.shape in (steps, (*steps, 1)):
        gaps: Tensor = dt.contiguous().view(*steps, 1)
        return gaps
    return None


def check_times(where: str, inputs: SequenceInputs) -> None:
    """Raise unless the values of ``dt`` are valid, if they were not checked before.

    Raises:
        TimeError: one is negative or not finite.
    """
    if not inputs.is_checked:
        check_dt_values(where, "dt", inputs.dt.squeeze(-1), inputs.mask)
