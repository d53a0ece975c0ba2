"""Quartiles of abscissas, and plots of them and of variances, of systems known in closed form."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from tauflow.analysis import Flow, find_fixed_points, principal_components
from tauflow_papers.theory import abscissa_quartiles, plot_abscissas, plot_explained_variance


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def cloud(size):
    generator = torch.Generator().manual_seed(0)
    return 1.5 * torch.randn(200, size, generator=generator, dtype=torch.float64)


def pitchfork(h):
    """Fixed points 0 (slope 1) and 1 and -1 (slope -2)."""
    return h - h**3


def nowhere():
    return find_fixed_points(Flow(lambda h: h**2 + 1), cloud(1))


def test_quartiles_count_starts():
    fixed_points = find_fixed_points(Flow(pitchfork), cloud(1))
    values = np.repeat(fixed_points.abscissa.numpy(), fixed_points.multiplicity.numpy())
    quartiles = abscissa_quartiles(fixed_points)
    expected = np.quantile(values, [0.25, 0.5, 0.75])
    np.testing.assert_allclose([quartiles.lower, quartiles.median, quartiles.upper], expected)
    assert math.isnan(abscissa_quartiles(nowhere()).median)


def test_explained_variance():
    components = principal_components(cloud(4))
    ax = plot_explained_variance({"a network": components})
    curve, level = ax.lines
    np.testing.assert_allclose(curve.get_ydata(), components.explained.cumsum(0))
    assert list(curve.get_xdata()) == [1, 2, 3, 4]
    assert set(level.get_ydata()) == {0.9}
    (label,) = [text.get_text() for text in ax.get_legend().get_texts()]
    assert label == "a network: 4 for 90%"


def test_abscissas_and_their_median():
    fixed_points = {"wells": find_fixed_points(Flow(pitchfork), cloud(1)), "none": nowhere()}
    ax = plot_abscissas(fixed_points)
    dots, bar = ax.collections
    np.testing.assert_allclose(sorted(dots.get_offsets()[:, 1]), [-2, -2, 1], atol=1e-6)
    (segment,) = bar.get_segments()
    np.testing.assert_allclose(segment[:, 1], -2.0)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["wells", "none"]
