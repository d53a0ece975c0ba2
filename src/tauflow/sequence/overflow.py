"""States that overflowed because a gap is longer than explicit solver steps can follow."""

import math

import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.checks import values_readable
from tauflow.errors import NonFiniteError

from .inputs import SequenceInputs


def refuse_overflow(
    where: str, cell: AbstractCell, start: Tensor | None, end: Tensor, inputs: SequenceInputs
) -> None:
    """Raise if a cell's last states are not finite, and a gap is why.

    Whatever else is not finite (an input, a parameter, the state to start from) goes its way, as
    everywhere in torch, and so does all that Python cannot look at without cost.

    Args:
        where: name of the module, for messages.
        cell: the cell.
        start: its states at the start, (B, S), or ``None`` for its own.
        end: its states at the end, (B, S).
        inputs: the call.

    Raises:
        NonFiniteError: a sequence with finite inputs ended in NaN or infinity, and has a gap that
            is longer than :meth:`AbstractCell.stable_gap`.
    """
    if not values_readable(end) or end.numel() == 0 or _finite(end):
        return
    limit = cell.stable_gap()
    if limit == math.inf or not all(_finite(parameter) for parameter in cell.parameters()):
        return
    with torch.no_grad():
        given = inputs.x.isfinite().flatten(1).all(1)
        if start is not None:
            given &= start.isfinite().all(1)
        gaps, steps = inputs.dt.squeeze(-1).max(dim=1)
        blown = ~end.isfinite().all(1) & given & (gaps > limit)
        if not bool(blown.any()):
            return
        row = int(blown.nonzero()[0, 0])
    gap, step = float(gaps[row]), int(steps[row])
    if (piece := inputs.episodes) is not None:
        row, step = int(piece.sequence[row]), step + int(piece.first_step[row])
    raise NonFiniteError(
        f"{where}: the state of {type(cell).__name__} overflows in sequence {row}, whose gap of "
        f"{gap:g} at step {step} is longer than its solver's steps can follow: they are stable up "
        f"to a gap of {limit:.3g} (substeps times the solver's limit, over the largest rate). "
        f"Choose a larger unit of time, at least {gap / limit:.3g} times as many substeps, or an "
        "adaptive solver where the cell has one."
    )


def _finite(tensor: Tensor) -> bool:
    with torch.no_grad():
        # A sum shows it in one look, unless it is itself too large.
        return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())
