"""A cell's step over a sequence: what needs no state, for all samples at once, and the rest."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from tauflow._internal.module_hooks import has_hooks

from .base import AbstractCell, AbstractHoistedCell, AbstractPureCell


class SplitStep(NamedTuple):
    """A step in two.

    Args:
        parts: what the steps of a sequence read, each (B, T, K).
        advance: the rest of the step.
        fixed: tensors that it reads, made of parameters for this call.
    """

    parts: tuple[Tensor, ...]
    advance: Callable[..., Tensor]
    fixed: tuple[Tensor, ...] = ()


def split_step(
    cell: AbstractCell, x: Tensor, dt: Tensor, observed: Tensor | None = None
) -> SplitStep:
    """Return what the steps of a sequence read, and the step on one sample of it.

    What the state does not touch is computed here. A step that a user wrote, for a class or for one
    cell, is called as it is. A cell with hooks is itself called for every sample, which calls them.

    Args:
        cell: whose step it is.
        x: inputs, (B, T, I).
        dt: gaps, (B, T, 1).
        observed: (B, T, I) bool, or ``None``.
    """
    features = () if observed is None else (observed,)
    if has_hooks(cell):
        return SplitStep((x, dt, *features), lambda h, x, dt, *seen: cell(x, h, dt, *seen))
    if "step" not in cell.__dict__:  # which the compiler of torch 2.8 knows, not vars()
        if isinstance(cell, AbstractPureCell) and type(cell).step is AbstractPureCell.step:
            return _split_pure(cell, x, dt)
        if isinstance(cell, AbstractHoistedCell) and type(cell).step is AbstractHoistedCell.step:
            hoisted = cell.hoist(x, dt, *features)
            per_step, fixed = hoisted
            return SplitStep(per_step, lambda h, *parts: cell.advance(h, *parts, *fixed), fixed)
    return SplitStep((x, dt, *features), lambda h, x, dt, *seen: cell.step(x, h, dt, *seen))


def _split_pure(cell: AbstractPureCell, x: Tensor, dt: Tensor) -> SplitStep:
    form, tensors = cell.static_config(), cell.packed_parameters()
    parts = cell.hoist(form, x, dt, *tensors)
    return SplitStep(parts, lambda h, x, dt: cell.advance(form, h, (x, dt), *tensors), tensors)
