"""Adaptive conformal intervals keep their coverage, whatever the data do."""

import numpy as np
import pytest

from tauflow.errors import ArgumentError, ShapeError
from tauflow.evaluation import AdaptiveIntervals

STEPS = 1500


def drifting():
    """Errors whose spread grows fivefold, jumps, and then keeps growing."""
    t = np.arange(STEPS)
    spread = np.where(t < 500, 1.0 + t / 125, np.where(t < 1000, 0.2, 2.0 + (t - 1000) / 50))
    return spread * np.random.default_rng(0).normal(size=STEPS)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_misses_stay_within_the_bound(level):
    intervals = AdaptiveIntervals(level, rate=0.05, window=100)
    misses = np.array([not intervals.update(0.0, y) for y in drifting()])
    alpha = 1 - level
    mean = np.cumsum(misses) / np.arange(1, STEPS + 1)
    bound = (max(alpha, level) + 0.05) / (0.05 * np.arange(1, STEPS + 1))
    assert (np.abs(mean - alpha) <= bound).all()
    assert abs(mean[-1] - alpha) < 0.02


def test_fixed_intervals_would_miss_more():
    errors = np.abs(drifting())
    margin = np.quantile(errors[:200], 0.9)
    intervals = AdaptiveIntervals(0.9, window=100)
    held = np.array([bool(intervals.update(0.0, y)) for y in drifting()])
    assert (errors[1000:] <= margin).mean() < 0.6
    assert held[1000:].mean() > 0.85


def test_the_recursion_is_that_of_the_paper():
    """By hand, with all errors kept."""
    r = np.random.default_rng(1)
    intervals, a, scores = AdaptiveIntervals(0.8, rate=0.1), 0.2, []
    for _ in range(60):
        prediction, y = r.normal(), r.normal()
        low, high = intervals.interval(prediction)
        rank = int(np.ceil((len(scores) + 1) * (1 - a) - 1e-9))
        margin = np.inf if a <= 0 or rank > len(scores) else sorted(scores)[rank - 1]
        np.testing.assert_allclose([low, high], [prediction - margin, prediction + margin])
        held = bool(intervals.update(prediction, y))
        assert held == (abs(y - prediction) <= margin)
        a += 0.1 * (0.2 - (not held))
        scores.append(abs(y - prediction))
        np.testing.assert_allclose(intervals.miss_levels, a)


def test_outputs_have_levels_of_their_own_and_unknown_targets_change_nothing():
    intervals, alone = AdaptiveIntervals(0.8), AdaptiveIntervals(0.8)
    r = np.random.default_rng(0)
    for k in range(80):
        y = r.normal(size=2) * [1.0, 5.0]
        seen = k % 3 != 0
        intervals.update(np.zeros(2), [y[0], y[1] if seen else np.nan])
        if seen:
            alone.update(0.0, y[1])
    both, single = intervals.interval(np.zeros(2)), alone.interval(0.0)
    np.testing.assert_allclose([both[0][1], both[1][1]], [*single])
    with pytest.raises(ShapeError, match=r"shape \(3,\), but earlier ones had \(2,\)"):
        intervals.interval(np.zeros(3))
    with pytest.raises(ArgumentError, match="share between 0 and 1"):
        AdaptiveIntervals(90)
