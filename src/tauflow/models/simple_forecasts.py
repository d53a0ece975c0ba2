"""Forecasts that need no training: last values, means and seasonal values of a window."""

from collections.abc import Sequence

import torch
from torch import Tensor

LAGS = 24
"""Values before the last sample that trees read."""


def forecast_simply(
    last: Tensor,
    values: Tensor,
    sampled: Tensor,
    since: Tensor,
    lead_time: Tensor,
    *,
    periods: Sequence[float],
    gap: float,
) -> Tensor:
    """Return the last value, the mean, and two seasonal values for each period, (Q, O, K).

    For a period P these are the value P before the time asked for (2 P, ... where that is later
    than the last sample), and the mean of all values at that phase. Both are interpolated between
    samples by a Gaussian of half a time step.

    Args:
        last: last value of each target, (Q, O).
        values: of the targets at the samples of the window of each query, (Q, T, O), 0 where
            none was measured.
        sampled: whether one was measured, (Q, T, O).
        since: time of each row after the last sample, at most 0, (Q, T).
        lead_time: (Q, 1).
        periods: in the unit of times.
        gap: usual time between samples.
    """
    forecasts = [last, values.sum(1) / sampled.sum(1).clamp(min=1)]
    for period in periods:
        # The small share keeps queries a whole number of periods ahead on the grid.
        lag = (lead_time / period - 1e-4).ceil().clamp(min=1) * period
        phase = (since - lead_time) / period
        for distance in (since - lead_time + lag, (phase - phase.round()) * period):
            weights = -2 * (distance / (gap / 2)).square().unsqueeze(-1)
            weights = weights.masked_fill(~sampled, torch.finfo(weights.dtype).min).softmax(1)
            forecasts.append((weights * values).sum(1))
    return torch.stack(forecasts, -1)


def look_back(values: Tensor, sampled: Tensor, since: Tensor, *, gap: float) -> Tensor:
    """Return values at the last sample and 1 to 23 time steps before it, (B, O, 24).

    They are interpolated as seasonal values are. For the arguments see :func:`forecast_simply`, of
    each window here.
    """
    lags = []
    for back in range(LAGS):
        weights = -2 * ((since + back * gap) / (gap / 2)).square().unsqueeze(-1)
        weights = weights.masked_fill(~sampled, torch.finfo(weights.dtype).min).softmax(1)
        lags.append((weights * values).sum(1))
    return torch.stack(lags, -1)


def centre(
    values: Tensor, measured: Tensor, is_sample: Tensor, targets: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return values of which targets are centred and scaled by their samples in each window.

    Args:
        values: of features, 0 where none was measured, (B, T, F).
        measured: where one was, (B, T, F).
        is_sample: which rows are samples, (B, T).
        targets: O features, by number.

    Returns:
        The values, and mean and deviation of the targets, (B, O) each.
    """
    chosen, there = values[..., targets], measured[..., targets]
    level, unit = measure_window(chosen, there & is_sample.unsqueeze(-1))
    values = values.clone()
    centred = (chosen - level[:, None]) / unit[:, None]
    values[..., targets] = centred.masked_fill(~there, 0.0)
    return values, level, unit


def measure_window(values: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the samples of windows, (B, O) each.

    Both are drawn towards 0 and 1, as if there were one more sample: a window of one sample keeps
    half of its level as an input.
    """
    count = sampled.sum(1) + 1
    level = (values * sampled).sum(1) / count
    square = ((values - level[:, None]).square() * sampled).sum(1) + 1
    return level, (square / count).sqrt()
