"""Cars in a closed loop, against drives whose course is known."""

import numpy as np
import pytest
import torch

from tauflow.errors import ArgumentError
from tauflow_papers.datasets.synthetic import closed_loop, lane_keeping
from tauflow_papers.datasets.synthetic.closed_loop import drive_closed_loop
from tauflow_papers.datasets.synthetic.road_path import make_centre_line, place_car, pure_pursuit


@pytest.mark.parametrize("offset", [-1.2, 0.0, 0.7])
@pytest.mark.parametrize("turned", [-0.2, 0.0])
def test_lateral_distance_is_that_the_car_was_placed_at(offset: float, turned: float) -> None:
    road = make_centre_line(0.02 * np.sin(np.arange(400) / 30))
    car = place_car(road, 40.0, offset, turned)
    assert closed_loop._measure_lateral(road, car) == pytest.approx(offset, abs=1e-6)


def test_straight_drive_leaves_a_circle_where_geometry_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    radius = 50.0
    monkeypatch.setattr(
        closed_loop,
        "sample_road",
        lambda length, rng: make_centre_line(np.full(int(4 * length), 1 / radius)),
    )
    drives = drive_closed_loop(
        lambda frames: torch.zeros(len(frames)), roads=2, length=60.0, speed=10.0, interval=0.1
    )
    # After s metres along the tangent a car is sqrt(r^2 + s^2) - r outside.
    s = np.arange(1, drives.lateral.shape[1] + 1) * 1.0
    away = radius - np.hypot(radius, s)
    inside = np.abs(away) <= closed_loop.LANE_HALF_WIDTH
    assert drives.completed == 0
    np.testing.assert_array_equal(np.isfinite(drives.lateral), np.stack([inside, inside]))
    np.testing.assert_allclose(drives.lateral[0][inside], away[inside], atol=0.02)
    np.testing.assert_allclose(drives.driven, inside.sum())


def test_pure_pursuit_driver_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of the training data, who sees the road and not the frames, stays in the lane."""
    places = []
    measure = closed_loop._measure_lateral
    monkeypatch.setattr(
        closed_loop,
        "_measure_lateral",
        lambda road, car: places.append((road, car)) or measure(road, car),  # type: ignore[func-returns-value]
    )
    first = iter([0.0])

    def steer(frames: torch.Tensor) -> torch.Tensor:
        if not places:
            return torch.tensor([next(first)])
        road, car = places[-1]
        curvature = pure_pursuit(road.to_car_frame(car), lane_keeping.LOOKAHEAD)
        return torch.tensor([curvature / lane_keeping.CURVATURE_UNIT])

    drives = drive_closed_loop(steer, roads=1, length=80.0)
    assert drives.completed == 1
    assert np.abs(drives.lateral).max() < 0.3


def test_frames_are_standardised_and_noise_has_its_variance() -> None:
    seen = []

    def steer(frames: torch.Tensor) -> torch.Tensor:
        seen.append(frames)
        return torch.zeros(len(frames))

    drive_closed_loop(steer, roads=2, length=0.5, speed=5.0)
    drive_closed_loop(steer, roads=2, length=0.5, speed=5.0, noise=0.35)
    plain, noisy = seen
    assert plain.shape == (2, 3, *lane_keeping.IMAGE_SIZE)
    torch.testing.assert_close(plain.mean((1, 2, 3)), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(plain.std((1, 2, 3)), torch.ones(2), atol=1e-3, rtol=0)
    assert float((noisy - plain).var()) == pytest.approx(0.35, rel=0.02)


def test_same_seed_gives_the_same_road_in_another_season() -> None:
    summer, _ = closed_loop._make_world(20.0, ("summer",), 3, 0)
    winter, _ = closed_loop._make_world(20.0, ("winter",), 3, 0)
    other, _ = closed_loop._make_world(20.0, ("summer",), 4, 0)
    np.testing.assert_array_equal(summer.x, winter.x)
    assert not np.array_equal(summer.y, other.y)


def test_too_few_roads_are_refused() -> None:
    with pytest.raises(ArgumentError, match="roads"):
        drive_closed_loop(lambda frames: frames.mean((1, 2, 3)), roads=0)
