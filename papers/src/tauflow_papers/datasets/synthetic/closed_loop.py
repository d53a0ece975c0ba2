"""A simulated car that is steered by a network: rendered frames in, curvature out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_seed, check_within

from .lane_keeping import (
    CURVATURE_UNIT,
    IMAGE_SIZE,
    START_DISTANCE,
    sample_road,
)
from .road_path import Car, CentreLine, Floats, place_car
from .road_scene import SEASONS, Scene, sample_scene
from .road_view import MAX_DISTANCE, Camera, render

LANE_HALF_WIDTH = 1.75
"""Metres from the middle of the lane to its marks."""

_STEEPEST = 0.1  # 1/m, a turn of 10 m radius: the steering of a car goes no further


@dataclass(frozen=True, eq=False)
class Drives:
    """How cars drove.

    Args:
        lateral: distance of each car to the left of the middle of its lane at every frame, in m,
            (B, T); NaN after it left the lane.
        driven: distance that each car drove inside its lane, in m, (B,).
    """

    lateral: Floats
    driven: Floats

    @property
    def completed(self) -> int:
        """How many cars were inside their lanes to the end."""
        return int(np.isfinite(self.lateral[:, -1]).sum())


def drive_closed_loop(
    steer: Callable[[Tensor], Tensor],
    *,
    roads: int = 8,
    length: float = 1000.0,
    seasons: Sequence[str] = tuple(SEASONS),
    noise: float = 0.0,
    speed: float = 30 / 3.6,
    interval: float = 0.1,
    seed: int = 0,
) -> Drives:
    """Let a network steer cars on roads that it has not seen.

    Args:
        steer: takes standardised frames, one of each car, (B, 3, rows, columns), and returns
            curvatures in 1/(10 m), (B,); called for one frame after the other, so that it may keep
            a state.
        roads: number of roads, each with a car.
        length: of a drive, in m.
        seasons: names of seasons to draw the scenes from.
        noise: variance of Gaussian noise that is added to standardised frames.
        speed: of the cars, in m/s.
        interval: seconds between frames.
        seed: of roads, scenes and noise.

    Returns:
        How the cars drove. A car that leaves its lane, by more than 1.75 m from the middle, stands.

    Raises:
        ArgumentError: an option is outside its range.
    """
    check_at_least(1, roads=roads)
    check_seed(32, seed=seed)
    check_within(0.0, 100.0, noise=noise)
    distance = speed * interval
    steps = int(np.ceil(length / distance))
    worlds = [_make_world(length, seasons, seed, number) for number in range(roads)]
    cars = [place_car(road, START_DISTANCE, 0.0, 0.0) for road, _ in worlds]
    camera = Camera(*IMAGE_SIZE)
    generator = torch.Generator().manual_seed(seed)
    lateral = np.full((roads, steps), np.nan)
    inside = np.ones(roads, dtype=bool)
    for step in range(steps):
        frames = np.stack(
            [
                render(camera, road, [car], scene)[0]
                for (road, scene), car in zip(worlds, cars, strict=True)
            ]
        )
        frames -= frames.mean(axis=(1, 2, 3), keepdims=True)
        frames /= np.maximum(frames.std(axis=(1, 2, 3), keepdims=True), np.float32(1e-3))
        seen = torch.from_numpy(frames)
        if noise:
            seen = seen + noise**0.5 * torch.randn(seen.shape, generator=generator)
        commands = steer(seen).double().numpy() * CURVATURE_UNIT
        for number, (road, _) in enumerate(worlds):
            if not inside[number]:
                continue
            curvature = float(np.clip(commands[number], -_STEEPEST, _STEEPEST))
            cars[number] = cars[number].drive(distance, curvature)
            away = _measure_lateral(road, cars[number])
            inside[number] = abs(away) <= LANE_HALF_WIDTH
            if inside[number]:
                lateral[number, step] = away
        if not inside.any():
            break
    return Drives(lateral, distance * np.isfinite(lateral).sum(axis=1))


def _make_world(
    length: float, seasons: Sequence[str], seed: int, number: int
) -> tuple[CentreLine, Scene]:
    """Return a road and its scene; the road is the same whatever the seasons."""
    end = START_DISTANCE + length + 1.5 * MAX_DISTANCE
    road = sample_road(end, np.random.RandomState([seed, 3, number]))
    return road, sample_scene(end, tuple(seasons), np.random.RandomState([seed, 4, number]))


def _measure_lateral(road: CentreLine, car: Car) -> float:
    """Return how far a car is to the left of the middle of its lane, in m."""
    here = road.to_car_frame(car)
    nearest = here.find_nearest_to_origin()
    heading = here.heading[nearest]
    return float(np.sin(heading) * here.x[nearest] - np.cos(heading) * here.y[nearest])
