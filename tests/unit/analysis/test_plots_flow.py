import matplotlib as mpl
import numpy as np
import pytest
import torch
from known_systems import cloud, two_wells
from matplotlib import pyplot as plt

import tauflow
from tauflow.analysis import (
    Flow,
    Projection,
    find_fixed_points,
    flow_field,
    plot_flow_field,
    plot_trajectories,
    principal_components,
    simulate,
)
from tauflow.errors import ArgumentError, ShapeError

BOX = ((-1.5, 1.5), (-1.0, 1.0))


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


def wells():
    return find_fixed_points(Flow(two_wells), cloud(2))


def test_a_field_shows_speed_streams_paths_and_points(tmp_path):
    paths = simulate(Flow(two_wells), cloud(2, count=7), steps=20, step_size=0.1)
    field = flow_field(
        Flow(two_wells), box=BOX, trajectories=paths.states, fixed_points=wells(), resolution=15
    )
    ax = plot_flow_field(field)
    (image,) = ax.images
    assert image.get_array().max() == pytest.approx(field.speed.max().item())
    assert len(ax.collections) == 1  # the streamlines
    drawn = [line.get_xydata() for line in ax.lines]
    assert sum(len(points) == 21 for points in drawn) == 7
    markers = [line for line in ax.lines if line.get_linestyle() == "None"]
    assert sorted(len(line.get_xydata()) for line in markers) == [1, 2]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["stable", "unstable"]
    assert ax.get_xlim() == (-1.5, 1.5)
    ax.figure.savefig(tmp_path / "field.png")
    assert (tmp_path / "field.png").stat().st_size > 20_000


def test_speeds_lie_where_they_were_taken():
    """The speed of a flow that rests at a grid point is lowest in that point's pixel."""
    rest = torch.tensor([-1.5, 1.0], dtype=torch.float64)  # the upper left corner
    ax = plot_flow_field(flow_field(Flow(lambda h: h - rest), box=BOX, resolution=9))
    (image,) = ax.images
    left, right, bottom, top = image.get_extent()
    speeds = image.get_array()
    rows, columns = speeds.shape
    x = left + (np.arange(columns) + 0.5) * (right - left) / columns
    y = bottom + (np.arange(rows) + 0.5) * (top - bottom) / rows
    expected = np.hypot(x[None, :] + 1.5, y[:, None] - 1.0)
    assert (expected < 1e-9).sum() == 1
    far = expected > 0.5  # the scale does not reach down to the slowest
    np.testing.assert_allclose(speeds[far], expected[far])
    assert (ax.get_xlim(), ax.get_ylim()) == BOX


def test_a_field_that_rests_everywhere_is_drawn_without_streams():
    ax = plot_flow_field(flow_field(Flow(torch.zeros_like), box=BOX, resolution=4))
    assert not ax.images
    assert not ax.collections


def test_paths_in_principal_components():
    paths = simulate(Flow(two_wells), cloud(2, count=7), steps=20, step_size=0.1).states
    view, fixed_points = principal_components(paths).projection(), wells()
    ax = plot_trajectories(paths, view, fixed_points=fixed_points)
    drawn = [line.get_xydata() for line in ax.lines]
    np.testing.assert_allclose(drawn[0], view.project(paths[0]))
    shown = np.concatenate(drawn[7:])
    expected = view.project(fixed_points.points).numpy()
    assert len(shown) == 3
    for point in expected:
        assert np.abs(shown - point).sum(axis=1).min() < 1e-12
    assert ax.get_xlabel().startswith("PC 1 (")
    with pytest.raises(ShapeError, match=r"expected \(2, S\)"):
        plot_trajectories(paths, Projection.identity(3))


def test_what_is_not_finite_is_refused():
    field = flow_field(Flow(lambda h: h.log()), box=BOX, resolution=3)
    with pytest.raises(ArgumentError, match="smaller box"):
        plot_flow_field(field)


def test_a_title_has_its_place():
    field = flow_field(Flow(two_wells), box=BOX, fixed_points=wells(), resolution=9)
    ax = plot_flow_field(field)
    title = ax.set_title("Two wells")
    ax.figure.canvas.draw()
    boxes = [title, ax.get_legend(), ax.xaxis.label]
    a, b, c = (box.get_window_extent() for box in boxes)
    assert not a.overlaps(b)
    assert not b.overlaps(c)


def test_a_network_is_no_field():
    with pytest.raises(ArgumentError, match=r"expected a FlowField, got GRU\. .*flow_field\(rnn"):
        plot_flow_field(tauflow.GRU(2, 2))
    field = flow_field(tauflow.GRU(2, 2), box=BOX, resolution=3)
    assert plot_flow_field(field).get_xlim() == BOX[0]
