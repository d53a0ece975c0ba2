"""What pictures of every kind share: axes side by side, their letters, one legend."""

import pytest

pytest.importorskip("matplotlib")

from matplotlib import pyplot as plt

from tauflow.plotting.axes import (
    add_panel_letters,
    get_figure,
    make_axes,
    make_panels,
    set_log_scale,
)
from tauflow.plotting.legends import add_shared_legend, collect_legend_entries, merge_legends


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_panels_stand_row_by_row_and_the_rest_of_the_grid_is_hidden():
    figure, axes = make_panels(5, columns=3, width=2.0, height=1.5, above=0.5)
    assert figure.get_size_inches().tolist() == [6.0, 3.5]
    assert [ax.get_subplotspec().num1 for ax in axes] == [0, 1, 2, 3, 4]
    assert [ax.get_visible() for ax in figure.axes] == [True] * 5 + [False]
    add_panel_letters(axes, ["one", "two"])
    assert [ax.get_title() for ax in axes[:3]] == ["A  one", "B  two", ""]


def test_axes_of_their_own_fill_a_figure():
    ax = make_axes(4.0, 3.0)
    assert get_figure(ax).get_size_inches().tolist() == [4.0, 3.0]


def test_a_shared_legend_has_every_label_once_in_the_colour_it_came_first():
    figure, (left, right) = make_panels(2, columns=2)
    left.plot([0, 1], color="red", label="a")
    right.plot([0, 1], color="blue", label="a")
    right.plot([1, 0], color="green", label="b")
    handles, labels = collect_legend_entries([left, right])
    assert labels == ["a", "b"]
    assert [line.get_color() for line in handles] == ["red", "green"]
    add_shared_legend(figure, [left, right])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_one_legend_takes_the_place_of_those_that_axes_have():
    figure, (left, middle, right) = make_panels(3, columns=3)
    for ax, label in ((left, "a"), (middle, "b"), (right, "c")):
        ax.plot([0, 1], label=label)
    left.legend()
    (curve,) = right.plot([1, 0], label="_hidden")
    right.legend(handles=[curve], labels=["by hand"])
    merge_legends(figure, [left, middle, right])
    assert left.get_legend() is right.get_legend() is None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "c"]


def test_a_logarithmic_axis_has_plain_numbers():
    ax = make_axes(4.0, 3.0)
    ax.plot([1, 2], [3, 40])
    set_log_scale(ax, ax.yaxis)
    get_figure(ax).draw_without_rendering()
    low, high = ax.get_ylim()
    seen = [
        text.get_text()
        for text, at in zip(ax.get_yticklabels(), ax.get_yticks(), strict=True)
        if low <= at <= high
    ]
    assert seen == ["5", "10", "20"]
