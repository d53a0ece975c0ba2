"""A road seen by a camera behind the windscreen: the ground is flat, and each pixel looks at it.

Frames and units are those of :mod:`tauflow_papers.datasets.synthetic.road_path`; the camera stands
above the origin of the car's frame. Image rows run down, columns to the right. Every mark and
shadow is averaged over the patch of ground that a pixel sees, in closed form, so that far marks
fade and do not flicker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .road_path import SPACING, Car, CentreLine, FootPoints, Singles
from .road_scene import MARK_WIDTH, SHOULDER, Mark, Scene

MAX_DISTANCE = 120.0  # metres of road that a camera has to be given; farther it is drawn straight
HORIZON = 500.0  # metres; ground is drawn up to here, a fraction of a pixel below the horizon
SHADOW_RANGE = 12.0  # metres from the lane at which the shadows of roadside trees end
PENUMBRA = 0.4  # metres over which the edge of a shadow is soft


@dataclass(frozen=True, eq=False)
class Ground:
    """Where the pixels below the horizon look: R rows of at most :data:`HORIZON`, C columns.

    Args:
        first: number of the first of these rows.
        longitudinal: metres to the front, (R, 1).
        lateral: metres to the left, (R, C).
        longitudinal_per_row: change of ``longitudinal`` from a row to the next, (R, 1).
        lateral_per_row: change of ``lateral`` from a row to the next, (R, C).
        lateral_per_column: change of ``lateral`` from a column to the next, (R, 1).
    """

    first: int
    longitudinal: Singles
    lateral: Singles
    longitudinal_per_row: Singles
    lateral_per_row: Singles
    lateral_per_column: Singles


@dataclass(frozen=True)
class Camera:
    """A pinhole camera.

    Args:
        rows: of the image.
        columns: of the image.
        height: above the ground, in m.
        pitch: downwards, in rad.
        field_of_view: from the left to the right edge of the image, in rad.
    """

    rows: int
    columns: int
    height: float = 1.4
    pitch: float = float(np.radians(8.0))
    field_of_view: float = float(np.radians(75.0))

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return float(self.columns / 2 / np.tan(self.field_of_view / 2))

    @cached_property
    def _rays(self) -> tuple[Singles, Singles, Singles]:
        """Directions of rows and columns.

        A ray goes 1 along the optical axis, which points forwards and down by the pitch.

        Returns:
            How far it goes forwards, (rows, 1), falls, (rows, 1), and goes right, (1, columns).
        """
        down = ((np.arange(self.rows) + 0.5 - self.rows / 2) / self.focal)[:, None]
        right = ((np.arange(self.columns) + 0.5 - self.columns / 2) / self.focal)[None, :]
        forward = np.cos(self.pitch) - down * np.sin(self.pitch)
        falling = np.sin(self.pitch) + down * np.cos(self.pitch)
        return forward.astype(np.float32), falling.astype(np.float32), right.astype(np.float32)

    @cached_property
    def ground(self) -> Ground:
        """Where the pixels look that see the ground."""
        forward, falling, right = self._rays
        # The tangent of the angle below the horizon grows from row to row.
        first = int(np.searchsorted((falling / forward)[:, 0], self.height / HORIZON, side="right"))
        forward, falling = forward[first:], falling[first:]
        length = self.height / falling
        return Ground(
            first=first,
            longitudinal=length * forward,
            lateral=-length * right,
            longitudinal_per_row=-length / (falling * self.focal),
            lateral_per_row=length
            * right
            * np.float32(np.cos(self.pitch))
            / (falling * self.focal),
            lateral_per_column=-length / np.float32(self.focal),
        )

    @cached_property
    def elevation(self) -> Singles:
        """Tangent of the angle of each row above the horizon, straight ahead, (rows, 1)."""
        forward, falling, _ = self._rays
        tangent: Singles = -falling / forward
        return tangent

    @cached_property
    def azimuth(self) -> Singles:
        """Angle of each column to the left of straight ahead, at the horizon, (columns,)."""
        _, _, right = self._rays
        angle: Singles = -np.arctan(right[0] * np.float32(np.cos(self.pitch)))
        return angle


def render(camera: Camera, path: CentreLine, cars: Sequence[Car], scene: Scene) -> Singles:
    """Draw what a camera sees from places on a road.

    Args:
        camera: what sees it.
        path: centre line of the lane.
        cars: where the camera is, frame by frame.
        scene: what everything looks like.

    Returns:
        Red, green and blue from 0 to 1, (frames, 3, rows, columns).
    """
    frames = np.empty((len(cars), 3, camera.rows, camera.columns), dtype=np.float32)
    first = camera.ground.first
    _paint_sky(frames[:, :, :first], camera, cars, scene)
    if first < camera.rows:
        _paint_ground(frames[:, :, first:], camera.ground, path, cars, scene)
    frames *= np.float32(scene.brightness) * _to_channels(scene.tint)
    return np.clip(frames, 0.0, 1.0, out=frames)


def _paint_sky(frames: Singles, camera: Camera, cars: Sequence[Car], scene: Scene) -> None:
    """Fill frames (T, 3, R, C) of the sky's rows: bluer further up, with woods at the horizon."""
    season, elevation = scene.season, camera.elevation[: frames.shape[2]]
    blue = np.clip(elevation / 0.4, 0.0, 1.0)
    frames[:] = (1 - blue) * _to_channels(season.haze) + blue * _to_channels(season.sky)
    azimuth = camera.azimuth + _to_float32([car.heading for car in cars])[:, None]
    height = np.full(azimuth.shape, scene.woods, dtype=np.float32)  # (T, C)
    for tangent, cycles, phase in scene.skyline.astype(np.float32):
        height += tangent * np.sin(cycles * azimuth + phase)
    above = (height[:, None, :] - elevation) * np.float32(camera.focal)
    covered = np.clip(above + np.float32(0.5), 0.0, 1.0)  # (T, R, C)
    # Woods are far: they take half of the haze's colour.
    woods = 0.5 * _to_channels(season.woods) + 0.5 * _to_channels(season.haze)
    frames += covered[:, None] * (woods - frames)


def _paint_ground(
    frames: Singles, ground: Ground, path: CentreLine, cars: Sequence[Car], scene: Scene
) -> None:
    """Draw the road and the land, over frames (T, 3, R, C) of the ground's rows."""
    feet, along, across = _locate_patches(ground, path, cars)
    marks, season = scene.marks, scene.season
    low = min(mark.offset for mark in marks) - SHOULDER
    high = max(mark.offset for mark in marks) + SHOULDER
    paved = _compute_overlap(feet.lateral, across, low, high)
    painted = np.zeros_like(paved)
    for mark in marks:
        painted += _compute_mark_coverage(mark, feet, along, across)
    painted *= np.float32(scene.paint)
    light = _compute_brightness(feet, along, across, scene)
    clear = np.exp(-ground.longitudinal / np.float32(scene.visibility))
    colours = zip(season.verge, season.asphalt, season.mark, season.haze, strict=True)
    for channel, (verge, asphalt, mark_colour, haze) in enumerate(colours):
        colour = verge + np.float32(asphalt - verge) * paved
        colour += painted * (np.float32(mark_colour) - colour)
        colour *= light
        frames[:, channel] = haze + clear * (colour - np.float32(haze))


def _locate_patches(
    ground: Ground, path: CentreLine, cars: Sequence[Car]
) -> tuple[FootPoints, Singles, Singles]:
    """Return where pixels look on the road, and the size of the patch each sees, (T, R, C).

    The size is the length and the width of the patch, along and across the road, in m.
    """
    heading = _to_float32([car.heading for car in cars])[:, None, None]
    cosine: Singles = np.cos(heading)
    sine: Singles = np.sin(heading)
    x: Singles = _to_float32([car.x for car in cars])[:, None, None] + cosine * ground.longitudinal
    y: Singles = _to_float32([car.y for car in cars])[:, None, None] + sine * ground.longitudinal
    x, y = x - sine * ground.lateral, y + cosine * ground.lateral
    guess = np.empty((len(cars), len(ground.longitudinal), 1), dtype=np.float32)
    for number, car in enumerate(cars):
        seen = path.to_car_frame(car)
        here = seen.find_nearest_to_origin()
        # As far as the road leads away from the car; beyond, Newton's method finds its way.
        back = np.flatnonzero(np.diff(seen.x[here:]) <= 0)
        there = here + int(back[0]) + 1 if back.size else len(seen.x)
        guess[number] = np.interp(
            ground.longitudinal, seen.x[here:there], SPACING * np.arange(here, there)
        )
    feet = path.find_foot_points(x, y, np.broadcast_to(guess, x.shape))
    # The road's direction in the car's frame turns sizes in that frame into sizes on the road.
    forward = feet.cosine * cosine + feet.sine * sine
    leftward = feet.sine * cosine - feet.cosine * sine
    along = np.hypot(
        leftward * ground.lateral_per_column,
        forward * ground.longitudinal_per_row + leftward * ground.lateral_per_row,
    )
    across = np.hypot(
        forward * ground.lateral_per_column,
        forward * ground.lateral_per_row - leftward * ground.longitudinal_per_row,
    )
    return feet, along, across


def _compute_mark_coverage(
    mark: Mark, feet: FootPoints, along: Singles, across: Singles
) -> Singles:
    """Return which share of each patch is painted."""
    half = MARK_WIDTH / 2
    share = _compute_overlap(feet.lateral, across, mark.offset - half, mark.offset + half)
    if mark.dash > 0:
        period = mark.dash + mark.gap
        reach = np.float32(0.5) * along
        painted = _compute_painted_length(feet.along + reach, mark.dash, period)
        painted -= _compute_painted_length(feet.along - reach, mark.dash, period)
        share *= painted / along
    return share


def _compute_painted_length(along: Singles, dash: float, period: float) -> Singles:
    """Return how many metres are painted from 0 to a place."""
    dashes: Singles = np.floor(along / np.float32(period))
    painted: Singles = dashes * np.float32(dash)
    painted += np.minimum(along - dashes * np.float32(period), np.float32(dash))
    return painted


def _compute_overlap(middle: Singles, width: Singles, low: float, high: float) -> Singles:
    """Return which share of intervals of a width lies between two places."""
    inside = np.minimum(middle + width / 2, np.float32(high))
    inside -= np.maximum(middle - width / 2, np.float32(low))
    share: Singles = np.maximum(inside, np.float32(0.0)) / width
    return share


def _compute_brightness(feet: FootPoints, along: Singles, across: Singles, scene: Scene) -> Singles:
    """Return what texture and shadows make of the ground's brightness, a factor."""
    light = np.ones_like(along)
    if scene.texture > 0 and len(scene.waves):
        waves = np.zeros_like(along)
        for forward, leftward, phase in scene.waves.astype(np.float32):
            waves += np.sin(forward * feet.along + leftward * feet.lateral + phase)
        # Patches longer than a wave see its mean.
        light += np.float32(scene.texture / len(scene.waves)) * waves * np.exp(-2 * along)
    if scene.darkness > 0 and len(scene.shadows):
        place = feet.along - np.float32(scene.slant) * feet.lateral
        width = np.maximum(np.hypot(along, np.float32(scene.slant) * across), np.float32(PENUMBRA))
        lengths = np.where(np.arange(len(scene.shadows)) % 2, np.diff(scene.shadows, prepend=0), 0)
        dark = np.interp(place + width / 2, scene.shadows, lengths.cumsum())
        dark -= np.interp(place - width / 2, scene.shadows, lengths.cumsum())
        depth = np.clip((SHADOW_RANGE - np.abs(feet.lateral)) / 4.0, 0.0, scene.darkness)
        light *= (1 - depth * dark / width).astype(np.float32)
    return light


def _to_channels(colour: Sequence[float]) -> Singles:
    """Return a colour as (3, 1, 1)."""
    return _to_float32(colour)[:, None, None]


def _to_float32(values: Sequence[float]) -> Singles:
    return np.asarray(values, dtype=np.float32)
