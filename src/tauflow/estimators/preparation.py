"""What an estimator learns of its inputs before any network sees them."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.batch import SequenceBatch
from tauflow.checks import one_of, positive
from tauflow.errors import ArgumentError, TimeError

from .rows import Floats, Indices, Rows

DTYPES = {"float32": torch.float32, "float64": torch.float64}
IMPUTE = ("mean", "last")
_ROUNDING = 1e-12  # a column that varies less than this part of its size is constant


@dataclass(frozen=True)
class Standard:
    """Means and standard deviations of columns, (C,) each."""

    mean: Floats
    scale: Floats

    @classmethod
    def of(cls, values: Floats, weight: Floats) -> "Standard":
        """Learn them of values, (R, C), NaN where missing, that count weight, (R,), each."""
        there = ~np.isnan(values)
        share = np.where(there, weight[:, None], 0.0)
        total = np.maximum(share.sum(axis=0), np.finfo(float).tiny)
        filled = np.where(there, values, 0.0)
        mean = (share * filled).sum(axis=0) / total
        around = np.where(there, values - mean, 0.0)
        scale = np.sqrt((share * around**2).sum(axis=0) / total)
        return cls(mean, np.where(scale <= _ROUNDING * np.abs(mean), 1.0, scale))

    def applied(self, values: Floats) -> Floats:
        """Return values, (..., C), with mean 0 and deviation 1."""
        return (values - self.mean) / self.scale

    def undone(self, values: Floats) -> Floats:
        """Return what :meth:`applied` came from."""
        return values * self.scale + self.mean


@dataclass(frozen=True)
class Preparation:
    """From rows to a batch, by what the training part was like.

    Args:
        features: their standard.
        impute: what stands for a missing value: ``"mean"`` or ``"last"``, of the same sequence.
        observes: whether the model is told what is missing by a mask of its own.
        flagged: features with a further input that says whether they were measured, (F,).
        unit: the gap that is 1 for the model; ``None`` of sequences without times.
        dated: whether times were dates.
        dtype: of the model, by its name.
        ahead: how many inputs more say when the rows are that are to be forecast.
    """

    features: Standard
    impute: str
    observes: bool
    flagged: Indices
    unit: float | None
    dated: bool
    dtype: str
    ahead: int

    @classmethod
    def learned(
        cls,
        rows: Rows,
        weight: Floats,
        *,
        impute: str,
        observes: bool,
        time_unit: float | str,
        dtype: str,
    ) -> "Preparation":
        """Learn it.

        Args:
            rows: the training part.
            weight: of each sequence, (N,).
            impute: see above.
            observes: see above.
            time_unit: ``"auto"``: the median gap within sequences is 1; or the gap that is.
            dtype: of the model.

        Warns:
            UserWarning: a feature was never measured.
        """
        one_of(IMPUTE, impute=impute)
        missing = np.isnan(rows.values)
        never = np.flatnonzero(missing.all(axis=0))
        if len(never):
            named = ", ".join(rows.names[n] if rows.names else str(n) for n in never)
            warnings.warn(
                f"features without a value in the training part, of which nothing is learned: "
                f"{named}.",
                UserWarning,
                stacklevel=4,
            )
        return cls(
            Standard.of(rows.values, np.repeat(weight, rows.lengths)),
            impute,
            observes,
            np.flatnonzero([] if observes else missing.any(axis=0)),
            None if rows.gaps is None else _unit(rows, weight, time_unit),
            rows.dated,
            one_of(DTYPES, dtype=dtype),
            0 if rows.ahead is None else rows.ahead.shape[1],
        )

    @property
    def input_size(self) -> int:
        """Inputs of the model."""
        return len(self.features.mean) + len(self.flagged) + self.ahead

    def batch(
        self, rows: Rows, y: NDArray[Any] | None = None, weight: Floats | None = None
    ) -> SequenceBatch:
        """Return a batch.

        Args:
            rows: the sequences.
            y: targets, as training takes them; by default zeros, to predict.
            weight: of each sequence.
        """
        if (rows.gaps is None) != (self.unit is None):
            had, has = ("no times", "times") if self.unit is None else ("times", "none")
            raise ArgumentError(
                f"the estimator was fitted to sequences with {had}, and these have {has}. Give dt "
                "or t (time of a table) each time, or never."
            )
        if rows.dated is not self.dated:
            had, has = ("dates", "numbers") if self.dated else ("numbers", "dates")
            raise TimeError(
                f"the estimator was fitted to times that are {had}, and these are {has}, perhaps "
                f"in another unit. Give {had}: dates count in seconds."
            )
        missing = np.isnan(rows.values)
        values = _last_filled(rows, missing) if self.impute == "last" else rows.values
        scaled = np.where(np.isnan(values), 0.0, self.features.applied(values))
        x = np.concatenate([scaled, ~missing[:, self.flagged]], axis=1)
        if rows.ahead is not None and self.unit is not None:
            x = np.concatenate([x, rows.ahead / self.unit], axis=1)
            missing = np.pad(missing, ((0, 0), (0, self.ahead)))
        gaps = None if rows.gaps is None or self.unit is None else rows.gaps / self.unit
        told = self.observes and bool(missing.any())
        even = bool((rows.lengths == rows.lengths[0]).all())
        return SequenceBatch(
            self._tensor(rows.padded(x)),
            torch.zeros(len(rows)) if y is None else self._tensor(y),
            dt=None if gaps is None else self._tensor(rows.padded(gaps)),
            mask=None if even else torch.from_numpy(rows.valid),
            observed=torch.from_numpy(rows.padded(~missing)) if told else None,
            weight=None if weight is None else self._tensor(weight),
        )

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(DTYPES[self.dtype]) if tensor.is_floating_point() else tensor


def _unit(rows: Rows, weight: Floats, time_unit: float | str) -> float:
    if time_unit != "auto":
        if isinstance(time_unit, str):
            raise ArgumentError(f"time_unit must be 'auto' or a number, got {time_unit!r}.")
        return positive(time_unit=time_unit)
    assert rows.gaps is not None
    inner = np.setdiff1d(np.flatnonzero(rows.gaps > 0), rows.starts)
    if not len(inner):
        return 1.0
    order = inner[np.argsort(rows.gaps[inner])]
    counted = np.cumsum(weight[rows.owners][order])
    # The mean of the two in the middle, as of so many gaps without weights.
    middle = [np.searchsorted(counted, counted[-1] / 2, side) for side in ("left", "right")]
    return float(rows.gaps[order[middle]].mean())


def _last_filled(rows: Rows, missing: NDArray[np.bool_]) -> Floats:
    """Return values with the last one of the same sequence where one is missing."""
    place = np.where(missing, 0, np.arange(len(missing))[:, None])
    last = np.maximum(np.maximum.accumulate(place, axis=0), rows.starts[rows.owners][:, None])
    filled: Floats = np.take_along_axis(rows.values, last, axis=0)
    return filled
