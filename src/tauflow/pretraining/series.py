"""Generated series and tables of series, of many kinds, at irregular times.

Nothing here is learned from data: a series is a sum of one to three components at times of one of
nine kinds, with noise, and then passes through a transform, such as counts or bounds. The series of
a table share level, spread, kind and parameters, more or less.
"""

from dataclasses import dataclass

import numpy as np

from .components import COMPONENTS, sample_fourier
from .shared_draws import Floats, SharedDraws

_TRANSFORMS = (
    *("identity", "exponential", "softplus", "levels", "clipped", "counts", "binary", "absolute"),
    "excess",
)
_TRANSFORM_SHARES = (0.42, 0.14, 0.06, 0.08, 0.08, 0.1, 0.04, 0.04, 0.04)


@dataclass(frozen=True)
class SeriesBatch:
    """Series of equal length.

    Args:
        t: times, (B, P), which increase along each row.
        y: values, (B, P).
        members: how many rows after each other make a table.
    """

    t: Floats
    y: Floats
    members: int


def draw_series(
    rng: np.random.Generator, tables: int, points: int, members: int = 1
) -> SeriesBatch:
    """Draw tables of series, ``tables * members`` rows of ``points`` each.

    Args:
        rng: where all numbers come from: the same state draws the same series.
        tables: number of tables.
        points: of each series, at least 2.
        members: series of a table.
    """
    draws = SharedDraws(rng, tables, members)
    t = draw_times(draws, points)
    y = _mix_components(draws, t)
    y = _transform(draws, _add_noise(draws, t, y))
    is_wrong = (rng.random(y.shape) < 0.02) & draws.chance(0.05)
    y = np.where(is_wrong, y * 10.0 ** rng.choice([-2, -1, 1, 2], y.shape), y)  # a wrong unit
    unit = 10 ** draws.uniform(-3, 3, same=True)
    # Most whole numbers stay so: what is counted has no other unit.
    is_whole = (y == np.round(y)).reshape(tables, -1).all(1).repeat(members)[:, None]
    unit = np.where(is_whole & draws.chance(0.8), 1.0, unit)
    return SeriesBatch(t * 10 ** draws.uniform(-2, 3, same=True), y * unit, members)


def draw_times(draws: SharedDraws, points: int) -> Floats:
    """Draw times, (B, points), with time steps of about 1: regular, thinned, in bursts, ..."""
    rng, shape = draws.rng, (len(draws), points)
    kind = draws.choice(range(9), (0.22, 0.2, 0.1, 0.08, 0.12, 0.12, 0.07, 0.05, 0.04))
    level = draws.uniform()
    gaps = np.ones(shape)
    gaps = np.where(kind == 1, rng.geometric(np.broadcast_to(1 - (0.1 + 0.8 * level), shape)), gaps)
    poisson, normal = rng.exponential(1.0, shape), rng.standard_normal(shape)
    gaps = np.where(kind == 2, poisson, gaps)
    is_burst = rng.random(shape) < 0.5 + 0.4 * level
    gaps = np.where(kind == 3, np.where(is_burst, 0.1 * poisson, 3 * poisson), gaps)
    gaps = np.where(kind == 4, np.exp((0.2 + 1.3 * level) * normal), gaps)
    gaps = np.where(kind == 5, np.maximum(1 + (0.03 + 0.4 * level) * normal, 0.05), gaps)
    planned = np.minimum(1.3 ** np.minimum(np.arange(points), 30), 8.0) * (1 + 0.1 * level * normal)
    gaps = np.where(kind == 6, np.maximum(planned, 0.05), gaps)
    is_night = np.arange(points) % (4 + (12 * level).astype(int)) == 0  # measured by day only
    gaps = np.where(kind == 7, np.where(is_night, 10.0, 1.0), gaps)
    # Two in one visit, then a pause.
    gaps = np.where(kind == 8, np.where(np.arange(points) % 2, 0.02 + 0.1 * level, 2.0), gaps)
    is_hole = (rng.random(shape) < 0.03) & draws.chance(0.3)
    gaps = np.where(is_hole, gaps * rng.uniform(3, 40, shape), gaps)
    gaps[:, 0] = 0
    # Members begin together, or each at its own time, as ages do.
    begin = draws.chance(0.4) * draws.uniform(0, 2) * rng.random((len(draws), 1)) * points
    times: Floats = gaps.cumsum(1) + begin * (draws.members > 1)
    return times


def _mix_components(draws: SharedDraws, t: Floats) -> Floats:
    """Return sums of one to three components; members of a table have the same ones."""
    members, tables = draws.members, draws.tables
    shares = np.array([share for _, share in COMPONENTS.values()], float)
    chosen = np.zeros((tables, len(shares)), bool)
    for chance in (1.0, 0.6, 0.35):
        picked = draws.rng.choice(len(shares), tables, p=shares / shares.sum())
        chosen[np.arange(tables), picked] |= draws.rng.random(tables) < chance
    y = np.zeros(t.shape)
    own_time = t - t.min(axis=1, keepdims=True)
    # Of people, time since the own start or a clock that all share may count.
    clock = np.where(draws.chance(0.5), own_time, t - t[:, :1].min())
    for place, (function, _) in enumerate(COMPONENTS.values()):
        rows = np.flatnonzero(np.repeat(chosen[:, place], members))
        if len(rows):
            part = draws.select(rows)
            value = function(part, clock[rows])
            # Scaled by table, so that members keep what tells them apart.
            grouped = value.reshape(part.tables, -1)
            mean, std = grouped.mean(1, keepdims=True), grouped.std(1, keepdims=True) + 1e-3
            value = ((grouped - mean) / std).reshape(value.shape)
            y[rows] += value * np.exp(0.7 * part.normal())
    if members > 1:
        spread = draws.log_uniform(0.05, 8.0, same=True) * draws.chance(0.85)
        slope = draws.log_uniform(0.02, 2.0, same=True) * draws.chance(0.4)
        each = draws.rng.standard_normal((2, len(draws), 1))
        y = y + spread * each[0] + slope * each[1] * own_time / (own_time[:, -1:] + 1e-9)
    return y


def _add_noise(draws: SharedDraws, t: Floats, y: Floats) -> Floats:
    rng = draws.rng
    noise = rng.standard_normal(y.shape)
    noise = np.where(draws.chance(0.3), rng.standard_t(3, y.shape) / 1.7, noise)
    own_time = t - t[:, :1]
    slow = sample_fourier(draws, own_time, (own_time[:, -1:] + 1) * draws.uniform(0.05, 1), 50.0, 6)
    noise = noise * np.exp(draws.choice((0, 0, 0.7)) * slow)
    height = (y - y.min(1, keepdims=True)) / (np.ptp(y, axis=1)[:, None] + 1e-9)
    noise = noise * np.where(draws.chance(0.25), 2 * height, 1.0)
    y = y + noise * draws.chance(0.9) * 10 ** draws.uniform(-1.8, 0.3)
    is_spike = (rng.random(y.shape) < 0.02) & draws.chance(0.12)
    y = y + is_spike * rng.uniform(3, 10, y.shape) * rng.choice([-1, 1, 1], (len(y), 1))
    return y


def _transform(draws: SharedDraws, y: Floats) -> Floats:
    """Return values as they may be measured: positive, bounded, whole numbers, rounded, ..."""
    rng = draws.rng
    kind = draws.choice(range(len(_TRANSFORMS)), _TRANSFORM_SHARES)
    grown = np.exp(np.clip(draws.uniform(0.2, 1.4, same=True) * y, -8, 6))
    levels = draws.uniform(0.5, 4, same=True)
    low, high = -draws.uniform(0.2, 2.5, same=True), draws.uniform(0.2, 2.5, same=True)
    rate = np.minimum(grown * draws.log_uniform(0.2, 60.0, same=True), 1e6)
    made = {
        "exponential": grown,
        "softplus": np.logaddexp(0, y + draws.uniform(-1, 2, same=True)),
        "levels": np.round(y * levels) + np.round(draws.uniform(3, 12, same=True) * levels),
        "clipped": np.clip(y, low, high) - low,
        "counts": rng.poisson(rate),
        "binary": (y > draws.uniform(-1.5, 1.5, same=True)) * 1.0,
        "absolute": np.abs(y),
        "excess": np.maximum(y - draws.uniform(-2, 0.5, same=True), 0),
    }
    out = y
    for place, name in enumerate(_TRANSFORMS):
        out = np.where(kind == place, made.get(name, y), out)
    heavy = np.clip(draws.normal(same=True) / np.abs(draws.normal(same=True)), -20, 20)
    out = out + np.where((kind == 0) | (kind == 7), 3 * heavy, 0.0)
    out = np.where((kind == 0) & draws.chance(0.5), -out, out)
    top = np.repeat(np.abs(out).reshape(draws.tables, -1).max(1), draws.members)[:, None] + 1e-9
    digits = 10 ** draws.choice((1.0, 2.0, 3.0))
    rounded = np.round(out / top * digits) * np.where(draws.chance(0.5), top / digits, 1.0)
    return np.where(draws.chance(0.3) & (kind < 3), rounded, out)
