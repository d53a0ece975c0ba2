"""Warnings of a training, and whether the gaps of data explain that a model is not finite."""

import math
import statistics
import warnings
from collections.abc import Sequence

import torch
from torch import nn

from tauflow._internal.time_precision import LONG_DT, SHORT_DT
from tauflow.batch import SequenceBatch
from tauflow.errors import TimeUnitWarning

WARNING_DT = 100.0
"""A gap that is worth a word though no cell names a limit: time constants are often about 1."""


def describe_longest_dt(model: nn.Module, data: SequenceBatch) -> str:
    """Return what to say of the longest gap of the data, with a blank at the end; else nothing.

    Args:
        model: its modules may say with a method ``max_stable_dt()`` how long a gap they can follow.
        data: that it met.
    """
    gap, row, step = find_longest_dt(data)
    limit, cell = min(
        (
            (float(limit()), type(module).__name__)
            for module in model.modules()
            if callable(limit := getattr(module, "max_stable_dt", None))
        ),
        default=(math.inf, ""),
    )
    where = f"The longest gap of these data is {gap:g}, at sequence {row}, step {step}"
    if gap > limit:
        return (
            f"{where}, and the solver steps of {cell} are stable up to a gap of {limit:.3g} only: "
            "choose a larger unit of time, more substeps, or an adaptive solver. "
        )
    if gap > WARNING_DT:
        return (
            f"{where}: if that is far beyond the time constants of the model, choose a larger unit "
            "of time. "
        )
    return ""


def warn_time_scale_mismatch(model: nn.Module, data: SequenceBatch, *, stacklevel: int) -> None:
    """Warn if a model reads times, and those of the data are far from what it was made for.

    Of gaps, the median of those above 0 is looked at, of as many sequences as fit into memory at
    ease. Time constants begin around 1, or around the ``time_constant`` that cells tell of. Models
    that say ``has_horizon`` should meet the last time near it.
    """
    _warn_horizon_mismatch(model, data, stacklevel=stacklevel + 1)
    parts = [part for part in model.modules() if getattr(part, "uses_dt", False)]
    told = [part.has_time_unit for part in parts if hasattr(part, "has_time_unit")]
    if data.dt is None or not parts or (told and not any(told)):
        return
    _, piece = next(data.iter_slices())
    assert piece.dt is not None
    gaps = piece.dt if piece.mask is None else piece.dt[piece.mask]
    gaps = gaps[gaps > 0]
    median = float(gaps.median()) if gaps.numel() else 1.0
    constant = _compute_median_time_constant(parts)
    if SHORT_DT <= median / constant <= LONG_DT:
        return
    warnings.warn(
        f"the median gap of the training data is {median:.4g}, and the time constants of this "
        f"model begin around {constant:.4g}, so that little may be learned. Divide dt by "
        f"{median / constant:.4g}, of all parts"
        + ("; of tables time_unit='auto' makes the median 1." if constant == 1 else ".")
        + (f" Or build the cell with tau={median:.4g}." if _has_tau_option(parts) else ""),
        TimeUnitWarning,
        stacklevel=stacklevel + 1,
    )


def _warn_horizon_mismatch(model: nn.Module, data: SequenceBatch, *, stacklevel: int) -> None:
    for part in model.modules():
        if not getattr(part, "has_horizon", False):  # other modules call other things so
            continue
        horizon = float(part.horizon)  # type: ignore[arg-type]
        latest = find_latest_time(data)
        if _MIN_HORIZON_SHARE * horizon <= latest <= _MAX_HORIZON_SHARE * horizon:
            continue
        warnings.warn(
            f"{type(part).__name__} looks at times from 0 to {horizon:g}, its horizon, and the "
            f"last sample of the training data is at {latest:.4g}, so that little may be learned. "
            f"Build it with horizon={latest:.4g}.",
            TimeUnitWarning,
            stacklevel=stacklevel + 1,
        )


_MIN_HORIZON_SHARE, _MAX_HORIZON_SHARE = 0.1, 1.25


def find_latest_time(data: SequenceBatch) -> float:
    """Return the time of the last sample of all sequences, the sum of its gaps; 1 each without."""
    latest = 0.0
    for _, piece in data.iter_slices():
        gaps = piece.x.new_ones(piece.x.shape[:2]) if piece.dt is None else piece.dt
        if piece.mask is not None:
            gaps = gaps.masked_fill(~piece.mask, 0.0)
        if gaps.numel():
            latest = max(latest, float(gaps.sum(1, dtype=torch.float64).max()))
    return latest


def _compute_median_time_constant(parts: Sequence[nn.Module]) -> float:
    """Return the median of what parts that read gaps tell of their time constants, or else 1.

    Parts that are no cells may have a ``tau`` alone.
    """
    told = [getattr(part, "time_constant", getattr(part, "tau", None)) for part in parts]
    known = [one for one in told if isinstance(one, float | int) and one > 0]
    return statistics.median(known or [1.0])


def _has_tau_option(parts: Sequence[nn.Module]) -> bool:
    return any("tau" in getattr(part, "options", {}) for part in parts)


def find_longest_dt(data: SequenceBatch) -> tuple[float, int, int]:
    """Return the longest gap at a step that counts, its sequence and step; 0 if there is none."""
    longest = 0.0, 0, 0
    for first, piece in data.iter_slices():
        if piece.dt is None or not piece.dt.numel():
            continue
        gaps = piece.dt if piece.mask is None else piece.dt.masked_fill(~piece.mask, 0.0)
        at = int(gaps.argmax())
        row, step = divmod(at, gaps.shape[1])
        longest = max(longest, (float(gaps[row, step]), first + row, step), key=lambda one: one[0])
    return longest
