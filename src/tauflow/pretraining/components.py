"""What generated series are made of: one function per kind of behaviour over time.

Each takes times (B, P), from 0 with time steps of about 1, and draws of parameters for the B
series, and returns values (B, P) of any size and level.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .shared_draws import Floats, SharedDraws

_CYCLES = 512
NATURAL_PERIODS = (4.0, 7.0, 12.0, 24.0, 24.0, 24.0, 48.0, 96.0, 144.0, 168.0, 52.0, 365.0)


def sample_fourier(
    draws: SharedDraws, t: Floats, length: Floats, smoothness: Any, features: int = 16
) -> Floats:
    """Draw a Gaussian process of a Matern kernel at the times, by random Fourier features.

    Args:
        draws: of the frequencies and phases: alike in them, members of a table are one curve.
        t: times, (B, P).
        length: length scale of the kernel, (B, 1).
        smoothness: nu of the kernel, a number or (B, 1).
        features: number of random frequencies.

    Source: Rahimi & Recht 2007; spectra of Matern kernels are Student's t.
    """
    nu = np.broadcast_to(np.asarray(smoothness, float), (len(t), 1))
    heavy = (
        draws.rng.standard_gamma(np.repeat(nu[:: draws.members], features, 1))
        / nu[0 :: draws.members]
    )
    heavy = np.repeat(heavy, draws.members, 0)
    rate = draws.normal(features) / np.sqrt(heavy) / length
    # Of one curve, members have the same frequencies and nearly the same phases.
    rate = np.repeat(rate[:: draws.members], draws.members, 0)
    phase = draws.uniform(0, 2 * np.pi, features)
    angle = t[:, :, None].astype("f4") * rate[:, None].astype("f4")
    values: Floats = np.cos(angle + phase[:, None].astype("f4")).sum(2) * np.sqrt(2 / features)
    return values


def gaussian_process(draws: SharedDraws, t: Floats) -> Floats:
    """Draw smooth to rough curves."""
    span = t[:, -1:] + 1e-9
    length = draws.log_uniform(0.7, 1.5 * span, same=True)
    return sample_fourier(draws, t, length, draws.choice((0.5, 1.5, 2.5, 50.0)))


def _periodic(draws: SharedDraws, t: Floats, period: Floats, slow: Floats) -> Floats:
    fall = draws.uniform(0.4, 3)
    value = np.zeros(t.shape)
    for k in range(1, 7):
        size = draws.normal() * k**-fall if k > 1 else 1.0
        value += size * np.cos(2 * np.pi * k * t / period + draws.uniform(0, 2 * np.pi))
    # One day is not like the other: each cycle has its size and level, or all share them.
    cycle = np.floor(t / period + draws.uniform()).astype(np.int64) % _CYCLES
    size, level = (
        np.take_along_axis(draws.rng.standard_normal((len(t), _CYCLES)), cycle, 1) for _ in range(2)
    )
    is_uneven = draws.chance(0.35)
    value = value * np.exp(is_uneven * draws.uniform(0, 0.5) * size)
    value = value + is_uneven * draws.choice((0, 0.2, 0.5)) * level
    return value * np.exp(draws.choice((0, 0.2, 0.5)) * slow)


def _choose_period(draws: SharedDraws, t: Floats) -> Floats:
    """Return periods, (B, 1): half of them whole numbers of usual steps, as a day of hours."""
    span = t[:, -1:] + 1e-9
    period = draws.log_uniform(2.2, np.maximum(0.8 * span, 3), same=True)
    return np.where(draws.chance(0.5), np.minimum(draws.choice(NATURAL_PERIODS), span), period)


def season(draws: SharedDraws, t: Floats) -> Floats:
    """Draw one season, whose size changes slowly, or not."""
    slow = sample_fourier(draws, t, t[:, -1:] * draws.uniform(0.2, 1) + 1e-9, 50.0, 8)
    return _periodic(draws, t, _choose_period(draws, t), slow)


def two_seasons(draws: SharedDraws, t: Floats) -> Floats:
    """Draw a season within a longer one, such as hours of the day and days of the week."""
    slow = sample_fourier(draws, t, t[:, -1:] * draws.uniform(0.2, 1) + 1e-9, 50.0, 8)
    period = _choose_period(draws, t)
    longer = np.where(draws.chance(0.5), 7.0, draws.uniform(1.5, 6)) * period
    first, second = _periodic(draws, t, period, slow), _periodic(draws, t, longer, slow)
    # A rest day: every seventh period is lower, with another shape.
    is_rest = (t / period + draws.uniform(0, 7)) % 7 < draws.choice((1.0, 2.0, 2.0))
    resting = np.where(is_rest, draws.uniform(-0.2, 0.9) * first - draws.uniform(0, 1.5), first)
    kind = draws.choice((0, 1, 2))
    mixed = np.where(kind == 1, first * (1 + 0.5 * second), first + draws.uniform(0.2, 1) * second)
    return np.where(kind == 2, resting, mixed)


def trend(draws: SharedDraws, t: Floats) -> Floats:
    """Draw straight and bent lines."""
    u = t / (t[:, -1:] + 1e-9)
    values: Floats = draws.normal() * u + draws.choice((0, 0, 1)) * draws.normal() * u**2
    return values


def broken_trend(draws: SharedDraws, t: Floats) -> Floats:
    """Draw lines whose slope changes at three times."""
    span = t[:, -1:] + 1e-9
    at, slope = draws.uniform(0, span, 3), draws.normal(3)
    values: Floats = (slope[:, None] * np.maximum(t[:, :, None] - at[:, None], 0)).sum(2) / span
    return values


def _gaps(t: Floats) -> Floats:
    return np.diff(t, axis=1, prepend=t[:, :1])


def _filter(keep: Floats, shock: Floats) -> Floats:
    """Return x with x[i] = keep[i] x[i - 1] + shock[i]."""
    value, state = np.empty(shock.shape), np.zeros(len(shock))
    for i in range(shock.shape[1]):
        state = keep[:, i] * state + shock[:, i]
        value[:, i] = state
    return value


def ornstein_uhlenbeck(draws: SharedDraws, t: Floats) -> Floats:
    """Draw noise that returns to its mean."""
    span = t[:, -1:] + 1e-9
    keep = np.exp(-_gaps(t) / draws.log_uniform(0.4, np.maximum(0.7 * span, 0.8)))
    shock = draws.rng.standard_normal(t.shape)
    shock[:, 1:] *= np.sqrt(1 - keep[:, 1:] ** 2)
    return _filter(keep, shock)


def random_walk(draws: SharedDraws, t: Floats) -> Floats:
    """Draw random walks with and without drift."""
    gap, drift = _gaps(t), draws.choice((0, 0, 0.3)) * draws.normal()
    values: Floats = (np.sqrt(gap) * draws.rng.standard_normal(t.shape) + drift * gap).cumsum(1)
    return values


def moving_slope(draws: SharedDraws, t: Floats) -> Floats:
    """Draw smooth motion: a velocity that returns to its mean, added up over time."""
    gap = _gaps(t)
    keep = np.exp(-gap / draws.log_uniform(2.0, 0.3 * t[:, -1:] + 2.1))
    velocity = _filter(keep, draws.rng.standard_normal(t.shape) * np.sqrt(1 - keep**2))
    position = _filter(np.exp(-gap / draws.log_uniform(3.0, t[:, -1:] + 4)), velocity * gap)
    return position


def damped_oscillation(draws: SharedDraws, t: Floats) -> Floats:
    """Draw swings that die out after a start."""
    span = t[:, -1:] + 1e-9
    late = np.maximum(t - draws.uniform(-0.5, 0.6) * span, 0)
    period = draws.log_uniform(2.5, np.maximum(span, 3))
    return np.exp(-late / (period * draws.uniform(0.5, 5))) * np.sin(2 * np.pi * late / period)


def growth(draws: SharedDraws, t: Floats) -> Floats:
    """Draw logistic and Gompertz curves and the approach to a plateau, up or down."""
    span = t[:, -1:] + 1e-9
    rate = draws.log_uniform(2.0, 20.0) / span
    z = np.clip(rate * (t - draws.uniform(-0.3, 1.3) * span), -30, 30)
    kind = draws.choice((0, 1, 2))
    rise = np.where(kind == 0, 1 / (1 + np.exp(-z)), np.exp(-np.exp(-z)))
    return draws.choice((-1, 1)) * np.where(kind == 2, np.exp(-rate * t), rise)


def doses(draws: SharedDraws, t: Floats) -> Floats:
    """Draw levels that rise after each of several doses and decay."""
    span, count = t[:, -1:] + 1e-9, 6
    decay = draws.log_uniform(0.5, 60.0)[:, None] / span[:, None]
    rise = decay * draws.uniform(1.5, 30)[:, None]
    at = draws.uniform(-0.2, 1, count)[:, None] * span[:, None]
    every = draws.uniform(0.05, 0.5)[:, None] * span[:, None]
    at = np.where(draws.chance(0.5)[:, None], at, every * (np.arange(count) - 1))
    is_given = np.arange(count) < draws.uniform(1, count + 1)[:, None]
    late = np.maximum(t[:, :, None] - at, 0)
    values: Floats = (is_given * (np.exp(-decay * late) - np.exp(-rise * late))).sum(2)
    return values


def level_shifts(draws: SharedDraws, t: Floats) -> Floats:
    """Draw levels that jump now and then."""
    jump = draws.rng.random(t.shape) < draws.log_uniform(1 / t.shape[1], 0.15)
    values: Floats = (jump * draws.rng.standard_normal(t.shape)).cumsum(1)
    return values


def telegraph(draws: SharedDraws, t: Floats) -> Floats:
    """Draw a state of on and off; members may differ in how often they are on."""
    mean = draws.log_uniform(2.0, np.maximum(0.5 * t[:, -1:], 2.5))
    keep = np.exp(-_gaps(t) / mean)
    share = draws.uniform(0.05, 0.95)
    renew = draws.rng.random(t.shape) > keep
    renew[:, 0] = True
    drawn = draws.rng.random(t.shape) < share
    last = np.maximum.accumulate(np.where(renew, np.arange(t.shape[1]), 0), axis=1)
    return np.take_along_axis(drawn, last, 1).astype(float)


def white_noise(draws: SharedDraws, t: Floats) -> Floats:
    """Draw independent values."""
    return draws.rng.standard_normal(t.shape)


COMPONENTS: dict[str, tuple[Callable[[SharedDraws, Floats], Floats], float]] = {
    "gaussian process": (gaussian_process, 12),
    "season": (season, 16),
    "two seasons": (two_seasons, 13),
    "trend": (trend, 4),
    "broken trend": (broken_trend, 3),
    "Ornstein-Uhlenbeck": (ornstein_uhlenbeck, 18),
    "random walk": (random_walk, 6),
    "moving slope": (moving_slope, 5),
    "damped oscillation": (damped_oscillation, 3),
    "growth": (growth, 6),
    "doses": (doses, 7),
    "level shifts": (level_shifts, 4),
    "telegraph": (telegraph, 3),
    "white noise": (white_noise, 14),
}
"""Kinds of behaviour, each with how often it is drawn, in relation to the others."""
