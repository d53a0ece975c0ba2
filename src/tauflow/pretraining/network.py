"""The network that is trained on generated series: from features to nine quantiles per query."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.sequence import build

from .features import (
    FIT_ERROR,
    FORECASTS,
    INPUT_SIZE,
    LAG_CHANGE,
    LAST_ERROR,
    QUERY_INPUTS,
    SUMMARY_INPUTS,
    TESTED,
    Features,
)
from .population import POPULATION_FORECASTS

QUANTILE_LEVELS = tuple(round(0.1 * k, 1) for k in range(1, 10))


@dataclass(frozen=True)
class NetworkOptions:
    """Sizes of the network.

    Args:
        hidden_size: of both recurrent layers.
        backbone_units: of their cells.
        width: of the layers that answer a query.
        attention_size: of keys and values of past points.
    """

    hidden_size: int = 64
    backbone_units: int = 80
    width: int = 160
    attention_size: int = 32


class ZeroShotNetwork(nn.Module):
    """Two layers of CfC, one step of their cells per query, and a mixture of simple forecasts.

    The median is a mixture of simple forecasts, moved by the network; the other quantiles are
    positive distances from it, so that they cannot cross.

    Args:
        options: sizes.
    """

    def __init__(self, options: NetworkOptions = NetworkOptions()) -> None:
        super().__init__()
        self.options = options
        size, keys, width = options.hidden_size, options.attention_size, options.width
        asked = QUERY_INPUTS + 2 * len(FORECASTS) + SUMMARY_INPUTS
        cell = {"backbone_units": options.backbone_units}
        self.first = build("cfc", INPUT_SIZE, size, **cell)
        self.second = build("cfc", size + INPUT_SIZE, size, **cell)
        self.start = nn.Linear(SUMMARY_INPUTS, 2 * size)
        self.query_input = nn.Linear(asked, INPUT_SIZE)
        self.key = nn.Linear(size + INPUT_SIZE, keys)
        self.value = nn.Linear(size + INPUT_SIZE, keys)
        self.ask = nn.Linear(size + asked, keys)
        self.head = nn.Sequential(
            nn.Linear(size + keys + asked, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.out = nn.Linear(width, len(FORECASTS) + 2 + len(QUANTILE_LEVELS) - 1)
        self.test_weight = nn.Parameter(torch.tensor(3.0))
        nn.init.normal_(self.out.weight, std=0.01)
        nn.init.zeros_(self.out.bias)

    def forward(self, features: Features) -> Tensor:
        """Return quantiles in units of the features, (B, Q, 9)."""
        memory, states = self.read(features)
        return self.answer(features, memory, states)

    def read(self, features: Features) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return what attention reads of each point, (B, R, H + I), and both last states."""
        inputs, dt = features.inputs, features.dt
        h1, h2 = self.start(features.summary).tanh().chunk(2, 1)
        y1, h1 = self.first(inputs, h1, dt=dt)
        y2, h2 = self.second(torch.cat([y1, inputs], 2), h2, dt=dt)
        return torch.cat([y2, inputs], 2), (h1, h2)

    def answer(self, features: Features, memory: Tensor, states: Any) -> Tensor:
        """Return quantiles for what was read."""
        batch, queries, _ = features.queries.shape
        forecasts, steps = features.forecasts, features.steps[:, None]
        size = steps + 0.05
        moves = (forecasts - forecasts[:, :, :1]) / size[..., None]
        summary = features.summary[:, None].expand(-1, queries, -1)
        asked = torch.cat([features.queries, forecasts.asinh(), moves.asinh(), summary], 2)
        x = self.query_input(asked).reshape(batch * queries, -1)
        gap = features.ahead.reshape(-1, 1)
        h1, h2 = (h.repeat_interleave(queries, 0) for h in states)
        s1 = self.first.step(x, h1, gap)[0]
        s2 = self.second.step(torch.cat([s1, x], 1), h2, gap)[0].reshape(batch, queries, -1)
        query = self.ask(torch.cat([s2, asked], 2)) / self.options.attention_size**0.5
        weight = (query @ self.key(memory).transpose(1, 2)).softmax(2)
        attended = weight @ self.value(memory)
        out = self.out(self.head(torch.cat([s2, attended, asked], 2)))
        count = len(FORECASTS)
        shares = (out[..., :count] - self.test_weight * _compare_errors(features)).softmax(2)
        mixture = (shares * forecasts).sum(2)
        size = (features.queries[..., LAG_CHANGE] + out[..., count + 1].clamp(-6, 6)).exp()
        middle = (mixture + out[..., count] * size)[..., None]
        parts = nn.functional.softplus(out[..., count + 2 :]) * size[..., None] * 0.5
        half = parts.shape[2] // 2
        below = middle - parts[..., :half].cumsum(2).flip(2)
        return torch.cat([below, middle, middle + parts[..., half:].cumsum(2)], 2)


def _compare_errors(features: Features) -> Tensor:
    """Return logarithms of errors of the simple forecasts over the last value's, (B, Q, E).

    They are those at the end of the context, and of the regression those of other members: what an
    untrained network goes by.
    """
    queries, tested = features.queries, features.summary[:, TESTED]
    relative = (tested - tested[:, :1])[:, None].expand(-1, queries.shape[1], -1)
    fit = queries[..., FIT_ERROR] - queries[..., LAST_ERROR]
    curves = torch.ones_like(queries[..., : len(POPULATION_FORECASTS) - 1])
    return torch.cat([relative, curves, fit[..., None]], 2)


def pinball_loss(quantiles: Tensor, target: Tensor) -> Tensor:
    """Return twice the mean pinball loss over the levels, (B, Q); of the median it is the error."""
    levels = torch.tensor(QUANTILE_LEVELS)
    error = target[..., None] - quantiles
    return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(-1)
