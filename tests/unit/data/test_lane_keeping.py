"""Rendered drives: what is asked for, and that the images tell it."""

import math

import numpy as np
import pytest
import torch

from tauflow.data.catalog import load_task
from tauflow.data.synthetic.lane_keeping import follow, load_lane_keeping
from tauflow.data.synthetic.road_path import (
    SPACING,
    Car,
    beside,
    path_from_curvature,
    pure_pursuit,
)
from tauflow.errors import ArgumentError, UnknownNameError

SMALL = {"image_size": (36, 64), "steps": 6}


def turn(radius, length=120.0):
    """Return a road that turns evenly, to the left for a positive radius."""
    return path_from_curvature(np.full(int(length / SPACING), 1 / radius))


def test_an_even_turn_is_a_circle():
    road = turn(40.0, math.pi * 40 / 2)
    np.testing.assert_allclose(np.hypot(road.x, road.y - 40.0), 40.0, rtol=1e-9)
    assert (road.x[-1], road.y[-1]) == pytest.approx((40.0, 40.0), abs=0.3)


def test_a_car_on_a_constant_curvature_comes_back():
    start = car = Car(3.0, -2.0, 0.7)
    for _ in range(7):
        car = car.drive(2 * math.pi * 25 / 7, 1 / 25)
    assert (car.x, car.y) == pytest.approx((start.x, start.y), abs=1e-9)
    assert car.heading == pytest.approx(0.7 + 2 * math.pi)


@pytest.mark.parametrize("radius", [50.0, -50.0, 200.0])
def test_in_the_middle_of_an_even_turn_its_curvature_is_commanded(radius):
    road = turn(radius)
    seen = road.seen_from(beside(road, 10.0, 0.0, 0.0))
    assert pure_pursuit(seen, 8.0) == pytest.approx(1 / radius, rel=1e-3)


@pytest.mark.parametrize("offset", [0.8, -0.8])
def test_the_driver_returns_to_the_middle_of_a_straight_road(offset):
    road = path_from_curvature(np.zeros(400))
    cars, commands = follow(road, beside(road, 5.0, offset, 0.0), 60, 0.8)
    assert math.copysign(1, commands[0]) == -math.copysign(1, offset)
    assert cars[0].y == pytest.approx(offset)
    assert abs(cars[-1].y) < 0.02
    assert commands[0] == pytest.approx(-2 * offset / 64, rel=1e-4)  # aims at the middle, 8 m away


def test_the_road_must_go_on():
    with pytest.raises(ArgumentError, match="ends less than 8 m ahead"):
        pure_pursuit(path_from_curvature(np.zeros(20)), 8.0)


def test_same_seed_same_drives_and_parts_of_their_own():
    first, again = (load_lane_keeping(sizes=(3, 1, 2), **SMALL) for _ in range(2))
    torch.testing.assert_close(first.train.x, again.train.x, rtol=0, atol=0)
    larger = load_lane_keeping(sizes=(4, 0, 2), **SMALL)
    assert larger.valid is None
    torch.testing.assert_close(larger.train.x[:3], first.train.x, rtol=0, atol=0)
    torch.testing.assert_close(larger.test.y, first.test.y, rtol=0, atol=0)
    assert not torch.equal(first.train.y[:2], first.test.y)
    other = load_lane_keeping(sizes=(3, 1, 2), seed=1, **SMALL)
    assert not torch.equal(other.train.y, first.train.y)


def test_shapes_ranges_and_gaps():
    data = load_task("lane-keeping", sizes=(2, 1, 1), steps=5, interval=0.2)
    assert data.train.x.shape == (2, 5, *data.card.image_size) == (2, 5, 3, 72, 128)
    assert data.train.y.shape == (2, 5, 1)
    assert 0 <= float(data.train.x.min()) < 0.3
    assert 0.5 < float(data.train.x.max()) <= 1
    assert data.train.dt is not None
    assert data.train.dt.unique().tolist() == pytest.approx([0.2])


def test_a_drive_goes_the_same_way_at_any_image_size():
    coarse = load_lane_keeping(sizes=(2, 0, 1), steps=6, image_size=(18, 32))
    fine = load_lane_keeping(sizes=(2, 0, 1), steps=6, image_size=(36, 64))
    torch.testing.assert_close(coarse.train.y, fine.train.y, rtol=0, atol=0)


def test_the_images_tell_the_curvature():
    data = load_lane_keeping(sizes=(120, 0, 30), steps=8, image_size=(36, 64))

    def features(x):
        ground = x.mean(2).flatten(0, 1)[:, 10:]
        pixels = torch.nn.functional.avg_pool2d(ground[:, None], 2).flatten(1).double()
        pixels = (pixels - pixels.mean(1, keepdim=True)) / pixels.std(1, keepdim=True)
        return torch.nn.functional.pad(pixels, (0, 1), value=1.0)

    x, y = features(data.train.x), data.train.y.flatten().double()
    ridge = 10 * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    target = data.test.y.flatten().double()
    error = (features(data.test.x) @ weights - target).square().mean()
    assert float(error) < 0.25 * float((target - y.mean()).square().mean())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seasons": ("summr",)}, UnknownNameError, "summer"),
        ({"seasons": ()}, ArgumentError, "at least one of"),
        ({"image_size": (36,)}, ArgumentError, "rows and columns"),
        ({"speed": 90.0}, ArgumentError, "speed"),
        ({"sizes": (0, 0, 1)}, ArgumentError, "train_size"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        load_lane_keeping(**options)
