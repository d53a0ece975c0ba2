"""What a back-test asks of a model: which series there are, and forecasts of what is known."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError
from tauflow.tabular.arrays import make_frame
from tauflow.tabular.cell_values import compute_slack, to_seconds
from tauflow.tabular.files import read_table, to_pandas
from tauflow.tabular.frame import Frame
from tauflow.tabular.grouping import get_ids
from tauflow.tabular.pandas_index import convert_series, read_index
from tauflow.tabular.schema import Schema
from tauflow.tabular.times import read_times, to_dates

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class BacktestSource(ABC):
    """Series, and a model that forecasts them.

    Args:
        model: the model.
        data: a data frame, or an array.
        horizon: H, rows that are forecast.
        targets: names of what is forecast.
        values: of the targets, (R, O), NaN where one is missing.
        times: of rows, to sort by, (R,).
        shown_times: of rows, as the data have them, (R,).
        ids: of the series.
        rows: of each series, in the order of its times.
    """

    model: Any
    data: Any
    horizon: int
    targets: tuple[str, ...]
    values: Floats
    times: NDArray[Any]
    shown_times: NDArray[Any]
    ids: NDArray[Any]
    rows: Sequence[Rows]

    def count_rows_left(self) -> tuple[NDArray[Any], Floats]:
        """Return the different times, and how many rows of an id come after each, on average.

        The average is over the ids that have rows at the time or on both sides of it.
        """
        spans = self.times[[[rows[0], rows[-1]] for rows in self.rows]]
        first, last = np.sort(spans, axis=0).T
        moments, counts = np.unique(self.times, return_counts=True)
        ids = np.searchsorted(first, moments, "right") - np.searchsorted(last, moments, "left")
        left: Floats = np.cumsum((counts / ids)[::-1])[::-1] - counts / ids
        return moments, np.round(left, 6)  # whole numbers, where all ids have the same times

    @abstractmethod
    def forecast(
        self, known: list[Rows], future: list[Rows], interval: float | None
    ) -> tuple[Floats, ...]:
        """Return forecasts, (N, H, O), and with an interval its ends.

        Args:
            known: rows of each series that are known.
            future: rows that are to be forecast, of which the model may see what is known ahead.
            interval: share that intervals are to hold; ``None`` for none.
        """

    def fit_again(self, known: list[Rows]) -> "BacktestSource":
        """Return the source with a model that was fitted to some rows."""
        raise NotImplementedError


class EstimatorSource(BacktestSource):
    """A forecaster of :mod:`tauflow.estimators`."""

    @classmethod
    def read(cls, model: Any, data: Any, t: Any) -> "EstimatorSource":
        """Return the series of a data frame, or of one array (T, I), for a fitted estimator."""
        if not model.__sklearn_is_fitted__():
            raise ArgumentError("backtest needs a fitted estimator. Call fit first.")
        if isinstance(data, np.ndarray | Sequence) and not isinstance(data, str):
            return cls._read_array(model, np.asarray(data, float), t)
        if t is not None:
            raise ArgumentError("t is for arrays; a data frame has a column of times.")
        schema = model.schema_
        if schema.long is not None:
            raise ArgumentError(
                "backtest takes a data frame with a column for each feature. Pivot a long table."
            )
        roles = {"id": schema.id, "time": schema.time}
        data = convert_series(data, is_series=True)
        data = read_index(data, roles, {"dt": None, "t": None}, is_series=True)[0]
        targets = tuple(str(schema.inputs[n]) for n in model.target_features_)
        series = _read_series(data, schema, targets)
        used = [*filter(None, roles.values()), *(schema.static or ()), *schema.features]
        series["data"] = series["data"][list(dict.fromkeys(used))]
        horizon = _count_rows_ahead(model, series["times"], series["rows"])
        return cls(model=model, horizon=horizon, targets=targets, **series)

    @classmethod
    def _read_array(cls, model: Any, data: Floats, t: Any) -> "EstimatorSource":
        if data.ndim != 2:
            raise ArgumentError(
                f"backtest takes one series, (T, I), or a data frame, got an array of shape "
                f"{data.shape}."
            )
        shown = np.arange(len(data)) if t is None else np.asarray(t)
        if shown.shape != (len(data),):
            raise DataError(f"t has shape {shown.shape}, expected ({len(data)},).")
        times = _read_moments(make_frame(np.array([len(data)]), {"t": shown}), "t")
        return cls(
            model=model,
            data=(data, None if t is None else shown),
            horizon=_count_rows_ahead(model, times, [np.arange(len(data))]),
            targets=tuple(f"feature {n}" for n in model.target_features_),
            values=data[:, model.target_features_],
            times=times,
            shown_times=shown,
            ids=np.array(["the series"], object),
            rows=[np.arange(len(data))],
        )

    def _select(self, known: list[Rows]) -> tuple[Any, dict[str, Any]]:
        if not isinstance(self.data, tuple):
            return self.data.iloc[np.concatenate(known)], {}
        values, times = self.data
        return values[known[0]], {} if times is None else {"t": times[known[0]]}

    def forecast(
        self, known: list[Rows], future: list[Rows], interval: float | None
    ) -> tuple[Floats, ...]:
        """Return forecasts for the times at which rows came, NaN where these are too late."""
        model, longest = self.model, self.model._longest
        last = np.array([rows[-1] for rows in known])
        if len(model.known_features_):
            X, more, last = self._select_ahead(known, future)
        else:
            X, more = self._select(known)
        lead_time = np.stack([self.times[rows] for rows in future]) - self.times[last][:, None]
        late = np.zeros(lead_time.shape, np.bool_)
        if longest is not None:
            seconds, dated = to_seconds(lead_time), lead_time.dtype.kind == "m"
            latest = seconds.max() if dated else np.abs(self.times).max()
            late = seconds > longest + compute_slack(latest, longest)
            # Not to_durations: of times that are less than a microsecond apart it makes 0.
            unit, count = ("m8[ns]", 1e9) if longest < 1.0 else ("m8[us]", 1e6)
            most = np.array(longest * count).astype(unit) if dated else longest
            more["at"] = np.where(seconds > longest, most, lead_time)
        elif model._has_lead_times:
            more["lead_time"] = lead_time
        prediction = model.predict(X, interval=interval, **more)
        answers = prediction if isinstance(prediction, tuple) else (prediction,)
        shaped = (answer.reshape(len(known), self.horizon, -1) for answer in answers)
        return tuple(np.where(late[..., None], np.nan, answer) for answer in shaped)

    def _select_ahead(
        self, known: list[Rows], future: list[Rows]
    ) -> tuple[Any, dict[str, Any], Rows]:
        """Return rows with what is known of later ones, and the last sample of each series.

        That is the last row that holds more than what is known ahead, from which forecasts count.
        """
        model, schema = self.model, self.model.schema_
        more: dict[str, Any] = {}
        if isinstance(self.data, tuple):
            values, times = self.data
            is_known = np.isin(np.arange(values.shape[1]), model._given_features)
            is_sample = ~np.isnan(values[:, ~is_known]).all(1)
            both = np.concatenate([known[0], future[0]])
            X: Any = values[both]
            X[len(known[0]) :, ~is_known] = np.nan
            if times is not None:
                more["t"] = times[both]
        else:
            of_texts = [name for name, texts in schema.categories for _ in texts]
            names = np.array([*schema.list_number_columns(), *of_texts])[model._given_features]
            others = [name for name in schema.features if name not in names]
            is_sample = self.data[others].notna().any(axis=1).to_numpy()
            columns = [name for name in self.data if name not in others]
            X = _join_known_ahead(self.data, known, future, columns)
        samples = [np.append(rows[:1], rows[is_sample[rows]]) for rows in known]
        return X, more, np.array([rows[-1] for rows in samples])

    def fit_again(self, known: list[Rows]) -> "EstimatorSource":
        """Return the source with a clone that was fitted to some rows."""
        base: Any = require("sklearn.base", extra="sklearn")
        X, more = self._select(known)
        if not isinstance(self.data, tuple):
            schema = self.model.schema_
            more = {"id": schema.id, "time": schema.time, "static": schema.static}
            more["duplicates"] = None if schema.id is None else schema.duplicates
        return replace(self, model=base.clone(self.model).fit(X, **more))


class PredictorSource(BacktestSource):
    """A predictor of a table."""

    @classmethod
    def read(cls, model: Any, data: Any) -> "PredictorSource":
        """Return the series of a data frame for a predictor."""
        schema, card = model.schema, model.card
        if schema is None or not card.horizon:
            raise ArgumentError(
                "backtest takes a predictor of a table that forecasts a horizon. Train one with "
                "task='next-step', window= and horizon=, or a SequenceForecaster."
            )
        targets = tuple(
            name.removesuffix(" +1") for name in schema.outputs[: card.target_size // card.horizon]
        )
        series = _read_series(data, schema, targets)
        if schema.long is not None:  # the rows have a column for each variable now
            model = copy.copy(model)
            model.schema = replace(schema, long=None)
        return cls(model=model, horizon=card.horizon, targets=targets, **series)

    def forecast(
        self, known: list[Rows], future: list[Rows], interval: float | None
    ) -> tuple[Floats, ...]:
        """Return forecasts of the rows that come next."""
        schema, X = self.model.schema, self.data.iloc[np.concatenate(known)]
        if schema.known:
            columns = [*filter(None, (schema.id, schema.time)), *schema.known]
            X = _join_known_ahead(self.data, known, future, columns)
        prediction = self.model.predict(X, interval=interval)
        names = list(schema.outputs)
        words = [""] if interval is None else ["", " low", " high"]
        columns = [[f"{name}{word}" for name in names] for word in words]
        shape = len(known), self.horizon, len(self.targets)
        return tuple(prediction[name].to_numpy(np.float64).reshape(shape) for name in columns)


def _join_known_ahead(data: Any, known: list[Rows], future: list[Rows], columns: list[str]) -> Any:
    """Return the known rows of each series, and of those that come later some columns alone."""
    parts = []
    for rows, later in zip(known, future, strict=True):
        parts += [data.iloc[rows], data.iloc[later][columns]]
    return require("pandas", extra="tables").concat(parts)


def _count_rows_ahead(model: Any, times: NDArray[Any], rows: Sequence[Rows]) -> int:
    """Return the horizon; of forecasts at any time, the longest lead time in median time steps."""
    longest: float | None = model._longest
    if longest is None or model._counts_samples:
        horizon: int = model._built["horizon"]
        return horizon
    gaps = np.concatenate([to_seconds(np.diff(times[places])) for places in rows])
    gaps = gaps[gaps > 0]
    return max(1, int(longest / np.median(gaps) + 1e-6)) if len(gaps) else 1


def _read_moments(table: Frame, column: str) -> NDArray[Any]:
    """Return the times of a column to sort by, (R,): numbers, or dates in UTC without a zone.

    Raises:
        TimeError: a row has no time, or a text that is no time.
    """
    is_dated = read_times(table, column, None, skip_date_check=True).dated
    times = np.asarray(table.columns[column])
    if times.dtype.kind != "O":
        return times
    return to_dates(times.tolist()) if is_dated else table.numbers(column)


def _read_series(data: Any, schema: Schema, targets: Sequence[str]) -> dict[str, Any]:
    """Return a table as it was read for the training: its rows, targets, times and series."""
    table = read_table(data, schema, variables=schema.variables or None, is_training_data=False)
    for role, names in {"id": [schema.id], "time": [schema.time], "target": targets}.items():
        for name in names:
            if name is not None:
                table.check_name(name, role)
    names, codes = get_ids(table, schema.id)
    rows = [np.flatnonzero(codes == n) for n in range(len(names))]
    frame = to_pandas(table)
    shown = np.arange(len(table))
    times: NDArray[Any] = shown.copy()
    for places in rows:  # without times, ids end together
        times[places] = np.arange(-len(places), 0)
    if schema.time is not None:
        shown, times = frame[schema.time].to_numpy(), _read_moments(table, schema.time)
    ids = np.array(["the series"], object)
    if schema.id is not None:
        ids = frame[schema.id].to_numpy()[[places[0] for places in rows]]
    return {
        "data": frame,
        "values": np.stack([table.numbers(name) for name in targets], axis=1),
        "times": times,
        "shown_times": shown,
        "ids": ids,
        "rows": [places[np.argsort(times[places], kind="stable")] for places in rows],
    }
