"""Pictures of depths, of closed forms' costs, of layers, and of saliency under noise."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from tauflow.errors import ArgumentError
from tauflow.models import ConvolutionalHead
from tauflow_papers.theory import (
    DepthSummary,
    NetworkDistribution,
    plot_closed_form_costs,
    plot_depths,
    plot_layer_trajectories,
    plot_saliency,
    saliency_under_noise,
    trajectory_lengths,
)


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def test_medians_and_quartiles_are_drawn_beside_published_depths():
    ours = DepthSummary(mean=9.0, std=3.0, median=5.0, low=4.0, high=8.0)
    figure = plot_depths({"tanh": {"LTC": {"ours": ours}}}, {"tanh": {"LTC": (6.0, 20.0)}})
    published, drawn = figure.axes[0].containers
    assert published.lines[0].get_xydata()[0, 0] == 6.0
    assert drawn.lines[0].get_xydata()[0, 0] == 5.0
    (bar,) = drawn.lines[2][0].get_segments()
    np.testing.assert_allclose(bar[:, 0], [4.0, 8.0])
    (bar,) = published.lines[2][0].get_segments()
    assert 0 < bar[0, 0] < 6.0, "a deviation above the mean stays on the logarithmic axis"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "published, mean and deviation",
        "ours, median and quartiles",
    ]


def test_costs():
    left, right = plot_closed_form_costs({"a": 1e-3, "b": 2.0}, {"a": 0.5, "b": 4.0}).axes
    np.testing.assert_allclose(left.lines[0].get_xdata(), [1e-3, 2.0])
    assert [bar.get_width() for bar in right.patches] == [0.5, 4.0]
    assert [text.get_text() for text in right.texts] == ["0.5", "4.0"]


def test_every_layer_has_a_panel():
    law = NetworkDistribution(width=4, layers=2)
    results = [trajectory_lengths(model, law, tries=1) for model in ("neural-ode", "ct-rnn")]
    axes = plot_layer_trajectories(results).axes
    assert len(axes) == 6
    np.testing.assert_allclose(axes[5].lines[0].get_xydata(), results[1].examples[0].scores[1])
    with pytest.raises(ArgumentError, match="kept"):
        plot_layer_trajectories(results, example=1)


def test_masks_lie_over_the_images_they_belong_to():
    head = ConvolutionalHead((1, 12, 14), layers=((3, 3, 1),), dense=(2,))
    images = torch.rand(2, 1, 12, 14)
    saliencies = {
        name: saliency_under_noise(head, images, seed=seed) for seed, name in enumerate("ab")
    }
    noisy_image = saliencies["a"].noisy_images[1]
    masks = {
        name: (saliency.clean.masks[1], saliency.noisy.masks[1])
        for name, saliency in saliencies.items()
    }
    axes = plot_saliency({"image": images[1], "noise": noisy_image}, masks).axes
    assert [ax.get_title() for ax in axes[:2]] == ["image", "noise"]
    assert [axes[at].get_ylabel() for at in (0, 2, 4)] == ["image", "a", "b"]
    np.testing.assert_array_equal(axes[2].images[1].get_array(), saliencies["a"].clean.masks[1])
    np.testing.assert_array_equal(axes[5].images[1].get_array(), saliencies["b"].noisy.masks[1])
    noisy = saliencies["a"].noisy_images[1, 0]
    shown = np.asarray(axes[1].images[0].get_array())
    np.testing.assert_allclose(
        shown, (noisy - noisy.min()) / (noisy.max() - noisy.min()), atol=1e-6
    )
