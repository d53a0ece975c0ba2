"""Time to event with censoring: survival by Kaplan and Meier, concordance, Brier score.

Source: Kaplan and Meier 1958; Harrell et al. 1996, "Multivariable prognostic models", for the
concordance index; Graf et al. 1999, "Assessment and comparison of prognostic classification schemes
for survival data", for the Brier score weighted by the inverse probability of censoring.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError, ShapeError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """A survival curve: a decreasing step function that starts at 1.

    Args:
        times: of the steps, (K,), increasing.
        survival: from each of them on, (K,).
    """

    times: Floats
    survival: Floats

    def __call__(self, times: Any, *, before: bool = False) -> Floats:
        """Return the probability of survival beyond some times, of any shape.

        Args:
            times: the times.
            before: whether to return the limit from the left instead, P(T >= t).
        """
        place = np.searchsorted(self.times, times, side="left" if before else "right")
        values: Floats = np.append(1.0, self.survival)[place]
        return values


def kaplan_meier(
    durations: Any, events: Any = None, *, entries: Any = None, censoring: bool = False
) -> SurvivalCurve:
    """Return the Kaplan-Meier estimate of the survival curve.

    Args:
        durations: times to the event or to censoring, (N,).
        events: whether the event was observed, (N,); by default all were.
        entries: times from which on each was watched, (N,), for delayed entry; with rows of start
            and stop, the starts. Who enters at a time is at risk after it. By default 0.
        censoring: whether to return the distribution of the times of censoring instead. Of an event
            and a censoring at one time the event comes first.

    Raises:
        DataError: a duration is not finite or negative, or an event is neither true nor false; or
            an entry is not before its duration.
        ShapeError: there are not as many durations as events.
    """
    durations, events = _check(durations, events)
    times, place = np.unique(durations, return_inverse=True)
    deaths = np.bincount(place, events, len(times))
    total = np.bincount(place, minlength=len(times))
    at_risk = count_at_risk(times, durations, entries)
    counted = deaths
    if censoring:
        counted, at_risk = total - deaths, at_risk - deaths
    fall = np.divide(counted, at_risk, out=np.zeros(len(times)), where=at_risk > 0)
    return SurvivalCurve(times, np.cumprod(1.0 - fall, dtype=np.float64))


def count_at_risk(times: Floats, durations: Floats, entries: Any = None) -> NDArray[np.int64]:
    """Return how many are watched at each time, who entered before it and did not leave before it.

    Args:
        times: the times, (K,).
        durations: times to the event or to censoring, (N,).
        entries: times from which on each was watched, (N,); ``None`` for from the start.

    Raises:
        DataError: an entry is not finite, or not before its duration.
        ShapeError: there are not as many durations as entries.
    """
    left = np.searchsorted(np.sort(durations), times, side="left")
    if entries is None:
        return len(durations) - left
    begins = _check_shape("entries", entries, durations).astype(np.float64)
    if not (begins < durations).all():
        row = int(np.flatnonzero(~(begins < durations))[0])
        raise DataError(
            f"entries must lie before durations: in row {row}, entry at {begins[row]:g} and end at "
            f"{durations[row]:g}. Correct the row, or leave it out."
        )
    return np.searchsorted(np.sort(begins), times, side="left") - left


def concordance_index(durations: Any, predicted: Any, events: Any = None) -> float:
    """Return the share of comparable pairs whose predicted times have the right order.

    A pair is comparable if the one with the shorter time had an event; of equal times, if one had
    an event and the other was censored. Equal predictions count as half.

    Args:
        durations: times to the event or to censoring, (N,).
        predicted: predicted times, or any number that is larger for a later event, (N,).
        events: whether the event was observed, (N,); by default all were.

    Raises:
        DataError: a duration is not finite or negative, an event is neither true nor false, a
            prediction is not finite, or no pair is comparable.
        ShapeError: there are not as many of each.
    """
    durations, events = _check(durations, events)
    predicted = _check_shape("predicted", predicted, durations)
    _check_finite("predicted", predicted)
    right = pairs = 0.0
    for place in np.flatnonzero(events):
        later = (durations > durations[place]) | ((durations == durations[place]) & ~events)
        ahead = predicted[later] - predicted[place]
        right += np.sum(ahead > 0) + 0.5 * np.sum(ahead == 0)
        pairs += later.sum()
    if not pairs:
        raise DataError(
            "no two durations can be compared: no duration is known to outlast an event."
        )
    return float(right / pairs)


def survival_brier_score(
    durations: Any,
    events: Any,
    survival: NDArray[Any],
    times: NDArray[Any],
    *,
    censoring: SurvivalCurve | None = None,
) -> Floats:
    """Return the mean squared error of predicted survival at each time, (K,).

    Who is censored before a time t does not count there. An event at T up to t counts 1 / G(T-),
    and who is followed beyond t counts 1 / G(t): G is the probability not to be censored by a time,
    and G(T-) its limit from the left, as an event comes before a censoring at the same time
    (Gerds and Schumacher 2006). scikit-survival takes G(T) instead, which is too small, and its
    score too large, where censorings share the time of an event; else both agree.

    Args:
        durations: times to the event or to censoring, (N,).
        events: whether the event was observed, (N,).
        survival: predicted probabilities of survival beyond each time.
        times: the times, below the last duration.
        censoring: distribution of censoring, ``kaplan_meier(..., censoring=True)`` of the training
            part; by default of these durations.

    Raises:
        ArgumentError: no duration reaches a time.
        DataError: as of :func:`kaplan_meier`; or a time is not finite, or a probability none from
            0 to 1.
        ShapeError: shapes do not fit.
    """
    durations, events = _check(durations, events)
    times, survival = np.asarray(times, np.float64), np.asarray(survival, np.float64)
    if times.ndim != 1 or survival.shape != (len(durations), len(times)):
        raise ShapeError(
            f"survival has shape {survival.shape}, expected (N, K) = {(len(durations), times.size)}"
            ": one probability of each of N at each of K times."
        )
    _check_finite("times", times)
    if not ((survival >= 0) & (survival <= 1)).all():
        raise DataError("survival must hold probabilities, from 0 to 1.")
    censoring = censoring or kaplan_meier(durations, events, censoring=True)
    uncensored_until, uncensored_before = censoring(times), censoring(durations, before=True)
    if (times >= durations.max()).any() or (uncensored_until <= 0).any():
        late = times[(times >= durations.max()) | (uncensored_until <= 0)][0]
        raise ArgumentError(
            f"no duration reaches beyond the time {late:g}: the last one is "
            f"{durations.max():g}. Give earlier times."
        )
    died = (durations[:, None] <= times) & events[:, None]
    alive = durations[:, None] > times
    inverse = np.divide(
        1.0, uncensored_before, out=np.zeros_like(uncensored_before), where=uncensored_before > 0
    )
    errors = (
        died * survival**2 * inverse[:, None] + alive * (1.0 - survival) ** 2 / uncensored_until
    )
    scores: Floats = errors.mean(axis=0)
    return scores


def integrated_brier_score(scores: Floats, times: Floats) -> float:
    """Return the mean of Brier scores over the span of their times, by the trapezoidal rule.

    Args:
        scores: at each time, (K,).
        times: (K,), increasing.

    Raises:
        ArgumentError: there are fewer than two times, or they do not increase.
    """
    scores, times = np.asarray(scores, np.float64), np.asarray(times, np.float64)
    if len(times) < 2 or not (np.diff(times) > 0).all():
        raise ArgumentError("an integral over time takes scores at two times or more, increasing.")
    areas = 0.5 * (scores[1:] + scores[:-1]) * np.diff(times)
    return float(areas.sum() / (times[-1] - times[0]))


def _check(durations: Any, events: Any) -> tuple[Floats, NDArray[np.bool_]]:
    durations = np.asarray(durations, np.float64)
    if durations.ndim != 1 or not (np.isfinite(durations).all() and (durations >= 0).all()):
        raise DataError("durations must be (N,) finite numbers of 0 or more. Correct them.")
    if events is None:
        return durations, np.ones(len(durations), np.bool_)
    return durations, read_events(_check_shape("events", events, durations))


def read_events(events: Any) -> NDArray[np.bool_]:
    """Return whether events were observed, of any shape, as booleans.

    Raises:
        DataError: one is neither a boolean nor 1 or 0.
    """
    flags = np.asarray(events)
    if not np.isin(flags, (0, 1)).all():
        raise DataError(
            "events must hold 1 where the event was observed, and 0 or False else. Of several "
            "causes, give whether each one happened to a separate estimator, and join the "
            "answers by tauflow.evaluation.combine_causes."
        )
    return flags.astype(np.bool_)


def _check_finite(name: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise DataError(f"{name} must be finite numbers. Correct them.")


def _check_shape(name: str, values: Any, durations: Floats) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != durations.shape:
        raise ShapeError(f"{name} has shape {array.shape}, and durations {durations.shape}.")
    return array
