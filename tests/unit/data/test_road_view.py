"""The camera, against the formulas of a pinhole."""

import math

import numpy as np
import pytest

from tauflow.data.synthetic.road_path import SPACING, Car, path_from_curvature
from tauflow.data.synthetic.road_scene import SEASONS, Mark, Scene
from tauflow.data.synthetic.road_view import Camera, render

CAMERA = Camera(144, 256)
STRAIGHT = path_from_curvature(np.zeros(int(150 / SPACING)))
START = Car(0.0, 0.0, 0.0)
MARKS = (Mark(1.75), Mark(-1.75))


def lines(path, *offsets, car=START, camera=CAMERA):
    """Return the share of white in a picture of lines beside the middle of a road."""
    scene = Scene(SEASONS["summer"], tuple(Mark(offset, 0.0, 0.0) for offset in offsets))
    bare = Scene(SEASONS["summer"], tuple(Mark(offset, 0.0, 0.0) for offset in offsets), paint=0.0)
    difference = render(camera, path, [car], scene) - render(camera, path, [car], bare)
    return difference[0].sum(axis=0)


def pixel_of(front, left, camera=CAMERA):
    """Return row and column of a point on the ground, as a pinhole camera sees it."""
    depth = front * math.cos(camera.pitch) + camera.height * math.sin(camera.pitch)
    down = camera.height * math.cos(camera.pitch) - front * math.sin(camera.pitch)
    return (
        camera.rows / 2 + camera.focal * down / depth - 0.5,
        camera.columns / 2 - camera.focal * left / depth - 0.5,
    )


@pytest.mark.parametrize("offset", [1.5, -2.0])
@pytest.mark.parametrize("front", [4.0, 7.0, 12.0])
def test_a_line_is_where_a_pinhole_sees_it(offset, front):
    seen = lines(STRAIGHT, offset)
    row, column = pixel_of(front, offset)
    low = math.floor(row)
    centres = [float(seen[r] @ np.arange(CAMERA.columns) / seen[r].sum()) for r in (low, low + 1)]
    between = centres[0] + (row - low) * (centres[1] - centres[0])
    assert between == pytest.approx(column, abs=0.6)


def test_nothing_is_painted_above_the_horizon():
    horizon = CAMERA.rows / 2 - CAMERA.focal * math.tan(CAMERA.pitch)
    painted = lines(STRAIGHT, 1.5).sum(axis=1) > 1e-3
    first = int(np.flatnonzero(painted)[0])
    assert horizon < first < horizon + 4  # as far as the camera sees


def test_lines_meet_at_the_vanishing_point():
    seen = lines(STRAIGHT, 1.5, -1.5)
    first = int(np.flatnonzero(seen.sum(axis=1) > 1e-3)[0])
    columns = np.flatnonzero(seen[first] > 1e-3)
    assert columns.mean() == pytest.approx(CAMERA.columns / 2 - 0.5, abs=0.6)


@pytest.mark.parametrize(("curvature", "side"), [(0.02, -1), (-0.02, 1)])
def test_a_left_turn_leads_to_the_left_of_the_picture(curvature, side):
    road = path_from_curvature(np.full(int(150 / SPACING), curvature))
    row, straight = pixel_of(20.0, 0.0)
    seen = lines(road, 0.0)[round(row)]
    column = float(seen @ np.arange(CAMERA.columns) / seen.sum())
    assert side * (column - straight) > 10
    # the foot of the circle of radius 50 m, 20 m to the front, is 50 - sqrt(50^2 - 20^2) m aside
    aside = (50 - math.sqrt(50**2 - 20**2)) * math.copysign(1, curvature)
    assert column == pytest.approx(pixel_of(20.0, aside)[1], abs=2.0)


def test_a_car_that_points_left_sees_the_road_to_its_right():
    row, straight = pixel_of(10.0, 0.0)
    seen = lines(STRAIGHT, 0.0, car=Car(0.0, 0.0, 0.1))[round(row)]
    column = float(seen @ np.arange(CAMERA.columns) / seen.sum())
    assert column == pytest.approx(straight + CAMERA.focal * math.tan(0.1), abs=3.0)


def test_a_finer_picture_averages_to_the_coarse_one():
    coarse, fine = (lines(STRAIGHT, 1.5, camera=Camera(36 * k, 64 * k)) for k in (1, 4))
    pooled = fine.reshape(36, 4, 64, 4).mean(axis=(1, 3))
    near = slice(20, 36)
    np.testing.assert_allclose(pooled[near].sum(axis=1), coarse[near].sum(axis=1), rtol=0.1)


def test_brightness_and_haze():
    scene = Scene(SEASONS["summer"], MARKS, brightness=0.5)
    full = Scene(SEASONS["summer"], MARKS)
    half = render(CAMERA, STRAIGHT, [START], scene)
    np.testing.assert_allclose(half, 0.5 * render(CAMERA, STRAIGHT, [START], full), atol=1e-6)
    thick = render(CAMERA, STRAIGHT, [START], Scene(SEASONS["summer"], MARKS, visibility=0.05))
    haze = np.asarray(SEASONS["summer"].haze)
    np.testing.assert_allclose(thick[0, :, -1, 0], haze, atol=1e-6)
