import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from tauflow.errors import ArgumentError
from tauflow_papers.theory import (
    NetworkDistribution,
    compare_with_bounds,
    length_study,
    plot_latent_trajectories,
    plot_length_comparison,
    plot_length_study,
    plot_study_variance,
    trajectory_lengths,
)

LAW = NetworkDistribution(width=4, tau_law="paper")


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def test_latent_trajectories_are_drawn_as_measured(tmp_path):
    results = [trajectory_lengths(model, LAW, tries=2) for model in ("ct-rnn", "ltc")]
    figure = plot_latent_trajectories(results)
    panels = figure.axes
    assert len(panels) == 3
    for ax, result in zip(panels[1:], results, strict=True):
        drawn = np.stack(ax.lines[0].get_data(), axis=1)
        np.testing.assert_array_equal(drawn, result.examples[0].scores[-1].numpy())
        assert f"{float(result.lengths[0, -1]):.3g}" in ax.get_title()
    figure.savefig(tmp_path / "latent.png")
    with pytest.raises(ArgumentError, match=r"only 1 trajectory.*examples=2"):
        plot_latent_trajectories(results, example=1)
    with pytest.raises(ArgumentError, match="results is empty"):
        plot_latent_trajectories([])


def test_boxes_stand_at_the_medians(tmp_path):
    study = length_study("weight_variance", [1.0, 4.0], law=LAW, tries=5)
    ax = plot_length_study(study)
    medians = [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1]
    for results in study.results.values():
        for result in results:
            exact = float(np.median(result.lengths[:, -1].numpy()))
            assert min(abs(m - exact) for m in medians) < 1e-9 * exact
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "4"]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["Neural ODE", "CT-RNN", "LTC"]
    ax.figure.savefig(tmp_path / "study.png")


def test_layers_are_those_of_the_deepest_network():
    law = NetworkDistribution(width=4, tau_law="paper")
    ax = plot_length_study(length_study("layers", [1, 3], law=law, models=["ltc"], tries=3))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]


def test_explained_variance_is_in_percent():
    result = trajectory_lengths("ltc", LAW, tries=3)
    ax = plot_study_variance(result, components=2)
    heights = [patch.get_height() for patch in ax.patches]
    expected = 100 * result.explained[:, 0, :2].mean(dim=0)
    np.testing.assert_allclose(heights, expected.numpy())
    _, mine = plt.subplots()
    assert plot_study_variance(result, ax=mine) is mine


def test_lengths_stand_over_their_bounds(tmp_path):
    comparisons = [
        compare_with_bounds(trajectory_lengths(model, LAW, tries=4)) for model in ("ltc", "ct-rnn")
    ]
    ax = plot_length_comparison(comparisons)
    for drawn, comparison in zip(ax.collections, comparisons, strict=True):
        expected = np.stack([comparison.bound[:, 0], comparison.measured[:, 0]], axis=1)
        np.testing.assert_allclose(drawn.get_offsets(), expected)
    assert ax.get_xlim() == ax.get_ylim()
    ax.figure.savefig(tmp_path / "bounds.png")
