"""Back-test: compare forecasts from several past origins with simple forecasts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError
from tauflow.tabular.shift import ignore_shift

from .backtest_baselines import fit_boosting, forecast_boosting, forecast_naively
from .backtest_sources import BacktestSource, EstimatorSource, PredictorSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Floats = NDArray[np.float64]
_MIN_ROWS = 3  # of a series before its first origin


@dataclass(frozen=True, eq=False)
class BacktestResult:
    """Forecasts of a back-test, with the true values.

    Args:
        frame: one row for each model, id, origin, step and target: ``model``, ``id``, ``origin``
            (the time of the last row that was known), ``time``, ``step``, ``target``, ``truth``,
            ``prediction``, ``low`` and ``high`` (NaN without an interval), and ``scale``, the mean
            absolute error of the naive forecast on the rows of the id before its first origin.
        interval: the share of the targets that intervals were to hold; ``None`` without.
    """

    frame: "DataFrame"
    interval: float | None = None

    def scores(self, by: Sequence[str] = ("model", "step")) -> "DataFrame":
        """Return scores of groups of forecasts, values that are not known left out.

        Args:
            by: columns of ``frame`` that make the groups.

        Returns:
            ``crps``, if it was asked for (twice the mean pinball loss of the deciles),
            ``mae``, ``rmse``, ``mase`` (the absolute error in units of ``scale``: Hyndman and
            Koehler 2006), ``pinball`` (the mean of the losses of both ends of the interval), its
            ``coverage`` and ``width``, and ``count``.
        """
        metrics: Any = require("sklearn.metrics", extra="sklearn")
        pandas = require("pandas", extra="tables")
        known = self.frame.dropna(subset=["truth", "prediction"])

        def score(group: "DataFrame") -> Any:
            truth, prediction = group["truth"], group["prediction"]
            values = {
                "mae": metrics.mean_absolute_error(truth, prediction),
                "rmse": metrics.root_mean_squared_error(truth, prediction),
                "mase": ((truth - prediction).abs() / group["scale"]).mean(),
                **dict.fromkeys(("pinball", "coverage", "width"), np.nan),
                "count": len(group),
            }
            if "crps" in group:
                values["crps"] = group["crps"].mean()
            if self.interval is not None and group["low"].notna().all():
                low, high = group["low"], group["high"]
                ends = ((1 - self.interval) / 2, low), ((1 + self.interval) / 2, high)
                losses = [metrics.mean_pinball_loss(truth, end, alpha=a) for a, end in ends]
                inside = (low <= truth) & (truth <= high)
                values |= {"pinball": np.mean(losses), "coverage": inside.mean()}
                values["width"] = (high - low).mean()
            return pandas.Series(values)

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
    crps: bool = False,
    id_folds: int | None = None,
    t: Any = None,
) -> BacktestResult:
    """Forecast from times in the past, of which only what was known then is given to the model.

    A model that is not fitted again must have been fitted to rows before the first origin, or to
    other ids; nothing can tell here whether it was.

    Args:
        model: a fitted :class:`tauflow.estimators.SequenceForecaster`, or a
            :class:`tauflow.Predictor` of a forecast with a horizon. The horizon of forecasts at any
            time is as many median time steps as ``max_lead_time`` has; what comes later is not
            known.
        frame: of pandas, Polars or Arrow, or the path of a CSV or Parquet file, with the columns
            that it was fitted to; of an estimator also an array, (T, I), of one series.
        origins: how many times to forecast from. At each, the rows up to it are known, and the next
            ones, as many as the horizon, are to be forecast; the last origin has them just before
            the end.
        step: rows of an id from one of its origins to the next, at least; by default the horizon,
            so that no row is forecast twice.
        window: rows of each id before an origin that are known (a sliding origin); by default all
            (an expanding one).
        refit: whether a copy of an estimator is fitted at each origin to what is known there.
        by: of several ids: ``"time"``: all have the origins at the same times, between which ids
            have ``step`` rows on average; one that has fewer is left out of the earlier. ``"id"``:
            each has its own, counted in its rows from its end.
        interval: share of the values that intervals are to hold, such as 0.9, if the model makes
            intervals.
        season: rows after which values come again, for the seasonal naive forecast.
        boosting: whether to fit gradient boosting (scikit-learn) to the last values, at the first
            origin, or with ``refit`` at each.
        lags: how many of the last values it is given.
        crps: whether to score the forecasts of the model as distributions, by their deciles, if it
            makes intervals; point forecasts are scored as distributions of one value.
        id_folds: folds of the ids, drawn at random; a copy of an estimator is fitted to all rows of
            the ids of the others, and forecasts those of each. Not with ``refit``.
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
    first: dict[int, int] = {}
    for cut in reversed(cuts):
        first |= cut
    scales = _compute_scales(source, first, season or 1)
    options = _Options(horizon, window, refit, interval, season, lags if boosting else 0, crps)
    if id_folds is None:
        parts = _forecast_cuts(source, cuts, scales, options)
    else:
        folds = _make_id_folds(source, check_at_least(2, id_folds=id_folds), refit)
        parts = []
        for number, fold in enumerate(folds):
            others = [
                n for fold_of_others in folds[:number] + folds[number + 1 :] for n in fold_of_others
            ]
            fitted = source.fit_again([source.rows[n] for n in others])
            ends = [{n: end for n, end in cut.items() if n in fold} for cut in cuts]
            parts += _forecast_cuts(fitted, [cut for cut in ends if cut], scales, options)
    pandas = require("pandas", extra="tables")
    return BacktestResult(pandas.concat(parts, ignore_index=True), interval)


@dataclass(frozen=True)
class _Options:
    """What is done at each origin; see :func:`backtest`, and ``lags`` is 0 without boosting."""

    horizon: int
    window: int | None
    refit: bool
    interval: float | None
    season: int | None
    lags: int
    crps: bool


def _make_id_folds(source: BacktestSource, count: int, refit: bool) -> list[list[int]]:
    if refit or not hasattr(source.model, "fit") or len(source.ids) < count:
        raise ArgumentError(
            f"id_folds={count}: an estimator is fitted for each fold of the ids, which are "
            f"{len(source.ids)}. Give a SequenceForecaster, as many ids at least, and no refit."
        )
    order = np.random.default_rng(0).permutation(len(source.ids))
    return [sorted(part.tolist()) for part in np.array_split(order, count)]


def _forecast_cuts(
    source: BacktestSource,
    cuts: list[dict[int, int]],
    scales: dict[int, Floats],
    options: _Options,
) -> "list[DataFrame]":
    """Return the forecasts of all models from each origin."""
    horizon, window, lags = options.horizon, options.window, options.lags
    parts, booster, name_of_model = [], None, type(source.model).__name__
    for ends in cuts:
        known = [
            (number, source.rows[number][max(0, end - (window or end)) : end])
            for number, end in ends.items()
        ]
        future = [source.rows[n][end : end + horizon] for n, end in ends.items()]
        if options.refit:
            source = source.fit_again([rows for _, rows in known])
        histories = [rows for _, rows in known]
        with ignore_shift():  # scores show it; a warning per origin says no more
            named = {name_of_model: source.forecast(histories, future, options.interval)}
            deciles = _forecast_deciles(source, histories, future) if options.crps else None
        values = [source.values[rows] for rows in histories]
        for name, naive in forecast_naively(values, horizon, options.season).items():
            named[name] = (naive,)
        if lags:
            if booster is None or options.refit:
                booster = fit_boosting(values, horizon, lags)
            named["gradient boosting"] = (forecast_boosting(booster, values, horizon, lags),)
        for name, forecast in named.items():
            deciles_of_model = deciles if name == name_of_model else None
            parts.append(
                _tabulate(
                    source, known, future, name, forecast, scales, deciles_of_model, options.crps
                )
            )
    return parts


def _forecast_deciles(
    source: BacktestSource, known: list[NDArray[np.int64]], future: list[NDArray[np.int64]]
) -> Floats:
    """Return the deciles of forecasts, (N, H, O, 9); the forecast itself stands for the median."""
    between: list[Floats] = []
    for level in (0.2, 0.4, 0.6, 0.8):
        value, low, high = source.forecast(known, future, level)
        between = [low, *(between or [value]), high]
    return np.stack(between, -1)


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

    Moments from which no series can be forecast, such as between ids one after another, are no
    origins.

    Raises:
        DataError: there are fewer origins with enough rows of a series before and after them.
    """
    lengths = {number: len(rows) for number, rows in enumerate(source.rows)}
    moments, left = source.count_rows_left()
    cuts: list[dict[int, int]] = []
    ends = {n: length - source.horizon + step for n, length in lengths.items()}
    most = int(left[0]) if by == "time" else max(lengths.values())
    for back in range(source.horizon, most + 1, step):
        cut = {n: length - back for n, length in lengths.items()}
        if by == "time":
            moment = moments[np.searchsorted(-left, -back, "right") - 1]
            cut = {
                n: int(np.searchsorted(source.times[rows], moment, "right"))
                for n, rows in enumerate(source.rows)
            }
        # Left out is an id with fewer rows than step up to its next origin.
        cut = {n: end for n, end in cut.items() if _MIN_ROWS <= end <= ends[n] - step}
        ends |= cut
        cuts += [cut] if cut else []
        if len(cuts) == origins:
            return cuts[::-1]
    raise DataError(
        f"the rows are too few for {format_count(origins, 'origin')} "
        f"{format_count(step, 'row')} apart: each needs {format_count(_MIN_ROWS, 'row')} of a "
        f"series before it and {source.horizon} after it, which leaves {len(cuts)}. Ask for fewer "
        "origins, or a smaller step."
    )


def _compute_scales(
    source: BacktestSource, first: dict[int, int], season: int
) -> dict[int, Floats]:
    """Return the error of the naive forecast of each series before its first origin, (O,)."""
    scales = {}
    for number, end in first.items():
        values = source.values[source.rows[number][:end]]
        errors = np.abs(values[season:] - values[:-season])
        known = ~np.isnan(errors)
        total = np.where(known, errors, 0.0).sum(0)
        scales[number] = np.where(total > 0, total, np.nan) / np.maximum(known.sum(0), 1)
    return scales


def _tabulate(
    source: BacktestSource,
    known: list[tuple[int, NDArray[np.int64]]],
    future: list[NDArray[np.int64]],
    model: str,
    forecasts: tuple[Floats, ...],
    scales: dict[int, Floats],
    deciles: Floats | None,
    with_crps: bool,
) -> "DataFrame":
    """Return the forecasts of a model from one origin as rows, targets last."""
    pandas = require("pandas", extra="tables")
    horizon, targets = source.horizon, source.targets
    count, size = len(known), len(targets)
    truth = np.stack([source.values[rows] for rows in future])
    low, high = forecasts[1:] if len(forecasts) == 3 else (np.full(truth.shape, np.nan),) * 2
    origins = np.array([rows[-1] for _, rows in known])
    more = {}
    if with_crps:  # twice the mean pinball loss of the deciles
        error = truth[..., None] - (forecasts[0][..., None] if deciles is None else deciles)
        share = 0.5 if deciles is None else np.arange(1, 10) / 10
        losses = np.maximum(share * error, (share - 1) * error)
        more["crps"] = 2 * losses.mean(-1).ravel()
    return pandas.DataFrame(
        {
            "model": model,
            "id": np.repeat(source.ids[[number for number, _ in known]], horizon * size),
            "origin": np.repeat(source.shown_times[origins], horizon * size),
            "time": np.repeat(source.shown_times[np.concatenate(future)], size),
            "step": np.tile(np.repeat(np.arange(1, horizon + 1), size), count),
            "target": np.tile(targets, count * horizon),
            "truth": truth.ravel(),
            "prediction": forecasts[0].ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
            "scale": np.concatenate([np.tile(scales[number], horizon) for number, _ in known]),
            **more,
        }
    )
