"""Distributions of the time to an event: their likelihood with censoring, and their survival."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import check_positive
from tauflow.tabular.cell_values import SPACING, Floats, Indices
from tauflow.training import Score

HEADS = ("hazard", "weibull")
_MAX_LOG_SHAPE, _MAX_POWER = 3.0, 30.0  # above which single precision loses all


@dataclass(frozen=True, eq=False)
class HazardHead:
    r"""Hazards of intervals, constant within each, the last one without an end.

    An output x of an interval is its cumulative hazard :math:`\Lambda = \log(1 + e^x)`, so that the
    probability of an event in it, given none before, is :math:`1 - e^{-\Lambda} = \sigma(x)`, as
    with discrete times.

    Source: Kvamme and Borgan 2021, "Continuous and discrete-time survival prediction with neural
    networks", Sections 2.2 and 3.2.

    Args:
        edges: of the intervals, (K + 1,), from 0 on.
    """

    edges: Floats

    def __post_init__(self) -> None:
        if not (np.diff(self.edges, prepend=-1.0) > 0).all() or not np.isfinite(self.edges).all():
            raise ValueError(f"edges of intervals must increase from 0 on, got {self.edges}")

    @classmethod
    def fit(
        cls, durations: Floats, events: NDArray[np.bool_], weight: Floats, count: int
    ) -> "HazardHead":
        """Return so many intervals with as many events each, as far as durations differ."""
        last, order = float(durations.max()), np.argsort(durations[events], kind="stable")
        shares = np.cumsum(weight[events][order])
        wanted = shares[-1] * np.linspace(0, 1, count + 1)[1:-1]
        inner = durations[events][order][np.searchsorted(shares, wanted * (1 - 1e-9))]
        edges = np.unique(np.concatenate([[0.0], inner, [last]]))
        edges = edges[np.diff(edges, prepend=-last) > SPACING * last]
        return cls(edges if len(edges) == count + 1 else np.linspace(0.0, last, count + 1))

    def encode(self, durations: Floats, events: NDArray[np.bool_]) -> Floats:
        """Return targets, (N, 3): the interval, the part of it that has passed, and the event."""
        place = self._find_intervals(durations)
        share = (durations - self.edges[place]) / np.diff(self.edges)[place]
        return np.stack([place, share, events], axis=1)

    @staticmethod
    def make_loss() -> Score:
        """Return the mean negative log-likelihood, but for a constant."""
        return Score("hazard", "any", whole=_hazard_loss, supports_weights=True)

    def compute_hazard(self, outputs: Floats, times: Floats) -> Floats:
        """Return the cumulative hazard at some times, (N, K), for each (N,)."""
        place = self._find_intervals(times)
        share = (times - self.edges[place]) / np.diff(self.edges)[place]
        hazards = -np.log(expit(-outputs))
        before = np.cumsum(hazards, axis=1) - hazards
        rows = np.arange(len(outputs))[:, None]
        hazard: Floats = before[rows, place] + share * hazards[rows, place]
        return hazard

    def compute_median(self, outputs: Floats, after: Floats) -> Floats:
        """Return the median time, (N,), counted from ``after``, of who has no event until then."""
        wanted = np.log(2) + self.compute_hazard(outputs, after[:, None])[:, 0]
        hazards = -np.log(expit(-outputs))
        ends = np.cumsum(hazards, axis=1)
        place = np.minimum((ends < wanted[:, None]).sum(1), hazards.shape[1] - 1)
        rows = np.arange(len(outputs))
        share = (wanted - ends[rows, place] + hazards[rows, place]) / hazards[rows, place]
        medians: Floats = self.edges[place] + share * np.diff(self.edges)[place] - after
        return medians

    def _find_intervals(self, times: Floats) -> Indices:
        """Return in which interval times lie, of one shape; one at an edge is in the one before."""
        place: Indices = np.searchsorted(self.edges[1:-1] * (1 + SPACING), times, side="left")
        return place


@dataclass(frozen=True, eq=False)
class WeibullHead:
    r"""A Weibull distribution, :math:`S(t) = \exp(-(t / \lambda)^k)`.

    Outputs are the logarithms of the scale, in a unit of time, and of the shape, at most 3.

    Args:
        unit: of time.
    """

    unit: float

    def __post_init__(self) -> None:
        check_positive(unit=self.unit)

    def encode(self, durations: Floats, events: NDArray[np.bool_]) -> Floats:
        """Return targets, (N, 2): log of the time, and the event."""
        return np.stack([np.log(durations / self.unit), events], axis=1)

    @staticmethod
    def make_loss() -> Score:
        """Return the mean negative log-likelihood, but for a constant."""
        return Score("weibull", "any", whole=_weibull_loss, supports_weights=True)

    def compute_hazard(self, outputs: Floats, times: Floats) -> Floats:
        """Return the cumulative hazard at some times, (N, K), for each (N,)."""
        scale, shape = self._decode(outputs)
        hazard: Floats = (times / scale[:, None]) ** shape[:, None]
        return hazard

    def compute_median(self, outputs: Floats, after: Floats) -> Floats:
        """Return the median time, (N,), counted from ``after``, of who has no event until then."""
        scale, shape = self._decode(outputs)
        medians: Floats = scale * (np.log(2) + (after / scale) ** shape) ** (1 / shape) - after
        return medians

    def _decode(self, outputs: Floats) -> tuple[Floats, Floats]:
        shape = np.exp(np.clip(outputs[:, 1], -_MAX_LOG_SHAPE, _MAX_LOG_SHAPE))
        return self.unit * np.exp(outputs[:, 0]), shape


def _hazard_loss(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    hazards, (place, share, event) = F.softplus(prediction), y.unbind(-1)
    number = torch.arange(prediction.shape[-1], device=y.device)
    passed = (number < place[:, None]) + (number == place[:, None]) * share[:, None]
    at = hazards.gather(1, place.long()[:, None])[:, 0]
    return _mean((hazards * passed).sum(1) - event * at.log(), weight)


def _weibull_loss(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    log_scale, log_shape = prediction.unbind(-1)
    log_shape = log_shape.clamp(-_MAX_LOG_SHAPE, _MAX_LOG_SHAPE)
    log_time, event = y.unbind(-1)
    power = log_shape.exp() * (log_time - log_scale)
    cumulative = power.clamp(max=_MAX_POWER).exp()
    return _mean(cumulative - event * (log_shape + power), weight)


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()
