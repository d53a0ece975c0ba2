"""Generated series: what they promise, and that members of tables are alike."""

import numpy as np
import pytest

from tauflow.pretraining.components import COMPONENTS, sample_fourier
from tauflow.pretraining.series import draw_series
from tauflow.pretraining.shared_draws import SharedDraws


@pytest.mark.parametrize(("points", "members"), [(2, 1), (7, 5), (60, 1)])
def test_series_are_finite_and_their_times_increase(points, members):
    drawn = draw_series(np.random.default_rng(1), 40, points, members)
    assert drawn.t.shape == drawn.y.shape == (40 * members, points)
    assert np.isfinite(drawn.y).all()
    assert (np.diff(drawn.t, axis=1) > 0).all()


def test_the_state_of_the_generator_decides_everything():
    first, again = (draw_series(np.random.default_rng(3), 9, 12, 4) for _ in range(2))
    np.testing.assert_array_equal(first.y, again.y)
    np.testing.assert_array_equal(first.t, again.t)


def test_shared_draws_have_the_distribution_asked_for_whatever_the_likeness():
    from scipy.stats import kstest

    draws = SharedDraws(np.random.default_rng(0), 4000, 3)
    for sample, law in ((draws.uniform(), "uniform"), (draws.normal(), "norm")):
        for member in range(3):  # members of one table depend on each other
            assert kstest(sample[member::3, 0], law).pvalue > 1e-3
    chosen = draws.choice((0.0, 1.0), (1, 3))[::3]
    assert abs(chosen.mean() - 0.75) < 0.03


def test_members_are_alike():
    draws = SharedDraws(np.random.default_rng(0), 2000, 2)
    pairs = draws.normal().reshape(-1, 2)
    # The mean likeness: 0.35 + 0.2 * 0.97 + 0.2 * 0.85 + 0.15 * 0.5.
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.789, abs=0.03)
    assert (draws.uniform(same=True).reshape(-1, 2).std(axis=1) == 0).all()


def test_fourier_features_have_the_covariance_of_a_matern_kernel():
    draws = SharedDraws(np.random.default_rng(0), 20000, 1)
    t = np.tile([0.0, 1.0, 3.0], (20000, 1))
    y = sample_fourier(draws, t, np.full((20000, 1), 2.0), 0.5)
    # Matern 1/2: exp(-|t| / length).
    assert np.cov(y.T)[0] == pytest.approx([1, np.exp(-0.5), np.exp(-1.5)], abs=0.03)


def test_noise_that_returns_to_its_mean_has_its_covariance():
    draws = SharedDraws(np.random.default_rng(0), 20000, 1)
    t = np.tile([0.0, 0.5], (20000, 1))
    y = COMPONENTS["Ornstein-Uhlenbeck"][0](draws, t)
    assert y.var(axis=0) == pytest.approx([1, 1], abs=0.04)


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_components_are_finite_for_short_and_long_series(name):
    for points in (2, 300):
        draws = SharedDraws(np.random.default_rng(0), 6, 2)
        t = np.arange(points) * np.ones((12, 1))
        assert np.isfinite(COMPONENTS[name][0](draws, t)).all()


def test_a_part_of_the_series_is_of_whole_numbers_and_not_constant():
    parts = [draw_series(np.random.default_rng(seed), 30, 20, 2).y for seed in range(8)]
    y = np.concatenate(parts)
    is_whole = (y == np.round(y)).all(axis=1) & (np.ptp(y, axis=1) > 0)
    assert 0.15 < is_whole.mean() < 0.4
    pairs = (y == np.round(y)).all(axis=1).reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).mean() > 0.95  # members have the same unit
