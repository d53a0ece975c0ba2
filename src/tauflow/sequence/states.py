"""States as callers pass them: one tensor (B, S), or the parts that torch's own modules take."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from tauflow._internal.checks import check_same_device, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.cells.base import AbstractCell
from tauflow.cells.contract_checks import call_initial_state
from tauflow.errors import ArgumentError, DtypeError
from tauflow.kernels.cpu.binding import check_memory

from .inputs import SequenceInputs, is_autocast, time_dtype
from .plain_tensors import is_plain

State: TypeAlias = Tensor | tuple[Tensor, ...] | list[Tensor]
"""(B, S), or each part as (L D, B, N) with L layers and D directions, like ``torch.nn.LSTM``'s."""


def split_per_cell(cells: Sequence[AbstractCell], h: Tensor) -> list[Tensor]:
    """Return the state of each cell, layer by layer, forward first."""
    return list(h.split([cell.state_size for cell in cells], dim=-1))


def resolve_initial_states(
    where: str, cells: Sequence[AbstractCell], hx: State, inputs: SequenceInputs
) -> list[Tensor]:
    """Check the state to start from, and return that of each cell.

    Args:
        where: name of the module, for messages.
        cells: layer by layer, forward first.
        hx: as the caller gave it.
        inputs: of the call.

    Raises:
        ShapeError, DtypeError, ArgumentError: it does not fit.
    """
    sizes = [cell.state_size for cell in cells]
    if (
        inputs.is_plain
        and inputs.batched
        and isinstance(hx, Tensor)
        and is_plain(hx, torch.float32)
        and hx.shape == (len(inputs.x), sum(sizes))
    ):
        return split_per_cell(cells, hx)
    check_memory(hx)
    batched, size = inputs.batched, sum(sizes)
    _check_hx_is_not_dt(where, hx, inputs, (len(cells), size))
    if not isinstance(hx, Tensor) or hx.ndim == (3 if batched else 2):
        hx = concat_parts(where, cells, hx, (inputs.x.shape[0],) if batched else ())
    expected = (inputs.x.shape[0], size)
    state = hx if batched else hx.unsqueeze(0)
    if tuple(state.shape) != expected:
        shape = expected if batched else expected[1:]
        raise shape_error(where, "hx", hx, str(shape), "Pass on the h of an earlier call.")
    check_same_device(where, inputs.x, hx=hx)
    if is_autocast(inputs.x):
        state = state.to(time_dtype(inputs.x))
    elif state.dtype is not inputs.x.dtype:
        raise DtypeError(
            f"{where}: hx has dtype {state.dtype}, but x has {inputs.x.dtype}. Convert one of them."
        )
    return split_per_cell(cells, state)


def _check_hx_is_not_dt(
    where: str, hx: State, inputs: SequenceInputs, state: tuple[int, int]
) -> None:
    """Refuse time steps or times in the place of a state, which torch's modules have second.

    Args:
        where: name of the module, for messages.
        hx: as the caller gave it.
        inputs: of the call.
        state: number of cells, and width of the state of all.

    Raises:
        ShapeError: it is no state, but has the shape of time steps.
    """
    if not isinstance(hx, Tensor) or torch.compiler.is_compiling():
        return  # a compiler would make a program for each number of steps that is compared
    lead = tuple(inputs.x.shape[:2] if inputs.batched else inputs.x.shape[1:2])
    cells, size = state
    flat = hx.ndim == len(lead) and tuple(hx.shape) == lead and lead[-1] != size
    column = tuple(hx.shape) == (*lead, 1) and lead[0] != cells
    if flat or column:
        expected = str((inputs.x.shape[0], size) if inputs.batched else (size,))
        advice = (
            "Time steps go in by name: dt=..., or times: t=...; hx is the h of an earlier call."
        )
        raise shape_error(where, "hx", hx, expected, advice)


def to_torch_state(
    where: str, cells: Sequence[AbstractCell], h: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """Return a state in torch's form, a tuple of parts unless there is one only.

    Args:
        where: name of the caller, for messages.
        cells: layer by layer, forward first.
        h: (B, S), or (S,).

    Raises:
        ShapeError: it has another width.
        ArgumentError: a part is not equally wide in all layers.
    """
    _state_widths(where, cells)
    size = sum(cell.state_size for cell in cells)
    if h.shape[-1] != size:
        raise shape_error(where, "h", h, f"(..., {size})", "Pass what a call returned.")
    split = [
        c.split_state(part).values()
        for c, part in zip(cells, split_per_cell(cells, h), strict=True)
    ]
    parts = tuple(torch.stack(same) for same in zip(*split, strict=True))
    return parts if len(parts) > 1 else parts[0]


def concat_parts(
    where: str, cells: Sequence[AbstractCell], hx: State, batch: tuple[int, ...]
) -> Tensor:
    """Return parts as one tensor, (B, S), or (S,) without a batch.

    Args:
        where: name of the caller, for messages.
        cells: layer by layer, forward first.
        hx: parts, each (L D, B, N).
        batch: (B,) or ().

    Raises:
        ShapeError, DtypeError, ArgumentError: they are no such parts.
    """
    widths = _state_widths(where, cells)
    parts = [hx] if isinstance(hx, Tensor) else hx
    if not isinstance(parts, tuple | list) or not all(isinstance(p, Tensor) for p in parts):
        kinds = type(hx).__name__
        raise DtypeError(
            f"{where}: hx must be a tensor or a tuple of them, got {kinds}. Pass on the h of an "
            "earlier call."
        )
    if len(parts) != len(widths):
        raise ArgumentError(
            f"{where}: hx has {format_count(len(parts), 'part')}, but the state of "
            f"{type(cells[0]).__name__} has "
            f"{len(widths)}: {', '.join(widths)}. Pass on the h of an earlier call."
        )
    ordered: list[Tensor] = []
    for (name, width), part in zip(widths.items(), parts, strict=True):
        if len(cells) == 1 and part.ndim == 1 + len(batch):
            part = part.unsqueeze(0)
        expected = (len(cells), *batch, width)
        if tuple(part.shape) != expected:
            symbols = "(layers x directions, B, N)" if batch else "(layers x directions, N)"
            raise shape_error(
                where,
                f"{name} of hx",
                part,
                f"{symbols} = {expected}",
                "As torch.nn.LSTM takes it.",
            )
        ordered.append(part)
    return torch.cat([part[i] for i in range(len(cells)) for part in ordered], dim=-1)


def initial_states(where: str, cells: Sequence[AbstractCell], batch_size: int) -> Tensor:
    """Return the states before any input, (B, S).

    Args:
        where: name of the caller, for messages.
        cells: layer by layer, forward first.
        batch_size: B.

    Raises:
        ArgumentError: a cell derives its initial state from the first input.
    """
    starts = []
    for cell in cells:
        like = next(cell.parameters(), torch.empty(0))
        x = like.new_zeros(batch_size, cell.input_size)
        starts.append(call_initial_state(cell, x))
        alike = type(cell).initial_state is AbstractCell.initial_state
        if alike or torch.compiler.is_compiling():
            continue
        if not torch.equal(starts[-1], cell.initial_state(x + 1)):
            raise ArgumentError(
                f"{where}: {type(cell).__name__} derives its initial state from the first sample, "
                "which is not known yet. Call the module or step without a state."
            )
    return torch.cat(starts, dim=-1)


def _state_widths(where: str, cells: Sequence[AbstractCell]) -> dict[str, int]:
    widths = cells[0].state_parts
    if any(cell.state_parts != widths for cell in cells):
        raise ArgumentError(
            f"{where}: the parts of {type(cells[0]).__name__}'s state are not equally wide in all "
            "layers, so that no tensor (layers, B, N) holds them. Use one tensor (B, S), and "
            "split_state to name its parts."
        )
    return widths
