"""What comes next in a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.analysis.residuals import ForecastRows, score_rows
from tauflow.batch import SequenceBatch
from tauflow.data.scaler import StandardScaler
from tauflow.errors import ArgumentError, DataError, TimeError
from tauflow.models.registry import get_model_info
from tauflow.training.defaults import DEFAULT_VALIDATION_FRACTION, MIN_SEQUENCES_FOR_VALIDATION

from .arrays import to_array
from .base import AbstractSequenceEstimator
from .forecast_targets import compute_lead_times, compute_typical_dt, take_future_samples
from .input_kwargs import with_input_kwargs
from .intervals import AbstractIntervalEstimator, as_answer
from .preparation import has_lead_times, list_number_columns
from .ragged import Floats, Indices, RaggedSequences
from .targets import (
    AUTO,
    LearningTask,
    WeightedSequences,
    check_validation_fraction,
    unpack_validation,
)
from .times import to_seconds

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack

    from .input_kwargs import InputKwargs


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceForecaster(AbstractIntervalEstimator):
    """Forecast the next samples of a sequence, each with a readout of its own.

    Trained at every step of every sequence to give the ``horizon`` samples after it; those that are
    missing do not count. Where gaps differ, the network is told how far ahead each of them is.

    An array of two axes is one series here, (T, I), and its forecast has no axis for several.

    Args:
        horizon: H, how many samples ahead.
        targets: features to forecast, one or several, by name or number, or a mask of all of
            them; by default all that are not static. The others are inputs.
        window: longest piece of a sequence to train on; longer ones are cut, each piece starting
            again. By default none is: one long series then makes one step of an epoch.
        {shared}
    """

    horizon: int = 1
    targets: Sequence[int | str] | Sequence[bool] | int | str | None = None
    window: int | None = None

    _network_params: ClassVar[tuple[str, ...]] = (
        *AbstractSequenceEstimator._network_params,
        "horizon",
        "targets",
    )
    _is_per_step: ClassVar[bool] = True
    _is_series_2d: ClassVar[bool] = True
    _requires_y: ClassVar[bool] = False

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
        if self.window is not None:
            check_at_least(2, window=self.window)
        if not get_model_info(self.model).is_causal(self.options or {}):
            raise ArgumentError(
                f"model={self.model!r} with these options reads what it is to forecast. Choose one "
                "that goes forwards in time only."
            )
        return super().fit(X, y, validation=validation, **kwargs)

    @with_input_kwargs
    def predict(
        self,
        X: Any,
        *,
        lead_time: Any = None,
        interval: float | None = None,
        return_std: bool = False,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Return what follows the last sample of each sequence, (B, H, O); of one series (H, O).

        Args:
            X: as for :meth:`fit`.
            lead_time: how long after the last sample each forecast is for, (H,) or (B, H), in the
                unit of the times, where gaps differ; by default 1 to H times the median gap.
            interval: such as 0.9: returns ``(forecasts, low, high)``, ends of intervals that hold
                that share of the values, calibrated for each step ahead and feature by itself; of
                an estimator with ``intervals``.
            return_std: returns ``(forecasts, std)``, or one array more than with ``interval``: the
                standard deviation over the networks of an ensemble.
            {given}
        """
        check_is_fitted(self)
        rows = self._read_rows(X, kwargs, reset=False)
        if lead_time is not None and not self._has_lead_times:
            raise ArgumentError(
                "the gaps of the training data were all the same, so that a forecast is for the "
                "next samples. Leave lead_time out."
            )
        rows = self._add_lead_times(rows, self._fitted_horizon, lead_time)
        answers = [one[rows.ends] for one in self._answer(rows, interval, return_std)]
        return as_answer([one[0] for one in answers] if rows.is_single else answers)

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
        check_is_fitted(self)
        rows = self._read_rows(X, kwargs, reset=False)
        outputs = self._run_network(self._add_lead_times(rows, self._fitted_horizon))
        found = self._decode_outputs(outputs)
        true = take_future_samples(rows, self._fitted_horizon)[..., self.target_features_]
        scores = []
        for values, answers in zip(
            true.reshape(len(true), -1).T, found.reshape(len(found), -1).T, strict=True
        ):
            known = ~np.isnan(values)
            if known.sum() > 1:
                scores.append(r2_score(values[known], answers[known]))
        if not scores:
            raise DataError("nothing to score: no sample of X follows another.")
        return float(np.mean(scores))

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
        check_is_fitted(self)
        rows = self._read_rows(X, kwargs, reset=False)
        found = calibration = self._forecast_each_row(rows)
        if calibrate_on is not None:
            other, _, _, said = unpack_validation(calibrate_on, needs_y=False)
            calibration = self._forecast_each_row(self._read_rows(other, said, reset=False))
        owner = rows.sequence_index
        step = np.arange(len(owner)) - rows.starts[owner]
        keys = {"sequence": owner if rows.ids is None else rows.ids[owner], "step": step}
        chosen = self.target_features_.tolist()
        names = [rows.names[place] for place in chosen] if rows.names else chosen
        return score_rows(keys, names, found, calibration)

    def _forecast_each_row(self, rows: RaggedSequences) -> ForecastRows:
        outputs = self._run_network(self._add_lead_times(rows, self._fitted_horizon))
        following = self._decode_outputs(outputs)[:, 0]
        gaps = np.ones(len(following)) if rows.dt is None else rows.dt
        values = rows.values[:, self.target_features_]
        return ForecastRows.from_next(values, following, gaps, rows.starts)

    def _read_data(
        self, X: Any, y: Any, kwargs: "InputKwargs", *, reset: bool
    ) -> tuple[RaggedSequences, NDArray[Any]]:
        rows = self._read_rows(X, kwargs, reset=reset)
        if reset:
            self.target_features_ = self._resolve_target_features()
        if not self._has_targets(rows):
            raise DataError(
                "nothing to learn: no sample follows another one (a sequence of one sample has no "
                "next). Give sequences of several samples."
            )
        return rows, np.zeros(len(rows))

    def _has_targets(self, rows: RaggedSequences) -> bool:
        """Whether there is anything to forecast."""
        after = take_future_samples(rows, self.horizon)[..., self.target_features_]
        return not bool(np.isnan(after).all())

    def _resolve_target_features(self) -> Indices:
        """Return which columns of rows are forecast; categories are none that can be."""
        names, numbers = list(self.schema_.features or ()), list_number_columns(self.schema_)
        given: Any = self.targets
        if given is None:
            given = [name for name in numbers if name not in (self.schema_.static or ())]
        given = [given] if isinstance(given, str | int) else list(given)
        if any(isinstance(one, bool | np.bool_) for one in given):
            given = self._mask_to_indices(given)
        wrong = next((n for n in given if not (isinstance(n, str) or 0 <= n < len(names))), None)
        if wrong is not None:
            raise ArgumentError(
                f"targets holds {wrong}, and X has the features 0 to {len(names) - 1}."
            )
        chosen = [one if isinstance(one, str) else names[one] for one in given]
        return np.array([numbers.index(check_one_of(numbers, targets=n)) for n in chosen], np.int64)

    def _mask_to_indices(self, mask: list[Any]) -> list[int]:
        """Return the features that a mask marks."""
        if len(mask) != self.n_features_in_ or np.asarray(mask).dtype != np.bool_:
            raise ArgumentError(
                f"targets={mask} is no mask of the {format_count(self.n_features_in_, 'feature')} "
                "of X. Give one "
                "boolean for each of them, or names, or numbers."
            )
        return [place for place, marked in enumerate(mask) if marked]

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        return y

    def _make_task(self, targets: NDArray[Any], weight: Floats | None) -> LearningTask:
        outputs = self.horizon * len(self.target_features_)
        return LearningTask("regress", outputs, "mse", "mse", per_step=True)

    def _split_validation(
        self, sequences: WeightedSequences, share: float | str, random: np.random.RandomState
    ) -> tuple[WeightedSequences, WeightedSequences | None]:
        """Return the parts; of a single series, or a few, the late rows are kept for validation.

        The early ones end before, and so does what they are to forecast.

        Raises:
            ArgumentError: the share is none.
            DataError: a part of a single series has nothing to forecast.
        """
        few = (
            len(sequences.rows) < MIN_SEQUENCES_FOR_VALIDATION
            if share == AUTO
            else len(sequences.rows) == 1
        )
        fraction = (
            DEFAULT_VALIDATION_FRACTION if share == AUTO else check_validation_fraction(share)
        )
        if not few or not fraction:
            return super()._split_validation(sequences, share, random)
        lengths = sequences.rows.lengths
        kept = lengths - np.ceil(fraction * lengths).astype(np.int64)
        both = sequences.rows.split_at(kept)
        parts = [
            both.select(place + 2 * np.flatnonzero(both.lengths[place::2])) for place in (0, 1)
        ]
        enough = all(len(part) and self._has_targets(part) for part in parts)
        if share == AUTO and not (enough and len(parts[1].values) >= MIN_SEQUENCES_FOR_VALIDATION):
            return sequences, None
        if not enough:
            count = int(lengths.sum())
            raise DataError(
                f"validation_fraction={share:g} of a series of {format_count(count, 'sample')} "
                f"leaves {kept[0]} to "
                f"train on and {count - kept[0]} to validate on, and no sample of one of these "
                "parts follows another. Set another share, or give validation=."
            )
        learned, held = (WeightedSequences(part, np.zeros(len(part))) for part in parts)
        return learned, held

    def _initialise(
        self,
        rows: RaggedSequences,
        targets: NDArray[Any],
        weight: Floats | None,
        task: LearningTask,
        seed: int,
    ) -> None:
        self._typical = compute_typical_dt(rows)
        super()._initialise(self._add_lead_times(rows, self.horizon), targets, weight, task, seed)
        if self._target_scaler.is_empty.any():
            number = int(self.target_features_[np.argmax(self._target_scaler.is_empty)])
            raise DataError(
                f"feature {rows.names[number] if rows.names else number} has no value in the "
                "training part, and cannot be forecast. Name other targets."
            )

    def _make_batch(
        self, rows: RaggedSequences, targets: NDArray[Any], weight: Floats | None = None
    ) -> SequenceBatch:
        y = self._target_scaler.transform(
            take_future_samples(rows, self.horizon)[..., self.target_features_]
        )
        y = y.reshape(len(y), -1)
        rows = self._add_lead_times(rows, self.horizon)
        if self.window is not None:
            rows, of = rows.cut_to_size(self.window)
            weight = None if weight is None else weight[of]
        some = np.flatnonzero(np.bincount(rows.sequence_index, ~np.isnan(y).all(axis=1)) > 0)
        y = y[np.isin(rows.sequence_index, some)]
        rows, weight = rows.select(some), None if weight is None else weight[some]
        batch = self._to_batch(rows, weight=weight)
        filled = torch.from_numpy(rows.pad(np.nan_to_num(y))).to(batch.x.dtype)
        return replace(batch, y=filled, y_mask=torch.from_numpy(rows.pad(~np.isnan(y))))

    @property
    def _has_lead_times(self) -> bool:
        """Whether the network is told how far ahead each sample to forecast is."""
        return has_lead_times(self.schema_)

    @property
    def _fitted_horizon(self) -> int:
        """How many samples ahead the network tells: of the last fit, whatever is set since."""
        horizon: int = self._built["horizon"]
        return horizon

    @property
    def _target_scaler(self) -> StandardScaler:
        """That of the features to forecast."""
        features, chosen = self._feature_scaler, self.target_features_
        return StandardScaler(features.mean[chosen], features.scale[chosen]).replace_zero_scale()

    def _decode_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Return what is forecast after each row, (R, H, O)."""
        return self._target_scaler.inverse_transform(self._split_outputs(outputs))

    def _decode_spread(self, spread: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self._split_outputs(spread) * self._target_scaler.scale
        return found

    def _split_outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        return outputs.reshape(len(outputs), self._fitted_horizon, len(self.target_features_))

    def _add_lead_times(
        self, rows: RaggedSequences, horizon: int, lead_time: Any = None
    ) -> RaggedSequences:
        """Return rows with the times to what is forecast after each, if gaps differ."""
        if self._typical is None or rows.dt is None:
            return rows
        if lead_time is None:
            lead_time = self._typical * np.arange(1, horizon + 1)
        lead_time = _check_lead_time(lead_time)
        if lead_time.dtype.kind == "m" and not self.schema_.dated:
            raise TimeError(
                "ahead holds durations, and the times that the network learned from were numbers, "
                "in a unit that nobody said. Give numbers in that unit."
            )
        further = to_seconds(lead_time)
        try:
            further = np.broadcast_to(further, (len(rows), horizon))
        except ValueError as error:
            raise TimeError(
                f"lead_time has shape {further.shape}, expected (H,) or (B, H) = "
                f"{(len(rows), horizon)}."
            ) from error
        if not (np.isfinite(further).all() and (np.diff(further, prepend=0.0) > 0).all()):
            raise TimeError("lead_time must be above 0 and increase from forecast to forecast.")
        return replace(rows, lead_times=compute_lead_times(rows, further))


def _check_lead_time(lead_time: Any) -> NDArray[Any]:
    """Return times ahead as an array; lists of durations, of which NumPy makes objects, too."""
    array = to_array(lead_time)
    if array.dtype.kind == "O" and all(isinstance(one, timedelta) for one in array.ravel()):
        array = array.astype("timedelta64[us]")
    if array.dtype.kind not in "iufm":
        raise TimeError(
            f"ahead holds {array.dtype}, expected numbers in the unit of the times, or durations "
            "such as numpy.timedelta64 or pandas.Timedelta."
        )
    return array
