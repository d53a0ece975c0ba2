"""Gradient boosting of last values, for data whose sequences end in queries."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.training import METRICS

_MAX_ROWS = 20_000  # of which each model is fitted

Floats = NDArray[np.float64]


def score_boosting(data: TaskData, metric: str) -> float:
    """Return the score on the test part of one boosted model for each target.

    Its inputs are the last value of every feature and its age, and the lead time; it predicts by
    how much the target will have changed, from its last value or, without one, from the mean.

    Args:
        data: see :class:`tauflow.models.ForecastModel`.
        metric: a name in :data:`tauflow.training.METRICS`.
    """
    ensemble: Any = require("sklearn.ensemble", extra="sklearn")
    trained, last, _ = _compute_features(data.train, data.card.query_targets)
    inputs, before, is_query = _compute_features(data.test, data.card.query_targets)
    prediction = np.zeros((*data.test.y.shape[:2], data.card.target_size))
    queries = (data.train.x[..., -1] > 0).numpy()
    y = data.train.y.numpy()[queries].astype(np.float64)
    y_mask = data.train.y_mask
    assert y_mask is not None, "not every target is known"
    known = y_mask.numpy()[queries]
    changes = before.copy()
    for place in range(data.card.target_size):
        rows = np.flatnonzero(known[:, place])
        if len(rows) > _MAX_ROWS:
            rows = np.random.default_rng(0).choice(rows, _MAX_ROWS, replace=False)
        if len(rows):
            has_value = ~np.isnan(trained[rows]).all(0)  # the others cannot be binned
            model = ensemble.HistGradientBoostingRegressor(random_state=0)
            model.fit(trained[rows][:, has_value], y[rows, place] - last[rows, place])
            changes[:, place] += model.predict(inputs[:, has_value])
    prediction[is_query] = changes
    return float(METRICS[metric](torch.from_numpy(prediction).to(data.test.y.dtype), data.test))


def _compute_features(
    batch: SequenceBatch, targets: tuple[int, ...]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return features of queries, (Q, 2 F + 1), last values of targets, (Q, O), and the queries."""
    x = batch.x[..., :-1].numpy().astype(np.float64)
    is_query = (batch.x[..., -1] > 0).numpy()
    seen = np.ones(x.shape, np.bool_) if batch.observed is None else batch.observed.numpy()
    seen = seen[..., :-1] & (batch.valid.numpy() & ~is_query)[..., None]
    gaps = np.ones(x.shape[:2]) if batch.dt is None else batch.dt.numpy().astype(np.float64)
    clock = np.cumsum(gaps * batch.valid.numpy(), axis=1)
    steps = np.arange(x.shape[1])
    place = np.maximum.accumulate(np.where(seen, steps[:, None], -1), axis=1)[:, -1]
    taken = np.maximum(place, 0)
    last = np.take_along_axis(x, taken[:, None], axis=1)[:, 0]
    last = np.where(place < 0, np.nan, last)
    since = np.where(place < 0, np.nan, np.take_along_axis(clock, taken, axis=1))
    owner, step = np.nonzero(is_query)
    end = np.max(np.where(is_query, -1, steps) * batch.valid.numpy(), axis=1)
    now = clock[owner, step][:, None]
    features = np.concatenate(
        [last[owner], now - since[owner], now - clock[owner, end[owner], None]], 1
    )
    return features, np.nan_to_num(last[owner][:, list(targets)]), is_query
