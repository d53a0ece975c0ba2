"""Natural cubic splines through samples at irregular times, many sequences at once."""

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ShapeError, TimeError

Floats = NDArray[np.float64]


def natural_cubic_spline(times: Floats, values: Floats, at: Floats) -> Floats:
    """Return the values at given times of the splines through given samples.

    The second derivative is 0 at both ends. With two samples a spline is a straight line.

    Args:
        times: of the samples, (N, K), increasing along the last axis, K of 2 or more.
        values: (N, K, C).
        at: where to evaluate, (T,); outside the samples the outermost cubic goes on.

    Returns:
        Values, (N, T, C).

    Raises:
        ShapeError: there are fewer than two samples, or times and values do not fit.
        TimeError: times do not increase.
    """
    if times.shape != values.shape[:2] or times.shape[1] < 2:
        raise ShapeError(
            f"natural_cubic_spline: times have shape {times.shape} and values {values.shape}, "
            "expected (N, K) and (N, K, C) with K of 2 or more. Give a time per sample."
        )
    steps = np.diff(times, axis=1)[..., None]
    if not (steps > 0).all():
        raise TimeError("natural_cubic_spline: times must increase; sort the samples by time.")
    slopes = np.diff(values, axis=1) / steps
    bends = _solve_second_derivatives(steps, slopes)
    segment = np.empty((len(times), len(at)), np.int64)
    for row, knots in enumerate(times):
        segment[row] = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)

    def pick(array: Floats) -> Floats:
        return np.take_along_axis(array, segment[..., None], axis=1)

    step, left, right = pick(steps), pick(bends[:, :-1]), pick(bends[:, 1:])
    u = at[None, :, None] - pick(times[..., None])
    slope = pick(slopes) - step * (2 * left + right) / 6
    curve: Floats = pick(values) + u * (slope + u * (left / 2 + u * (right - left) / (6 * step)))
    return curve


def _solve_second_derivatives(steps: Floats, slopes: Floats) -> Floats:
    """Solve the tridiagonal systems of all splines, knot by knot (Thomas algorithm)."""
    count = steps.shape[1] + 1
    bends = np.zeros((len(steps), count, slopes.shape[2]))
    upper, right_side = np.zeros_like(steps), np.zeros_like(slopes)
    for knot in range(1, count - 1):
        before, after = steps[:, knot - 1], steps[:, knot]
        pivot = 2 * (before + after) - before * upper[:, knot - 1]
        upper[:, knot] = after / pivot
        jump = 6 * (slopes[:, knot] - slopes[:, knot - 1])
        right_side[:, knot] = (jump - before * right_side[:, knot - 1]) / pivot
    for knot in range(count - 2, 0, -1):
        bends[:, knot] = right_side[:, knot] - upper[:, knot] * bends[:, knot + 1]
    return bends
