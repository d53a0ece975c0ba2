"""Bring columns to mean 0 and standard deviation 1, by the rows of the training part alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow.errors import DataError

from .goal import Goal
from .sequences import Sequences
from .sheet import Bools, Floats

_ROUNDING = 1e-12  # a column that varies less than this part of its size is constant


@dataclass(frozen=True)
class Scaling:
    """Means and scales of columns, (C,) each."""

    mean: Floats
    scale: Floats

    def of(self, values: Floats) -> Floats:
        """Scale values, (..., C)."""
        scaled: Floats = (values - self.mean) / self.scale
        return scaled

    def inputs_of(self, values: Floats) -> tuple[NDArray[np.float32], Bools]:
        """Return values, (R, C), scaled and 0 where they are NaN, and where they are not."""
        observed = ~np.isnan(values)
        return np.where(observed, self.of(values), 0.0).astype(np.float32), observed

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return means and scales as tensors."""
        return torch.from_numpy(self.mean), torch.from_numpy(self.scale)


def scaling_of(values: Floats, *, wanted: bool) -> Scaling:
    """Return mean and standard deviation of columns, (K, C), over the entries that are not NaN.

    Args:
        values: of the training part; each column has at least one.
        wanted: whether to scale at all.
    """
    columns = values.shape[1]
    if not wanted:
        return Scaling(np.zeros(columns), np.ones(columns))
    mean, scale = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    constant = scale <= _ROUNDING * np.abs(mean)
    return Scaling(mean, np.where(constant, 1.0, scale))


def scale_features(
    values: Floats, features: Sequence[str], trained: Sequences, *, wanted: bool, otherwise: str
) -> Scaling:
    """Return the scaling of the features.

    Args:
        values: of every row, (R, I), NaN where missing.
        features: their names.
        trained: sequences of the training part, with all their rows.
        wanted: whether to scale at all.
        otherwise: how to split otherwise, for a message.

    Raises:
        DataError: the training part has no value of a feature.
    """
    chosen = values[np.concatenate(trained.rows)]
    empty = np.isnan(chosen).all(axis=0)
    if empty.any():
        place = int(np.argmax(empty))
        nowhere = np.isnan(values[:, place]).all()
        where = "the table" if nowhere else "the training part"
        raise DataError(
            f"feature {features[place]!r} has no value in {where}, so that nothing can be "
            f"learned of it. Leave it out of the features"
            f"{'.' if nowhere else f', or split {otherwise}.'}"
        )
    return scaling_of(chosen, wanted=wanted)


def scale_targets(goal: Goal, trained: Sequences, features: Scaling, *, wanted: bool) -> Scaling:
    """Return the scaling of targets that are not classes.

    Args:
        goal: the targets.
        trained: sequences of the training part.
        features: the scaling of the inputs; next-step prediction shares it.
        wanted: whether to scale at all.
    """
    if goal.is_next_step:
        count = len(goal.outputs)
        return Scaling(features.mean[:count], features.scale[:count])
    if not goal.per_step:
        return scaling_of(goal.firsts(trained), wanted=wanted)
    rows = np.concatenate(trained.rows)
    return scaling_of(np.where(goal.known[rows], goal.y[rows], np.nan), wanted=wanted)
