"""Standardised forecast residuals and their tail probabilities.

Source: Vovk et al. 2005, "Algorithmic learning in a random world", Section 2.2, for probabilities
by rank, which hold for any distribution if the values to calibrate by are like the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float64]
MIN_RESIDUALS = 20
SCORE_COLUMNS = ("feature", "value", "forecast", "score", "probability")
_BIN_SIZE, _MAX_BINS = 40, 8
_NORMAL_MAD = 1.4826  # standard deviation of a normal distribution by its median absolute deviation


@dataclass(frozen=True, eq=False)
class ResidualDistribution:
    """Residuals of one variable: their scale as a function of the lead time, and their tail.

    Args:
        gaps: medians of bins of time steps, (K,), increasing.
        scales: standard deviation of the residuals there, by their median absolute value, (K,).
        scores: sorted absolute standardised residuals, (N,).
    """

    gaps: Floats
    scales: Floats
    scores: Floats

    @classmethod
    def fit(cls, residuals: Floats, gaps: Floats) -> "ResidualDistribution":
        """Learn them.

        Args:
            residuals: value less forecast; NaN where either is missing.
            gaps: times from the forecasts to the values.

        Raises:
            DataError: there are fewer than 20 residuals.
        """
        known = ~np.isnan(residuals)
        residuals, gaps = residuals[known], gaps[known]
        if len(residuals) < MIN_RESIDUALS:
            raise DataError(
                f"{format_count(len(residuals), 'forecast')} to calibrate by, expected at least "
                f"{MIN_RESIDUALS}. "
                "Give more rows."
            )
        order = np.argsort(gaps, kind="stable")
        even = np.ptp(gaps) <= 1e-6 * abs(gaps).max()
        count = 1 if even else int(np.clip(len(order) // _BIN_SIZE, 1, _MAX_BINS))
        bins = np.array_split(order, count)
        knots = np.array([np.median(gaps[rows]) for rows in bins])
        scales = np.array([_NORMAL_MAD * np.median(abs(residuals[rows])) for rows in bins])
        spread = float(residuals.std()) or 1.0  # of constants, which forecasts hit, nothing is said
        knots, place = np.unique(knots, return_index=True)
        scales = np.where(scales > 0, scales, spread)[place]
        scores = abs(residuals) / np.interp(gaps, knots, scales)
        return cls(knots, scales, np.sort(scores))

    def standardise(self, residuals: Floats, gaps: Floats) -> Floats:
        """Return residuals by their scale at these time steps, (N,)."""
        standardised: Floats = residuals / np.interp(gaps, self.gaps, self.scales)
        return standardised

    def compute_tail_probability(self, scores: Floats) -> Floats:
        """Return the probability of an absolute score as large, (N,), NaN of a missing one.

        Of N residuals to calibrate by, the smallest is 1 / (N + 1).
        """
        above = len(self.scores) - np.searchsorted(self.scores, abs(scores), side="left")
        probability: Floats = np.where(
            np.isnan(scores), np.nan, (1 + above) / (len(self.scores) + 1)
        )
        return probability


@dataclass(frozen=True, eq=False)
class ForecastRows:
    """Rows of sequences, and what was forecast of them.

    Args:
        values: measured, (R, F), NaN where missing.
        forecasts: made at the row before, (R, F), NaN at the first of a sequence.
        gaps: time since the row before, (R,).
    """

    values: Floats
    forecasts: Floats
    gaps: Floats

    @classmethod
    def from_next(
        cls, values: Floats, following: Floats, gaps: Floats, starts: NDArray[np.int64]
    ) -> "ForecastRows":
        """Return them from forecasts of the row after each, (R, F), and where sequences start."""
        forecasts = np.roll(following, 1, axis=0)
        forecasts[starts] = np.nan
        return cls(values, forecasts, gaps)


def score_rows(
    keys: Mapping[Any, Any], names: Sequence[Any], rows: ForecastRows, calibration: ForecastRows
) -> "DataFrame":
    """Return one row per value that was forecast, with its score and tail probability.

    Args:
        keys: columns in front, such as ids and times, (R,) each.
        names: of the features, (F,).
        rows: those to score.
        calibration: those to learn scales and probabilities from.

    Raises:
        DataError: a feature has too few forecasts to calibrate by.
    """
    pandas = require("pandas", extra="tables")
    frames = []
    for place, name in enumerate(names):
        known = calibration.values[:, place] - calibration.forecasts[:, place]
        distribution = ResidualDistribution.fit(known, calibration.gaps)
        value, forecast = rows.values[:, place], rows.forecasts[:, place]
        at = np.flatnonzero(~np.isnan(value - forecast))
        scores = distribution.standardise((value - forecast)[at], rows.gaps[at])
        probabilities = distribution.compute_tail_probability(scores)
        cells = (name, value[at], forecast[at], scores, probabilities)
        frame = {column: column_of_keys[at] for column, column_of_keys in keys.items()}
        frame |= dict(zip(SCORE_COLUMNS, cells, strict=True))
        frames.append(pandas.DataFrame(frame, index=at))
    scored: DataFrame = pandas.concat(frames).sort_index(kind="stable").reset_index(drop=True)
    return scored
