"""The camera against the pinhole formula, feet against a search, patches against many rays."""

from dataclasses import replace

import numpy as np
import pytest

from tauflow_papers.datasets.synthetic.road_path import SPACING, Car, make_centre_line, place_car
from tauflow_papers.datasets.synthetic.road_scene import ROADS, SEASONS, Mark, Scene, sample_scene
from tauflow_papers.datasets.synthetic.road_view import Camera, render

CAMERA = Camera(rows=144, columns=256)
STRAIGHT = make_centre_line(np.zeros(800))
WHITE, BLACK, GREY = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.5, 0.5, 0.5)
LINES = Scene(replace(SEASONS["summer"], asphalt=BLACK, verge=BLACK, mark=WHITE), ROADS["one-lane"])


def picture(path, car, scene=LINES, camera=CAMERA):
    """Render one frame, (3, rows, columns), as float64."""
    return render(camera, path, [car], scene)[0].astype(float)


def projected(point, camera=CAMERA):
    """Column and row of a point (front, left, up of the ground) by the pinhole formula."""
    front, left, up = point
    below = camera.height - up
    depth = front * np.cos(camera.pitch) + below * np.sin(camera.pitch)
    down = below * np.cos(camera.pitch) - front * np.sin(camera.pitch)
    column = camera.columns / 2 - camera.focal * left / depth
    return column, camera.rows / 2 + camera.focal * down / depth


def front_of_row(row, camera=CAMERA):
    """Distance at which the middle of a row meets the ground, by its angle below the horizon."""
    angle = camera.pitch + np.arctan((row + 0.5 - camera.rows / 2) / camera.focal)
    return camera.height / np.tan(angle)


def centre(brightness, columns):
    """Centre of gravity of a slice of a row, in the coordinate whose pixel c is c to c + 1."""
    return ((columns + 0.5) * brightness[columns]).sum() / brightness[columns].sum()


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("row", [60, 70, 90, 120])
def test_marks_of_a_straight_road_lie_where_the_pinhole_formula_says(side, row):
    image = picture(STRAIGHT, place_car(STRAIGHT, 10.0, 0.3, 0.0))
    column, back = projected((front_of_row(row), 1.75 * side - 0.3, 0.0))
    assert back == pytest.approx(row + 0.5)
    near = np.arange(max(int(column) - 14, 0), min(int(column) + 15, 256))
    middle = centre(image[0, row], near)
    assert middle == pytest.approx(column, abs=0.25)


def test_a_mark_covers_as_many_pixels_as_it_is_wide():
    """The brightness of a row adds up to the width of the mark in pixels."""
    for row in (58, 80, 120):
        image = picture(
            STRAIGHT, place_car(STRAIGHT, 10.0, 0.0, 0.0), replace(LINES, visibility=1e9)
        )
        front = front_of_row(row)
        depth = front * np.cos(CAMERA.pitch) + CAMERA.height * np.sin(CAMERA.pitch)
        assert image[0, row].sum() == pytest.approx(2 * 0.15 * CAMERA.focal / depth, rel=0.1)


def test_marks_meet_at_the_vanishing_point_on_the_horizon():
    """With a car turned by an angle, the road runs to that place of the horizon."""
    turned = 0.1
    image = picture(STRAIGHT, place_car(STRAIGHT, 10.0, 0.4, turned))
    vanishing, horizon = projected((1e9 * np.cos(turned), -1e9 * np.sin(turned), 0.0))
    assert horizon == pytest.approx(72 - CAMERA.focal * np.tan(CAMERA.pitch))
    lines = []
    for side in (1, -1):
        rows, columns = np.arange(56, 84, 3), []
        for row in rows:
            # The mark crosses the ray of that row: solve for the place on the mark by Newton.
            along = front_of_row(row)
            for _ in range(50):
                left = (1.75 * side - 0.4) * np.cos(turned) - along * np.sin(turned)
                front = along * np.cos(turned) + (1.75 * side - 0.4) * np.sin(turned)
                along += front_of_row(row) - front
            expected, _ = projected((front, left, 0.0))
            near = np.arange(int(expected) - 4, int(expected) + 5)
            columns.append(centre(image[0, row], near))
        lines.append(np.polyfit(rows + 0.5, columns, 1))
    (slope, shift), (other_slope, other_shift) = lines
    row = (other_shift - shift) / (slope - other_slope)
    assert row == pytest.approx(horizon, abs=0.5)
    assert slope * row + shift == pytest.approx(vanishing, abs=0.5)


def test_the_ground_begins_at_the_horizon():
    flat = replace(SEASONS["summer"], asphalt=BLACK, verge=BLACK, mark=BLACK, haze=WHITE, sky=WHITE)
    scene = Scene(flat, ROADS["one-lane"], visibility=1e9)
    image = picture(STRAIGHT, place_car(STRAIGHT, 10.0, 0.0, 0.0), scene)
    horizon = CAMERA.rows / 2 - CAMERA.focal * np.tan(CAMERA.pitch)
    assert (image[:, : int(horizon)] == 1).all()
    assert (image[:, int(horizon) + 2 :] < 1e-6).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_turn_to_the_left_bends_to_the_left(sign):
    """The middle of the lane, at a distance, is where a circle of 80 m radius says."""
    curve = make_centre_line(np.full(800, sign / 80.0))
    line = replace(LINES, marks=(Mark(0.0),))
    image = picture(curve, place_car(curve, 0.0, 0.0, 0.0), line)
    columns = []
    for row in (62, 75, 100):
        front = front_of_row(row)
        left = sign * (80.0 - np.sqrt(80.0**2 - front**2))
        expected, _ = projected((front, left, 0.0))
        middle = centre(image[0, row], np.arange(int(expected) - 6, int(expected) + 7))
        assert middle == pytest.approx(expected, abs=0.3)
        columns.append(middle)
    assert sign * (columns[2] - columns[0]) > 10  # columns grow to the right


def test_feet_are_the_nearest_points_of_a_winding_road():
    rng = np.random.RandomState(0)
    road = make_centre_line(0.02 * np.sin(np.arange(800) * SPACING / 15))
    number, side = rng.randint(40, 760, 300), rng.uniform(-9.0, 9.0, 300)
    x = road.x[number] - side * np.sin(road.heading[number])
    y = road.y[number] + side * np.cos(road.heading[number])
    guess = number * SPACING + rng.uniform(-4.0, 4.0, 300)
    feet = road.find_foot_points(*(values.astype(np.float32) for values in (x, y, guess)))
    np.testing.assert_allclose(feet.lateral, side, atol=2e-3)
    np.testing.assert_allclose(feet.along, number * SPACING, atol=5e-3)


def test_the_road_goes_on_straight_after_its_end():
    feet = STRAIGHT.find_foot_points(
        *(np.array([v], dtype=np.float32) for v in (300.0, 2.0, 200.0))
    )
    assert feet.along[0] == pytest.approx(300.0)
    assert feet.lateral[0] == pytest.approx(2.0)


def test_patches_average_dashes_and_shadows():
    """Against the mean of 15 x 15 finer pixels, whose own averaging hardly matters."""
    scene = Scene(
        replace(SEASONS["summer"], asphalt=GREY),
        ROADS["two-way"],
        shadows=np.array([9.0, 12.0, 14.0, 19.0, 25.0, 40.0]),
        slant=0.4,
        darkness=0.5,
    )
    curve = make_centre_line(np.full(800, 1 / 90.0))
    car = place_car(curve, 0.0, -0.5, 0.05)
    coarse = picture(curve, car, scene, Camera(36, 64))
    fine = picture(curve, car, scene, Camera(36 * 15, 64 * 15))
    mean = fine.reshape(3, 36, 15, 64, 15).mean(axis=(2, 4))
    error = np.abs(coarse - mean)[:, 14:]  # the rows of the ground but the horizon's
    assert error.mean() < 0.008
    assert np.quantile(error, 0.99) < 0.1


def test_light_and_paint_are_factors():
    car = place_car(STRAIGHT, 10.0, 0.0, 0.0)
    bright = picture(STRAIGHT, car)
    dim = picture(STRAIGHT, car, replace(LINES, brightness=0.5, tint=(1.0, 0.8, 0.6)))
    for channel, tint in enumerate((1.0, 0.8, 0.6)):
        np.testing.assert_allclose(dim[channel], 0.5 * tint * bright[channel], rtol=1e-5, atol=1e-6)
    worn = picture(STRAIGHT, car, replace(LINES, paint=0.5))[:, 60:]
    lit = bright[:, 60:] - picture(STRAIGHT, car, replace(LINES, paint=0.0))[:, 60:]
    np.testing.assert_allclose(bright[:, 60:] - worn, 0.5 * lit, atol=1e-5)


def test_in_thick_haze_nothing_else_is_seen():
    thick = picture(STRAIGHT, place_car(STRAIGHT, 10.0, 0.0, 0.0), replace(LINES, visibility=0.05))
    haze = np.array(LINES.season.haze)[:, None, None]
    np.testing.assert_allclose(thick[:, 60:], np.broadcast_to(haze, (3, 84, 256)), atol=1e-6)


def test_the_skyline_stands_still_while_the_car_turns():
    """Turning to the left by the angle between two columns moves it to the right by as much."""
    clear = replace(SEASONS["winter"], sky=WHITE, haze=WHITE, woods=BLACK)
    scene = Scene(clear, ROADS["one-lane"], skyline=np.array([[0.05, 20.0, 0.0]]))
    height = [
        2 * (1 - picture(STRAIGHT, Car(10.0, 0.0, heading), scene)[0, :48]).sum(axis=0)
        for heading in (0.0, 0.2)
    ]
    assert height[0].max() == pytest.approx(
        0.05 * CAMERA.focal / np.cos(CAMERA.pitch) ** 2, abs=1.0
    )
    angle = np.arctan((np.arange(256) + 0.5 - 128) / CAMERA.focal * np.cos(CAMERA.pitch))
    moved = np.interp(angle - 0.2, angle, height[0])[80:]  # columns whose woods were in sight
    assert np.abs(moved - height[1][80:]).mean() < 1.0
    assert np.abs(height[0] - height[1]).mean() > 2.0


def test_scenes_differ_and_draw_seasons_asked_for():
    rng = np.random.RandomState(0)
    scenes = [sample_scene(200.0, ["winter", "autumn"], rng) for _ in range(40)]
    assert {id(scene.season) for scene in scenes} == {id(SEASONS[n]) for n in ("winter", "autumn")}
    assert len({scene.brightness for scene in scenes}) == 40
    assert len({scene.marks for scene in scenes}) == len(ROADS)
    for scene in scenes:
        assert (np.diff(scene.shadows) > 0).all()
        assert scene.shadows[-1] > 200.0
