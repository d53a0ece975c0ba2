"""Lane keeping: steer by what a camera sees; rendered, never downloaded.

The recordings behind the published lane-keeping networks are not public. This is a small world of
our own with the same question: images in, the curvature to steer by out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import numpy as np
import torch

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_one_of,
    check_positive,
    check_seed,
    check_within,
)
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.datasets.sizes import check_sizes
from tauflow.errors import ArgumentError

from .road_path import SPACING, Car, CentreLine, Singles, make_centre_line, place_car, pure_pursuit
from .road_scene import SEASONS, sample_scene
from .road_view import MAX_DISTANCE, Camera, render

# 1/m: a target of 1 would be a turn of 10 m radius. All targets are smaller, so that networks whose
# last neuron is bounded by 1 can give them.
CURVATURE_UNIT = 0.1
MAX_CURVATURE = 0.02  # 1/m, a turn of 50 m radius
KNOT_SPACING = 20.0  # metres between two places where the curvature of the road is drawn
LOOKAHEAD = 8.0  # metres
START_DISTANCE = 5.0  # metres of road behind the car's first position
# That of tauflow_papers.theory.driving, which gives the published numbers of parameters.
IMAGE_SIZE = (72, 128)

LANE_KEEPING = DatasetCard(
    name="lane-keeping",
    title="Lane keeping",
    task="regress",
    input_size=3 * IMAGE_SIZE[0] * IMAGE_SIZE[1],
    image_size=(3, *IMAGE_SIZE),
    target_size=1,
    targets=("curvature, 1/(10 m)",),
    time_unit="s",
    sizes=(128, 32, 32),
    source=(
        "rendered; after the lane keeping of Hasani et al. 2022, Closed-form continuous-time "
        "neural networks, Table 3, whose recordings are not public"
    ),
    licence="none needed (rendered)",
    split="by drive: every sequence is another drive, on another road",
    loss="mse",
    metric="mse",
    notes=(
        "Numbers measured here cannot be compared with the paper's: its images are recordings.",
        "Inputs: red, green and blue, (T, 3, rows, columns), each frame with mean 0 and standard "
        "deviation 1; from 0 to 1 with standardize=False.",
        "Targets: the curvature that a pure-pursuit driver with 8 m lookahead commands at that "
        "frame, in 1/(10 m), positive to the left. The car drives as commanded, at 30 km/h.",
        "A drive begins off the middle of the lane, by up to 'offset' m and 'turned' rad, and "
        "recovers. Roads have one lane or two, and turns of 50 m radius or wider.",
        "Train with batches of few drives, each has 16 frames: --batch-size 8 --lr 0.001.",
        "Season, skyline, sight, shadows, worn paint, brightness, tint and texture differ between "
        "drives; pixels have Gaussian noise. 'seasons' chooses among summer, autumn and winter.",
    ),
)


@dataclass(frozen=True)
class DriveSampler:
    """How drives are drawn.

    Args:
        camera: what sees them.
        steps: frames of a drive.
        distance: from frame to frame, in m.
        seasons: names of seasons to draw from.
        offset: largest distance from the middle of the lane at the start, in m.
        turned: largest angle to the road at the start, in rad.
        noise: standard deviation of the noise of a pixel, before standardisation.
        standardize: whether every frame gets mean 0 and standard deviation 1.
    """

    camera: Camera
    steps: int
    distance: float
    seasons: tuple[str, ...]
    offset: float
    turned: float
    noise: float
    standardize: bool

    def sample(self, rng: np.random.RandomState) -> tuple[Singles, Singles]:
        """Return the frames of a drive, (T, 3, rows, columns), and its targets, (T,)."""
        # The arc to a far point is longer than its distance.
        length = START_DISTANCE + self.steps * self.distance + 1.5 * MAX_DISTANCE
        road = sample_road(length, rng)
        scene = sample_scene(length, self.seasons, rng)
        away, angle = rng.uniform(-1.0, 1.0, 2)
        cars, curvature = simulate_driver(
            road,
            place_car(road, START_DISTANCE, self.offset * away, self.turned * angle),
            self.steps,
            self.distance,
        )
        frames = render(self.camera, road, cars, scene)
        frames += np.float32(self.noise) * rng.standard_normal(frames.shape).astype(np.float32)
        targets = np.asarray(curvature, dtype=np.float32) / np.float32(CURVATURE_UNIT)
        np.clip(frames, 0.0, 1.0, out=frames)
        if self.standardize:
            axes = (1, 2, 3)
            frames -= frames.mean(axis=axes, keepdims=True)
            # A dark frame may be the same everywhere.
            frames /= np.maximum(frames.std(axis=axes, keepdims=True), np.float32(1e-3))
        return frames, targets


def load_lane_keeping(
    root: str | FilePath | None = None,
    *,
    download: bool = True,
    seed: int = 0,
    sizes: Sequence[int] = LANE_KEEPING.sizes,
    steps: int = 16,
    interval: float = 0.1,
    speed: float = 30 / 3.6,
    image_size: Sequence[int] = IMAGE_SIZE,
    seasons: Sequence[str] = tuple(SEASONS),
    offset: float = 0.8,
    turned: float = 0.08,
    noise: float = 0.02,
    standardize: bool = True,
) -> TaskData:
    """Render drives.

    Args:
        root: not used; nothing is stored.
        download: not used; nothing is downloaded.
        seed: of everything random; a part does not depend on the sizes of the others, and a drive
            goes the same way whatever the size of its images.
        sizes: number of training, validation (may be 0) and test drives.
        steps: frames of a drive.
        interval: seconds between frames.
        speed: of the car, in m/s.
        image_size: rows and columns.
        seasons: those to draw from: ``"summer"``, ``"autumn"``, ``"winter"``.
        offset: largest distance from the middle of the lane at the start, in m.
        turned: largest angle to the road at the start, in rad.
        noise: standard deviation of the noise of a pixel, whose values reach from 0 to 1.
        standardize: whether every frame then gets mean 0 and standard deviation 1.

    Raises:
        ArgumentError: an option is outside its range.
        UnknownNameError: there is no such season.
    """
    counts = check_sizes(sizes)
    check_seed(32, seed=seed)
    drives = DriveSampler(
        camera=_make_camera(image_size),
        steps=check_at_least(1, steps=steps),
        distance=check_positive(interval=interval) * check_within(0.0, 50.0, speed=speed),
        seasons=_check_seasons(seasons),
        offset=check_within(0.0, 1.5, offset=offset),
        turned=check_within(0.0, 0.2, turned=turned),
        noise=check_within(0.0, 1.0, noise=noise),
        standardize=check_bool(standardize=standardize),
    )

    def part(stream: int, size: int) -> SequenceBatch:
        camera = drives.camera
        x = np.empty((size, steps, 3, camera.rows, camera.columns), dtype=np.float32)
        y = np.empty((size, steps, 1), dtype=np.float32)
        for number in range(size):
            rng = np.random.RandomState([seed, stream, number])
            x[number], y[number, :, 0] = drives.sample(rng)
        dt = torch.full((size, steps), float(interval))
        return SequenceBatch(torch.from_numpy(x), torch.from_numpy(y), dt=dt)

    shape = (3, drives.camera.rows, drives.camera.columns)
    return TaskData(
        replace(LANE_KEEPING, sizes=counts, image_size=shape, input_size=3 * shape[1] * shape[2]),
        train=part(0, counts[0]),
        valid=part(1, counts[1]) if counts[1] else None,
        test=part(2, counts[2]),
    )


def sample_road(length: float, rng: np.random.RandomState) -> CentreLine:
    """Draw a road of at least so many metres, whose curvature changes evenly between knots."""
    knots = rng.uniform(-MAX_CURVATURE, MAX_CURVATURE, int(np.ceil(length / KNOT_SPACING)) + 1)
    along = SPACING * (np.arange(int(np.ceil(length / SPACING))) + 0.5)
    return make_centre_line(np.interp(along, KNOT_SPACING * np.arange(len(knots)), knots))


def simulate_driver(
    path: CentreLine, car: Car, steps: int, distance: float
) -> tuple[list[Car], list[float]]:
    """Let a pure-pursuit driver follow a road.

    Args:
        path: the road.
        car: where it starts.
        steps: number of commands.
        distance: driven on each command, in m.

    Returns:
        Where the car is at each command, and the commanded curvatures, in 1/m.
    """
    cars, curvatures = [], []
    for _ in range(steps):
        cars.append(car)
        curvatures.append(pure_pursuit(path.to_car_frame(car), LOOKAHEAD))
        car = car.drive(distance, curvatures[-1])
    return cars, curvatures


def _make_camera(image_size: Sequence[int]) -> Camera:
    if isinstance(image_size, str) or not isinstance(image_size, Sequence) or len(image_size) != 2:
        raise ArgumentError(
            f"image_size must be two numbers, rows and columns, got {image_size!r}."
        )
    rows, columns = image_size
    return Camera(check_at_least(2, image_rows=rows), check_at_least(2, image_columns=columns))


def _check_seasons(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ArgumentError(
            f"seasons must be a list of at least one of {', '.join(SEASONS)}, got {names!r}."
        )
    return tuple(check_one_of(SEASONS, seasons=name) for name in names)
