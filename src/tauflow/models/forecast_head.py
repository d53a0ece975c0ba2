"""Readout of forecasts at any time: a learned mixture of simple forecasts and an own answer."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

_HARMONICS = 4
"""Sines and cosines of the lead time; the longest wave takes two horizons."""


class AnsweredQueries(NamedTuple):
    """The Q queries of a batch, each with what is known of its sequence.

    Args:
        sequence: which sequence each belongs to, (Q,).
        step: which of its steps it is, (Q,).
        features: what the readout reads, (Q, W).
        prediction: (Q, O).
        scale: unit of each target in its window, (Q, O).
        candidates: simple forecasts and then the mixture, (Q, O, K + 1).
    """

    sequence: Tensor
    step: Tensor
    features: Tensor
    prediction: Tensor
    scale: Tensor
    candidates: Tensor

    def scatter(self, values: Tensor, size: torch.Size) -> Tensor:
        """Return values of queries, (Q, ...), at their steps, (B, T, ...), and zeros elsewhere."""
        scattered = values.new_zeros(*size, *values.shape[1:])
        return scattered.index_put((self.sequence, self.step), values)


class ForecastHead(nn.Module):
    r"""Readout of a forecast: a mixture of simple forecasts :math:`s_k` and its own answer.

    .. math::
        y = \sum_k w_k s_k + (1 - \sum_k w_k) \, a

    The weights, a softmax for each target, and a follow from a hidden layer on the cell's output at
    the time asked for, the last value of every feature, whether it has one, how old that is, the
    lead time, the simple forecasts, and what else is given. Of one simple forecast, the last value
    of the target, the weight is the sigmoid of one number.

    Args:
        input_size: width of the cell's output.
        features: F.
        targets: features to forecast, by number.
        horizon: longest lead time.
        width: of the hidden layer.
        dropout: on the hidden layer.
        simple: K, number of simple forecasts of each target.
        extra: E, number of further inputs.
    """

    def __init__(
        self,
        input_size: int,
        features: int,
        targets: Sequence[int],
        *,
        horizon: float,
        width: int,
        dropout: float,
        simple: int = 1,
        extra: int = 0,
    ) -> None:
        super().__init__()
        self.targets, self.horizon, self.simple = tuple(targets), horizon, simple
        outputs = len(self.targets)
        also = 2 + 2 * _HARMONICS + extra + (outputs * simple if simple > 1 else 0)
        self.hidden = nn.Linear(input_size + 3 * features + also, width)
        self.dropout = nn.Dropout(dropout)
        self.readout = nn.Linear(width, (2 if simple == 1 else simple + 2) * outputs)

    def forward(
        self,
        h: Tensor,
        last: Tensor,
        has_last: Tensor,
        age: Tensor,
        lead_time: Tensor,
        simple: Tensor | None = None,
        extra: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the hidden layer, (Q, W), and forecasts, (Q, O).

        Args:
            h: output of the cell at the time asked for, (Q, N).
            last: last value of each feature, (Q, F), 0 if it has none.
            has_last: whether it has one, (Q, F).
            age: time since then, (Q, F).
            lead_time: time since the last sample, (Q, 1).
            simple: simple forecasts, (Q, O, K), if there are more than the last value.
            extra: further inputs, (Q, E).
        """
        phase = lead_time * (math.pi / self.horizon)
        waves = phase * torch.arange(1, _HARMONICS + 1, device=h.device, dtype=h.dtype)
        read = [h, last, has_last.to(h.dtype), age.log1p(), lead_time / self.horizon]
        read += [lead_time.log1p(), waves.sin(), waves.cos()]
        read += [] if simple is None else [simple.flatten(1)]
        read += [] if extra is None else [extra]
        features = self.dropout(self.hidden(torch.cat(read, -1)).relu())
        if simple is None:
            answer, gate = self.readout(features).chunk(2, -1)
            gate = gate.sigmoid()
            return features, gate * last[:, list(self.targets)] + (1 - gate) * answer
        outputs = self.readout(features).view(*simple.shape[:2], -1)
        answer, weights = outputs[..., :1], outputs[..., 1:].softmax(-1)
        return features, (weights * torch.cat([simple, answer], -1)).sum(-1)
