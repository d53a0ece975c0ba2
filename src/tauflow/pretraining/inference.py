"""Quantiles of ragged series by a trained network."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from .features import compute_features
from .network import QUANTILE_LEVELS, ZeroShotNetwork
from .population import MAX_MEMBERS, MAX_POINTS, MEMBER_POINTS, Population
from .shared_draws import Floats

MAX_CONTEXT = 1024
"""Last points of a series that are read."""
_MAX_SERIES, _MAX_QUERIES = 256, 8192  # of a call of the network

Series = tuple[Floats, Floats]
"""Times that increase, and values, float64 without NaN."""


class ZeroShotAnswer(NamedTuple):
    """What is forecast of one series at Q times.

    Args:
        quantiles: 0.1 to 0.9, (Q, 9), float64.
        regression: by the changes of other members, (Q,); the last value without others.
    """

    quantiles: Floats
    regression: Floats


def cut_context(series: Series) -> Series:
    """Return the last points of a series, which are read."""
    t, y = series
    return t[-MAX_CONTEXT:], y[-MAX_CONTEXT:]


def gather_members(
    members: Sequence[Series], series_members: Sequence[int] | None = None
) -> Population:
    """Return a table of members for series to be compared with.

    Of many members, some that are evenly spaced in their order are read.

    Args:
        members: those with values.
        series_members: of each series that is to be forecast, which member it is itself, or -1.
    """
    width = min(max(len(t) for t, _ in members), MEMBER_POINTS)
    most = int(np.clip(MAX_POINTS // width, 1, MAX_MEMBERS))
    count = min(len(members), most)
    chosen = np.round(np.linspace(0, len(members) - 1, count)).astype(np.intp)
    t, y = np.zeros((1, len(chosen), width)), np.full((1, len(chosen), width), np.nan)
    for place, member in enumerate(chosen.tolist()):
        times, values = (part[-width:] for part in members[member])
        t[0, place, : len(times)], y[0, place, : len(values)] = times, values
    asked = np.asarray([] if series_members is None else series_members, np.intp)
    row = np.searchsorted(chosen, asked)
    is_chosen = (row < len(chosen)) & (chosen[np.minimum(row, len(chosen) - 1)] == asked)
    return Population(t, y, np.zeros(len(asked), np.intp), np.where(is_chosen, row, -1))


def are_whole(members: Sequence[Series]) -> bool:
    """Say whether all values of a table are whole numbers, so that its forecasts should be."""
    return all(bool((y == np.round(y)).all()) for _, y in members)


def round_whole(quantiles: Floats) -> Floats:
    """Return whole numbers, none of which is -0."""
    rounded: Floats = np.round(quantiles) + 0.0
    return rounded


def forecast_quantiles(
    network: ZeroShotNetwork,
    contexts: Sequence[Series],
    queries: Sequence[Floats],
    population: Population | None = None,
) -> list[Floats]:
    """Return the quantiles of :func:`forecast`."""
    return [answer.quantiles for answer in forecast(network, contexts, queries, population)]


@torch.no_grad()
def forecast(
    network: ZeroShotNetwork,
    contexts: Sequence[Series],
    queries: Sequence[Floats],
    population: Population | None = None,
) -> list[ZeroShotAnswer]:
    """Return what is forecast of each series at times.

    Where no value so far was below zero, no quantile is.

    Args:
        network: the trained network.
        contexts: times and values of each series, one point or more.
        queries: times after the last point, (Q,) of each series, one or more.
        population: the table, see :func:`gather_members`; its ``table`` and ``member`` are of the
            series.
    """
    answers: list[ZeroShotAnswer] = [
        ZeroShotAnswer(np.empty((len(q), len(QUANTILE_LEVELS))), np.empty(len(q))) for q in queries
    ]
    contexts = [cut_context(series) for series in contexts]
    lengths = np.array([len(t) for t, _ in contexts])
    asked = np.array([len(q) for q in queries])
    for points in np.unique(lengths):
        rows = np.flatnonzero(lengths == points)
        rows = rows[np.argsort(asked[rows], kind="stable")]
        for part in _split(rows, asked):
            t, y = (np.stack([contexts[i][k] for i in part]) for k in (0, 1))
            width = asked[part].max()
            q = np.stack([np.pad(queries[i], (0, width - asked[i]), mode="edge") for i in part])
            others = None
            if population is not None:
                places = (population.table[part], population.member[part])
                others = Population(population.t, population.y, *places)
            features = compute_features(t, y, q, others)
            center, scale = features.center[:, None], features.scale[:, None]
            quantiles = network(features).double().numpy() * scale[..., None] + center[..., None]
            regression = features.forecasts[:, :, -1].double().numpy() * scale + center
            lowest = np.where(y.min(1) >= 0, 0.0, -np.inf)[:, None, None]
            quantiles = np.maximum(quantiles, lowest)
            for i, answer, moved in zip(part, quantiles, regression, strict=True):
                answers[i].quantiles[:], answers[i].regression[:] = (
                    answer[: asked[i]],
                    moved[: asked[i]],
                )
    return answers


def _split(rows: np.ndarray, asked: np.ndarray) -> list[np.ndarray]:
    """Return parts of rows that fit into calls of the network."""
    parts, start = [], 0
    while start < len(rows):
        stop = start + 1
        while (
            stop < len(rows)
            and stop - start < _MAX_SERIES
            and (stop + 1 - start) * asked[rows[stop]] <= _MAX_QUERIES
        ):
            stop += 1
        parts.append(rows[start:stop])
        start = stop
    return parts
