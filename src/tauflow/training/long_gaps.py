"""Whether the gaps of data explain why a model's numbers are not finite."""

import math

from torch import nn

from tauflow.batch import SequenceBatch

SUSPECT = 100.0
"""A gap that is worth a word though no cell names a limit: time constants are often about 1."""


def long_gap_words(model: nn.Module, data: SequenceBatch) -> str:
    """Return what to say of the longest gap of the data, with a blank at the end; else nothing.

    Args:
        model: its modules may say with a method ``stable_gap()`` how long a gap they can follow.
        data: that it met.
    """
    gap, row, step = longest_gap(data)
    limit, cell = min(
        (
            (float(limit()), type(module).__name__)
            for module in model.modules()
            if callable(limit := getattr(module, "stable_gap", None))
        ),
        default=(math.inf, ""),
    )
    where = f"The longest gap of these data is {gap:g}, at sequence {row}, step {step}"
    if gap > limit:
        return (
            f"{where}, and the solver steps of {cell} are stable up to a gap of {limit:.3g} only: "
            "choose a larger unit of time, more substeps, or an adaptive solver. "
        )
    if gap > SUSPECT:
        return (
            f"{where}: if that is far beyond the time constants of the model, choose a larger unit "
            "of time. "
        )
    return ""


def longest_gap(data: SequenceBatch) -> tuple[float, int, int]:
    """Return the longest gap at a step that counts, its sequence and step; 0 if there is none."""
    longest = 0.0, 0, 0
    for first, piece in data.pieces():
        if piece.dt is None or not piece.dt.numel():
            continue
        gaps = piece.dt if piece.mask is None else piece.dt.masked_fill(~piece.mask, 0.0)
        at = int(gaps.argmax())
        row, step = divmod(at, gaps.shape[1])
        longest = max(longest, (float(gaps[row, step]), first + row, step), key=lambda one: one[0])
    return longest
