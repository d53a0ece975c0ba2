"""A road's centre line, cars on it, and a driver who follows it.

World and car frames are right-handed and seen from above: x to the front, y to the left, angles
counter-clockwise, in metres and radians. Curvature is in 1/m and positive in a left turn.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

SPACING = 0.25
"""Metres between two points of a centre line."""

_NEWTON_STEPS = 4


@dataclass(frozen=True, eq=False)
class FootPoints:
    """The points of a centre line that are nearest to given points.

    Args:
        along: distance of the foot from the start of the road, in m.
        lateral: distance of the point to the left of its foot, in m.
        cosine: of the road's heading at the foot.
        sine: of the road's heading at the foot.
    """

    along: Singles
    lateral: Singles
    cosine: Singles
    sine: Singles


@dataclass(frozen=True, eq=False)
class CentreLine:
    """Points of a centre line, :data:`SPACING` apart.

    Args:
        x: (N,), in m.
        y: (N,), in m.
        heading: direction of the road, (N,), in rad.
    """

    x: Floats
    y: Floats
    heading: Floats

    def to_car_frame(self, car: "Car") -> "CentreLine":
        """Return the same points in the frame of a car."""
        dx, dy = self.x - car.x, self.y - car.y
        cosine, sine = np.cos(car.heading), np.sin(car.heading)
        return CentreLine(
            x=cosine * dx + sine * dy,
            y=cosine * dy - sine * dx,
            heading=self.heading - car.heading,
        )

    def find_nearest_to_origin(self) -> int:
        """Return the number of the point nearest to the origin."""
        return int(np.argmin(self.x**2 + self.y**2))

    def find_foot_points(self, x: Singles, y: Singles, guess: Singles) -> FootPoints:
        """Find the nearest points of the road by Newton's method.

        The road goes on straight before its start and after its end.

        Args:
            x: points, in any shape.
            y: points, in the shape of x.
            guess: of the distance along the road, for each point, in m; of several feet of a
                point the one is found that is close to it.
        """
        last = len(self.x) - 1
        curvature = np.append(np.diff(self.heading) / SPACING, 0.0).astype(np.float32)
        road_x, road_y = self.x.astype(np.float32), self.y.astype(np.float32)
        cosines = np.cos(self.heading).astype(np.float32)
        sines = np.sin(self.heading).astype(np.float32)
        along = guess
        for _ in range(_NEWTON_STEPS):
            here = np.clip(np.rint(along * np.float32(1 / SPACING)), 0, last).astype(np.intp)
            cosine, sine = cosines[here], sines[here]
            dx, dy = x - road_x[here], y - road_y[here]
            ahead, lateral = cosine * dx + sine * dy, cosine * dy - sine * dx
            # Beyond the centre of the turn there is no foot; such points are far off the road.
            narrowing = np.maximum(1 - curvature[here] * lateral, np.float32(0.3))
            along = np.float32(SPACING) * here.astype(np.float32) + ahead / narrowing
        return FootPoints(along, lateral, cosine, sine)


@dataclass(frozen=True)
class Car:
    """Where a car is, and where it points; in m and rad."""

    x: float
    y: float
    heading: float

    def drive(self, distance: float, curvature: float) -> "Car":
        """Return the car after so many metres on an arc of that curvature."""
        turn = distance * curvature
        # The chord of the arc leaves in the mean direction, and is shorter than the arc.
        chord = distance * np.sinc(turn / (2 * np.pi))
        middle = self.heading + turn / 2
        return Car(
            x=self.x + float(chord * np.cos(middle)),
            y=self.y + float(chord * np.sin(middle)),
            heading=self.heading + turn,
        )


def make_centre_line(curvature: Floats) -> CentreLine:
    """Lay out a road that starts at the origin, in the direction of x.

    Args:
        curvature: of each piece between two points, (N - 1,), in 1/m.
    """
    turns = SPACING * curvature
    heading = np.concatenate([[0.0], np.cumsum(turns)])
    middle = heading[:-1] + turns / 2  # of the arc between two points, as in Car.drive
    chord = SPACING * np.sinc(turns / (2 * np.pi))
    return CentreLine(
        x=np.concatenate([[0.0], np.cumsum(chord * np.cos(middle))]),
        y=np.concatenate([[0.0], np.cumsum(chord * np.sin(middle))]),
        heading=heading,
    )


def place_car(path: CentreLine, along: float, offset: float, turned: float) -> Car:
    """Place a car on a road.

    Args:
        path: the road.
        along: distance from its start, in m; to the next point of the road.
        offset: distance to the left of the centre line, in m.
        turned: heading relative to the road, to the left, in rad.
    """
    here = round(along / SPACING)
    heading = float(path.heading[here])
    return Car(
        x=float(path.x[here]) - offset * float(np.sin(heading)),
        y=float(path.y[here]) + offset * float(np.cos(heading)),
        heading=heading + turned,
    )


def pure_pursuit(path: CentreLine, lookahead: float) -> float:
    """Return the curvature that leads to the point of the centre line at a distance ahead.

    The arc that leaves the origin forwards and passes through (x, y) has curvature
    2 y / (x^2 + y^2).

    Args:
        path: the road in the frame of the car.
        lookahead: distance of the point to aim at, in m.

    Raises:
        ArgumentError: the road ends before that distance.
    """
    here = path.find_nearest_to_origin()
    distance = np.hypot(path.x[here:], path.y[here:])
    far = distance >= lookahead
    if not far.any():
        raise ArgumentError(f"the road ends less than {lookahead:g} m ahead of the car.")
    beyond = int(np.argmax(far))
    before = max(beyond - 1, 0)
    gap = distance[beyond] - distance[before]
    share = (lookahead - distance[before]) / gap if gap > 0 else 0.0
    x, y = (
        (1 - share) * values[here + before] + share * values[here + beyond]
        for values in (path.x, path.y)
    )
    return float(2 * y / (x**2 + y**2))
