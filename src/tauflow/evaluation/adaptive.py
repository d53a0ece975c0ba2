"""Intervals for streams that keep their coverage when the data drift."""

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.errors import ShapeError

from .conformal import Floats, check_level


class AdaptiveIntervals:
    r"""Adaptive conformal intervals around the predictions of a stream.

    An interval holds what ``1 - a`` of the last errors hold, and a is corrected after every
    target, by whether its interval held it:

    .. math::
        a' = a + \gamma\, (\alpha - [y \notin \mathrm{interval}])

    so that the share of targets that were missed up to step T differs from alpha by at most
    :math:`(\max(\alpha, 1 - \alpha) + \gamma) / (\gamma T)`, whatever the data do. For that
    an interval is everything where a falls to 0, and empty above 1. Each output has an a of its
    own.

    ::

        intervals = AdaptiveIntervals(0.9)
        for x, y in measurements:
            prediction = stream.step(x).numpy()
            low, high = intervals.interval(prediction)
            intervals.update(prediction, y)

    Source: Gibbs & Candes 2021, "Adaptive conformal inference under distribution shift", Eq. 2 and
    Proposition 4.1.

    Args:
        level: share of targets to hold, 1 - alpha, above 0 and below 1.
        rate: gamma, how fast a follows; at 0.05 about the last twenty targets count.
        window: how many of the last errors are kept.

    Raises:
        ArgumentError: ``level`` is no share.
        OptionError: ``rate`` is not positive or ``window`` not at least 1.
    """

    def __init__(self, level: float = 0.9, *, rate: float = 0.05, window: int = 500) -> None:
        self.level = check_level(level)
        self.rate = check_positive(rate=rate)
        self.window = check_at_least(1, window=window)
        self._errors: deque[Floats] = deque(maxlen=window)
        self._miss: Floats | None = None

    @property
    def miss_levels(self) -> Floats | None:
        """The present a of each output; ``None`` before the first target."""
        return None if self._miss is None else self._miss.copy()

    def interval(self, prediction: Any) -> tuple[Floats, Floats]:
        """Return the ends of the interval around a prediction, each of its shape.

        Without an end, infinite, where a has fallen to 0 or there are too few errors for it;
        empty, from infinity to minus infinity, where a is above 1.

        Args:
            prediction: numbers of any shape, the same in every call.

        Raises:
            ShapeError: the shape is not that of earlier calls.
        """
        center = self._check_shape(prediction)
        if self._miss is None:
            return np.full_like(center, -math.inf), np.full_like(center, math.inf)
        errors = np.sort(np.stack(self._errors), axis=0)  # (n, ...), NaN last
        count = (~np.isnan(errors)).sum(0)
        rank = np.ceil((count + 1) * (1 - self._miss) - 1e-9).astype(np.int64)
        place = np.clip(rank, 1, np.maximum(count, 1)) - 1
        margin = np.take_along_axis(errors, place[None], axis=0)[0]
        margin = np.where(rank > count, math.inf, margin)
        margin = np.where(self._miss <= 0, math.inf, np.where(self._miss >= 1, -math.inf, margin))
        return center - margin, center + margin

    def update(self, prediction: Any, y: Any) -> NDArray[np.bool_]:
        """Take in a target, and return whether its interval held it.

        Args:
            prediction: what was predicted.
            y: the target, of its shape; NaN of an output whose target is not known, which changes
                nothing and counts as held.

        Raises:
            ShapeError: shapes are not those of earlier calls.
        """
        low, high = self.interval(prediction)
        center, target = self._check_shape(prediction), self._check_shape(y)
        known = ~np.isnan(target)
        held = ~known | ((low <= target) & (target <= high))
        if self._miss is None:
            self._miss = np.full(center.shape, 1 - self.level)
        change = self.rate * ((1 - self.level) - ~held)
        self._miss = np.where(known, self._miss + change, self._miss)
        self._errors.append(np.abs(target - center))
        return held

    def _check_shape(self, values: Any) -> Floats:
        array = np.asarray(values, np.float64)
        if self._miss is not None and array.shape != self._miss.shape:
            raise ShapeError(
                f"AdaptiveIntervals: got numbers of shape {array.shape}, but earlier ones had "
                f"{self._miss.shape}. Keep one object for each stream."
            )
        return array
