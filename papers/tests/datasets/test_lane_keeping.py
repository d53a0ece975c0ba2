import hashlib
import math

import numpy as np
import pytest
import torch

from tauflow.data import load_task, open_task, write_task
from tauflow.errors import ArgumentError, OptionError, UnknownNameError
from tauflow_papers.datasets.synthetic.lane_keeping import (
    CURVATURE_UNIT,
    MAX_CURVATURE,
    sample_road,
    simulate_driver,
)
from tauflow_papers.datasets.synthetic.road_path import (
    SPACING,
    Car,
    make_centre_line,
    place_car,
    pure_pursuit,
)
from tauflow_papers.theory.driving import DRIVING_IMAGE

CAR = Car(5.0, 0.3, 0.02)
SMALL = {"image_size": (18, 32), "steps": 4, "standardize": False}


def load(**options):
    return load_task("lane-keeping", **{"sizes": (6, 3, 3), **SMALL, **options})


def parts(data):
    return {"train": data.train, "valid": data.valid, "test": data.test}


def test_images_are_written_and_opened_whole(tmp_path):
    data = load()
    opened = open_task(write_task(tmp_path / "copy", data.card, **parts(data)))
    assert opened.card == data.card
    for name, part in parts(data).items():
        assert torch.equal(getattr(opened, name).x, part.x)
        assert torch.equal(getattr(opened, name).y, part.y)


def test_images_have_the_size_of_the_driving_networks():
    data = load_task("lane-keeping", sizes=(1, 0, 1), steps=2)
    assert data.train.x.shape == (1, 2, *DRIVING_IMAGE)
    assert data.card.image_size == DRIVING_IMAGE
    assert data.train.y.shape == (1, 2, 1)
    assert data.valid is None


def test_shapes_times_and_ranges():
    data = load(interval=0.05)
    assert data.sizes == (6, 3, 3)
    assert data.card.input_size == 3 * 18 * 32
    for batch in parts(data).values():
        assert batch.x.shape[1:] == (4, 3, 18, 32)
        assert batch.x.dtype == batch.y.dtype == torch.float32
        assert (batch.dt == torch.tensor(0.05)).all()
        assert batch.x.min() >= 0
        assert batch.x.max() <= 1
        assert batch.x.std() > 0.1
        assert batch.y.abs().max() < 1


def test_frames_are_standardized_one_by_one():
    plain, data = load().train.x.double(), load(standardize=True).train.x
    deviation = plain.flatten(2).std(dim=2, correction=0)
    expected = (plain - plain.mean((2, 3, 4), keepdim=True)) / deviation[..., None, None, None]
    torch.testing.assert_close(data.double(), expected, rtol=1e-4, atol=1e-5)
    black = load(standardize=True, image_size=(2, 2), noise=0.0).train.x
    assert torch.isfinite(black).all()


def test_one_seed_one_world():
    first, same, other = load(), load(), load(seed=1)
    for name, batch in parts(first).items():
        assert torch.equal(batch.x, parts(same)[name].x)
        assert torch.equal(batch.y, parts(same)[name].y)
        assert not torch.equal(batch.y, parts(other)[name].y)


def test_a_part_does_not_depend_on_other_sizes_nor_drives_on_images():
    few, more = load(), load(sizes=(8, 0, 5))
    assert torch.equal(more.train.x[:6], few.train.x)
    assert torch.equal(more.test.x[:3], few.test.x)
    larger = load(image_size=(36, 64))
    assert torch.equal(larger.train.y, few.train.y)
    # Four small pixels of the larger images make one of the smaller, noise and edges aside.
    pooled = torch.nn.functional.avg_pool2d(larger.train.x.flatten(0, 1), 2)
    assert (pooled - few.train.x.flatten(0, 1)).abs().mean() < 0.025


def test_no_drive_is_in_two_parts():
    digests = [
        hashlib.sha256(sequence.numpy().tobytes()).hexdigest()
        for batch in parts(load(sizes=(20, 10, 10), noise=0.0)).values()
        for sequence in (*batch.x, *batch.y)
    ]
    assert len(set(digests)) == len(digests) == 80


def test_targets_are_the_change_of_the_cars_heading():
    """Curvature is the derivative of the heading along the path that the car drives."""
    cars, curvature = simulate_driver(sample_road(200.0, np.random.RandomState(3)), CAR, 13, 0.8)
    headings = np.array([car.heading for car in cars])
    np.testing.assert_allclose(np.diff(headings) / 0.8, curvature[:-1], rtol=1e-9)
    places = np.array([(car.x, car.y) for car in cars])
    chords = np.diff(places, axis=0)
    np.testing.assert_allclose(np.hypot(*chords.T), 0.8, rtol=1e-4)
    # Each arc leaves in the mean of the headings at its ends.
    directions = np.arctan2(chords[:, 1], chords[:, 0])
    np.testing.assert_allclose(directions, (headings[1:] + headings[:-1]) / 2, atol=1e-9)


@pytest.mark.parametrize("curvature", [0.0, 0.015, -0.015])
def test_on_a_circle_the_driver_commands_the_curvature_of_the_road(curvature):
    road = make_centre_line(np.full(400, curvature))
    cars, commands = simulate_driver(road, place_car(road, 5.0, 0.0, 0.0), 20, 0.8)
    np.testing.assert_allclose(commands, curvature, atol=2e-5)
    if curvature:
        away = [math.hypot(car.x, car.y - 1 / curvature) for car in cars]
        np.testing.assert_allclose(away, 1 / abs(curvature), atol=5e-3)


def test_a_driver_beside_the_lane_steers_back():
    """On a straight road, by the arc through the point of the middle 8 m away."""
    road = make_centre_line(np.zeros(400))
    car = place_car(road, 5.0, 0.6, 0.0)
    assert pure_pursuit(road.to_car_frame(car), 8.0) == pytest.approx(2 * -0.6 / 64)
    cars, _ = simulate_driver(road, car, 60, 0.8)
    assert abs(cars[-1].y) < 0.02
    assert max(abs(car.y) for car in cars) == 0.6
    assert place_car(road, 5.0, 0.6, 0.1).heading == 0.1
    with pytest.raises(ArgumentError, match="the road ends less than 8 m ahead"):
        pure_pursuit(road.to_car_frame(Car(95.0, 0.0, 0.0)), 8.0)


def test_roads_are_smooth_and_their_points_evenly_spaced():
    road = sample_road(500.0, np.random.RandomState(0))
    assert (len(road.x) - 1) * SPACING == 500.0
    np.testing.assert_allclose(np.hypot(np.diff(road.x), np.diff(road.y)), SPACING, rtol=1e-4)
    curvature = np.diff(road.heading) / SPACING
    assert np.abs(curvature).max() <= MAX_CURVATURE
    assert curvature.std() > MAX_CURVATURE / 4
    # From one knot to the next, 20 m on, curvature changes evenly, by 2 SHARPEST at most.
    assert np.abs(np.diff(curvature)).max() <= 2 * MAX_CURVATURE * SPACING / 20 + 1e-12
    directions = np.arctan2(np.diff(road.y), np.diff(road.x))
    np.testing.assert_allclose(
        np.sin(directions - (road.heading[1:] + road.heading[:-1]) / 2), 0.0, atol=1e-9
    )


def test_an_arc_of_a_quarter_turn():
    car = Car(1.0, 2.0, 0.0).drive(10 * math.pi / 2, 0.1)
    assert (car.x, car.y, car.heading) == pytest.approx((11.0, 12.0, math.pi / 2))


def test_seasons_are_those_asked_for():
    """Snow beside the road is bright, grass is greener than red."""
    # The lower corners of the images: verges, mostly.
    winter, summer = (
        load(seasons=[name], noise=0.0, sizes=(12, 0, 1)).train.x[..., 8:12, :4].mean((1, 3, 4))
        for name in ("winter", "summer")
    )
    green = summer[:, 1] / summer[:, 0]
    assert (green > winter[:, 1] / winter[:, 0]).float().mean() > 0.9
    assert winter.mean() > 1.3 * summer.mean()


def test_a_linear_probe_does_better_than_the_mean():
    """Ridge regression on grey pixels of single frames."""
    data = load(sizes=(150, 0, 40), noise=0.01, seed=2)
    sets = []
    for batch in (data.train, data.test):
        frames = batch.x.mean(dim=2)[..., 6:, :].flatten(0, 1).flatten(1).double()
        frames = (frames - frames.mean(1, keepdim=True)) / frames.std(1, keepdim=True)
        sets.append((frames, batch.y.flatten().double() / batch.y.std()))
    (x, y), (test_x, test_y) = sets
    centre = x.mean(0)
    gram = (x - centre).T @ (x - centre) + 100 * torch.eye(x.shape[1]).double()
    weights = torch.linalg.solve(gram, (x - centre).T @ (y - y.mean()))
    error = ((test_x - centre) @ weights + y.mean() - test_y).square().mean()
    assert error < 0.5 * (test_y - y.mean()).square().mean()


def test_a_car_on_a_constant_curvature_comes_back():
    car = start = Car(3.0, -2.0, 0.7)
    for _ in range(7):
        car = car.drive(2 * math.pi * 25 / 7, 1 / 25)
    assert (car.x, car.y) == pytest.approx((start.x, start.y), abs=1e-9)
    assert car.heading == pytest.approx(0.7 + 2 * math.pi)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": (1, 1)}, "sizes must be three numbers"),
        ({"image_size": (3, 18, 32)}, "image_size must be two numbers"),
        ({"image_size": (18, 1)}, "image_columns must be at least 2"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"interval": 0.0}, "interval must be a number above 0"),
        ({"speed": 99.0}, "speed must be a number from 0 to 50"),
        ({"offset": 2.0}, "offset must be"),
        ({"turned": -0.1}, "turned must be"),
        ({"noise": -0.1}, "noise must be"),
        ({"standardize": 1}, "standardize must be True or False"),
        ({"seasons": "winter"}, "seasons must be a list"),
        ({"seasons": []}, "seasons must be a list"),
        ({"seed": 2**32}, "seed must be less than"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        load(**options)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'winter'\?"):
        load(seasons=["wynter"])
    with pytest.raises(OptionError, match=r"Did you mean 'seasons'\?"):
        load(season=["winter"])
    assert CURVATURE_UNIT == 0.1
