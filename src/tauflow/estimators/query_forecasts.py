"""Forecasts of an estimator at times that are asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError
from tauflow.evaluation.conformal import Conformal
from tauflow.evaluation.outputs import collect_outputs
from tauflow.evaluation.tidy import make_tidy_frame
from tauflow.models.registry import get_model_info
from tauflow.tabular.cell_values import Floats, Indices
from tauflow.tabular.gaps import carry_forward
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import check_zones, has_offset, to_moments

from .blending import BlendedForecasts, blend_forecasts
from .forecast_queries import (
    Queries,
    check_any_query,
    compute_lead_time,
    describe_queries,
    make_windows,
    plan_forecast,
    plan_next_rows,
    plan_training,
    read_query_table,
)
from .forecast_targets import (
    check_known,
    check_nothing_imputed,
    compute_median_gap,
    compute_time_of_samples,
    measure_errors,
    read_lead_times,
    read_next_lead_times,
    resolve_columns,
    resolve_lead_time,
)
from .input_kwargs import InputKwargs, with_input_kwargs
from .intervals import AbstractIntervalEstimator
from .preparation import check_timed
from .pretrained_factory import PretrainedFactory
from .reading import get_table_options
from .seasons import (
    MAX_WINDOW,
    MIN_WINDOW,
    WINDOW_IN_HORIZONS,
    count_calendar_inputs,
    find_cycles,
    find_periods,
)
from .training import LearningTask, TrainingPlan

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack


_MIN_CALIBRATION, _MAX_RANGES = 200, 5
"""Validation targets of a range of lead times at least, and how many ranges there are at most."""


@dataclass(kw_only=True, eq=False, repr=False)
class AbstractQueryForecaster(AbstractIntervalEstimator, PretrainedFactory, BlendedForecasts):
    """Base of forecasters whose ``max_lead_time`` says that they answer at any time up to it."""

    @with_input_kwargs
    def forecast(
        self,
        X: Any,
        at: Any,
        *,
        interval: float | None = None,
        return_std: bool = False,
        **kwargs: "Unpack[InputKwargs]",
    ) -> "DataFrame":
        """Return forecasts at any time as a tidy frame of pandas.

        Args:
            X: as for :meth:`fit`.
            at: as for :meth:`predict`.
            interval: share of the values that intervals are to hold, such as 0.9.
            return_std: whether to add ``std``, over the networks of an ensemble.
            {given}

        Returns:
            One row for each id, time, target and, with an interval, ``quantile``, which is empty
            for the forecast itself. Columns of ids and times are called as in X, a nameless index
            ``index``; of arrays and lists they are ``sequence`` and ``time`` of dates, or
            ``lead_time``. Then come ``target`` and ``value``.
        """
        rows = self._read_new(X, kwargs)
        queries, *answers = self._answer_queries(rows, at, None, interval, return_std)
        pandas = require("pandas", extra="tables")
        columns = get_table_options(self.schema_)
        known_features = self._given_features
        cases = pandas.DataFrame(describe_queries(rows, queries, known_features, columns, at))
        names = [
            name if isinstance(name, str) else f"feature {name}" for name in self._target_names
        ]
        std = answers.pop() if return_std else None
        return make_tidy_frame(cases, {"target": names}, answers, interval=interval, std=std)

    @with_input_kwargs
    def compare(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> dict[str, Floats]:
        """Return errors (RMSE) of forecasts, (O,), in the unit of each target, by method.

        Forecast is what training on X would ask for: all values within the longest lead time after
        moving origins. The methods are ``"forecaster"``, ``"last value"`` and ``"mean"``, of the
        training split, which the second falls back to.

        Args:
            X: as for :meth:`fit`.
            {given}

        Raises:
            ArgumentError: the forecaster was fitted without ``max_lead_time``.
            DataError: X has nothing to forecast.
        """
        rows, queries = self._read_test_queries(X, kwargs)
        (predicted,) = self._run_queries(rows, queries)
        chosen = self.target_features_
        true, mean = rows.values[queries.row][:, chosen], self._feature_scaler.mean[chosen]
        last = carry_forward(rows)[queries.origin][:, chosen]
        guesses = {
            "forecaster": predicted,
            "last value": np.where(np.isnan(last), mean, last),
            "mean": np.broadcast_to(mean, true.shape),
        }
        return measure_errors(true, guesses)

    @with_input_kwargs
    def measure_coverage(
        self,
        X: Any,
        levels: Sequence[float] = (0.8, 0.95),
        *,
        since: Any = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> dict[float, Floats]:
        """Return the shares of values that intervals hold, (O,), by the level of these.

        Of a target without values it is NaN.

        Args:
            X: as for :meth:`compare`.
            levels: shares that intervals are to hold.
            since: a time of the table X, from which on values count; those before are read alone.
            {given}

        Raises:
            ArgumentError, DataError: as of :meth:`compare`; or X has no times.
            TimeError: ``since`` is a date and the times of X are numbers, or has a time zone and
                they have none, or the reverse.
        """
        rows, queries = self._read_test_queries(X, kwargs)
        if since is not None:
            if rows.moments is None:
                raise ArgumentError("since= is a time of a table, and X is no table with times.")
            when = to_moments(rows.moments[queries.row], dated=rows.dated)
            first = to_moments(np.asarray([since]), dated=rows.dated, name="since")
            check_zones(has_offset(since), rows.zoned, "since", "X")
            assert self._longest is not None
            queries = check_any_query(
                queries.select(when >= first), self._longest, dated=rows.dated
            )
        true = rows.values[queries.row][:, self.target_features_]
        known = ~np.isnan(true)
        shares = {}
        for level in levels:
            _, low, high = self._run_queries(rows, queries, level)
            inside = known & (low <= true) & (true <= high)
            count = np.where(known.any(0), known.sum(0), np.nan)
            shares[level] = inside.sum(0) / count
        return shares

    def _read_rows(self, X: Any, kwargs: Any, *, reset: bool, **targets: Any) -> Sequences:
        rows = super()._read_rows(X, kwargs, reset=reset, **targets)
        if reset:
            self._is_timed = rows.dt is not None
        elif self._longest is not None and hasattr(self, "_is_timed"):  # not in old files
            check_timed(self._is_timed, rows)
        return rows

    def _read_test_queries(self, X: Any, kwargs: InputKwargs) -> tuple[Sequences, Queries]:
        """Return sequences, and what training on them would ask for."""
        rows = self._read_new(X, kwargs).with_times()
        if self._longest is None:
            raise ArgumentError(
                "this is for forecasts at any time. Fit a forecaster with max_lead_time=."
            )
        queries = self._plan_training(rows, self._longest)
        return rows, check_any_query(queries, self._longest, dated=rows.dated)

    @property
    def _target_names(self) -> list[Any]:
        """Names of the features to forecast, or their numbers if X has no names."""
        names: list[Any] = list(range(self.n_features_in_))
        if hasattr(self, "feature_names_in_"):
            names = self.schema_.list_columns()
        return [names[place] for place in self.target_features_]

    @property
    def _counts_samples(self) -> bool:
        """Whether queries are for the next ``horizon`` samples, unless they say when."""
        return self._longest is not None and self._built.get("max_lead_time") is None

    def _forecast_next_rows(self, rows: Sequences) -> Floats:
        """Return forecasts of the row after each, (R, O), NaN where none comes in time."""
        rows, count = rows.with_times(), len(rows.values)
        following = np.full((count, len(self.target_features_)), np.nan)
        assert self._longest is not None
        queries = plan_next_rows(rows, self._longest)
        if len(queries):
            (following[queries.origin],) = self._run_queries(rows, queries)
        return following

    @property
    def _longest(self) -> float | None:
        """The longest lead time of the last fit; ``None`` of forecasts of the next samples."""
        longest: float | None = getattr(self, "max_lead_time_", None)
        return longest

    def _resolve_features(self, rows: Sequences) -> None:
        """Learn which columns of rows are forecast, which are known in advance, and how far."""
        schema, numbers = self.schema_, self.schema_.list_number_columns()
        self.known_features_ = resolve_columns("known", self.known or (), schema)
        static = resolve_columns("static", schema.static or (), schema)
        if self.targets is None:
            not_forecast = np.union1d(static, self.known_features_)
            self.target_features_ = np.setdiff1d(np.arange(len(numbers)), not_forecast)
        else:
            self.target_features_ = resolve_columns("targets", self.targets, schema)
        check_known(self.known_features_, self.target_features_, static, schema.list_columns())
        self.max_lead_time_ = None
        if self.max_lead_time is not None:
            longest = resolve_lead_time("max_lead_time", self.max_lead_time, dated=rows.dated)
            self.max_lead_time_ = longest
        elif self.horizon > 1 and "wiring" in get_model_info(self.model).inputs:  # a cell
            self.max_lead_time_ = compute_time_of_samples(rows, self.horizon)
        if self._longest is not None:
            check_nothing_imputed(self.impute)
            self.window_ = self.window or MIN_WINDOW
            self.cycles_ = ()

    def _plan_training(self, rows: Sequences, longest: float) -> Queries:
        features = (self.target_features_, self.known_features_, self._given_features)
        return plan_training(rows.with_times(), *features, longest, self.origin_step)

    @property
    def _given_features(self) -> Indices:
        """Features that tell of no sample: known in advance and, beside these, static ones."""
        known: Indices = self.known_features_
        if not len(known):
            return known
        static = resolve_columns("static", self.schema_.static or (), self.schema_)
        known_features: Indices = np.union1d(known, static)
        return known_features

    def _fit_conformal(self, held: Sequences) -> Conformal:
        """Collect scores of validation data, by ranges of the lead time with as many in each."""
        if self._longest is None:
            return super()._fit_conformal(held)
        batch = self._make_batch(held)
        outputs = collect_outputs(self.module_, batch, with_quantiles=True)
        windows, _ = self._make_training_windows(held)
        lead_time = compute_lead_time(windows)[windows.is_query]
        count = int(np.clip(len(lead_time) // _MIN_CALIBRATION, 1, _MAX_RANGES))
        self.lead_time_edges_ = np.quantile(lead_time, np.linspace(0, 1, count + 1)[1:-1])
        lead_time_range = np.searchsorted(self.lead_time_edges_, lead_time)
        # As if each range had separate outputs; a query has a target for one range.
        y = np.tile(outputs.y.double().numpy(), count)
        y[np.repeat(np.arange(count), len(self.target_features_)) != lead_time_range[:, None]] = (
            np.nan
        )
        quantiles = outputs.quantiles
        return Conformal.fit(
            np.tile(outputs.prediction.double().numpy(), count),
            y,
            None if quantiles is None else np.tile(quantiles.double().numpy(), (1, count, 1)),
            getattr(self.module_, "quantile_levels", ()),
        )

    def _compute_ends(
        self,
        rows: Sequences,
        conformal: Conformal,
        level: float,
        outputs: NDArray[Any],
        quantiles: NDArray[Any] | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._longest is None:
            return super()._compute_ends(rows, conformal, level, outputs, quantiles)
        count = len(self.lead_time_edges_) + 1
        ranges = np.searchsorted(self.lead_time_edges_, compute_lead_time(rows))
        learned = None if quantiles is None else np.tile(quantiles, (1, count, 1))
        place = np.arange(len(outputs))
        outside = np.tile(self._find_outside(rows, outputs), count)
        ends = conformal.interval(np.tile(outputs, count), level, learned, outside)
        low, high = (end.reshape(len(outputs), count, -1)[place, ranges] for end in ends)
        return low, high

    def _blend(self, learned: Sequences, held: Sequences | None, plan: TrainingPlan) -> None:
        if self._longest is not None and not plan.goes_on:
            blend_forecasts(self, learned, held, plan)

    def _make_training_windows(
        self, rows: Sequences, queries: Queries | None = None
    ) -> tuple[Sequences, Floats]:
        """Return windows with queries, and the targets of their rows, (R, 1, O), NaN if none."""
        rows = rows.with_times()
        if queries is None:
            assert self._longest is not None
            queries = self._plan_training(rows, self._longest)
        windows, places = self._make_windows(rows, queries)
        y = np.full((len(windows.values), 1, len(self.target_features_)), np.nan)
        y[places, 0] = rows.values[queries.row][:, self.target_features_]
        return windows, y

    def _find_seasons(self, rows: Sequences, task: LearningTask, unit: float) -> LearningTask:
        """Return the task with what the network is to know of periods and of the calendar."""
        assert self._longest is not None
        task = replace(task, query_horizon=self._longest / unit)
        if "queries" in get_model_info(self.model).outputs:
            return task
        gap = compute_median_gap(rows)
        chosen = rows.values[:, self.target_features_]
        if self.window is None:
            longest = math.ceil(WINDOW_IN_HORIZONS * self._longest / gap)
            self.window_ = min(max(longest, MIN_WINDOW), MAX_WINDOW)
        periods = find_periods(rows, chosen, window=self.window_)
        self.cycles_ = find_cycles(rows)
        return replace(
            task,
            query_periods=tuple(period / unit for period in periods),
            query_gap=gap / unit,
            calendar_inputs=count_calendar_inputs(self.cycles_),
        )

    def _make_windows(self, rows: Sequences, queries: Queries) -> tuple[Sequences, Indices]:
        """Return windows with queries, and which of their rows each query is, (Q,).

        Raises:
            ArgumentError: the calendar is an input, and rows have no dates.
        """
        cycles: tuple[float, ...] = getattr(self, "cycles_", ())  # none in old files
        if cycles and rows.moments is None:
            raise ArgumentError(
                "the forecaster was fitted to dates, and its network reads hour, day or season. "
                "Give dates, as for fit."
            )
        return make_windows(rows, queries, self.known_features_, self.window_, cycles)

    def _answer_queries(
        self,
        rows: Sequences,
        at: Any,
        lead_time: Any,
        interval: float | None,
        return_std: bool,
    ) -> list[Any]:
        """Return the queries; and forecasts, and what goes with them, (Q, O) each.

        Raises:
            ArgumentError: the forecaster answers no queries, or nothing says when.
        """
        if self._longest is None:
            raise ArgumentError(
                "at= asks for forecasts at any time, and this forecaster gives the next samples. "
                "Fit one with max_lead_time=, the longest time after the last sample."
            )
        counts_samples = at is None and self._counts_samples
        if not counts_samples and (at is None or lead_time is not None):
            raise ArgumentError(
                "a forecaster with max_lead_time is asked when: at=, times after the last sample, "
                "or a data frame of ids and times."
            )
        known_features, timed_rows = self._given_features, rows.with_times()
        if hasattr(at, "columns"):
            columns = get_table_options(self.schema_)
            if rows.moments is None or "id" not in columns:
                raise ArgumentError(
                    "a table of queries goes with a table X that has ids and times. Give times "
                    "after the last sample instead."
                )
            sequence, leads = read_query_table(
                at, columns["id"], columns["time"], rows, known_features
            )
        else:
            each = (
                read_next_lead_times(lead_time, self._built["horizon"], rows, self._typical)
                if counts_samples
                else read_lead_times("at", at, rows)
            )
            sequence, leads = np.repeat(np.arange(len(rows)), each.shape[1]), each.ravel()
        name = "lead_time" if counts_samples else "at"
        if counts_samples and lead_time is None:
            name = f"horizon={self._built['horizon']} without lead_time, in typical time steps,"
        queries = plan_forecast(
            timed_rows, known_features, self._longest, sequence, leads, name=name
        )
        return [queries, *self._run_queries(timed_rows, queries, interval, return_std)]

    def _run_queries(
        self,
        rows: Sequences,
        queries: Queries,
        interval: float | None = None,
        return_std: bool = False,
    ) -> list[NDArray[Any]]:
        windows, places = self._make_windows(rows, queries)
        return [part[places, 0] for part in self._answer(windows, interval, return_std)]
