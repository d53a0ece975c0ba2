"""What comes next in a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.analysis.residuals import ForecastRows, score_rows
from tauflow.batch import SequenceBatch
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, DataError
from tauflow.tabular.cell_values import Floats
from tauflow.tabular.options import FUTURE_NAME_FORMAT, LEAD_TIME_INPUT
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.shift import ignore_shift
from tauflow.training.defaults import (
    DEFAULT_VALIDATION_FRACTION,
    FORECAST_RECIPE,
    MIN_SEQUENCES_FOR_VALIDATION,
)

from .base import AbstractSequenceEstimator
from .forecast_queries import check_any_query, find_longest_lead_time
from .forecast_targets import (
    add_lead_times,
    compute_median_gap,
    compute_typical_dt,
    read_next_lead_times,
    score_known,
    take_future_samples,
)
from .input_kwargs import InputKwargs, with_input_kwargs
from .intervals import as_answer
from .preparation import resolve_time_unit
from .query_forecasts import AbstractQueryForecaster
from .targets import (
    check_validation_fraction,
    unpack_validation,
)
from .training import AUTO, LearningTask, needs_validation

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceForecaster(AbstractQueryForecaster):
    """Forecast the next samples of a sequence, or what it is at any later time.

    Training uses all samples that come within ``max_lead_time`` of origins that move along the
    sequences, see :class:`tauflow.models.ForecastModel`. It minimises absolute errors, over 600
    steps at a rate that rises and falls (``epochs``, ``lr`` and ``batch_size`` of ``"auto"``;
    without ``intervals`` on all data, as no score chooses an epoch), and mixes its answer with the
    last value, the mean and values of a period ago, by ``shares_`` of validation data too, and with
    gradient boosting on the values before. Periods are day, week and year of dates, in UTC, which
    are inputs, or those of a Lomb-Scargle periodogram. ``horizon=H`` above 1 is the same with H
    median time steps as the longest lead time; of irregular ones, with the time in which H samples
    come nine times out of ten, if that is longer.

    With ``horizon=1``, and of models that are no cell, the network forecasts the next samples at
    every step of every sequence instead, by least squares, with one readout per sample; missing
    ones are left out of the loss, and lead times are inputs where time steps differ.

    An array of two axes is one series, (T, I), and its forecast has no axis of sequences.

    Args:
        horizon: number of samples H to predict.
        targets: features to forecast, one or several, by name or number, or a boolean mask; by
            default all that are not static. The others are inputs only.
        window: largest number of steps to train on: longer sequences are cut into pieces, each of
            which starts in the initial state. By default sequences are not cut, so that one long
            series is a single step per epoch. With ``max_lead_time``: number of samples before a
            forecast that are read; by default as many as come in eight times ``max_lead_time``, but
            64 to 512.
        max_lead_time: longest time after the last sample to forecast, in the unit of the times, or
            a string such as ``"24h"`` where these are dates; pass the times to ``predict``.
        known: features whose later values are known in advance, such as planned doses; with
            ``max_lead_time``. Rows of X after the last sample hold them, and otherwise only static
            features.
        origin_step: rows between the origins used for training; with ``max_lead_time``. By default
            every row is an origin, or 8192 that are drawn if there are more.
        {shared}
    """

    horizon: int = 1
    targets: Sequence[int | str] | Sequence[bool] | int | str | None = None
    window: int | None = None
    max_lead_time: float | str | None = None
    known: Sequence[int | str] | None = None
    origin_step: int | None = None
    epochs: int | str = AUTO  # type: ignore[assignment]  # numbers of other estimators
    lr: float | str = AUTO  # type: ignore[assignment]
    batch_size: int | str = AUTO  # type: ignore[assignment]

    _network_params: ClassVar[tuple[str, ...]] = (
        *AbstractSequenceEstimator._network_params,
        "horizon",
        "targets",
        "max_lead_time",
        "known",
    )
    _is_per_step: ClassVar[bool] = True
    _is_series_2d: ClassVar[bool] = True
    _requires_y: ClassVar[bool] = False
    _reads_ahead: ClassVar[str] = "what it is to forecast"

    @with_input_kwargs
    def fit(  # type: ignore[override]  # nothing to weigh
        self, X: Any, y: Any = None, *, validation: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> Any:
        """Learn scaling, unit of time and network.

        Args:
            X: (T, I), one series; or several, as for
                :meth:`tauflow.estimators.SequenceRegressor.fit`.
            y: not used.
            validation: sequences to choose the best epoch by, or a mapping of ``X``, ``dt`` ...;
                by default the ``validation_fraction`` of the sequences; of one series its end, and
                with ``"auto"`` so of each of fewer than 20, if these ends have 20 samples.
            {given}
        """
        check_at_least(1, horizon=self.horizon)
        if self.origin_step is not None:
            check_at_least(1, origin_step=self.origin_step)
        if self.max_lead_time is not None and self.horizon != 1:
            raise ArgumentError(
                "max_lead_time is for forecasts at any time, and horizon for the next samples. "
                "Give one of them."
            )
        if self.max_lead_time is None and (self.known or self.origin_step):
            raise ArgumentError(
                "known and origin_step are for forecasts at any time. Give max_lead_time too, the "
                "longest time after the last sample."
            )
        if self.window is not None:
            check_at_least(2, window=self.window)
        return super().fit(X, y, validation=validation, **kwargs)

    @with_input_kwargs
    def predict(
        self,
        X: Any,
        *,
        at: Any = None,
        lead_time: Any = None,
        interval: float | None = None,
        return_std: bool = False,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Return what follows the last sample of each sequence, (B, H, O); of one series (H, O).

        Args:
            X: as for :meth:`fit`.
            at: times after the last sample, (Q,) or (B, Q), in any order, as numbers in the unit of
                the times or, where these are dates, as durations or texts such as ``"24h"``;
                (B, Q, O) is returned. Or a data
                frame with the columns of ids and times of X; then a row for each, (Q, O).
            lead_time: how long after the last sample each of the ``horizon`` is, (H,) or (B, H), as
                ``at``; by default 1 to H times the median time step.
            interval: such as 0.9: returns ``(forecasts, low, high)``, ends of intervals that hold
                that share of the values, calibrated for each step ahead and feature by itself; of
                an estimator with ``intervals``.
            return_std: returns ``(forecasts, std)``, or one array more than with ``interval``: the
                standard deviation over the networks of an ensemble.
            {given}
        """
        rows = self._read_new(X, kwargs)
        if self._longest is not None or at is not None:
            outputs = self._answer_queries(rows, at, lead_time, interval, return_std)[1:]
            if hasattr(at, "columns"):
                return as_answer(outputs)
            outputs = [part.reshape(len(rows), -1, part.shape[-1]) for part in outputs]
            return as_answer([part[0] for part in outputs] if rows.is_single else outputs)
        if lead_time is not None and not self._has_lead_times:
            raise ArgumentError(
                "the time steps of the training data were all the same, so that a forecast is for "
                "the next samples. Leave lead_time out."
            )
        rows = self._add_lead_times(rows, self._built["horizon"], lead_time)
        answers = [part[rows.last_rows] for part in self._answer(rows, interval, return_std)]
        return as_answer([answer[0] for answer in answers] if rows.is_single else answers)

    @with_input_kwargs
    def score(  # type: ignore[override]
        self, X: Any, y: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> float:
        """Return the share of variance (R²) that is forecast at the steps of X, by output.

        Args:
            X: as for :meth:`fit`.
            y: not used.
            {given}
        """
        if not self._has_targets(rows := self._read_new(X, kwargs)):
            raise DataError("nothing to score: no sample of X follows another one in time.")
        rows, true = self._make_pairs(rows, self._built["horizon"])
        predicted = self._decode_outputs(self._run_network(rows))
        return score_known(true.reshape(len(true), -1), predicted.reshape(len(predicted), -1))

    @with_input_kwargs
    def score_anomalies(
        self, X: Any, *, calibrate_on: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> "DataFrame":
        """Return how surprising each value is, given all rows before it.

        Args:
            X: as for :meth:`fit`.
            calibrate_on: sequences that are as they should be, and that the forecaster was not
                fitted to, or a mapping of ``X``, ``dt`` ...; by default X itself, so that a
                probability is the share of values of X that are as surprising.
            {given}

        Returns:
            A frame with one row per measured value of a target after the first step. Its columns
            are ``sequence``, the id of a table or a number, ``step``, from 0, ``feature``,
            ``value``, ``forecast`` from the step before, ``score``, their difference divided by its
            standard deviation at such a time step, and ``probability``, that of an absolute score
            as large, by its rank among those of ``calibrate_on``.

        Raises:
            DataError: a feature has fewer than 20 values to calibrate by.
        """
        with ignore_shift():  # values far outside the range are what is looked for
            rows = self._read_new(X, kwargs)
        forecasts = calibration = self._forecast_each_row(rows)
        if calibrate_on is not None:
            parts = unpack_validation(calibrate_on, ("X",))
            other = self._read_rows(parts.pop("X"), parts, reset=False)
            calibration = self._forecast_each_row(other)
        owner = rows.sequence_index
        step = np.arange(len(owner)) - rows.starts[owner]
        keys = {"sequence": owner if rows.ids is None else rows.ids[owner], "step": step}
        return score_rows(keys, self._target_names, forecasts, calibration)

    def _forecast_each_row(self, rows: Sequences) -> ForecastRows:
        if self._longest is not None:
            following = self._forecast_next_rows(rows)
        else:
            outputs = self._run_network(self._add_lead_times(rows, self._built["horizon"]))
            following = self._decode_outputs(outputs)[:, 0]
        gaps = np.ones(len(following)) if rows.dt is None else rows.dt
        values = rows.values[:, self.target_features_]
        return ForecastRows.from_next(values, following, gaps, rows.starts)

    def _read_data(self, X: Any, y: Any, kwargs: InputKwargs, *, reset: bool) -> Sequences:
        rows = self._read_rows(X, kwargs, reset=reset)
        if reset:
            self._resolve_features(rows)
        if self.max_lead_time is None and not self._has_targets(rows):
            raise DataError(
                "nothing to learn: no sample follows another one (a sequence of one sample has no "
                "next). Give sequences of several samples."
            )
        if self._longest is not None:
            queries = self._plan_training(rows, self._longest)
            check_any_query(queries, self._longest, dated=rows.dated)
            if reset:  # no later time has a target to learn from
                self.max_lead_time_ = find_longest_lead_time(
                    rows, queries, self._longest, warns=self.max_lead_time is not None
                )
        return rows

    def _has_targets(self, rows: Sequences) -> bool:
        """Whether there is anything to forecast."""
        if self._longest is not None:
            return len(self._plan_training(rows, self._longest)) > 0
        after = take_future_samples(rows, self.horizon)[..., self.target_features_]
        return not bool(np.isnan(after).all())

    def _make_pairs(self, rows: Sequences, horizon: int) -> tuple[Sequences, Floats]:
        """Return what the network reads, and what it is to forecast after each row, (R, H, O)."""
        if self._longest is not None:
            return self._make_training_windows(rows)
        after = take_future_samples(rows, horizon)[..., self.target_features_]
        return self._add_lead_times(rows, horizon), after

    def _make_task(self, rows: Sequences) -> LearningTask:
        outputs = self._count_readouts(self.horizon) * len(self.target_features_)
        if self._longest is None:
            return LearningTask("regress", outputs, "mse", "mse", per_step=True)
        return LearningTask(
            "regress",
            outputs,
            "mae",
            "mae",
            per_step=True,
            query_targets=tuple(self.target_features_.tolist()),
            recipe=FORECAST_RECIPE,
        )

    def _count_readouts(self, horizon: int) -> int:
        return horizon if self._longest is None else 1

    def _split_validation(
        self, rows: Sequences, share: float | str, random: np.random.RandomState
    ) -> tuple[Sequences, Sequences | None]:
        """Return the parts; of a single series, or a few, the late rows are kept for validation.

        The early ones end before, and so does what they are to forecast.

        Raises:
            ArgumentError: the share is not between 0 and 1.
            DataError: a part of a single series has nothing to forecast.
        """
        is_scored = self.patience not in (None, AUTO) or needs_validation(self.recipe)
        is_default = share == self.epochs == AUTO and not (self.intervals or is_scored)
        if is_default and self._longest is not None:
            return rows, None  # so many steps are taken, and nothing is chosen by a score
        few, fraction = len(rows) < MIN_SEQUENCES_FOR_VALIDATION, DEFAULT_VALIDATION_FRACTION
        if share != AUTO:
            few, fraction = len(rows) == 1, check_validation_fraction(share)
        if not few or not fraction:
            return super()._split_validation(rows, share, random)
        lengths = rows.lengths
        train_lengths = lengths - np.ceil(fraction * lengths).astype(np.int64)
        both = rows.split_at(train_lengths)
        parts = [
            both.select(place + 2 * np.flatnonzero(both.lengths[place::2])) for place in (0, 1)
        ]
        enough = all(len(part) and self._has_targets(part) for part in parts)
        if share == AUTO and not (enough and len(parts[1].values) >= MIN_SEQUENCES_FOR_VALIDATION):
            return rows, None
        if not enough:
            count = int(lengths.sum())
            raise DataError(
                f"validation_fraction={share:g} of a series of {format_count(count, 'sample')} "
                f"leaves {train_lengths[0]} to "
                f"train on and {count - train_lengths[0]} to validate on, and no sample of one of "
                "these parts follows another. Set another share, or give validation=."
            )
        return parts[0], parts[1]

    def _initialise(
        self, rows: Sequences, task: LearningTask, seeds: Sequence[int]
    ) -> list[nn.Module]:
        if self._longest is not None:
            self._typical = compute_median_gap(rows)
            rows = rows.with_times()
            unit = resolve_time_unit(rows, self.time_unit)
            task = self._find_seasons(rows, task, unit)
        else:
            self._typical = compute_typical_dt(rows)
            rows = self._add_lead_times(rows, self.horizon)
        networks = super()._initialise(rows, task, seeds)
        after = take_future_samples(rows, self.horizon)[..., self.target_features_]
        steps = int((~np.isnan(after)).any(axis=(0, 2)).sum())
        if steps < self.horizon:
            raise DataError(
                f"horizon={self.horizon}, and the sequences to train on have values at most "
                f"{format_count(steps, 'sample')} ahead, so that nothing can be learned of "
                f"later ones. Set horizon={steps}, or give longer sequences."
            )
        if self._target_scaler.is_empty.any():
            name = self._target_names[int(np.argmax(self._target_scaler.is_empty))]
            raise DataError(
                f"feature {name} has no value in the training split, and cannot be forecast. Name "
                "other targets."
            )
        return networks

    def _make_batch(self, rows: Sequences) -> SequenceBatch:
        rows, after = self._make_pairs(rows, self.horizon)
        y = self._target_scaler.transform(after)
        y = y.reshape(len(y), -1)
        if self.window is not None and self._longest is None:
            rows = rows.cut_windows(self.window, self.window)
        return self._make_step_batch(rows, np.nan_to_num(y), ~np.isnan(y))

    @property
    def _has_lead_times(self) -> bool:
        """Whether the network has the lead time of each sample to forecast as an input."""
        return FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, 1) in self.schema_.inputs

    @property
    def _target_scaler(self) -> StandardScaler:
        """That of the features to forecast."""
        features, chosen = self._feature_scaler, self.target_features_
        return StandardScaler(features.mean[chosen], features.scale[chosen]).replace_zero_scale()

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Return what is forecast after each row, (R, H, O)."""
        return self._target_scaler.inverse_transform(self._split_outputs(outputs))

    def _decode_spread(self, spread: NDArray[Any]) -> NDArray[Any]:
        scaled_spread: NDArray[Any] = self._split_outputs(spread) * self._target_scaler.scale
        return scaled_spread

    def _split_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        count = self._count_readouts(self._built["horizon"])
        return outputs.reshape(len(outputs), count, -1)

    def _add_lead_times(self, rows: Sequences, horizon: int, lead_time: Any = None) -> Sequences:
        """Return rows with the times to what is forecast after each, if time steps differ."""
        if self._longest is not None or self._typical is None or rows.dt is None:
            return rows
        return add_lead_times(rows, read_next_lead_times(lead_time, horizon, rows, self._typical))
