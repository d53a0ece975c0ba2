"""Simple forecasts from a context, which the network mixes."""

from dataclasses import dataclass

import numpy as np

from .periods import find_period
from .shared_draws import Floats

OWN_FORECASTS = (
    *("last value", "median", "mean", "recent mean", "slow recent mean", "line", "damped line"),
    *("seasonal fit", "anchored seasonal fit", "same phase", "same two phases", "decay"),
    *("return to the median", "return to the seasonal fit", "return to the same phases"),
)
"""Names of the columns of :func:`forecast_simply`."""
_HARMONICS = (3, 2)
_PHASE_SHARPNESS = 8.0
_RECENT, _SLOW = 4.0, 16.0  # in units of the median time step
_LINE_POINTS = 6
_FEWEST_FOR_SEASONS = 6


@dataclass(frozen=True)
class Seasons:
    """Two periods of each series.

    Args:
        frequency: of each, (2, B), in cycles per unit.
        strength: share of the variance that the peak of each explains, (2, B).
    """

    frequency: Floats
    strength: Floats


def ridge(x: Floats, z: Floats, penalty: Floats) -> tuple[Floats, Floats]:
    """Return weights (B, K) of a ridge regression, and the leverage of each row, (B, T)."""
    gram = np.einsum("bti,btj->bij", x, x, optimize=True) + np.diag(penalty)
    inverse = np.linalg.inv(gram)
    weights = np.einsum("bij,bj->bi", inverse, np.einsum("bti,bt->bi", x, z))
    leverage = np.einsum("bti,bti->bt", x @ inverse, x)
    return weights, np.minimum(leverage, 0.98)


def _make_design(u: Floats, span: Floats, frequency: Floats, harmonics: tuple[int, ...]) -> Floats:
    """Return columns of a line and of waves at the times, (B, T, 2 + 2 sum of harmonics)."""
    columns = [np.ones_like(u), u / span[:, None]]
    for rate, count in zip(frequency, harmonics, strict=True):
        for k in range(1, count + 1):
            angle = 2 * np.pi * k * rate[:, None] * u
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, 2)


def _penalty(waves: int) -> Floats:
    return np.concatenate([[0.05, 1.0], np.ones(2 * waves)])


def find_seasons(u: Floats, z: Floats, step: Floats) -> Seasons:
    """Return the strongest period of each series, and that of what it leaves unexplained.

    Args:
        u: times in units of the median time step, (B, T), 0 at the last.
        z: values in units of the scale, (B, T).
        step: a usual short time step, (B,).
    """
    batch, points = u.shape
    if points < _FEWEST_FOR_SEASONS:
        return Seasons(np.full((2, batch), 0.1), np.zeros((2, batch)))
    span = np.maximum(-u[:, 0], 1.0)
    frequency, strength = [], []
    line = _make_design(u, span, np.empty((0, batch)), ())
    rest = z - np.einsum("bti,bi->bt", line, ridge(line, z, _penalty(0))[0])
    for count in _HARMONICS:
        rate, share = find_period(u, rest, step)
        frequency.append(rate)
        strength.append(share)
        x = _make_design(u, span, rate[None], (count,))
        rest = rest - np.einsum("bti,bi->bt", x, ridge(x, rest, _penalty(count))[0])
    return Seasons(np.stack(frequency), np.stack(strength))


def fit_seasons(u: Floats, z: Floats, seasons: Seasons, v: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a line with waves at u and v, (B, T) and (B, Q), and left-out residuals, (B, T)."""
    span = np.maximum(-u[:, 0], 1.0)
    x, x_asked = (_make_design(time, span, seasons.frequency, _HARMONICS) for time in (u, v))
    weights, leverage = ridge(x, z, _penalty(sum(_HARMONICS)))
    fit = np.einsum("bti,bi->bt", x, weights)
    asked = np.einsum("bqi,bi->bq", x_asked, weights)
    low, high = z.min(1, keepdims=True), z.max(1, keepdims=True)
    return (
        fit,
        np.clip(asked, 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low),
        (z - fit) / (1 - leverage),
    )


def _average_same_phase(u: Floats, z: Floats, v: Floats, seasons: Seasons, both: bool) -> Floats:
    """Return means of the past at the phase of each query, (B, Q), the later the heavier."""
    span = np.maximum(-u[:, 0], 1.0)
    rates = seasons.frequency if both else seasons.frequency[:1]
    weight = np.maximum((u - u[:, -1:]) / (0.7 * span[:, None]), -50.0)
    weight = (weight - _PHASE_SHARPNESS * len(rates))[:, None]
    # cos(a - b) = cos a cos b + sin a sin b, of all pairs by one product of matrices.
    waves = [
        np.stack(
            [wave(2 * np.pi * rate[:, None] * time) for rate in rates for wave in (np.cos, np.sin)]
        )
        for time in (v, u)
    ]
    weight = weight + _PHASE_SHARPNESS * (waves[0].transpose(1, 2, 0) @ waves[1].transpose(1, 0, 2))
    weight = np.exp(weight.astype("f4"))
    average: Floats = np.einsum("bqt,bt->bq", weight, z.astype("f4")) / (weight.sum(2) + 1e-9)
    return average


def _fit_last_line(u: Floats, z: Floats) -> Floats:
    """Return slopes of the last points, (B, 1), shrunken a little."""
    u, z = u[:, -_LINE_POINTS:], z[:, -_LINE_POINTS:]
    around = u - u.mean(1, keepdims=True)
    slope = (around * (z - z.mean(1, keepdims=True))).sum(1, keepdims=True)
    shrunk: Floats = slope / ((around**2).sum(1, keepdims=True) + 0.3)
    return shrunk


def _fit_memory(u: Floats, r: Floats) -> Floats:
    """Return how long deviations last, (B, 1), by the correlation of neighbours."""
    if u.shape[1] < _FEWEST_FOR_SEASONS:
        return np.maximum(-u[:, :1], 1.0)
    share = (r[:, 1:] * r[:, :-1]).sum(1) / ((r**2).sum(1) + 1e-9)
    gap = (u[:, -1] - u[:, 0]) / (u.shape[1] - 1)
    memory: Floats = -gap / np.log(np.clip(share, 0.02, 0.995))
    return memory[:, None]


def forecast_simply(
    u: Floats, z: Floats, v: Floats, seasons: Seasons, zero: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return simple forecasts, (B, Q, E); the seasonal fit of the context, and its residuals.

    Args:
        u: times of the context in units, (B, T).
        z: its values, (B, T).
        v: times that are asked for, (B, Q).
        seasons: of the series.
        zero: what z is where the value is 0, (B, 1), NaN where the past was not positive.
    """
    last, since = z[:, -1:], v - u[:, -1:]
    age = np.maximum(u - u[:, -1:], -200.0)
    fit, fit_asked, left_out = fit_seasons(u, z, seasons, v)
    means = []
    for reach in (_RECENT, _SLOW):
        weight = np.exp(age / reach)
        means.append((weight * z).sum(1, keepdims=True) / weight.sum(1, keepdims=True))
    slope = _fit_last_line(u, z)
    low, high = z.min(1, keepdims=True), z.max(1, keepdims=True)
    bounds = (2 * low - high, 2 * high - low)
    is_positive = ~np.isnan(zero)
    above = np.where(is_positive, np.maximum(z - zero, 1e-9), 1.0)
    fall = np.minimum(_fit_last_line(u, np.log(above)), 0)
    decay = np.where(is_positive, zero + (last - zero) * np.exp(fall * since), last)
    median = np.median(z, axis=1, keepdims=True)
    near = np.exp(-since / _fit_memory(u, left_out))
    phases = _average_same_phase(u, z, v, seasons, both=True)
    known = slice(None, -1) if u.shape[1] > 1 else slice(None)
    before = _average_same_phase(u[:, known], z[:, known], u[:, -1:], seasons, both=True)
    columns = [
        last,
        median,
        z.mean(1, keepdims=True),
        *means,
        np.clip(last + slope * since, *bounds),
        np.clip(last + slope * 3 * (1 - np.exp(-since / 3)), *bounds),
        fit_asked,
        fit_asked + last - fit[:, -1:],
        _average_same_phase(u, z, v, seasons, both=False),
        phases,
        decay,
        median + np.exp(-since / _fit_memory(u, z - median)) * (last - median),
        fit_asked + near * (last - fit[:, -1:]),
        phases + near * (last - before),
    ]
    return np.stack([np.broadcast_to(column, v.shape) for column in columns], 2), fit, left_out
