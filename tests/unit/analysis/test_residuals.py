import numpy as np
import pytest

from tauflow.analysis import ResidualDistribution
from tauflow.errors import DataError


def draw(count, seed):
    """Return residuals whose deviation is twice the time step, and the time steps."""
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(0.5, 4.0, count)
    return 2 * gaps * rng.standard_t(5, count), gaps


def test_scales_follow_the_gap_and_probabilities_are_uniform():
    known = ResidualDistribution.fit(*draw(4000, 0))
    residuals, gaps = draw(4000, 1)
    assert len(known.gaps) == 8
    np.testing.assert_allclose(known.scales / known.gaps, known.scales[0] / known.gaps[0], rtol=0.2)
    probabilities = known.compute_tail_probability(known.standardise(residuals, gaps))
    for level in (0.01, 0.05, 0.5):
        assert np.mean(probabilities <= level) == pytest.approx(level, rel=0.3)
    for part in (gaps < 1, gaps > 3):
        assert np.mean(probabilities[part] <= 0.1) == pytest.approx(0.1, abs=0.03)


def test_probabilities_are_ranks():
    """By hand: of 20 scores, 1 / 21 is left for what is larger than all of them."""
    known = ResidualDistribution.fit(np.arange(1.0, 21.0), np.ones(20))
    assert known.scales[0] == pytest.approx(1.4826 * 10.5)
    scores = known.standardise(np.array([100.0, -20.0, 10.5, 0.0, np.nan]), np.ones(5))
    expected = [1 / 21, 2 / 21, 11 / 21, 21 / 21, np.nan]
    np.testing.assert_allclose(known.compute_tail_probability(scores), expected)


def test_outliers_do_not_widen_the_scale_and_constants_have_one():
    residuals, gaps = np.random.default_rng(0).standard_normal(200), np.ones(200)
    residuals[:10] = 1e6
    assert ResidualDistribution.fit(residuals, gaps).scales[0] == pytest.approx(1.0, rel=0.25)
    flat = ResidualDistribution.fit(np.zeros(30), gaps[:30])
    assert flat.compute_tail_probability(flat.standardise(np.zeros(1), gaps[:1])) == 1.0


def test_too_few_are_refused():
    with pytest.raises(DataError, match="19 forecasts to calibrate by, expected at least 20"):
        ResidualDistribution.fit(np.append(np.zeros(19), np.nan), np.ones(20))
