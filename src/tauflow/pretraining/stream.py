"""Forecasts of a series whose samples come one by one."""

import math
from collections import deque
from typing import Any

import numpy as np

from tauflow.errors import ArgumentError, DataError, TimeError

from .fitted import FittedTable
from .inference import MAX_CONTEXT, are_whole, forecast, round_whole
from .network import ZeroShotNetwork
from .population import Population
from .shared_draws import Floats


class ForecastStream:
    """One series whose samples come one by one, and whose forecast may be asked for at any time.

    A sample costs the same whatever came before: it is put beside the last 1024. What is read of
    them, features and network, is computed when a forecast is asked for.
    """

    def __init__(self, network: ZeroShotNetwork, table: FittedTable | None = None) -> None:
        self._network, self._table = network, table
        self._samples: deque[tuple[float, float]] = deque(maxlen=MAX_CONTEXT)

    def push(self, t: float, y: float) -> None:
        """Take a sample; a missing value, NaN, is left out.

        Raises:
            TimeError: the time is not finite, or not after that of the sample before.
            DataError: the value is infinite.
        """
        if not math.isfinite(t):
            raise TimeError(f"the time of a sample must be finite, got {t}.")
        if math.isinf(y):
            raise DataError(f"a value must be finite, or NaN where it is missing, got {y}.")
        if self._samples and not t > self._samples[-1][0]:
            raise TimeError(
                f"the time {t} of a sample is not after {self._samples[-1][0]}. Give samples in "
                "the order of their times."
            )
        if not math.isnan(y):
            self._samples.append((float(t), float(y)))

    def forecast(self, at: Any) -> Floats:
        """Return quantiles 0.1 to 0.9 at times after the last sample, (Q, 9).

        Raises:
            ArgumentError: ``at`` is empty.
            DataError: there was no sample.
            TimeError: a time is not after the last sample.
        """
        if not self._samples:
            raise DataError("no sample has come, so that there is nothing to forecast from.")
        t, y = np.array(self._samples).T
        q = np.atleast_1d(np.asarray(at, float))
        if not q.size:
            raise ArgumentError("at is empty. Give one time at least.")
        if not (q > t[-1]).all():
            raise TimeError(f"at must be after the last sample, at {t[-1]}, got {at!r}.")
        others, is_whole = None, are_whole([(t, y)])
        if self._table is not None:
            population = self._table.population
            is_whole = is_whole and self._table.is_whole
            others = Population(population.t, population.y, np.zeros(1, np.intp), np.full(1, -1))
        (answer,) = forecast(self._network, [(t, y)], [q], others)
        blend = None if self._table is None else self._table.blend
        quantiles = answer.quantiles if blend is None else blend.apply((t, y), q, answer)
        return round_whole(quantiles) if is_whole else quantiles
