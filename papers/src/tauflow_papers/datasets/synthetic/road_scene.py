"""What a road and the land beside it look like: marks, season, light, shadows, skyline."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .road_path import Floats

Colour = tuple[float, float, float]
"""Red, green and blue, each from 0 to 1."""

MARK_WIDTH = 0.15  # metres
SHOULDER = 0.4  # metres of asphalt outside the outermost marks


@dataclass(frozen=True)
class Mark:
    """A painted line along the road.

    Args:
        offset: of its middle from the middle of the lane, to the left, in m.
        dash: length of a dash, in m; 0 for a solid line.
        gap: length of the gap after a dash, in m.
    """

    offset: float
    dash: float = 0.0
    gap: float = 0.0


ROADS = {
    "one-lane": (Mark(1.75), Mark(-1.75)),
    "two-way": (Mark(5.25), Mark(1.75, dash=3.0, gap=6.0), Mark(-1.75)),
}
"""Marks of each kind of road; the car's lane is 3.5 m wide, with its middle at 0."""


@dataclass(frozen=True)
class Season:
    """Colours of a time of the year.

    Args:
        asphalt: of the road.
        mark: of fresh paint.
        verge: of the land beside the road.
        woods: of the skyline.
        haze: of the sky above the horizon, and of all that is far away.
        sky: of the sky overhead.
    """

    asphalt: Colour
    mark: Colour
    verge: Colour
    woods: Colour
    haze: Colour
    sky: Colour


SEASONS = {
    "summer": Season(
        asphalt=(0.36, 0.36, 0.38),
        mark=(0.94, 0.94, 0.90),
        verge=(0.30, 0.45, 0.20),
        woods=(0.16, 0.28, 0.14),
        haze=(0.80, 0.85, 0.90),
        sky=(0.38, 0.58, 0.86),
    ),
    "autumn": Season(
        asphalt=(0.30, 0.29, 0.29),
        mark=(0.88, 0.86, 0.80),
        verge=(0.50, 0.41, 0.22),
        woods=(0.42, 0.28, 0.15),
        haze=(0.78, 0.78, 0.76),
        sky=(0.55, 0.63, 0.74),
    ),
    "winter": Season(
        asphalt=(0.24, 0.25, 0.28),
        mark=(0.82, 0.83, 0.85),
        verge=(0.84, 0.87, 0.91),
        woods=(0.33, 0.34, 0.36),
        haze=(0.83, 0.85, 0.88),
        sky=(0.68, 0.74, 0.82),
    ),
}
"""The seasons that a drive can have."""


def _make_empty(*shape: int) -> Floats:
    return np.zeros(shape)


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that differs between two recordings of the same road.

    Args:
        season: its colours.
        marks: lines along the road.
        paint: how much of the marks' paint is left, from 0 to 1.
        brightness: factor on all colours.
        tint: factors on red, green and blue.
        visibility: distance after which 63 % of a colour is the haze's, in m.
        texture: contrast of the ground's texture.
        waves: of the texture: rad per metre along and across the road, and a phase; (K, 3).
        shadows: ends of shadows that lie across the road, in m along its middle, increasing: each
            begins at an even position and ends at the next; (2 S,).
        slant: metres along the road per metre to the left that shadows advance.
        darkness: share of the light that a shadow takes.
        skyline: waves of the height of woods over the azimuth: the tangent of the elevation, full
            cycles in a turn, and a phase; (K, 3).
        woods: mean height of the woods, as the tangent of the elevation.
    """

    season: Season
    marks: tuple[Mark, ...]
    paint: float = 1.0
    brightness: float = 1.0
    tint: Colour = (1.0, 1.0, 1.0)
    visibility: float = 1000.0
    texture: float = 0.0
    waves: Floats = field(default_factory=lambda: _make_empty(0, 3))
    shadows: Floats = field(default_factory=lambda: _make_empty(0))
    slant: float = 0.0
    darkness: float = 0.0
    skyline: Floats = field(default_factory=lambda: _make_empty(0, 3))
    woods: float = 0.0


def sample_scene(length: float, seasons: Sequence[str], rng: np.random.RandomState) -> Scene:
    """Draw what a drive looks like.

    Args:
        length: of the road, in m.
        seasons: names in :data:`SEASONS` to choose from.
        rng: what to draw from.
    """
    kinds = sorted(ROADS)
    sunny = rng.uniform() < 0.6
    red, green, blue = rng.uniform(0.92, 1.08, 3)
    return Scene(
        season=SEASONS[seasons[rng.randint(len(seasons))]],
        marks=ROADS[kinds[rng.randint(len(kinds))]],
        paint=rng.uniform(0.6, 1.0),
        brightness=rng.uniform(0.5, 1.1),
        tint=(red, green, blue),
        visibility=float(np.exp(rng.uniform(np.log(40.0), np.log(300.0)))),
        texture=rng.uniform(0.05, 0.25),
        waves=rng.uniform([0.5, -4.0, 0.0], [6.0, 4.0, 2 * np.pi], (4, 3)),
        shadows=_sample_shadows(length, rng),
        slant=rng.uniform(-1.0, 1.0),
        darkness=rng.uniform(0.3, 0.6) if sunny else 0.0,
        skyline=np.stack(
            [
                rng.uniform(0.005, 0.02, 6),
                rng.randint(5, 60, 6).astype(float),
                rng.uniform(0.0, 2 * np.pi, 6),
            ],
            axis=1,
        ),
        woods=rng.uniform(0.0, 0.08),
    )


def _sample_shadows(length: float, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Draw shadows of 1 to 5 m with gaps of 2 to 14 m between them."""
    count = int(np.ceil(length / 3.0))  # more than fit
    gaps, lengths = rng.uniform(2.0, 14.0, count), rng.uniform(1.0, 5.0, count)
    return np.stack([gaps, lengths], axis=1).ravel().cumsum()
