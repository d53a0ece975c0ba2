"""What an estimator learns of its inputs before any network sees them."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of, check_positive
from tauflow.batch import SequenceBatch
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.data.scaler import StandardScaler
from tauflow.data.table.sequences import format_names
from tauflow.errors import ArgumentError, TimeError

from .gaps import interpolate
from .ragged import Floats, Indices, RaggedSequences

_LINEAR = "linear"
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Preparation:
    """From rows to a batch, by what the training part was like.

    Args:
        features: their standard. One that was never measured counts as missing ever after, and one
            that was constant is 0, as nothing was learned of other values.
        impute: what stands for a missing value: ``"mean"`` or ``"last"``, of the same sequence; or
            ``"linear"``, from those before and after it.
        observes: whether the model is told what is missing by a mask of its own.
        flagged: features with a further input that says whether they were measured, (F,).
        unit: the gap that is 1 for the model; ``None`` of sequences without times.
        dated: whether times were dates.
        dtype: of the model, by its name.
        ahead: how many inputs more say when the rows are that are to be forecast.
    """

    features: StandardScaler
    impute: str
    observes: bool
    flagged: Indices
    unit: float | None
    dated: bool
    dtype: str
    ahead: int

    @classmethod
    def fit(
        cls,
        rows: RaggedSequences,
        weight: Floats,
        *,
        impute: str,
        observes: bool,
        fills_gaps: bool = False,
        time_unit: float | str,
        dtype: str,
    ) -> "Preparation":
        """Learn it.

        Args:
            rows: the training part.
            weight: of each sequence, (N,).
            impute: see above.
            observes: see above.
            fills_gaps: whether any feature may have a gap, which is then interpolated.
            time_unit: ``"auto"``: the median gap within sequences is 1; or the gap that is.
            dtype: of the model.

        Warns:
            UserWarning: a feature was never measured: later values of it are ignored.
        """
        check_one_of(IMPUTE_STRATEGIES, impute=impute)
        impute = _LINEAR if fills_gaps else impute
        missing = np.isnan(rows.values)
        standard = StandardScaler.fit(rows.values.T, np.repeat(weight, rows.lengths))
        if standard.is_empty.any():
            warnings.warn(
                "features without a value in the training part, of which nothing is learned: "
                f"{_format_features(rows, standard.is_empty)}. Values of them are ignored.",
                UserWarning,
                stacklevel=4,
            )
        # What is never there is no news either.
        told = (missing.any(axis=0) | fills_gaps) & ~standard.is_empty & (not observes)
        return cls(
            standard,
            impute,
            observes,
            np.flatnonzero(told),
            None if rows.dt is None else _resolve_time_unit(rows, weight, time_unit),
            rows.dated,
            check_one_of(DTYPES, dtype=dtype),
            0 if rows.lead_times is None else rows.lead_times.shape[1],
        )

    @property
    def input_size(self) -> int:
        """Inputs of the model."""
        return len(self.features.mean) + len(self.flagged) + self.ahead

    def batch(
        self, rows: RaggedSequences, y: NDArray[Any] | None = None, weight: Floats | None = None
    ) -> SequenceBatch:
        """Return a batch.

        Args:
            rows: the sequences.
            y: targets, as training takes them; by default zeros, to predict.
            weight: of each sequence.
        """
        if (rows.dt is None) != (self.unit is None):
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
        there = ~(np.isnan(rows.values) | self.features.is_empty)
        scaled = np.where(there, self.features.transform(rows.values), 0.0)
        if self.impute == _LINEAR and not self.observes:
            scaled = np.where(there, scaled, self.features.transform(interpolate(rows)))
            scaled = np.nan_to_num(scaled)  # of who has no value, the mean
        gaps = None if rows.dt is None or self.unit is None else rows.dt / self.unit
        even = bool((rows.lengths == rows.lengths[0]).all())
        batch = SequenceBatch(
            self._to_tensor(rows.pad(scaled)),
            torch.zeros(len(rows)) if y is None else self._to_tensor(y),
            dt=None if gaps is None else self._to_tensor(rows.pad(gaps)),
            mask=None if even else torch.from_numpy(rows.valid),
            observed=None if there.all() else torch.from_numpy(rows.pad(there)),
            weight=None if weight is None else self._to_tensor(weight),
        )
        if not self.observes:
            fill = IMPUTE_STRATEGIES[1] if self.impute == _LINEAR else self.impute
            batch = impute_with_indicators(batch, self.flagged.tolist(), fill=fill)
        if rows.lead_times is None or self.unit is None:
            return batch
        ahead = self._to_tensor(rows.pad(rows.lead_times / self.unit))
        observed = batch.observed
        if observed is not None:
            known = batch.valid.unsqueeze(-1).expand_as(ahead)
            observed = torch.cat([observed, known], dim=-1)
        return replace(batch, x=torch.cat([batch.x, ahead], dim=-1), observed=observed)

    def warn_ignored_values(self, rows: RaggedSequences) -> None:
        """Warn of values that were never measured in training, or constant and are not now."""
        standard = self.features
        other = ~np.isnan(rows.values) & (rows.values != standard.mean) & standard.is_constant
        if other.any():
            warnings.warn(
                "values are ignored of features that were constant, or never measured, in "
                f"training: {_format_features(rows, other.any(axis=0))}.",
                UserWarning,
                stacklevel=4,
            )

    def _to_tensor(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(DTYPES[self.dtype]) if tensor.is_floating_point() else tensor


def _format_features(rows: RaggedSequences, which: NDArray[np.bool_]) -> str:
    """Return names, or numbers, of some features, (F,), for a message."""
    return format_names(
        [rows.names[n] if rows.names else str(n) for n in np.flatnonzero(which)], 12
    )


def _resolve_time_unit(rows: RaggedSequences, weight: Floats, time_unit: float | str) -> float:
    if time_unit != "auto":
        if isinstance(time_unit, str):
            raise ArgumentError(f"time_unit must be 'auto' or a number, got {time_unit!r}.")
        return check_positive(time_unit=time_unit)
    assert rows.dt is not None
    inner = np.setdiff1d(np.flatnonzero(rows.dt > 0), rows.starts)
    if not len(inner):
        return 1.0
    order = inner[np.argsort(rows.dt[inner])]
    counted = np.cumsum(weight[rows.sequence_index][order])
    # The mean of the two in the middle, as of so many gaps without weights.
    middle = [np.searchsorted(counted, counted[-1] / 2, side) for side in ("left", "right")]
    return float(rows.dt[order[middle]].mean())
