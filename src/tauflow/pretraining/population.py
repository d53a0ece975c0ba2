"""What the other members of a table say about one of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .shared_draws import Floats

POPULATION_FORECASTS = (
    *("population by time", "population change by time"),
    *("population by age", "population change by age", "population regression"),
)
"""Names of forecasts from other members, in order."""
MEMBER_POINTS, MAX_MEMBERS, MAX_POINTS = 32, 64, 1024
"""What is read at most: last points of each member, members, and points of them together."""
SUMMARY_SIZE, QUERY_SIZE = 6, 4
_ORIGINS, _TARGETS = (0.3, 0.5, 0.7, 0.9), (0.0, 0.35, 1.0)  # shares of what there is
_LAG_REACH = 0.5  # in natural logarithms of lags
_NEVER = 1e30  # a time, of what is not known, in units of a time step
_LARGEST = 6.0  # of changes, in typical distances from the middle of the table


@dataclass(frozen=True)
class Population:
    """The members of tables, padded.

    Args:
        t: times, (G, K, P), increasing, any where padded.
        y: values, (G, K, P), NaN where padded, at the end of each member.
        table: which table each of the B series belongs to, (B,).
        member: which member of it each series is, (B,), which is left out for it; -1 if no member.
    """

    t: Floats
    y: Floats
    table: NDArray[np.intp]
    member: NDArray[np.intp]

    def leave_out(self, per_member: Floats) -> Floats:
        """Return sums over the members of each table but the own one, (B, ...)."""
        total: Floats = per_member.sum(1)[self.table]
        of_member = per_member[self.table, np.maximum(self.member, 0)]
        return total - of_member * (self.member >= 0).reshape(-1, *[1] * (of_member.ndim - 1))

    def mask_own(self, weight: Floats) -> Floats:
        """Return weights (G, K, N) for each series, (B, K, N), with none for itself."""
        masked = weight[self.table].astype("f4")
        rows = np.flatnonzero(self.member >= 0)
        masked[rows, self.member[rows]] = 0
        return masked


@dataclass(frozen=True)
class PopulationAnswer:
    """What a population says of B series, in the unit of the values.

    Args:
        scale: typical distance of a value from the median of its member, (B,), 0 if none is known.
        step: typical distance of a value from the one before, (B,), 0 if none is known.
        gap: mean time between them, (B,), NaN if none is known.
        count: other members, (B,).
        summary: facts of the table, (B, SUMMARY_SIZE), 0 if there are no others.
        queries: facts of the table about each query, (B, Q, QUERY_SIZE).
        forecasts: (B, Q, len(POPULATION_FORECASTS)); the last value if there are no others.
    """

    scale: Floats
    step: Floats
    gap: Floats
    count: Floats
    summary: Floats
    queries: Floats
    forecasts: Floats


@dataclass(frozen=True)
class _Levels:
    """Of each table: middle of all values, typical distance from it, and mean time step, (G,)."""

    center: Floats
    unit: Floats
    gap: Floats


def ask_population(population: Population, t: Floats, y: Floats, q: Floats) -> PopulationAnswer:
    """Return what the other members say of series.

    Args:
        population: the members.
        t: times of the series, (B, T).
        y: values, (B, T).
        q: times that are asked for, (B, Q).
    """
    values, is_known = population.y, ~np.isnan(population.y)
    flat = values.reshape(len(values), -1)
    low, center, high = np.nanquantile(flat, [0.02, 0.5, 0.98], axis=1)
    filled = np.where(is_known, values, center[:, None, None])
    clipped = np.clip(filled, low[:, None, None], high[:, None, None])
    unit = np.nanmean(np.abs(flat - center[:, None]), axis=1) + 1e-6 * np.abs(center) + 1e-12
    counted, gap = _count(population.t, clipped, is_known, center)
    levels = _Levels(center, unit, gap)
    members, known, off, stepped, moved, apart, time = population.leave_out(counted).T.round(12)
    scale, step = off / np.maximum(known, 1), moved / np.maximum(stepped, 1)
    spread, base = apart / np.maximum(members, 1), scale + 1e-3 * unit[population.table]
    regression, errors, skill = _regress(population, clipped, is_known, levels, (t, y, q))
    by_time = _follow(population, population.t, clipped, is_known, levels, (t, y, q))
    age = population.t - population.t[..., :1]
    by_age = _follow(population, age, clipped, is_known, levels, (t - t[:, :1], y, q - t[:, :1]))
    columns = [
        np.log1p(members),
        np.log(spread / base + 1e-3),
        np.arcsinh((np.median(y, axis=1) - center[population.table]) / (spread + base)),
        np.log(step / base + 1e-2),
        skill,
        np.log(np.maximum(known, 1) / np.maximum(members, 1)) - 2,
    ]
    has = (members > 0.5)[:, None]
    forecasts = np.stack([*by_time[:2], *by_age[:2], regression], 2)
    return PopulationAnswer(
        scale=scale,
        step=step,
        gap=np.where(stepped > 0.5, time / np.maximum(stepped, 1), np.nan),
        count=members,
        summary=np.where(has, np.clip(np.stack(columns, 1), -8, 8), 0.0),
        queries=np.where(has[..., None], np.stack([*errors, by_time[2], by_age[2]], 2), 0.0),
        forecasts=np.where(has[..., None], forecasts, y[:, -1:, None]),
    )


def _count(
    t: Floats, y: Floats, is_known: NDArray[np.bool_], center: Floats
) -> tuple[Floats, Floats]:
    """Return sums of each member, (G, K, 7), and the mean time step of each table, (G,)."""
    median = np.median(y, axis=2)  # padded by the middle of the table, which pulls a little
    gaps = np.diff(t, axis=2)
    is_step = is_known[..., 1:] & is_known[..., :-1] & (gaps > 0)
    present = is_known.any(2)
    sums = [
        present,
        is_known.sum(2),
        np.where(is_known, np.abs(y - median[..., None]), 0.0).sum(2),
        is_step.sum(2),
        np.where(is_step, np.abs(np.diff(y, axis=2)), 0.0).sum(2),
        np.where(present, np.abs(median - center[:, None]), 0.0),
        np.where(is_step, gaps, 0.0).sum(2),
    ]
    counts = np.stack(sums, 2).astype(float)
    return counts, counts[..., 6].sum(1) / np.maximum(counts[..., 3].sum(1), 1) + 1e-9


def _pull(
    last: Floats, mean: Floats, before: Floats, share: Floats, center: Floats, unit: Floats
) -> Floats:
    """Return inputs of the regression, (..., 8): what pulls at short and at long lags."""
    pulls = [(center - last) / unit, (mean - last) / unit, (last - before) / unit]
    columns = np.stack([np.clip(pull, -_LARGEST, _LARGEST) for pull in pulls], -1)
    columns = np.concatenate([columns, np.ones_like(columns[..., :1])], -1)
    return np.concatenate([columns, columns * share[..., None]], -1)


def _regress(
    population: Population,
    y: Floats,
    is_known: NDArray[np.bool_],
    levels: _Levels,
    series: tuple[Floats, Floats, Floats],
) -> tuple[Floats, tuple[Floats, Floats], Floats]:
    """Fit changes between origins and targets within other members, and apply it to series.

    Returns:
        Forecasts (B, Q); logarithms of typical errors of the last value and of the fit at such a
        lag, relative to the unit of the table, (B, Q) each; and the skill of the fit, (B,).
    """
    t, count = population.t, is_known.sum(2)[..., None]
    shape = (len(_ORIGINS), len(_TARGETS))
    where, until = np.broadcast_to(np.array(_ORIGINS)[:, None], shape), np.array(_TARGETS)
    origin = np.maximum((where.ravel() * (count - 1)).astype(int), 0)
    rest = np.maximum(count - 2 - origin, 0)
    target = origin + 1 + (np.broadcast_to(until, shape).ravel() * rest).astype(int)
    is_valid, target = target < count, np.minimum(target, y.shape[2] - 1)

    def take(values: Floats, place: NDArray[Any]) -> Floats:
        return np.take_along_axis(values, place, 2)

    tau = 2 * levels.gap
    center, unit = levels.center[:, None, None], levels.unit[:, None, None]
    lag = np.maximum(take(t, target) - take(t, origin), 0)
    last, mean = take(y, origin), take(y.cumsum(2), origin) / (origin + 1)
    before = take(y, np.maximum(origin - 1, 0))
    x = _pull(last, mean, before, lag / (lag + tau[:, None, None]), center, unit)
    x *= is_valid[..., None]
    change = np.clip((take(y, target) - last) / unit, -_LARGEST, _LARGEST) * is_valid
    gram = population.leave_out(np.einsum("gkni,gknj->gkij", x, x, optimize=True))
    right = population.leave_out(np.einsum("gkni,gkn->gki", x, change))
    ridge = np.diag([2.0, 2, 4, 2, 4, 4, 8, 4])
    weights = np.linalg.solve(gram + ridge, right[..., None])[..., 0]
    common = np.linalg.solve(
        np.einsum("gkni,gknj->gij", x, x, optimize=True) + ridge,
        np.einsum("gkni,gkn->gi", x, change)[..., None],
    )[..., 0]
    residual = np.abs(change - np.einsum("gkni,gi->gkn", x, common)) * is_valid
    sums = [population.leave_out(values.sum(2)) for values in (np.abs(change), residual)]
    skill = np.log((sums[1] + 1e-2) / (sums[0] + 1e-2))
    t_own, y_own, q = series
    mine = [a[population.table][:, None] for a in (levels.center, levels.unit, tau)]
    ahead = np.maximum(q - t_own[:, -1:], 0)
    ones = np.ones_like(q)
    last_own = y_own[:, -1:] * ones
    x_own = _pull(
        last_own,
        y_own.mean(1, keepdims=True) * ones,
        y_own[:, -2:-1] * ones if y_own.shape[1] > 1 else last_own,
        ahead / (ahead + mine[2]),
        mine[0],
        mine[1],
    )
    moved = np.einsum("bqi,bi->bq", x_own, weights)
    kernel = _near_lags(population, lag, is_valid, ahead, levels.gap)
    errors = []
    for error in (np.abs(change), residual):
        flat = error.reshape(len(error), -1)[population.table].astype("f4")
        typical = np.einsum("bqn,bn->bq", kernel, flat) / (kernel.sum(2) + 1e-9)
        errors.append(np.log(typical + 1e-2))
    return last_own + mine[1] * moved, (errors[0], errors[1]), skill


def _near_lags(
    population: Population, lag: Floats, is_valid: NDArray[np.bool_], ahead: Floats, gap: Floats
) -> Floats:
    """Return weights of pairs, (B, Q, K N), the larger the more their lag is that of a query."""
    floor = 0.1 * gap
    logs = np.log(lag + floor[:, None, None]).reshape(len(lag), -1)[population.table]
    asked = np.log(ahead + floor[population.table][:, None])
    weight = population.mask_own(is_valid.astype(float)).reshape(len(logs), -1)
    apart = np.abs(asked[:, :, None] - logs[:, None]).astype("f4") / _LAG_REACH
    apart = np.where(weight[:, None] > 0, apart, 1e6)
    nearest = np.minimum(apart.min(2, keepdims=True), 1e5)
    nearness: Floats = np.exp(nearest - apart)
    return nearness


def _follow(
    population: Population,
    t: Floats,
    y: Floats,
    is_known: NDArray[np.bool_],
    levels: _Levels,
    series: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats, Floats]:
    """Return the local mean of other members at queries, the last value moved as it moves since.

    The third is how far the nearest values in time are, as a logarithm.
    """
    t_own, y_own, q = series
    groups = len(t)
    reach = 0.5 * levels.gap
    weight = population.mask_own(is_known.astype(float)).reshape(len(q), -1)
    each = reach[population.table][:, None]
    times = np.where(weight > 0, t.reshape(groups, -1)[population.table] / each, _NEVER)
    apart = (np.concatenate([q, t_own[:, -1:]], 1) / each)[:, :, None] - times[:, None]
    np.abs(apart, out=apart)
    nearest = apart.min(2, keepdims=True)
    kernel = np.subtract(nearest, apart, out=apart).astype("f4")
    np.exp(kernel, out=kernel)
    away = (y - levels.center[:, None, None]).reshape(groups, -1)[population.table]
    mean = np.einsum("bqn,bn->bq", kernel, away.astype("f4")) / kernel.sum(2)
    level = mean.astype(float) + levels.center[population.table][:, None]
    change = y_own[:, -1:] + level[:, :-1] - level[:, -1:]
    return level[:, :-1], change, np.log1p(np.minimum(nearest[:, :-1, 0], 1e4))
