"""Back-tests: what forecasts would have been at times in the past, beside simple ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError

from .backtest_sources import BacktestSource, EstimatorSource, PredictorSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Floats = NDArray[np.float64]
_MAX_ROWS = 20_000  # of which gradient boosting is fitted, for each target
_MIN_ROWS = 3  # of a series before its first origin


@dataclass(frozen=True, eq=False)
class BacktestResult:
    """Forecasts of a back-test, beside what came.

    Args:
        frame: one row for each model, id, origin, step and target: ``model``, ``id``, ``origin``
            (the time of the last row that was known), ``time``, ``step``, ``target``, ``truth``,
            ``prediction``, ``low`` and ``high`` (NaN without an interval), and ``scale``, the mean
            absolute error of the naive forecast on the rows before the first origin.
        interval: the share of the targets that intervals were to hold; ``None`` without.
    """

    frame: "DataFrame"
    interval: float | None = None

    def scores(self, by: Sequence[str] = ("model", "step")) -> "DataFrame":
        """Return scores of groups of forecasts, values that are not known left out.

        Args:
            by: columns of ``frame`` that make the groups.

        Returns:
            ``mae``, ``rmse``, ``mase`` (the absolute error in units of ``scale``: Hyndman and
            Koehler 2006), ``pinball`` (the mean of the losses of both ends of the interval), its
            ``coverage`` and ``width``, and ``count``.
        """
        metrics: Any = require("sklearn.metrics", extra="sklearn")
        pandas = require("pandas", extra="tables")
        known = self.frame.dropna(subset=["truth", "prediction"])

        def score(group: "DataFrame") -> Any:
            truth, told = group["truth"], group["prediction"]
            found = {
                "mae": metrics.mean_absolute_error(truth, told),
                "rmse": metrics.root_mean_squared_error(truth, told),
                "mase": ((truth - told).abs() / group["scale"]).mean(),
                **dict.fromkeys(("pinball", "coverage", "width"), np.nan),
                "count": len(group),
            }
            if self.interval is not None and group["low"].notna().all():
                low, high = group["low"], group["high"]
                ends = ((1 - self.interval) / 2, low), ((1 + self.interval) / 2, high)
                losses = [metrics.mean_pinball_loss(truth, one, alpha=a) for a, one in ends]
                inside = (low <= truth) & (truth <= high)
                found |= {"pinball": np.mean(losses), "coverage": inside.mean()}
                found["width"] = (high - low).mean()
            return pandas.Series(found)

        groups = known.groupby(list(by), sort=False)
        columns = [c for c in known.columns if c not in by]
        return groups[columns].apply(score).reset_index().astype({"count": int})

    def plot(self, id: Any = None, target: str | None = None) -> "Figure":
        """Draw the mean absolute error over the horizon, and forecasts on a series.

        Args:
            id: of the series to draw; by default the first one.
            target: to draw; by default the first one.

        Raises:
            UnknownNameError: there is no such id or target.
        """
        from .backtest_plots import plot_backtest

        ids, targets = self.frame["id"].astype(str).unique(), self.frame["target"].unique()
        id = ids[0] if id is None else check_one_of(ids.tolist(), id=str(id))
        target = targets[0] if target is None else check_one_of(targets.tolist(), target=target)
        shown = self.frame[(self.frame["id"].astype(str) == id) & (self.frame["target"] == target)]
        return plot_backtest(self.scores(), shown, f"{target}, {id}" if len(ids) > 1 else target)


def backtest(
    model: Any,
    frame: Any,
    *,
    origins: int = 20,
    step: int | None = None,
    window: int | None = None,
    refit: bool = False,
    by: str = "time",
    interval: float | None = None,
    season: int | None = None,
    boosting: bool = True,
    lags: int = 24,
    t: Any = None,
) -> BacktestResult:
    """Forecast from times in the past, of which only what was known then is given to the model.

    A model that is not fitted again must have been fitted to rows before the first origin, or to
    other ids; nothing can tell here whether it was.

    Args:
        model: a fitted :class:`tauflow.estimators.SequenceForecaster`, or a
            :class:`tauflow.Predictor` of a forecast with a horizon.
        frame: of pandas, with the columns that it was fitted to; of an estimator also an array,
            (T, I), of one series.
        origins: how many times to forecast from. At each, the rows up to it are known, and the next
            ones, as many as the horizon, are to be forecast; the last origin has them just before
            the end.
        step: rows from one origin to the next; by default the horizon, so that no row is forecast
            twice.
        window: rows of each id before an origin that are known (a sliding origin); by default all
            (an expanding one).
        refit: whether a copy of an estimator is fitted at each origin to what is known there.
        by: of several ids: ``"time"``: all have the origins at the same times; ``"id"``: each has
            its own, counted in its rows from its end.
        interval: share of the values that intervals are to hold, such as 0.9, if the model makes
            intervals.
        season: rows after which values come again, for the seasonal naive forecast.
        boosting: whether to fit gradient boosting (scikit-learn) to the last values, at the first
            origin, or with ``refit`` at each.
        lags: how many of the last values it is given.
        t: of an array: times of its rows, as the estimator was fitted with.

    Returns:
        The forecasts of the model, of ``"persistence"`` (the last value), ``"drift"`` (the line
        through the first and the last one), ``"seasonal naive"`` with a ``season`` and
        ``"gradient boosting"``.

    Raises:
        ArgumentError: the model forecasts no horizon, or cannot be fitted again.
        DataError: the rows are too few for so many origins.
    """
    check_at_least(1, origins=origins)
    check_at_least(1, lags=lags)
    check_one_of(("time", "id"), by=by)
    source = _make_source(model, frame, t)
    horizon = source.horizon
    step = check_at_least(1, step=horizon if step is None else step)
    if window is not None:
        check_at_least(2, window=window)
    if season is not None:
        check_at_least(1, season=season)
    if refit and not hasattr(model, "fit"):
        raise ArgumentError(
            "refit=True fits an estimator again, and a Predictor holds a model alone. Give a "
            "SequenceForecaster, or refit=False."
        )
    cuts = _find_cuts(source, origins, step, by)
    scales = _compute_scales(source, cuts[0], season or 1)
    parts, booster = [], None
    for ends in cuts:
        known = [
            (number, source.rows[number][max(0, end - (window or end)) : end])
            for number, end in ends.items()
        ]
        future = [source.rows[n][end : end + horizon] for n, end in ends.items()]
        if refit:
            source = source.fit_again([rows for _, rows in known])
        told = source.forecast([rows for _, rows in known], future, interval)
        named = {type(model).__name__: told}
        histories = [source.values[rows] for _, rows in known]
        for name, one in _forecast_naively(histories, horizon, season).items():
            named[name] = (one,)
        if boosting:
            if booster is None or refit:
                booster = _fit_boosting(histories, horizon, lags)
            named["gradient boosting"] = (_forecast_boosting(booster, histories, horizon, lags),)
        parts += [_tabulate(source, known, future, n, v, scales) for n, v in named.items()]
    pandas = require("pandas", extra="tables")
    return BacktestResult(pandas.concat(parts, ignore_index=True), interval)


def _make_source(model: Any, frame: Any, t: Any) -> BacktestSource:
    if hasattr(model, "read_table"):
        return PredictorSource.read(model, frame)
    if hasattr(model, "horizon") and hasattr(model, "fit"):
        return EstimatorSource.read(model, frame, t)
    raise ArgumentError(
        f"backtest takes a SequenceForecaster or a Predictor, got a {type(model).__name__}."
    )


def _find_cuts(source: BacktestSource, origins: int, step: int, by: str) -> list[dict[int, int]]:
    """Return for each origin how many rows of each series are known, the earliest first.

    Raises:
        DataError: a series has too few rows before the first origin, or none has enough.
    """
    back = [source.horizon + step * k for k in reversed(range(origins))]
    lengths = {number: len(rows) for number, rows in enumerate(source.rows)}
    if by == "time" and len(lengths) > 1:
        moments = np.unique(np.concatenate([source.times[rows] for rows in source.rows]))
        if len(moments) > back[0]:
            cuts = [
                {
                    n: int(np.searchsorted(source.times[source.rows[n]], moments[-1 - b], "right"))
                    for n in lengths
                }
                for b in back
            ]
        else:
            cuts = [{}]
    else:
        cuts = [{n: length - b for n, length in lengths.items()} for b in back]
    kept = [
        {
            n: end
            for n, end in cut.items()
            if end >= _MIN_ROWS and end + source.horizon <= lengths[n]
        }
        for cut in cuts
    ]
    if not all(kept):
        raise DataError(
            f"the rows are too few for {format_count(origins, 'origin')} "
            f"{format_count(step, 'row')} apart: the first one needs "
            f"{format_count(_MIN_ROWS, 'row')} of a series before it and {source.horizon} after "
            "it, and there is none with as many. Ask for fewer origins, or a smaller step."
        )
    return kept


def _compute_scales(
    source: BacktestSource, first: dict[int, int], season: int
) -> dict[int, Floats]:
    """Return the error of the naive forecast of each series before its first origin, (O,)."""
    scales = {}
    for number, rows in enumerate(source.rows):
        values = source.values[rows[: first.get(number, len(rows))]]
        errors = np.abs(values[season:] - values[:-season])
        known = ~np.isnan(errors)
        total = np.where(known, errors, 0.0).sum(0)
        scales[number] = np.where(total > 0, total, np.nan) / np.maximum(known.sum(0), 1)
    return scales


def _forecast_naively(
    histories: list[Floats], horizon: int, season: int | None
) -> dict[str, Floats]:
    """Return forecasts, (N, H, O), of what is known, (T, O) each; NaN where nothing is."""
    steps = np.arange(1, horizon + 1)[:, None]
    found: dict[str, list[Floats]] = {"persistence": [], "drift": []}
    if season is not None:
        found["seasonal naive"] = []
    for values in histories:
        filled = _fill_forward(values)
        last = filled[-1]
        known = ~np.isnan(values)
        first = np.argmax(known, axis=0)
        final = len(values) - 1 - np.argmax(known[::-1], axis=0)
        columns = np.arange(values.shape[1])
        rise = (last - values[first, columns]) / np.maximum(final - first, 1)
        found["persistence"].append(np.broadcast_to(last, (horizon, len(last))))
        found["drift"].append(last + steps * rise)
        if season is not None:
            places = len(values) - season + (steps[:, 0] - 1) % season
            enough = places >= 0
            again = np.where(enough[:, None], filled[np.maximum(places, 0)], last)
            found["seasonal naive"].append(again)
    return {name: np.stack(one) for name, one in found.items()}


def _fill_forward(values: Floats) -> Floats:
    """Return values with the last known one where one is missing."""
    places = np.where(np.isnan(values), -1, np.arange(len(values))[:, None])
    places = np.maximum.accumulate(places, axis=0)
    filled: Floats = np.take_along_axis(values, np.maximum(places, 0), axis=0)
    return np.where(places < 0, np.nan, filled)


def _compute_lags(values: Floats, ends: NDArray[np.int64], lags: int) -> Floats:
    """Return the last values before rows, (E, L * O), NaN before the first row."""
    places = ends[:, None] - np.arange(1, lags + 1)
    found = np.where(places[..., None] < 0, np.nan, values[np.maximum(places, 0)])
    return found.reshape(len(ends), -1)


def _fit_boosting(histories: list[Floats], horizon: int, lags: int) -> list[Any]:
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


def _forecast_boosting(
    models: list[Any], histories: list[Floats], horizon: int, lags: int
) -> Floats:
    found = []
    for values in histories:
        last = _fill_forward(values)[-1]
        rows = _compute_lags(values, np.full(horizon, len(values)), lags)
        rows = np.column_stack([rows, np.arange(1, horizon + 1)])
        changes = [np.full(horizon, np.nan) if m is None else m.predict(rows) for m in models]
        found.append(last + np.stack(changes, -1))
    return np.stack(found)


def _tabulate(
    source: BacktestSource,
    known: list[tuple[int, NDArray[np.int64]]],
    future: list[NDArray[np.int64]],
    model: str,
    told: tuple[Floats, ...],
    scales: dict[int, Floats],
) -> "DataFrame":
    """Return the forecasts of a model from one origin as rows, targets last."""
    pandas = require("pandas", extra="tables")
    horizon, targets = source.horizon, source.targets
    count, size = len(known), len(targets)
    truth = np.stack([source.values[rows] for rows in future])
    low, high = told[1:] if len(told) == 3 else (np.full(truth.shape, np.nan),) * 2
    origins = np.array([rows[-1] for _, rows in known])
    return pandas.DataFrame(
        {
            "model": model,
            "id": np.repeat(source.ids[[number for number, _ in known]], horizon * size),
            "origin": np.repeat(source.shown_times[origins], horizon * size),
            "time": np.repeat(source.shown_times[np.concatenate(future)], size),
            "step": np.tile(np.repeat(np.arange(1, horizon + 1), size), count),
            "target": np.tile(targets, count * horizon),
            "truth": truth.ravel(),
            "prediction": told[0].ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
            "scale": np.concatenate([np.tile(scales[number], horizon) for number, _ in known]),
        }
    )
