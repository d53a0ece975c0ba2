"""Why states are not finite: missing inputs, or too long a time step for explicit solver steps."""

import math

import torch
from torch import Tensor, nn

from tauflow._internal.checks import is_readable
from tauflow._internal.sanitize import format_count
from tauflow.cells.base import AbstractCell
from tauflow.errors import NonFiniteError

from .inputs import SequenceInputs

_MAX_SHOWN = 8
"""How many sequences a message names."""


def check_finite_states(
    where: str, cell: AbstractCell, start: Tensor | None, end: Tensor, inputs: SequenceInputs
) -> None:
    """Raise if a cell's last states are not finite, and NaN in the data or a time step is why.

    Whatever else is not finite (a computed input, a parameter, the state to start from) goes its
    way, as everywhere in torch, and so does what overflows under autocast, of which gradient
    scalers take care, and all that Python cannot look at without cost.

    Args:
        where: name of the module, for messages.
        cell: the cell.
        start: its states at the start, (B, S), or ``None`` for its own.
        end: its states at the end, (B, S).
        inputs: the call.

    Raises:
        NonFiniteError: an input is NaN that no operation with a gradient made; or a sequence with
            finite inputs ended in NaN or infinity.
    """
    if not is_readable(end) or end.numel() == 0 or _is_finite(end):
        return
    check_missing_inputs(where, cell, inputs)
    if torch.is_autocast_enabled(end.device.type):
        return
    if not all(_is_finite(parameter) for parameter in cell.parameters()):
        return
    limit = cell.max_stable_dt()
    with torch.no_grad():
        was_finite = inputs.x.isfinite().flatten(1).all(1)
        if start is not None:
            was_finite &= start.isfinite().all(1)
        gaps, steps = inputs.dt.squeeze(-1).max(dim=1)
        blown = ~end.isfinite().all(1) & was_finite
        if not bool(blown.any()):
            return
        too_long = blown & (gaps > limit)
        row = int((too_long if bool(too_long.any()) else blown).nonzero()[0, 0])
    gap, is_stable = float(gaps[row]), not bool(too_long[row])
    row, step = _locate_in_call(inputs, row, int(steps[row]))
    what = f"{where}: the state of {type(cell).__name__} overflows in sequence {row}"
    if is_stable:
        raise NonFiniteError(
            f"{what}, although inputs and parameters are finite: it grows from sample to sample. "
            "Scale or normalise the inputs, between layers too, choose a larger unit of time, or "
            "give shorter sequences."
        )
    more_substeps = "more substeps"
    if limit > 0:
        more_substeps = f"at least {gap / limit:.3g} times as many substeps"
    raise NonFiniteError(
        f"{what}, whose time step of {gap:g} at step {step} is longer than its solver's steps can "
        f"follow: they are stable up to a time step of {limit:.3g} (substeps times the solver's "
        "limit, over the largest rate). "
        f"Choose a larger unit of time, {more_substeps}, or an adaptive solver where the cell has "
        "one."
    )


def check_missing_inputs(where: str, model: nn.Module, inputs: SequenceInputs) -> None:
    """Raise if an input is NaN that no operation with a gradient made, and that no one expects.

    Args:
        where: name of the module, for messages.
        model: what does not model missing features, or was told which those are.
        inputs: the call, whose values Python may look at.

    Raises:
        NonFiniteError: one is, of those that were measured where that was told.
    """
    if inputs.x.requires_grad:
        return
    nan = inputs.x.isnan()
    if inputs.observed is not None:
        nan = nan & inputs.observed
    if not bool(nan.any()):
        return
    having = nan.flatten(1).any(1).nonzero()[:, 0].tolist()
    rows = sorted({_locate_in_call(inputs, row, 0)[0] for row in having})
    first, step, feature = nan.nonzero()[0].tolist()
    first, step = _locate_in_call(inputs, first, step)
    shown = ", ".join(map(str, rows[:_MAX_SHOWN])) + (", ..." if len(rows) > _MAX_SHOWN else "")
    why = (
        f"and {type(model).__name__} does not model missing features. Fill them in, mark samples "
        "without any feature with mask=False, or choose a model that knows of missing features, "
        "such as tauflow.GRUD, which takes NaN for missing."
        if inputs.observed is None
        else "where observed says that it was measured. Mark it as not measured, or leave observed "
        "out, which takes NaN for missing."
    )
    raise NonFiniteError(
        f"{where}: x is NaN in {format_count(len(rows), 'sequence')} ({shown}), first in sequence "
        f"{first} at step "
        f"{step}, feature {feature}, {why}"
    )


def _locate_in_call(inputs: SequenceInputs, row: int, step: int) -> tuple[int, int]:
    """Return sequence and step as the caller counts them."""
    if (piece := inputs.episodes) is None:
        return int(row), step
    return int(piece.sequence[row]), step + int(piece.first_step[row])


def _is_finite(tensor: Tensor) -> bool:
    with torch.no_grad():
        # A sum shows it in one look, unless it is itself too large.
        return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())
