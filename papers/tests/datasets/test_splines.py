import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tauflow.errors import ShapeError, TimeError
from tauflow_papers.datasets.splines import natural_cubic_spline

interpolate = pytest.importorskip("scipy.interpolate")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 4))
def test_splines_are_those_of_scipy(seed, knots, batch):
    rng = np.random.RandomState(seed)
    times = np.cumsum(rng.uniform(0.1, 3, (batch, knots)), axis=1)
    values, at = rng.randn(batch, knots, 2), np.linspace(0, 40, 57)
    ours = natural_cubic_spline(times, values, at)
    for t, y, curve in zip(times, values, ours, strict=True):
        theirs = interpolate.CubicSpline(t, y, bc_type="natural")(at)
        inside = (t[0] <= at) & (at <= t[-1])
        np.testing.assert_allclose(curve[inside], theirs[inside], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(curve, theirs, rtol=1e-6, atol=1e-6)


def test_a_straight_line_stays_one():
    times = np.array([[0.0, 1.0, 5.0]])
    curve = natural_cubic_spline(times, 3 * times[..., None] - 1, np.arange(6.0))
    np.testing.assert_allclose(curve[0, :, 0], [-1, 2, 5, 8, 11, 14], atol=1e-12)


def test_wrong_samples_are_refused():
    with pytest.raises(ShapeError, match=r"shape \(1, 1\) and values \(1, 1, 1\), expected"):
        natural_cubic_spline(np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros(1))
    with pytest.raises(TimeError, match="times must increase"):
        natural_cubic_spline(np.zeros((1, 3)), np.zeros((1, 3, 1)), np.zeros(1))
