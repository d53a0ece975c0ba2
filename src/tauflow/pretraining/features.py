"""What the network reads of a context: numbers without units, from the context alone."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .population import (
    POPULATION_FORECASTS,
    QUERY_SIZE,
    SUMMARY_SIZE,
    Population,
    PopulationAnswer,
    ask_population,
)
from .shared_draws import Floats
from .simple_forecasts import OWN_FORECASTS, Seasons, find_seasons, forecast_simply

RECURRENT_POINTS = 96
"""Last points of a context that the recurrent layers read; features come from all."""
FORECASTS = (*OWN_FORECASTS, *POPULATION_FORECASTS)
INPUT_SIZE = 12
_OWN_QUERIES = 9
QUERY_INPUTS = _OWN_QUERIES + QUERY_SIZE
LAG_CHANGE, LAST_ERROR, FIT_ERROR = _OWN_QUERIES - 1, _OWN_QUERIES, _OWN_QUERIES + 1
"""Of queries: logarithms of the change over such a lag, and of errors of other members there."""
_OWN_FACTS = 19
SUMMARY_INPUTS = _OWN_FACTS + len(OWN_FORECASTS) + SUMMARY_SIZE
TESTED = slice(_OWN_FACTS, _OWN_FACTS + len(OWN_FORECASTS))
"""Of a summary: logarithms of errors of the simple forecasts at the end of the context."""
_OFFSETS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
_MOST_TESTED, _MOST_PARTS = 20, 4
_FEWEST_TESTED = 5
_UNTESTED = (1.0, 1.2, 1.2, 1.0, 1.1, 2.0, 1.1, 1.5, 1.5, 1.5, 1.5, 1.0, 1.1, 1.5, 1.5)
"""Errors of the simple forecasts that short contexts are taken to have."""


@dataclass(frozen=True)
class Features:
    """What the network reads of B series, in units of :attr:`center` and :attr:`scale`.

    Args:
        inputs: of the recurrent layers, (B, R, INPUT_SIZE).
        dt: time steps of these, (B, R).
        summary: of the series and its table, (B, SUMMARY_INPUTS).
        queries: (B, Q, QUERY_INPUTS).
        ahead: times from the last point to each query in units, (B, Q).
        forecasts: simple ones, (B, Q, len(FORECASTS)).
        steps: typical distance of a value from the one before, (B,).
        center, scale: what a value v is in units: (v - center) / scale, (B,) float64.
    """

    inputs: Tensor
    dt: Tensor
    summary: Tensor
    queries: Tensor
    ahead: Tensor
    forecasts: Tensor
    steps: Tensor
    center: Floats
    scale: Floats

    def to_units(self, values: Floats) -> Tensor:
        """Return values (B, Q) as the network sees them."""
        return _tensor((values - self.center[:, None]) / self.scale[:, None])


def _tensor(values: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _log(values: Floats, floor: float = 0.01) -> Floats:
    logarithms: Floats = np.log(values + floor)
    return logarithms


@dataclass(frozen=True)
class _Units:
    """Center and scale of values, unit of time, typical and usual short time step, (B,) each."""

    center: Floats
    scale: Floats
    time: Floats
    step: Floats
    short: Floats


def compute_features(t: Floats, y: Floats, q: Floats, population: Population | None) -> Features:
    """Return what the network reads.

    Args:
        t: times of contexts of equal length, (B, T), increasing, float64.
        y: their values, (B, T).
        q: times after the last, (B, Q).
        population: the other members of the tables of the series, if there are any.
    """
    answer = None if population is None else ask_population(population, t, y, q)
    units = _choose_units(t, y, q, answer)
    batch = len(t)
    u = (t - t[:, -1:]) / units.time[:, None]
    v = np.maximum(q - t[:, -1:], 0) / units.time[:, None]
    z = np.clip((y - units.center[:, None]) / units.scale[:, None], -1e3, 1e3)
    flat = np.clip(z, -8, 8)
    zero = -units.center / units.scale
    is_positive = y.min(1) > 0
    floor = np.where(is_positive, zero, np.nan)[:, None]
    seasons = find_seasons(u, flat, units.short)
    simple, fit, left_out = forecast_simply(u, z, v, seasons, floor)
    tested = _test_forecasts(u, z, seasons, floor)
    steps = units.step / units.scale
    if answer is None:
        others = np.repeat(z[:, -1:, None] * np.ones((1, v.shape[1], 1)), 5, 2)
        table_facts: Floats = np.zeros((batch, SUMMARY_SIZE))
        asked: Floats = np.zeros((*v.shape, QUERY_SIZE))
    else:
        others = (answer.forecasts - units.center[:, None, None]) / units.scale[:, None, None]
        table_facts, asked = answer.summary, answer.queries
    own_facts = _summarise(y, u, z, left_out, seasons, steps, zero, is_positive)
    summary = np.concatenate(
        [own_facts, _log(tested / (steps[:, None] + 0.05), 0.05), table_facts], 1
    )
    span = np.maximum(-u[:, 0], 1.0)[:, None]
    queries = [_log(v, 0.03), np.log1p(v) - 1, v / (v + span), *_phases(seasons, v)]
    queries += [_count_in_reach(u, v), _variogram(u, z, v, steps)]
    r = slice(-RECURRENT_POINTS, None)
    dt = np.diff(u, axis=1, prepend=u[:, :1] - 1)
    constant = [np.clip(zero, -5, 5)[:, None], _log(steps)[:, None]]
    inputs = [
        np.arcsinh(z),
        np.arcsinh(np.diff(z, axis=1, prepend=z[:, :1])),
        _log(np.maximum(dt, 0), 0.03),
        np.log1p(-u) - 2,
        np.arcsinh(fit),
        np.arcsinh(left_out),
        *(np.broadcast_to(feature, u.shape) for feature in constant),
        *_phases(seasons, u),
    ]
    return Features(
        inputs=_tensor(np.stack(inputs, 2)[:, r]),
        dt=_tensor(np.maximum(dt, 1e-3)[:, r]),
        summary=_tensor(np.clip(summary, -12, 12)),
        queries=_tensor(np.concatenate([np.stack(queries, 2), asked], 2)),
        ahead=_tensor(np.maximum(v, 1e-3)),
        forecasts=_tensor(np.clip(np.concatenate([simple, others], 2), -1e3, 1e3)),
        steps=_tensor(steps),
        center=units.center,
        scale=units.scale,
    )


def _choose_units(t: Floats, y: Floats, q: Floats, answer: PopulationAnswer | None) -> _Units:
    """Return units from the context, pulled to those of the table where the context is short."""
    points = t.shape[1]
    center = np.median(y, axis=1)
    scale = np.abs(y - center[:, None]).mean(1)
    gaps, moves = np.diff(t, axis=1), np.abs(np.diff(y, axis=1))
    if points > 1:
        unit, step = np.median(gaps, axis=1), moves.mean(1)
        short = np.quantile(gaps, 0.2, axis=1)
    else:
        unit, step = np.maximum(q[:, 0] - t[:, -1], 0), np.zeros(len(t))
        short = unit
    if answer is not None:
        weight = 3.0 * (answer.count > 0.5)
        scale = (points * scale + weight * answer.scale) / (points + weight)
        step = (max(points - 1, 0) * step + weight * answer.step) / (
            max(points - 1, 0) + weight + 1e-9
        )
        if points == 1:
            unit = np.where(np.isnan(answer.gap), unit, answer.gap)
    is_flat = scale < 1e-9 * np.maximum(np.abs(center), 1e-12)
    scale = np.where(is_flat, np.maximum(0.1 * np.abs(center), 1e-6), scale)
    mean_gap = (t[:, -1] - t[:, 0]) / max(points - 1, 1)
    unit = np.where(unit > 0.05 * mean_gap, unit, mean_gap)
    unit = np.where(unit > 0, unit, 1.0)
    return _Units(center, scale, unit, step, np.clip(short / unit, 0.25, 1.0))


def _phases(seasons: Seasons, time: Floats) -> list[Floats]:
    """Return sines and cosines of both seasons, the larger the stronger the season is."""
    phases = []
    for rate, strength in zip(seasons.frequency, seasons.strength, strict=True):
        angle, size = 2 * np.pi * rate[:, None] * time, np.sqrt(strength)[:, None]
        phases += [size * np.sin(angle), size * np.cos(angle)]
    return phases


def _test_forecasts(u: Floats, z: Floats, seasons: Seasons, floor: Floats) -> Floats:
    """Return mean errors of the simple forecasts of the last points from those before, (B, E).

    They are means over two to four parts at the end.
    """
    points = u.shape[1]
    if points < _FEWEST_TESTED:
        return np.broadcast_to(_UNTESTED, (len(u), len(OWN_FORECASTS)))
    ahead = min(points // 3, _MOST_TESTED)
    parts = int(np.clip(points // (4 * ahead), 2, _MOST_PARTS))
    errors: Floats = np.zeros((len(u), len(OWN_FORECASTS)))
    for end in range(points, points - parts * ahead, -ahead):
        known, asked = slice(None, end - ahead), slice(end - ahead, end)
        forecasts = forecast_simply(u[:, known], z[:, known], u[:, asked], seasons, floor)[0]
        errors += np.abs(np.clip(forecasts - z[:, asked, None], -50, 50)).mean(1) / parts
    return errors


def _variogram(u: Floats, z: Floats, v: Floats, steps: Floats) -> Floats:
    """Return logarithms of typical changes over as long a time as to each query, (B, Q)."""
    offsets = [offset for offset in _OFFSETS if offset < u.shape[1]]
    if not offsets:
        return np.broadcast_to(_log(steps)[:, None], v.shape)
    lags = np.stack([_log((u[:, k:] - u[:, :-k]).mean(1), 0.03) for k in offsets], 1)
    moves = np.stack([np.abs(z[:, k:] - z[:, :-k]).mean(1) for k in offsets], 1)
    apart = np.abs(_log(v, 0.03)[:, :, None] - lags[:, None]) / 0.3
    weight = np.exp(apart.min(2, keepdims=True) - apart)
    return _log((weight * moves[:, None]).sum(2) / weight.sum(2))


def _count_in_reach(u: Floats, v: Floats) -> Floats:
    """Return logarithms of how many points are as near to the last one as each query, (B, Q)."""
    return _log((-u[:, None] <= v[:, :, None]).sum(2), 1.0) - 2


def _summarise(
    y: Floats,
    u: Floats,
    z: Floats,
    left_out: Floats,
    seasons: Seasons,
    steps: Floats,
    zero: Floats,
    is_positive: Floats,
) -> Floats:
    """Return facts of each series, (B, _OWN_FACTS)."""
    batch, points = u.shape
    usual = _log(steps)
    gaps = np.diff(u, axis=1)
    columns = [
        np.full(batch, np.log(points) - 3),
        np.log1p(-u[:, 0]) - 3,
        np.clip(zero, -5, 5),
        *seasons.strength,
        usual,
        _log(np.abs(left_out).mean(1)),
        _log(np.abs(z[:, 4:] - z[:, :-4]).mean(1)) if points > 5 else usual,
        np.arcsinh(z.min(1)),
        np.arcsinh(z.max(1)),
        (np.abs(y - np.round(y)).max(1) < 1e-6) * 1.0,
        (np.diff(np.sort(y, axis=1), axis=1) > 0).mean(1) if points > 1 else np.ones(batch),
        _log(gaps).std(1) if points > 1 else np.zeros(batch),
        np.log(seasons.frequency[0] + 1e-4) + 2,
        np.log(seasons.frequency[1] + 1e-4) + 2,
        (y == y[:, -1:]).mean(1),
        is_positive * 1.0,
        _log(np.abs(z[:, 2:] - 2 * z[:, 1:-1] + z[:, :-2]).mean(1)) if points > 2 else usual,
        np.arcsinh(z[:, -1]),
    ]
    return np.stack(columns, 1)
