"""Gradient boosting that forecasts beside a network, by the same samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tauflow.errors import ArgumentError
from tauflow.models import ForecastModel
from tauflow.models.boosted_trees import fill_trees, measure_trees
from tauflow.models.forecast_trees import ForecastTrees
from tauflow.runs.boosting import check_against_sklearn, convert_regressor
from tauflow.runs.summary_baselines import FittedModel
from tauflow.tabular.sequences import Sequences
from tauflow.training.eval_mode import evaluation_mode

from .forecast_queries import Queries

MAX_TARGETS = 4
"""Targets of which boosting is fitted at most: each takes a few seconds."""
_MAX_ROWS, _MIN_ROWS = 8000, 200
_TOLERANCE = 1e-4  # of sums in single precision
_BATCH_SIZE = 64
_MAX_BINS = 255  # of scikit-learn's boosting, besides one for missing values


def fit_forecast_trees(
    forecaster: Any, network: ForecastModel, rows: Sequences
) -> ForecastTrees | None:
    """Fit histogram gradient boosting of scikit-learn to forecasts, by absolute errors.

    Targets are scaled by their windows, as for the network, and count what this scale is. To each
    the simple forecast is added that is best in training.

    Args:
        forecaster: whose data they are.
        network: of it, that says what is known where a forecast is asked for.
        rows: what to learn from, with times.

    Returns:
        The trees; ``None`` where there are more than four targets, or fewer than 200 rows, or
        scikit-learn does not store trees as expected.
    """
    if len(network.targets) > MAX_TARGETS:
        return None
    queries = forecaster._plan_training(rows, forecaster._longest)
    origins = np.random.default_rng(1).permutation(np.unique(queries.origin))
    count = _MAX_ROWS * len(origins) // max(1, len(queries))
    queries = queries.select(np.isin(queries.origin, origins[:count]))
    known, simple, y, unit = _list_rows(forecaster, network, rows, queries)
    if len(y) < _MIN_ROWS or np.isnan(y).all(0).any():
        return None
    errors = np.nanmean(np.abs(simple - y[..., None]) * unit[..., None], axis=0)  # (O, K)
    base = errors.argmin(-1)
    binned = np.column_stack([_bin(column) for column in known.T])
    models = []
    for n, best in enumerate(base):
        there = ~np.isnan(y[:, n])
        rest = (y[:, n] - simple[:, n, best])[there]
        models.append(_fit(binned[there], rest, unit[there, n]))
    baseline = np.zeros(len(base))
    trees = [tree for n, m in enumerate(models) for tree in convert_regressor(m, baseline, n)]
    module = ForecastTrees(len(base), **measure_trees(trees))
    fill_trees(module, baseline.tolist(), trees, known.shape[1])
    try:
        check_against_sklearn(module, models, known, _TOLERANCE)
    except ArgumentError:  # a version of scikit-learn that stores trees otherwise
        return None
    module.base.copy_(torch.from_numpy(base))
    return module


def iter_queries(
    forecaster: Any, rows: Sequences, queries: Queries, device: torch.device
) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Yield inputs of the network, targets and which there are, (B, T, O) each."""
    windows, y = forecaster._make_training_windows(rows, queries)
    y = forecaster._target_scaler.transform(y)[:, 0]
    batch = forecaster._make_step_batch(windows, np.nan_to_num(y), ~np.isnan(y))
    for first in range(0, len(batch), _BATCH_SIZE):
        piece = batch[first : first + _BATCH_SIZE]
        moved = piece.to(device)
        inputs = {"x": moved.x, "dt": moved.dt, "mask": moved.mask, "observed": moved.observed}
        assert piece.y_mask is not None
        yield inputs, piece.y, piece.y_mask


def _list_rows(
    forecaster: Any, network: ForecastModel, rows: Sequences, queries: Queries
) -> list[NDArray[Any]]:
    """Return what trees read, (Q, W), simple forecasts, (Q, O, K), targets and units, (Q, O)."""
    device = next(network.parameters()).device
    columns: list[list[Tensor]] = [[], [], [], []]
    with torch.no_grad(), evaluation_mode(network):
        for inputs, true, is_known in iter_queries(forecaster, rows, queries, device):
            asked = {k: value.cpu() for k, value in network.compute_tree_inputs(**inputs).items()}
            where = asked["sequence"], asked["step"]
            there = is_known[where].any(-1)
            y = (true.masked_fill(~is_known, torch.nan)[where] - asked["level"]) / asked["unit"]
            of_piece = (asked["known"], asked["simple"], y, asked["unit"])
            for several, piece_column in zip(columns, of_piece, strict=True):
                several.append(piece_column[there].float())
    return [torch.cat(parts).double().numpy() for parts in columns]


def _bin(column: NDArray[Any]) -> NDArray[Any]:
    """Round numbers to the nearest of at most 255 of their quantiles.

    Between those scikit-learn splits halfway, so that its trees see the same bins in training and
    later. Left to itself it takes quantiles by the weights of samples, for longer than it fits.
    """
    there = ~np.isnan(column)
    grid = np.unique(column[there])
    if len(grid) <= _MAX_BINS:
        return column
    shares = np.linspace(0, 1, _MAX_BINS)
    grid = np.unique(np.quantile(column[there], shares, method="nearest"))
    nearest = np.searchsorted((grid[1:] + grid[:-1]) / 2, column[there])
    rounded = np.full_like(column, np.nan)
    rounded[there] = grid[nearest]
    return rounded


def _fit(known: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> FittedModel:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        loss="absolute_error", early_stopping=False, random_state=0
    )
    columns = ~np.isnan(known).all(0)  # scikit-learn bins no column without a value
    return FittedModel(model.fit(known[:, columns], y, weight), columns)
