"""What features of the training split were like, and whether a later table is like that."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import ShiftWarning

from .sequences import format_names

Floats = NDArray[np.float64]
_MAX_ROWS = 200_000  # that quantiles are taken of
_MIN_SEQUENCES, _MIN_TRAINED, _MIN_GAPS = 5, 10, 20
_MANY_DEVIATIONS = 2.5  # between medians
_TIMES_WIDER = 8.0
_LONGER = 3.0
_FAR = 3.0  # widths of the range beyond it, at which a single sequence is named
_MAX_TAILS = 8.0  # width of 98 % of the values by that of half of them; of a normal one it is 3.4
_CHANCE = 1e-5  # that so many sequences lie outside
_LEAST_LOG = 0.2  # deviation of logarithms, so that whole numbers 1 and 2 are not far apart
_SHOWN = 8
_SAME_UNIT = 0.75  # deviations by which a likely unit may miss the quartiles
_SHARES = (0.01, 0.25, 0.5, 0.75, 0.99)
_TIME_FACTORS = (60, 3600, 24, 1440, 86400, 7, 1000)
_FACTORS = (1000.0, 88.4, 60.0, 18.02, 2.54, 2.205)


class FeatureSummary(NamedTuple):
    """What a feature was like in the training split.

    Args:
        sequences: of the training split.
        present: share of these that have a value.
        low: the least value.
        high: the largest value.
        deviation: the standard deviation.
        quantiles: at 1, 25, 50, 75 and 99 %, of the values above 0 if none is below.
    """

    sequences: float
    present: float
    low: float
    high: float
    deviation: float
    quantiles: tuple[float, ...]

    def compute_excess(self, values: Floats) -> Floats:
        """Return by how many standard deviations values lie outside the range, 0 inside."""
        width = self.deviation or abs(self.high) or 1.0
        beyond = np.maximum(values - self.high, self.low - values) / width
        return np.nan_to_num(np.maximum(beyond, 0.0), posinf=np.inf)


Summary = Mapping[str, tuple[float, ...]]


def read_summary(summary: Summary) -> dict[str, FeatureSummary]:
    """Return what :func:`summarise` returned, by feature.

    Raises:
        ValueError: it is not what that function returns.
    """
    features = {}
    for name, numbers in summary.items():
        sequences, present, low, high, deviation, *quantiles = map(float, numbers)
        if len(quantiles) != len(_SHARES):
            raise ValueError(
                f"the summary of {name!r} has {format_count(len(quantiles), 'quantile')}"
            )
        features[name] = FeatureSummary(sequences, present, low, high, deviation, tuple(quantiles))
    return features


@contextmanager
def ignore_shift() -> Iterator[None]:
    """Let pass data that are unlike those of the training, as they are to be learned from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        yield


def compute_excess(summary: Summary, names: Sequence[str], values: Floats) -> Floats:
    """Return by how many standard deviations features, (..., C), lie outside their range.

    It is 0 where a value is missing, or nothing is known of a feature.
    """
    excess, known = np.zeros(values.shape), read_summary(summary)
    for place, name in enumerate(names):
        if name in known:
            excess[..., place] = known[name].compute_excess(values[..., place])
    return excess


def summarise(
    names: Sequence[str], columns: Iterable[NDArray[Any]], owner: NDArray[np.int64]
) -> Summary:
    """Return numbers about features, (R,) each, of rows of sequences; see :class:`FeatureSummary`.

    Args:
        names: of the features.
        columns: their values, NaN where missing.
        owner: number of the sequence of each row, (R,).
    """
    summary = {}
    count = np.count_nonzero(np.bincount(owner))
    for name, column in zip(names, columns, strict=False):  # inputs that follow are no features
        values = column.astype(np.float64)
        known = ~np.isnan(values)
        if known.any():
            share = np.count_nonzero(np.bincount(owner[known])) / count
            values = values[known]
            statistics = (count, share, values.min(), values.max(), values.std())
            summary[name] = tuple(map(float, (*statistics, *_compute_quantiles(values))))
    return summary


def summarise_gaps(gaps: Floats | None) -> tuple[float, ...]:
    """Return the quantiles of time steps above 0 at 1, 50 and 99 %; ``()`` without any."""
    gaps = np.zeros(0) if gaps is None else gaps[gaps > 0]
    return tuple(np.quantile(gaps, (0.01, 0.5, 0.99)).tolist()) if len(gaps) else ()


def _compute_quantiles(values: Floats) -> tuple[float, ...]:
    values = values[:: -(-len(values) // _MAX_ROWS)]
    if values.min() >= 0 and (values > 0).any():
        values = values[values > 0]
    return tuple(np.quantile(values, _SHARES).tolist())


def warn_shift(
    summary: Summary,
    gap_summary: tuple[float, ...],
    columns: Mapping[str, NDArray[Any]],
    owner: NDArray[np.int64],
    gaps: Floats | None,
    *,
    targets: Sequence[str] = (),
    ids: Any = None,
    stacklevel: int = 2,
) -> None:
    """Warn, once, of features and time steps of a table that are unlike those of the training.

    Of a few sequences little can be said: features are compared from five sequences on, or where
    every one lies far outside the range of the training split. Where only some do, they are named.

    Args:
        summary: what :func:`summarise` returned of the training split; nothing of old files, with
            which nothing is compared.
        gap_summary: what :func:`summarise_gaps` returned.
        columns: features by name, (R,) each, of rows in the order of their sequences.
        owner: number of the sequence of each row, (R,).
        gaps: time steps; ``None`` without times.
        targets: features to forecast, whose last values are compared with the range.
        ids: of the sequences, for messages.
        stacklevel: of the warning.
    """
    lines = []
    for name, feature in read_summary(summary).items():
        if name in columns:
            values = columns[name].astype(np.float64)
            messages = [_describe_feature(feature, values, owner, ids)]
            messages += (
                [_describe_last_values(feature, values, owner, ids)] if name in targets else []
            )
            lines += [f"{name!r}: {', '.join(filter(None, messages))}"] if any(messages) else []
    lines += _describe_gaps(
        gap_summary, gaps, max((entry[0] for entry in summary.values()), default=0)
    )
    if lines:
        warnings.warn(
            "these data are unlike those of the training, and answers may be wrong. "
            f"{'; '.join(lines[:_SHOWN])}"
            f"{f'; and {len(lines) - _SHOWN} more' if len(lines) > _SHOWN else ''}. Check units "
            "and columns.",
            ShiftWarning,
            stacklevel=stacklevel + 1,
        )


def _describe_feature(
    feature: FeatureSummary, values: Floats, owner: NDArray[np.int64], ids: Any
) -> str | None:
    """Return what has changed of a feature; ``None`` if it may be chance."""
    known = ~np.isnan(values)
    total, values, owner = len(np.unique(owner)), values[known], owner[known]
    if absence := _describe_absence(feature, len(np.unique(owner)), total):
        return absence
    if feature.low == feature.high:  # constants are ignored, with another warning
        return None
    is_log = feature.low >= 0 and feature.high > 0 and bool((values >= 0).all())
    counted = values > 0 if is_log else slice(None)
    values, owner = values[counted], owner[counted]
    order, counts = np.lexsort((values, owner)), np.unique(owner, return_counts=True)[1]
    middles = [np.cumsum(counts) - counts + place for place in ((counts - 1) // 2, counts // 2)]
    medians = sum(values[order][middle] for middle in middles) / 2
    trained = feature.sequences * feature.present
    if not len(medians) or trained < _MIN_TRAINED:
        return None
    scale = np.log if is_log else np.asarray
    first, lower, middle, upper, last = scale(np.array(feature.quantiles))
    where = scale(medians)
    is_few = len(medians) < _MIN_SEQUENCES or trained < 2 * _MIN_TRAINED
    least = _LEAST_LOG if is_log else 0.05 * (feature.high - feature.low)
    positive = max(feature.low, feature.quantiles[0]) if is_log else feature.low
    low, high = scale(np.array([positive, feature.high]))
    beyond = np.maximum(where - high, low - where)
    if is_few:  # every one is beyond the range by as much as it is wide
        is_shifted = bool((beyond > high - low).all())
    else:
        centre, width = np.median(where), max((upper - lower) / 1.35, (last - first) / 6, least)
        is_beyond = not first <= centre <= last
        is_shifted = is_beyond and abs(centre - middle) > _MANY_DEVIATIONS * width
    if is_shifted:
        change = f"median {np.median(medians):.4g}, was {feature.quantiles[2]:.4g}"
        return change + _find_unit(feature, values)
    outside = _find_outside(feature, medians, beyond > max(last - first, least))
    if len(outside):
        numbers = np.unique(owner)[outside]
        named = [str(n if ids is None else ids[n]) for n in numbers]
        return (
            f"{format_count(len(outside), 'sequence')} of {len(medians)} outside the range of the "
            "training, "
            f"{feature.low:.4g} to {feature.high:.4g}"
            f"{_find_unit(feature, values[np.isin(owner, numbers)])}: {format_names(named)}"
        )
    if is_few or is_log or len(medians) < 2 * _MIN_TRAINED:
        return None
    now = _compute_quantiles(values)
    pairs = [(now[3] - now[1], upper - lower), (now[4] - now[0], last - first)]
    if all(0 < _TIMES_WIDER * a < b for a, b in pairs) or all(
        0 < _TIMES_WIDER * b < a for a, b in pairs
    ):
        wide, was = pairs[0]
        return f"middle half {wide:.4g} wide, was {was:.4g}{_find_unit(feature, values)}"
    return None


def _find_outside(
    feature: FeatureSummary, medians: Floats, is_outside: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return which sequences lie outside the range, if they are too many or too far for chance.

    Args:
        feature: what it was like.
        medians: of sequences.
        is_outside: whether they lie outside by as much as 98 % of the values are wide.
    """
    total, trained = len(medians), feature.sequences * feature.present
    if trained < 2 * _MIN_TRAINED:
        return np.zeros(0, np.int64)
    # Of exchangeable sequences the k outermost are all new ones with at most this probability.
    if (total / (total + trained)) ** np.count_nonzero(is_outside) < _CHANCE:
        return np.flatnonzero(is_outside)
    first, lower, _, upper, last = feature.quantiles
    # With long tails, or among many more than were trained on, one may lie far outside by chance.
    if total > trained or last - first >= _MAX_TAILS * (upper - lower):
        return np.zeros(0, np.int64)
    beyond = np.maximum(medians - feature.high, feature.low - medians)
    return np.flatnonzero(beyond > _FAR * (feature.high - feature.low))


def _describe_absence(feature: FeatureSummary, present: int, total: int) -> str | None:
    """Return that far fewer sequences have a value than in the training split."""
    trained, share = feature.sequences, feature.present
    least = share - 3 * np.sqrt(share * (1 - share) / trained) - 1 / trained
    if total < _MIN_SEQUENCES or present > least * total / 3 or least <= 0:
        return None
    # Hoeffding 1963, in the form of Chernoff: an upper bound of the binomial tail.
    now = present / total
    lost = (1 - now) * np.log((1 - now) / (1 - least))
    lost += now * np.log(now / least) if now else 0.0
    if total * lost < 12:
        return None
    has = "no value" if not present else f"a value in {100 * now:.0f} % of the sequences"
    return f"{has}, was in {100 * share:.0f} %"


def _describe_last_values(
    feature: FeatureSummary, values: Floats, owner: NDArray[np.int64], ids: Any
) -> str | None:
    """Return which sequences end outside the range of the training split."""
    known = np.flatnonzero(~np.isnan(values))
    last = known[np.flatnonzero(np.diff(owner[known], append=-1))]
    excess = feature.compute_excess(values[last])
    # Of many sequences the furthest may lie a little outside by chance.
    outside = np.flatnonzero(excess > (1 if len(last) < _MIN_SEQUENCES else 2))
    if not len(outside):
        return None
    named = [str(owner[last[n]] if ids is None else ids[owner[last[n]]]) for n in outside]
    far = outside[np.argmax(excess[outside])]
    return (
        f"last value outside the range of the training, {feature.low:.4g} to {feature.high:.4g}, "
        f"by up to {excess[far]:.2g} standard deviations ({values[last[far]]:.4g}), in "
        f"{format_count(len(outside), 'sequence')}: {format_names(named)}"
    )


def _describe_gaps(summary: tuple[float, ...], gaps: Floats | None, trained: float) -> list[str]:
    now = np.zeros(0) if gaps is None else gaps[gaps > 0]
    if not summary or len(now) < _MIN_GAPS:
        return []
    low, was, high = summary
    middle = float(np.median(now))
    # The time steps of a few sequences say nothing of others, unless they are all the same.
    is_told = low == high or trained >= _MIN_SEQUENCES
    if not is_told or low <= middle <= high or 1 / _LONGER < middle / was < _LONGER:
        return []
    names = {f"{sign}{n}": n**p for n in _TIME_FACTORS for sign, p in (("x ", 1), ("/ ", -1))}
    likely = [f" (likely {k})" for k, f in names.items() if 0.9 < middle / was / f < 1.1]
    return [f"time steps: median {middle:.4g}, was {was:.4g}{''.join(likely[:1])}"]


def _find_unit(feature: FeatureSummary, values: Floats) -> str:
    """Return the change of unit that explains the quartiles best, for a message; or nothing."""
    was = np.array(feature.quantiles[1:4])
    now = np.array(_compute_quantiles(values)[1:4])
    changes = {
        f"{sign}{factor:g}": was * factor**power
        for sign, power in (("x ", 1), ("/ ", -1))
        for factor in _FACTORS
    }
    changes |= {"1.8 x + 32": 1.8 * was + 32, "(x - 32) / 1.8": (was - 32) / 1.8}
    errors = {}
    for name, expected in changes.items():
        width = max(abs(expected[2] - expected[0]) / 1.35, 1e-9 * abs(expected[1])) or 1.0
        errors[name] = float(np.abs(expected - now).max() / width)
    best = min(errors, key=lambda name: errors[name])
    return f" (likely {best})" if errors[best] < _SAME_UNIT else ""
