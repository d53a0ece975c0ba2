"""Intervals that hold a given share of the targets: split-conformal prediction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError

from .outputs import collect_outputs

Floats = NDArray[np.float64]
_MAX_SCORES = 500  # order statistics that are kept of each output


@dataclass(frozen=True)
class Conformal:
    """Split-conformal intervals, from the errors on the validation split.

    For exchangeable data an interval of level 1 - α holds a new target with a probability of at
    least 1 - α, whatever the model and the distribution (Vovk et al. 2005; Lei et al. 2018,
    "Distribution-Free Predictive Inference for Regression"). Each output, so each step of a
    horizon, has its own scores. Of a model that learned quantiles the interval between two of
    them is moved by what it lacks (conformalised quantile regression: Romano et al. 2019), so that
    it is as wide as the case needs.

    Args:
        scores: sorted, for each base interval and output; at most 500 of each are kept, and those
            between count as the next larger one.
        counts: how many there were of each output.
        levels: of the learned quantiles; ``()`` of absolute errors, the one base then.
        widest: of learned quantiles, the largest distance of the calibration data, for each base
            interval and output. Outside the range of the training the quantiles say nothing, and
            an interval is at least twice as wide; ``()`` in old files.
    """

    scores: tuple[tuple[tuple[float, ...], ...], ...]
    counts: tuple[int, ...]
    levels: tuple[float, ...] = ()
    widest: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def fit(
        cls,
        prediction: Floats,
        y: Floats,
        quantiles: Floats | None = None,
        levels: Sequence[float] = (),
    ) -> "Conformal":
        """Collect the scores of calibration data.

        Args:
            prediction: (N, O).
            y: targets, (N, O), NaN where one is not known.
            quantiles: learned ones, (N, O, Q).
            levels: of these, (Q,), increasing and symmetric about a half.
        """
        widest: tuple[tuple[float, ...], ...] = ()
        if quantiles is None:
            bases = [np.abs(y - prediction)]
        else:
            widths = (quantiles[..., -1 - n] - quantiles[..., n] for n in range(len(levels) // 2))
            widest = tuple(tuple(width.max(0, initial=0.0).tolist()) for width in widths)
            bases = [
                np.maximum(quantiles[..., n] - y, y - quantiles[..., -1 - n])
                for n in range(len(levels) // 2)
            ]
        known = (~np.isnan(y)).sum(0)
        scores = tuple(
            tuple(_keep_order_statistics(column[~np.isnan(column)]) for column in base.T)
            for base in bases
        )
        counts = tuple(known.tolist())
        return cls(scores, counts, () if quantiles is None else tuple(map(float, levels)), widest)

    def interval(
        self,
        prediction: Floats,
        level: float,
        quantiles: Floats | None = None,
        outside: NDArray[np.bool_] | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the ends of intervals around predictions, each of their shape, (..., O).

        Args:
            prediction: (..., O).
            level: the share of targets to hold, above 0 and below 1, such as 0.9.
            quantiles: learned ones, (..., O, Q), if scores are of those.
            outside: whether inputs lie outside the range of the training, (..., O); by default
                none does.

        Raises:
            ArgumentError: the level is no share, or there are too few scores for it.
        """
        level = check_level(level)
        if not self.levels:
            margin = np.array([self._find_margin(0, n, level) for n in range(len(self.counts))])
            return prediction - margin, prediction + margin
        assert quantiles is not None
        # The narrowest learned interval of at least that level, or the widest.
        covers = [
            upper - lower for lower, upper in zip(self.levels, self.levels[::-1], strict=True)
        ]
        base = max((n for n in range(len(self.scores)) if covers[n] >= level - 1e-9), default=0)
        margin = np.array([self._find_margin(base, n, level) for n in range(len(self.counts))])
        low, high = quantiles[..., base] - margin, quantiles[..., -1 - base] + margin
        middle = (low + high) / 2  # a negative margin wider than the interval leaves its middle
        low, high = np.minimum(low, middle), np.maximum(high, middle)
        if outside is not None and self.widest:
            half = np.where(outside, np.maximum(np.array(self.widest[base]) + margin, 0.0), 0.0)
            low, high = np.minimum(low, prediction - half), np.maximum(high, prediction + half)
        return np.minimum(low, prediction), np.maximum(high, prediction)

    def _find_margin(self, base: int, output: int, level: float) -> float:
        """Return the score at rank ceil((n + 1) level) of n."""
        count, scores = self.counts[output], self.scores[base][output]
        rank = math.ceil((count + 1) * level - 1e-9)
        if rank > count:
            least = math.ceil(level / (1 - level) - 1e-9)
            raise ArgumentError(
                f"an interval of {100 * level:g} % needs at least "
                f"{format_count(least, 'validation target')}, and "
                f"there were {count}. Ask for a lower level, at most "
                f"{100 * count / (count + 1):.3g} %, or train with a larger validation split."
            )
        return float(scores[np.searchsorted(_list_kept_ranks(count), rank)])


def check_level(level: float) -> float:
    """Return a level, or raise :class:`ArgumentError` if it is no number between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < level < 1:
        raise ArgumentError(
            f"interval must be a share between 0 and 1, such as 0.9 for 90 %, got {level!r}."
        )
    return float(level)


def fit_conformal(model: nn.Module, data: SequenceBatch) -> Conformal:
    """Collect the scores of a model on validation data; see :class:`Conformal`.

    Args:
        model: of values, trained on other data.
        data: the validation split; weights of sequences do not count.
    """
    outputs = collect_outputs(model, data, with_quantiles=True)
    quantiles = None if outputs.quantiles is None else outputs.quantiles.double().numpy()
    levels = getattr(model, "quantile_levels", ())
    y = outputs.y.double().numpy().reshape(outputs.prediction.shape)
    return Conformal.fit(outputs.prediction.double().numpy(), y, quantiles, levels)


def _list_kept_ranks(count: int) -> NDArray[np.int64]:
    """Return the ranks, from 1 on, of the order statistics that are kept of so many."""
    if count <= _MAX_SCORES:
        return np.arange(1, count + 1)
    return np.ceil(np.linspace(1, count, _MAX_SCORES)).astype(np.int64)


def _keep_order_statistics(scores: Floats) -> tuple[float, ...]:
    ordered = np.sort(scores)
    return tuple(ordered[_list_kept_ranks(len(scores)) - 1].tolist())
