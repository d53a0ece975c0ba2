"""Missing values as inputs, for models that do not take a mask of what was observed."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tauflow.batch import SequenceBatch

IMPUTE_STRATEGIES = ("last", "mean")
"""What stands for a missing value: the last one observed in its sequence, or the mean."""


def impute_with_indicators(
    batch: SequenceBatch, flagged: Sequence[int], *, fill: str = IMPUTE_STRATEGIES[0]
) -> SequenceBatch:
    """Fill in missing values, and append an input per feature that says what was observed.

    Args:
        batch: x, (B, T, I), scaled to mean 0 and 0 where missing, with ``observed``; without it
            every value counts as observed.
        flagged: the F features that get an input more, 1 where observed and 0 elsewhere.
        fill: ``"last"``: the last value observed in the same sequence, and 0, the mean, before the
            first one; ``"mean"``: 0.

    Returns:
        The batch with x of shape (B, T, I + F), and without ``observed``.
    """
    there = batch.observed
    if there is None:
        there = batch.valid.unsqueeze(-1).expand_as(batch.x)
    x = batch.x
    if fill == IMPUTE_STRATEGIES[0]:
        x = forward_fill(x, there, batch.mask)
    indicators = there[..., list(flagged)].to(x.dtype)
    return replace(batch, x=torch.cat([x, indicators], dim=-1), observed=None)


def forward_fill(x: Tensor, observed: Tensor, mask: Tensor | None) -> Tensor:
    """Return x with the last observed value at valid steps where one is missing."""
    missing = ~observed if mask is None else ~observed & mask.unsqueeze(-1)
    steps = torch.arange(x.shape[1], device=x.device)
    filled = x.clone()
    for feature in missing.flatten(0, 1).any(0).nonzero().flatten().tolist():
        last = torch.where(observed[..., feature], steps, 0).cummax(1).values
        held = x[..., feature].gather(1, last)
        filled[..., feature] = torch.where(missing[..., feature], held, x[..., feature])
    return filled
