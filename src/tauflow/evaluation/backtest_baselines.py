"""Simple forecasts beside which a back-test scores a model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require

Floats = NDArray[np.float64]
_MAX_ROWS = 20_000  # of which gradient boosting is fitted, for each target


def forecast_naively(
    histories: list[Floats], horizon: int, season: int | None
) -> dict[str, Floats]:
    """Return forecasts, (N, H, O), of what is known, (T, O) each; NaN where nothing is."""
    steps = np.arange(1, horizon + 1)[:, None]
    forecasts: dict[str, list[Floats]] = {"persistence": [], "drift": []}
    if season is not None:
        forecasts["seasonal naive"] = []
    for values in histories:
        filled = _fill_forward(values)
        last = filled[-1]
        known = ~np.isnan(values)
        first = np.argmax(known, axis=0)
        final = len(values) - 1 - np.argmax(known[::-1], axis=0)
        columns = np.arange(values.shape[1])
        rise = (last - values[first, columns]) / np.maximum(final - first, 1)
        forecasts["persistence"].append(np.broadcast_to(last, (horizon, len(last))))
        missed = len(values) - 1 - final  # rows after the last known value
        forecasts["drift"].append(last + (steps + missed) * rise)
        if season is not None:
            places = len(values) - season + (steps[:, 0] - 1) % season
            enough = places >= 0
            again = np.where(enough[:, None], filled[np.maximum(places, 0)], last)
            forecasts["seasonal naive"].append(again)
    return {name: np.stack(rows) for name, rows in forecasts.items()}


def _fill_forward(values: Floats) -> Floats:
    """Return values with the last known one where one is missing."""
    filled: Floats = require("pandas", extra="tables").DataFrame(values).ffill().to_numpy()
    return filled


def _compute_lags(values: Floats, ends: NDArray[np.int64], lags: int) -> Floats:
    """Return the last values before rows, (E, L * O), NaN before the first row."""
    places = ends[:, None] - np.arange(1, lags + 1)
    lagged = np.where(places[..., None] < 0, np.nan, values[np.maximum(places, 0)])
    return lagged.reshape(len(ends), -1)


def fit_boosting(histories: list[Floats], horizon: int, lags: int) -> list[Any]:
    """Fit one model for each target: how much it will have changed, from the last values."""
    ensemble: Any = require("sklearn.ensemble", extra="sklearn")
    features, changes = [], []
    for values in histories:
        filled = _fill_forward(values)
        for step in range(1, horizon + 1):
            ends = np.arange(1, len(values) - step + 1)
            rows = np.column_stack([_compute_lags(values, ends, lags), np.full(len(ends), step)])
            features.append(rows)
            changes.append(values[ends + step - 1] - filled[ends - 1])
    X, y = np.concatenate(features), np.concatenate(changes)
    models = []
    for column in y.T:
        known = np.flatnonzero(~np.isnan(column))
        if len(known) > _MAX_ROWS:
            known = np.random.default_rng(0).choice(known, _MAX_ROWS, replace=False)
        boosted = ensemble.HistGradientBoostingRegressor(random_state=0)
        models.append(boosted.fit(X[known], column[known]) if len(known) else None)
    return models


def forecast_boosting(
    models: list[Any], histories: list[Floats], horizon: int, lags: int
) -> Floats:
    """Return forecasts, (N, H, O), of what :func:`fit_boosting` returned."""
    forecasts = []
    for values in histories:
        last = _fill_forward(values)[-1]
        rows = _compute_lags(values, np.full(horizon, len(values)), lags)
        rows = np.column_stack([rows, np.arange(1, horizon + 1)])
        changes = [np.full(horizon, np.nan) if m is None else m.predict(rows) for m in models]
        forecasts.append(last + np.stack(changes, -1))
    return np.stack(forecasts)
