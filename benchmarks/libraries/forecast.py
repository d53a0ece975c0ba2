"""Electric power of a household, 24 hours ahead, beside Darts and NeuralForecast.

Learned from 24,000 hours, with the hour of the day as a known input; forecasts see the week before.
Networks take 700 to 1,000 training steps of 32 windows each: tauflow's are estimators with their
defaults, which train for 100 epochs at most, those of the others have the sizes of their defaults.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from benchmarks.table_tasks import Array, Scores
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

from tauflow.estimators import SequenceForecaster
from tauflow.sequence.precompile import precompile

CUT, DAY, WEEK = 24_000, 24, 168
Results = Iterator[tuple[str, dict[str, list[Scores]]]]
Answer = Callable[[Array, Array, int], Array]
"""Returns forecasts, (origins, 24), of features (hours, 3), origins and a seed."""


def load_power(data: Path) -> Array:
    """Return kilowatts summed over minutes, sine and cosine of the hour, (hours, 3)."""
    path = data / "household_power_hourly/household_power_consumption_hourly.csv.gz"
    table = pandas.read_csv(path, index_col=0, parse_dates=True)
    hour = 2 * np.pi * table.index.hour.to_numpy() / DAY
    power = table["Global_active_power"].to_numpy(np.float64)
    return np.stack([power, np.sin(hour), np.cos(hour)], axis=1)


def compare(task: str, data: Path, repeats: int) -> Results:
    """Yield the title, and the errors of each method, after each seed."""
    del task
    precompile("gru", "cfc")
    X = load_power(data)
    origins = np.arange(CUT, len(X) - DAY, 101)
    true = np.stack([X[at : at + DAY, 0] for at in origins])
    rows: dict[str, list[Scores]] = {}
    for seed in range(repeats):
        for name, answer in METHODS.items():
            library = name.partition(" ")[0].lower()
            if find_spec(library.replace("scikit-learn", "sklearn")) is None:
                print(f"{library} is not installed: {name} is left out")
                continue
            torch.manual_seed(seed)
            started = time.process_time()
            forecasts = np.asarray(answer(X, origins, seed))
            scores = {
                "MAE": float(mean_absolute_error(true, forecasts)),
                "RMSE": float(root_mean_squared_error(true, forecasts)),
                "CPU s": time.process_time() - started,
            }
            rows.setdefault(name, []).append(scores)
            print(name, scores, flush=True)
            yield f"Hourly power, 24 hours ahead, {len(origins)} forecasts, in kW minutes", rows


def _seasonal(X: Array, origins: Array, seed: int) -> Array:
    return np.stack([X[at - DAY : at, 0] for at in origins])


def _boosting(X: Array, origins: Array, seed: int) -> Array:
    hour = np.arctan2(X[:, 1], X[:, 2])
    learned = range(WEEK, CUT - DAY, 5)
    return np.stack(list(_boosted_ahead(X[:, 0], hour, learned, origins)))


def _tauflow(model: str) -> Answer:
    return lambda X, origins, seed: np.stack(list(_forecasts(model, X, CUT, origins, seed)))


def _forecasts(model: str, X: Array, cut: int, origins: Array, seed: int) -> Iterator[Array]:
    forecaster = SequenceForecaster(
        model=model, horizon=DAY, targets=[0], window=4 * DAY, random_state=seed
    )
    forecaster.fit(X[:cut])
    for at in origins:
        yield forecaster.predict(X[at - 7 * DAY : at])[:, 0]


def _boosted_ahead(
    value: Array, hour: Array, learned: Sequence[int], origins: Array
) -> Iterator[Array]:
    """Yield the forecasts of boosting on values before, one row for each hour ahead."""

    def features(at: int) -> Array:
        ahead = np.arange(DAY)
        same = np.stack([value[at + ahead - day * DAY] for day in range(1, 8)], axis=1)
        recent = np.broadcast_to(value[at - DAY : at], (DAY, DAY))
        when = hour[at + ahead]
        return np.column_stack([same, recent, ahead, np.sin(when), np.cos(when)])

    model = HistGradientBoostingRegressor(random_state=0)
    model.fit(
        np.concatenate([features(at) for at in learned]),
        np.concatenate([value[at : at + DAY] for at in learned]),
    )
    for at in origins:
        yield np.asarray(model.predict(features(int(at))))


def _darts(name: str, **options: Any) -> Answer:
    def answer(X: Array, origins: Array, seed: int) -> Array:
        from darts import TimeSeries, models

        power = TimeSeries.from_values(X[:, :1].astype(np.float32))
        hours = TimeSeries.from_values(X[:, 1:].astype(np.float32))
        mean, scale = X[:CUT, 0].mean(), X[:CUT, 0].std()
        scaled = (power - float(mean)) / float(scale)
        model = getattr(models, name)(output_chunk_length=DAY, random_state=seed, **options)
        covariates = "future_covariates" if model.supports_future_covariates else "past_covariates"
        model.fit(scaled[:CUT], **{covariates: hours})
        forecasts = model.historical_forecasts(
            scaled,
            start=int(origins[0]),
            forecast_horizon=DAY,
            stride=101,
            retrain=False,
            last_points_only=False,
            verbose=False,
            **{covariates: hours},
        )
        values = np.stack([series.values()[:, 0] for series in forecasts])
        return values[: len(origins)] * scale + mean

    return answer


def _neuralforecast(name: str, **options: Any) -> Answer:
    def answer(X: Array, origins: Array, seed: int) -> Array:
        import neuralforecast

        def frame(rows: range, label: str) -> pandas.DataFrame:
            table = pandas.DataFrame(X[rows.start : rows.stop], columns=["y", "sin", "cos"])
            return table.assign(unique_id=label, ds=np.arange(rows.start, rows.stop))

        model = getattr(neuralforecast.models, name)(
            h=DAY,
            input_size=WEEK,
            max_steps=1000,
            batch_size=32,
            windows_batch_size=32,
            futr_exog_list=["sin", "cos"],
            scaler_type="standard",
            random_seed=seed,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            **options,
        )
        fitted = neuralforecast.NeuralForecast([model], freq=1)
        fitted.fit(frame(range(CUT), "all"))
        labels = [f"{place:04d}" for place in range(len(origins))]
        before = [frame(range(at - WEEK, at), o) for at, o in zip(origins, labels, strict=True)]
        after = [frame(range(at, at + DAY), o) for at, o in zip(origins, labels, strict=True)]
        future = pandas.concat(after).drop(columns="y")
        predictions = fitted.predict(pandas.concat(before), futr_df=future)
        return np.asarray(predictions.sort_values(["unique_id", "ds"])[name]).reshape(-1, DAY)

    return answer


_QUIET = {"accelerator": "cpu", "enable_progress_bar": False}
METHODS: dict[str, Answer] = {
    "tauflow (as a day ago)": _seasonal,
    "scikit-learn gradient boosting": _boosting,
    "tauflow `gru`": _tauflow("gru"),
    "tauflow `cfc`": _tauflow("cfc"),
    "Darts `LinearRegressionModel`": _darts(
        "LinearRegressionModel", lags=WEEK, lags_future_covariates=(0, DAY)
    ),
    "Darts `LightGBMModel`": _darts(
        "LightGBMModel", lags=WEEK, lags_future_covariates=(0, DAY), verbose=-1, n_jobs=1
    ),
    "Darts `BlockRNNModel` (GRU)": _darts(
        "BlockRNNModel",
        model="GRU",
        hidden_dim=32,
        input_chunk_length=WEEK,
        n_epochs=1,
        pl_trainer_kwargs=_QUIET,
    ),
    "Darts `NHiTSModel`": _darts(
        "NHiTSModel", input_chunk_length=WEEK, n_epochs=1, pl_trainer_kwargs=_QUIET
    ),
    "NeuralForecast `GRU`": _neuralforecast("GRU", encoder_hidden_size=32),
    "NeuralForecast `NHITS`": _neuralforecast("NHITS"),
}
