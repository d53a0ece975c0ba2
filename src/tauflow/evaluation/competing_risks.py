"""Competing risks: the incidence of each cause of an event, from data and from fitted curves.

Source: Aalen and Johansen 1978, "An empirical transition matrix for non-homogeneous Markov chains
based on censored observations"; Prentice et al. 1978, "The analysis of failure times in the
presence of competing risks", for cause-specific hazards.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError, ShapeError

from .survival import Floats, SurvivalCurve, count_at_risk

_SMALLEST = 1e-300  # probability of which a logarithm is taken


@dataclass(frozen=True, eq=False)
class CumulativeIncidence:
    """The probabilities that an event of each cause has happened: step functions from 0 on.

    Args:
        times: of the steps, (K,), increasing.
        incidence: by cause, from each of these times on, (K,).
        survival: the probability that none has happened, which is one less their sum.
    """

    times: Floats
    incidence: dict[int, Floats]
    survival: SurvivalCurve

    def __call__(self, times: Any, cause: int) -> Floats:
        """Return the probability that an event of a cause has happened by some times.

        Args:
            times: the times, of any shape.
            cause: its code.

        Raises:
            ArgumentError: there was no event of that cause.
        """
        if cause not in self.incidence:
            known = ", ".join(map(str, self.incidence))
            raise ArgumentError(f"there was no event of cause {cause!r}. Causes: {known}.")
        place = np.searchsorted(self.times, times, side="right")
        values: Floats = np.append(0.0, self.incidence[cause])[place]
        return values


def cumulative_incidence(
    durations: Any, causes: Any, *, entries: Any = None
) -> CumulativeIncidence:
    """Return the Aalen-Johansen estimate of the incidence of each cause.

    One less the Kaplan-Meier estimate of a cause, with the other causes as censored, is too large:
    it is the incidence in a world without the others.

    Args:
        durations: times to the event or to censoring, (N,).
        causes: code of the event, (N,), a positive integer; 0 where it was censored.
        entries: times from which on each was watched, (N,), for delayed entry; with rows of start
            and stop, the starts. By default 0.

    Raises:
        DataError: a duration is not finite or negative, a code is no integer of 0 or more, or an
            entry is not before its duration.
        ShapeError: there are not as many of each.
    """
    durations, causes = np.asarray(durations, np.float64), np.asarray(causes)
    if durations.ndim != 1 or not (np.isfinite(durations).all() and (durations >= 0).all()):
        raise DataError("durations must be (N,) finite numbers of 0 or more. Correct them.")
    if causes.shape != durations.shape:
        raise ShapeError(f"causes has shape {causes.shape}, and durations {durations.shape}.")
    if causes.dtype.kind not in "iub" or (causes < 0).any():
        raise DataError(
            "causes must be integers: 0 where an event was censored, and 1 or more for its cause."
        )
    times, place = np.unique(durations, return_inverse=True)
    at_risk = count_at_risk(times, durations, entries)
    hazards = {
        int(cause): np.divide(
            np.bincount(place, causes == cause, len(times)),
            at_risk,
            out=np.zeros(len(times)),
            where=at_risk > 0,
        )
        for cause in np.unique(causes[causes > 0])
    }
    total = sum(hazards.values(), np.zeros(len(times)))
    survival = np.cumprod(1.0 - total, dtype=np.float64)
    before = np.append(1.0, survival[:-1])
    incidence = {cause: np.cumsum(before * hazard) for cause, hazard in hazards.items()}
    return CumulativeIncidence(times, incidence, SurvivalCurve(times, survival))


def combine_causes(survival: NDArray[Any]) -> Floats:
    """Return the incidence of each cause from survival curves that were fitted one cause at a time.

    Each curve is of a model that was fitted with the events of one cause, those of the others taken
    for censored, such as :class:`tauflow.estimators.SequenceSurvival`: it holds the hazard of that
    cause. With the hazard of each cause in proportion between two times, what the survival of all,
    the product of the curves, loses there is shared in the proportion of the logarithms.

    Args:
        survival: of each of C causes, for N sequences, at K increasing times, (C, N, K); before the
            first time it is 1.

    Returns:
        The probability that the event of each cause has happened by each time, (C, N, K).

    Raises:
        ShapeError: it has another number of axes.
        DataError: a curve does not hold probabilities, or rises.
    """
    curves = np.asarray(survival, np.float64)
    if curves.ndim != 3:
        raise ShapeError(
            f"survival has shape {curves.shape}, expected (C, N, K): one curve of each of N "
            "sequences for each of C causes. Stack those of the models."
        )
    from_one = np.concatenate([np.ones((*curves.shape[:2], 1)), curves], axis=2)
    if not ((from_one >= 0) & (from_one <= 1)).all() or (np.diff(from_one) > 1e-12).any():
        raise DataError("survival must hold probabilities, from 0 to 1, that never rise with time.")
    hazards = -np.diff(np.log(np.maximum(from_one, _SMALLEST)))
    total = hazards.sum(0)
    share = np.divide(hazards, total, out=np.zeros_like(hazards), where=total > 0)
    lost = -np.diff(from_one.prod(0))
    incidence: Floats = np.cumsum(share * lost, axis=2)
    return incidence
