"""Say so where the training loss rises again."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .recipe import Recipe

_INCREASE_FACTOR = 2.0  # times the best loss so far
_FIRST_LOSS_SHARE = 0.5  # of the loss of the first epoch


def warn_loss_increase(
    history: Sequence[Mapping[str, Any]], recipe: Recipe, *, stacklevel: int
) -> bool:
    """Warn if the training loss more than doubles, to more than half of the first epoch's.

    Args:
        history: rows of the epochs so far, in order.
        recipe: of the training; with a curriculum, whose stages have losses of their own, and for
            losses that may be negative, nothing is said.
        stacklevel: of the warning, 1 for the caller.

    Returns:
        Whether a warning was given.
    """
    losses = [row["train_loss"] for row in history]
    best = min(losses)
    if (
        recipe.curriculum
        or best <= 0
        or losses[-1] <= max(_INCREASE_FACTOR * best, _FIRST_LOSS_SHARE * losses[0])
    ):
        return False
    clips = " or clip gradients (clip='norm', clip_norm=1.0)," if recipe.clip == "none" else ""
    warnings.warn(
        f"the training loss rose from {best:.4g} in epoch {losses.index(best) + 1} to "
        f"{losses[-1]:.4g} in epoch {len(losses)}: training is unstable. Lower lr, which is "
        f"{recipe.lr:g},{clips} or look for extreme values in the data.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
    return True
