"""Forecasts of irregular series by a network that was trained on generated series."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError
from tauflow.evaluation.conformal import check_level
from tauflow.evaluation.tidy import make_tidy_frame
from tauflow.pretraining.blend import MIDDLE, Blend, draw_origins, fit_blend, fit_widths
from tauflow.pretraining.finetune import STEPS, fine_tune
from tauflow.pretraining.fitted import FittedTable, read_fitted, write_fitted
from tauflow.pretraining.inference import (
    Series,
    are_whole,
    forecast,
    gather_members,
    round_whole,
)
from tauflow.pretraining.network import QUANTILE_LEVELS, ZeroShotNetwork
from tauflow.pretraining.population import Population
from tauflow.pretraining.stream import ForecastStream
from tauflow.pretraining.weights import load_weights
from tauflow.tabular.cell_values import Floats
from tauflow.tabular.schema import Schema
from tauflow.tabular.times import check_zones

from .forecast_queries import describe_queries
from .input_kwargs import InputKwargs, with_input_kwargs
from .preparation import check_kind_of_times, check_timed
from .pretrained_request import NO_FEATURES, Request, read_request
from .reading import get_table_options, read_rows

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack


class PretrainedForecaster(BaseEstimator):  # type: ignore[misc]
    """Forecasts at any time without training, by a network trained on generated series alone.

    Each target is a separate series: other features are not read. Where the table has other ids,
    these are compared with, and from 20 ids on a blend of the forecast with the last value, the
    middle of the table, the mean of the past and a regression on other ids is fitted to their past
    in about a second; it is never worse than the last value on ids that were left out of the fit.
    Of fewer ids, each with 120 values or more has its intervals widened by what they held of its
    past. The last 1024 values of a target are read. Where all its values are whole numbers, its
    quantiles are, too. ``methods_`` says after each forecast what was used.

    Args:
        blend: whether to fit a blend where there are enough ids.
    """

    schema_: Schema
    _is_timed: bool | None = None  # as of forecasters of old files

    def __init__(self, *, blend: bool = True) -> None:
        self.blend = blend

    @with_input_kwargs
    def forecast(
        self,
        X: Any,
        at: Any,
        *,
        targets: Any = None,
        interval: float | None = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> "DataFrame":
        """Return forecasts at any time as a tidy frame of pandas.

        Args:
            X: the past: a data frame with ``id`` and ``time``, or arrays, as for
                :meth:`tauflow.estimators.SequenceRegressor.fit`; values may be missing.
            at: times after the last row of each id, as numbers in the unit of the times, durations,
                or texts such as ``"24h"``; or a data frame of ids and times, which come back as
                they are given.
            targets: features to forecast, by name or number; by default all numbers.
            interval: share of the values that intervals are to hold, such as 0.8. The network
                learned quantiles from 0.1 to 0.9; tails beyond are those of a normal distribution.
            {given}

        Returns:
            A frame as of :meth:`tauflow.estimators.SequenceForecaster.forecast`. Where a target has
            no value before, its forecast is NaN.
        """
        asked = self._read(X, at, targets, kwargs)
        columns = get_table_options(asked.schema)
        front = describe_queries(asked.rows, asked.queries, NO_FEATURES, columns, at)
        quantiles = self._answer(asked)
        names = [name if isinstance(name, str) else f"feature {name}" for name in asked.names]
        cases = require("pandas", extra="tables").DataFrame(front)
        answers = [quantiles[..., MIDDLE], *_find_ends(quantiles, interval)]
        return make_tidy_frame(cases, {"target": names}, answers, interval=interval)

    @with_input_kwargs
    def predict(
        self,
        X: Any,
        *,
        at: Any,
        targets: Any = None,
        interval: float | None = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Return medians at times after the last sample, (B, Q, O); of a data frame ``at`` (Q, O).

        With ``interval`` it is ``(medians, low, high)``.

        Args:
            X, at, targets, interval: as for :meth:`forecast`.
            {given}
        """
        quantiles = self.predict_quantiles(X, at, targets=targets, **kwargs)
        answers = (quantiles[..., MIDDLE], *_find_ends(quantiles, interval))
        return answers[0] if interval is None else answers

    @with_input_kwargs
    def predict_quantiles(
        self, X: Any, at: Any, *, targets: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> Floats:
        """Return quantiles 0.1, 0.2, ... 0.9, (B, Q, O, 9); of a data frame ``at`` (Q, O, 9).

        Args:
            X, at, targets: as for :meth:`forecast`.
            {given}
        """
        asked = self._read(X, at, targets, kwargs)
        quantiles = self._answer(asked)
        return (
            quantiles
            if hasattr(at, "columns")
            else quantiles.reshape(len(asked.rows), -1, *quantiles.shape[1:])
        )

    @with_input_kwargs
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        targets: Any = None,
        steps: int = STEPS,
        random_state: int = 0,
        **kwargs: "Unpack[InputKwargs]",
    ) -> "PretrainedForecaster":
        """Fine-tune to a table, and keep its ids to compare new ones with.

        A quarter of the ids, or of a single one the end, chooses the step of the training; where
        none is better than none, the zero-shot network is kept. ``tables_`` says which.

        Args:
            X, targets: as for :meth:`forecast`.
            y: not used.
            steps: of training; 0 keeps the network.
            random_state: of what is held out and drawn.
            {given}
        """
        asked = self._read(X, None, targets, kwargs, reset=True)
        self.tables_: dict[Any, FittedTable] = {}
        for place, name in enumerate(asked.names):
            series = asked.collect_series(place)
            members = [series[n] for n in asked.order_members(series)]
            if not members:
                raise DataError(f"target {name!r} has no value. Name other targets.")
            tuned = fine_tune(self._base, members, steps, random_state)
            network = tuned.network if tuned.step else None
            blend = fit_blend(tuned.network, members) if self.blend else None
            gathered = gather_members(members)
            self.tables_[name] = FittedTable(gathered, blend, network, tuned.step)
        return self

    @with_input_kwargs
    def backtest(
        self, X: Any, *, targets: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> "DataFrame":
        """Return how forecasts of the later part of each id from the part before would have done.

        Before :meth:`fit` no blend takes part, as one fitted to these ids would know the answers.

        Args:
            X, targets: as for :meth:`forecast`.
            {given}

        Returns:
            A row per target, with ``forecasts``, their number, ``mae`` and that of the last value,
            ``mae_last_value``, and ``inside_80``, the share of values in 80 % intervals.
        """
        asked = self._read(X, None, targets, kwargs)
        scores = {}
        for place, name in enumerate(asked.names):
            series = asked.collect_series(place)
            members = [series[n] for n in asked.order_members(series)]
            origins = draw_origins(members)
            if not origins:
                continue
            contexts = [(origin.t, origin.y) for origin in origins]
            table = self._get_table(name)
            others = self._compare_with(name, members, [origin.member for origin in origins])
            network = self._base if table is None else table.network or self._base
            answers = forecast(network, contexts, [origin.q for origin in origins], others)
            quantiles = [answer.quantiles for answer in answers]
            if table is not None and table.blend is not None:
                triples = zip(contexts, origins, answers, strict=True)
                quantiles = [table.blend.apply(past, origin.q, a) for past, origin, a in triples]
            both, true = (
                np.concatenate(quantiles),
                np.concatenate([origin.target for origin in origins]),
            )
            both = round_whole(both) if self._is_whole(name, members) else both
            last = np.concatenate([np.full(len(origin.q), origin.y[-1]) for origin in origins])
            scores[name] = {
                "forecasts": len(true),
                "mae": np.abs(both[:, MIDDLE] - true).mean(),
                "mae_last_value": np.abs(last - true).mean(),
                "inside_80": ((both[:, 0] <= true) & (true <= both[:, -1])).mean(),
            }
        frame: DataFrame = require("pandas", extra="tables").DataFrame(scores).T
        return frame

    def stream(self, target: Any = None) -> "ForecastStream":
        """Return a stream of one series, whose samples come one by one.

        Args:
            target: of a fitted forecaster, whose network and table to use.
        """
        table = self._get_table(target)
        return ForecastStream(self._base if table is None else table.network or self._base, table)

    def save(self, path: str | Path) -> None:
        """Write a fitted forecaster to a file: safetensors with JSON, no pickle."""
        if not hasattr(self, "tables_"):
            raise ArgumentError(
                "the forecaster is not fitted, and its weights are those of tauflow itself. Call "
                "SequenceForecaster.from_pretrained() where it is needed."
            )
        fitted = self._base, self.tables_, self.schema_
        write_fitted(Path(path), *fitted, blend=self.blend, is_timed=self._is_timed)

    @classmethod
    def load(cls, path: str | Path) -> "PretrainedForecaster":
        """Read a forecaster that :meth:`save` wrote.

        Raises:
            ModelFileError: the file is of another kind, or damaged.
        """
        network, tables, schema, blend, is_timed = read_fitted(path)
        forecaster = cls(blend=blend)
        forecaster._network, forecaster.schema_, forecaster.tables_ = network, schema, tables
        forecaster._is_timed = is_timed
        return forecaster

    @property
    def _base(self) -> ZeroShotNetwork:
        """The network of the package, or of the file that was loaded."""
        if not hasattr(self, "_network"):
            self._network = load_weights()
        return self._network

    def _get_table(self, name: Any) -> FittedTable | None:
        return getattr(self, "tables_", {}).get(name)

    def _read(
        self, X: Any, at: Any, targets: Any, kwargs: Mapping[str, Any], *, reset: bool = False
    ) -> Request:
        """Return what is asked for; ``at`` of ``None`` is for nothing."""
        if hasattr(self, "tables_") and hasattr(X, "columns"):
            options = {key: value for key, value in kwargs.items() if value is not None}
            kwargs = get_table_options(self.schema_) | options
        is_fitted = hasattr(self, "tables_") and not reset
        reader = PretrainedForecaster() if is_fitted else self  # what the fit learned stays
        rows = read_rows(reader, X, layout="BTI", is_series_2d=True, reset=True, **kwargs)
        unit = "seconds" if rows.dated else reader.schema_.unit
        reader.schema_ = replace(reader.schema_, dated=rows.dated, unit=unit)
        if not is_fitted:
            self._is_timed = rows.dt is not None
        else:
            if self._is_timed is not None:
                check_timed(self._is_timed, rows)
            zoned: bool | None = self.schema_.zoned
            check_kind_of_times(self.schema_.dated or zoned is not None, rows)
            check_zones(rows.zoned, zoned, "this table", "the fit")
        names: list[Any] = list(reader.schema_.list_columns())
        if not hasattr(reader, "feature_names_in_"):
            names = list(range(len(names)))
        return read_request(rows.with_times(), at, targets, reader.schema_, names)

    def _answer(self, asked: Request) -> Floats:
        """Return quantiles of all queries, (Q, O, 9)."""
        queries, time = asked.queries, asked.times
        quantiles = np.full((len(time), len(asked.names), len(QUANTILE_LEVELS)), np.nan)
        self.methods_: dict[Any, str] = {}
        for place, name in enumerate(asked.names):
            series = asked.collect_series(place)
            used = [n for n in np.unique(queries.sequence) if len(series[n][0])]
            if not used:
                self.methods_[name] = "no value before"
                continue
            order = asked.order_members(series)
            members, member_numbers = (
                [series[n] for n in order],
                {n: k for k, n in enumerate(order)},
            )
            where = [np.flatnonzero(queries.sequence == n) for n in used]
            table = self._get_table(name)
            network = self._base if table is None else table.network or self._base
            others = self._compare_with(name, members, [member_numbers[int(n)] for n in used])
            contexts = [series[n] for n in used]
            answers = forecast(network, contexts, [time[w] for w in where], others)
            blend = table.blend if table is not None else None
            if table is None and self.blend:
                blend = fit_blend(network, members)
            alone = self.blend and table is None and blend is None
            for rows, past, answer in zip(where, contexts, answers, strict=True):
                own_blend = fit_widths(network, past) if alone else blend
                quantiles[rows, place] = (
                    answer.quantiles
                    if own_blend is None
                    else own_blend.apply(past, time[rows], answer)
                )
            if self._is_whole(name, members):
                quantiles[:, place] = round_whole(quantiles[:, place])
            self.methods_[name] = _describe(table, blend)
        return quantiles

    def _is_whole(self, name: Any, members: Sequence[Series]) -> bool:
        """Say whether all known values of a target are whole numbers, so that answers are."""
        table = self._get_table(name)
        return are_whole(members) and (table is None or table.is_whole)

    def _compare_with(
        self, name: Any, members: Sequence[Series], asked_members: Sequence[int]
    ) -> Population | None:
        """Return those of the fit, or of the table itself if it has several."""
        table = self._get_table(name)
        if table is not None:
            none = np.full(len(asked_members), -1)
            return Population(table.population.t, table.population.y, np.zeros_like(none), none)
        return gather_members(members, asked_members) if len(members) > 1 else None


def _describe(table: FittedTable | None, blend: Blend | None) -> str:
    """Return what a forecast rests on, for people."""
    start = "zero-shot" if table is None or table.network is None else "fine-tuned"
    if blend is None:
        return start
    best = min(blend.errors, key=lambda name: blend.errors[name])
    if best not in ("zero-shot", "blended"):
        return f"{best}, which did better on the other ids"
    widths = "widths from the other ids"
    return f"{start}, {widths}" if best == "zero-shot" else f"{start}, blended, {widths}"


def _find_ends(quantiles: Floats, interval: float | None) -> list[Floats]:
    """Return ends of intervals, or none: between quantiles by lines, beyond as of a normal."""
    if interval is None:
        return []
    interval, ends = check_level(interval), []
    for level in ((1 - interval) / 2, (1 + interval) / 2):
        inside = np.clip(level, QUANTILE_LEVELS[0], QUANTILE_LEVELS[-1])
        place = np.interp(inside, QUANTILE_LEVELS, np.arange(len(QUANTILE_LEVELS)))
        low, part = int(place), place - int(place)
        high = min(low + 1, len(QUANTILE_LEVELS) - 1)
        end = (1 - part) * quantiles[..., low] + part * quantiles[..., high]
        if level != inside:
            normal = NormalDist()
            reach = normal.inv_cdf(level) / normal.inv_cdf(float(inside))
            middle = quantiles[..., MIDDLE]
            end = middle + reach * (end - middle)
        ends.append(end)
    return ends
