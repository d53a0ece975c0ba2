"""What the other members of a table add to zero-shot forecasts, without training the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .inference import Series, ZeroShotAnswer, are_whole, cut_context, forecast, gather_members
from .network import QUANTILE_LEVELS, ZeroShotNetwork
from .population import Population
from .shared_draws import Floats

FEWEST_MEMBERS = 20
"""Members with an origin and a later value, from which on a blend is fitted."""
MOST_MEMBERS = 300
MIDDLE = len(QUANTILE_LEVELS) // 2
_FEWEST_BEFORE, _TARGETS, _STEPS = 3, 8, 40
_MOST_ORIGINS = 4  # of a member
_FEWEST_FOR_WIDTHS, _ORIGINS, _AHEAD = 120, 16, 24
_SHARE, _WIDENING = 0.8, (0.3, 5.0)
_WHOLE_WIDENINGS = np.geomspace(*_WIDENING, 29)
_RIDGE, _FOLDS = 0.3, 5


class Origin(NamedTuple):
    """A member at some time: its place in the table, what is read before, and what came after."""

    member: int
    t: Floats
    y: Floats
    q: Floats
    target: Floats


@dataclass(frozen=True)
class Blend:
    """Weights of forecasts, and how wide their intervals have to be, from other members.

    Args:
        weights: of how far other forecasts are from the last value, of :func:`_list_pulls`.
        widening: factor of the distances between quantiles, with which 80 % intervals hold that
            share of the values; of whole numbers the one with the lowest pinball loss.
        middle: median of all values of the table.
        gap: median time between values of its members.
        errors: mean absolute errors on members that were left out of the fit, by method, without
            simple forecasts that are not better than others by two standard errors; the smallest
            one chose the weights.
    """

    weights: Floats
    widening: float
    middle: float
    gap: float
    errors: dict[str, float]

    def apply(self, series: Series, q: Floats, answer: ZeroShotAnswer) -> Floats:
        """Return blended quantiles, (Q, 9), for the zero-shot answer to a series at times q."""
        past, quantiles = cut_context(series), answer.quantiles
        _, y = past
        pulls = _list_pulls(past, q, answer, self.middle, self.gap)
        around = self.widening * (quantiles - quantiles[:, MIDDLE, None])
        widened: Floats = (y[-1] + pulls @ self.weights)[:, None] + around
        return np.maximum(widened, 0.0) if y.min() >= 0 else widened


ZERO_SHOT = np.eye(1, 12)[0]
"""Weights of the zero-shot median alone."""
_ALONE = {
    "last value": np.zeros(12),
    "zero-shot": ZERO_SHOT,
    "middle of the table": np.eye(1, 12, 1)[0],
    "mean of the past": np.eye(1, 12, 2)[0],
    "regression on other ids": np.eye(1, 12, 3)[0],
}
"""Weights of one forecast each, in the order in which ties are decided."""
_USUAL = ("last value", "zero-shot", "blended")
_CLEARLY = 2.0  # standard errors


def _list_pulls(
    series: Series, q: Floats, answer: ZeroShotAnswer, middle: float, gap: float
) -> Floats:
    """Return what may move a forecast from the last value, (Q, 12).

    They are the zero-shot median, the middle of the table, the mean of the past, the regression on
    other members, and distances from the median to the quantiles 0.7 and 0.3; and these again by
    how far ahead they are asked for.
    """
    (t, y), ones = series, np.ones(len(q))
    zero_shot, last = answer.quantiles[:, MIDDLE], y[-1]
    columns = [
        zero_shot - last,
        (middle - last) * ones,
        (y.mean() - last) * ones,
        answer.regression - last,
        answer.quantiles[:, MIDDLE + 2] - zero_shot,
        zero_shot - answer.quantiles[:, MIDDLE - 2],
    ]
    ahead = q - t[-1]
    pulls = np.stack(columns, 1)
    return np.concatenate([pulls, pulls * (ahead / (ahead + 2 * gap) - 0.5)[:, None]], 1)


def _find_widening(quantiles: Floats, residual: Floats) -> float:
    """Return the factor with which 80 % intervals hold that share of residuals, (N,)."""
    below = quantiles[:, MIDDLE] - quantiles[:, 0]
    above = quantiles[:, -1] - quantiles[:, MIDDLE]
    reach = np.where(residual < 0, -residual / (below + 1e-12), residual / (above + 1e-12))
    return float(np.clip(np.quantile(reach, _SHARE), *_WIDENING))


def _find_whole_widening(quantiles: Floats, medians: Floats, values: Floats) -> float:
    """Return the factor with the lowest pinball loss of whole numbers.

    Intervals of numbers that rarely change hold far more than 80 % or far less, so that no factor
    holds that share.

    Args:
        quantiles: zero-shot ones, (N, 9).
        medians: blended ones, (N,).
        values: what came, (N,).
    """
    levels, around = np.array(QUANTILE_LEVELS), quantiles - quantiles[:, MIDDLE, None]

    def measure(widening: float) -> float:
        error = values[:, None] - np.round(medians[:, None] + widening * around)
        return float(np.maximum(levels * error, (levels - 1) * error).mean())

    return float(min(_WHOLE_WIDENINGS, key=measure))


def fit_widths(network: ZeroShotNetwork, series: Series) -> Blend | None:
    """Return the zero-shot forecast, as wide as the own past of a series asks for.

    Args:
        network: the network.
        series: times and values, 120 at least; ``None`` is returned of fewer.
    """
    t, y = series
    if len(t) < _FEWEST_FOR_WIDTHS:
        return None
    ends = np.linspace(len(t) // 2, len(t) - _AHEAD, _ORIGINS).astype(int).tolist()
    contexts = [(t[n - len(t) // 2 : n], y[n - len(t) // 2 : n]) for n in ends]
    answers = forecast(network, contexts, [t[n : n + _AHEAD] for n in ends])
    quantiles = np.concatenate([answer.quantiles for answer in answers])
    residual = np.concatenate([y[n : n + _AHEAD] for n in ends]) - quantiles[:, MIDDLE]
    errors = {"zero-shot": float(np.abs(residual).mean())}
    widening = max(_find_widening(quantiles, residual), 1.0)
    return Blend(ZERO_SHOT, widening, float(np.median(y)), float(np.median(np.diff(t))), errors)


def draw_origins(members: Sequence[Series], seed: int = 0) -> list[Origin]:
    """Return origins about the middle of up to 300 members that have later values.

    Of fewer members, there are up to four of each.
    """
    rng = np.random.default_rng(seed)
    chosen: dict[tuple[int, int], Origin] = {}
    order = rng.permutation(len(members))[:MOST_MEMBERS]
    for place in np.tile(order, min(MOST_MEMBERS // max(len(order), 1), _MOST_ORIGINS)).tolist():
        t, y = members[place]
        n = max(int(len(t) * rng.uniform(0.4, 0.8)), min(_FEWEST_BEFORE, len(t) - 1))
        if 0 < n < len(t):
            after = slice(n, n + _TARGETS)
            chosen[place, n] = Origin(place, *cut_context((t[:n], y[:n])), t[after], y[after])
    return list(chosen.values())


def fit_least_deviations(x: Floats, y: Floats, start: Floats, *, ridge: float = _RIDGE) -> Floats:
    """Return weights (K,) of least absolute deviations, pulled to ``start``.

    By iteratively reweighted least squares.
    """
    scale, weights = np.abs(y).mean() + 1e-12, start
    for _ in range(_STEPS):
        importance = 1 / np.maximum(np.abs(y - x @ weights), 0.01 * scale)
        gram = x.T @ (x * importance[:, None])
        pull = ridge * np.diag(np.diag(gram)) + 1e-9 * np.trace(gram) * np.eye(len(start))
        pull += 1e-12 * np.eye(len(start))
        weights = np.linalg.solve(gram + pull, x.T @ (importance * y) + pull @ start)
    return weights


def _compare(
    guesses: dict[str, Floats], moved: Floats, member: NDArray[np.intp]
) -> dict[str, float]:
    """Return mean absolute errors of the forecasts that may be taken, by name.

    Args:
        guesses: how far each forecast moves from the last value, (N,).
        moved: how far the values did, (N,).
        member: whose they are, (N,).
    """
    errors = {name: np.abs(moved - guess) for name, guess in guesses.items()}
    means = {name: float(error.mean()) for name, error in errors.items()}
    usual = min(_USUAL, key=lambda name: means[name])
    row = np.unique(member, return_inverse=True)[1]

    def is_clearly_better(name: str) -> bool:
        gain = np.bincount(row, errors[usual] - errors[name])
        return bool(gain.sum() > _CLEARLY * np.sqrt(len(gain)) * gain.std())

    return {name: means[name] for name in means if name in _USUAL or is_clearly_better(name)}


def fit_blend(
    network: ZeroShotNetwork, members: Sequence[Series], population: Population | None = None
) -> Blend | None:
    """Return a blend fitted on members of a table; ``None`` of too few.

    Each fifth of the members is forecast by the last value, the zero-shot median, each of the other
    forecasts alone, and a fit to the other fifths; what does best over all of them is chosen. One
    of the other forecasts alone is chosen only if it is better by two standard errors over members,
    as few members say little of so many.

    Args:
        network: the network.
        members: times and values of each.
        population: other members to compare these with; by default these themselves, each without
            its own.
    """
    origins = draw_origins(members)
    if len({origin.member for origin in origins}) < FEWEST_MEMBERS:
        return None
    if population is None:
        population = gather_members(members, [origin.member for origin in origins])
    contexts = [(origin.t, origin.y) for origin in origins]
    answers = forecast(network, contexts, [origin.q for origin in origins], population)
    middle = float(np.median(np.concatenate([y for _, y in members])))
    gaps = np.concatenate([np.diff(t) for t, _ in members])
    gap = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0
    pulls = [
        _list_pulls((origin.t, origin.y), origin.q, answer, middle, gap)
        for origin, answer in zip(origins, answers, strict=True)
    ]
    member = np.repeat([origin.member for origin in origins], [len(origin.q) for origin in origins])
    fold = member % _FOLDS
    x, quantiles = np.concatenate(pulls), np.concatenate([answer.quantiles for answer in answers])
    moved = np.concatenate([origin.target - origin.y[-1] for origin in origins])
    left_out = np.empty(len(moved))
    for part in range(_FOLDS):
        weights = fit_least_deviations(x[fold != part], moved[fold != part], ZERO_SHOT)
        left_out[fold == part] = x[fold == part] @ weights
    guesses = {name: x @ weights for name, weights in _ALONE.items()} | {"blended": left_out}
    start = np.repeat([origin.y[-1] for origin in origins], [len(origin.q) for origin in origins])
    is_whole = are_whole(members)
    if is_whole:
        guesses = {name: np.round(start + guess) - start for name, guess in guesses.items()}
    errors = _compare(guesses, moved, member)
    best = min(errors, key=lambda name: errors[name])
    chosen = _ALONE[best] if best in _ALONE else fit_least_deviations(x, moved, ZERO_SHOT)
    forecasts = left_out if best == "blended" else x @ chosen
    if is_whole:
        widening = _find_whole_widening(quantiles, start + forecasts, start + moved)
    else:
        widening = _find_widening(quantiles, moved - forecasts)
    return Blend(chosen, widening, middle, gap, errors)
