"""Errors of forecasts of five real series by the default forecaster, beside simple forecasts.

The last twenty blocks of each series are forecast, each from all that came before it, by one
forecaster that was fitted to what came before the first block. Simple forecasts are the last value,
the mean, and for a day and a week the value one period earlier and the mean of seven periods at
that phase. Defaults were chosen on these series, so that others may gain less.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from tauflow.estimators import SequenceForecaster

BLOCKS, CONTEXT, CYCLES = 20, 1000, 7


class Series(NamedTuple):
    """Rows of ``id``, ``time`` and ``y``, how far ahead is asked for, and the time between blocks.

    Args:
        rows: sorted by time within each id.
        horizon: longest lead time.
        step: from one block to the next.
        periods: of the seasonal forecasts.
    """

    rows: pd.DataFrame
    horizon: str
    step: str
    periods: tuple[str, ...]


def _read(path: str, time: str, y: str, *, id: str | None = None, **options: bool) -> pd.DataFrame:
    table = pd.read_csv(Path(os.environ["TAUFLOW_DATA"]) / path)
    moments = pd.to_datetime(table[time], **options)
    rows = pd.DataFrame(
        {
            "id": 0 if id is None else table[id],
            "time": moments.dt.tz_localize(None),
            "y": pd.to_numeric(table[y], errors="coerce"),
        }
    )
    rows = rows.dropna().drop_duplicates(["id", "time"])
    return rows.sort_values(["id", "time"], ignore_index=True)


def read_power() -> Series:
    """Household power by the hour, in kW."""
    path = "household_power_hourly/household_power_consumption_hourly.csv.gz"
    rows = _read(path, "datetime", "Global_active_power")
    rows = rows[(rows.time >= "2009-01-01") & (rows.time < "2010-07-01")]
    return Series(rows.assign(y=rows.y / 60), "24h", "24h", ("1D", "7D"))


def read_metro() -> Series:
    """Cars by the hour on a motorway; its last year."""
    rows = _read(
        "metro_traffic/Metro_Interstate_Traffic_Volume.csv.gz", "date_time", "traffic_volume"
    )
    return Series(rows.tail(9000), "24h", "24h", ("1D", "7D"))


def read_weather() -> Series:
    """Temperature by the hour at an airport of New York, in degrees Fahrenheit."""
    rows = _read("tables/nyc_weather.csv.gz", "time_hour", "temp", id="origin")
    return Series(rows[rows.id == "EWR"], "24h", "24h", ("1D",))


def read_glucose() -> Series:
    """Blood glucose of one person every five minutes; the last month."""
    return Series(_read("tables/cgm.csv.gz", "datetime", "glucose").tail(9000), "1h", "7h", ("1D",))


def read_dengue() -> Series:
    """Cases of dengue by the day in five districts."""
    rows = _read("tables/dengue_jakarta.csv.gz", "DATE", "CASES", id="REG", dayfirst=True)
    return Series(rows, "7D", "7D", ("7D",))


SERIES = {
    "power": read_power,
    "metro": read_metro,
    "weather": read_weather,
    "cgm": read_glucose,
    "dengue": read_dengue,
}


def forecast_simply(past: pd.DataFrame, at: np.ndarray, periods: tuple[str, ...]) -> dict:
    """Return simple forecasts of one series at times, (Q,), by name."""
    t, y = past.time.to_numpy(), past.y.to_numpy()
    forecasts = {"last value": np.full(len(at), y[-1]), "mean": np.full(len(at), y.mean())}

    def look_up(moments: np.ndarray) -> np.ndarray:
        after = np.searchsorted(t, moments).clip(0, len(t) - 1)
        before = (after - 1).clip(0)
        nearest = np.where(abs(t[before] - moments) < abs(t[after] - moments), before, after)
        return np.where(moments >= t[0], y[nearest], np.nan)

    for period in periods:
        length = pd.Timedelta(period).to_timedelta64()
        back = np.ceil((at - t[-1]) / length - 1e-9).clip(1).astype(int)
        cycles = np.stack([look_up(at - (back + k) * length) for k in range(CYCLES)])
        forecasts[f"{period} before"] = np.where(np.isnan(cycles[0]), y[-1], cycles[0])
        mean = np.nanmean(cycles, axis=0)
        forecasts[f"mean of {CYCLES} at {period}"] = np.where(np.isnan(mean), y.mean(), mean)
    return forecasts


class Blocks(NamedTuple):
    """What is asked of one series.

    Args:
        series: whole.
        train: rows before the first block, without those that are dropped.
        asked: for each block, rows seen before it, and those to forecast.
    """

    series: Series
    train: pd.DataFrame
    asked: list[tuple[pd.DataFrame, pd.DataFrame]]


def list_blocks(name: str, drop: float) -> Blocks:
    """Return the last twenty blocks of a series of which a share of the rows is not seen."""
    series = SERIES[name]()
    rows, ahead = series.rows, pd.Timedelta(series.horizon)
    cuts = [rows.time.max() - ahead - k * pd.Timedelta(series.step) for k in range(BLOCKS)][::-1]
    seen = rows[np.random.default_rng(1).random(len(rows)) >= drop]
    asked = []
    for cut in cuts:
        past = seen[seen.time <= cut].groupby("id").tail(CONTEXT)
        last = past.groupby("id").time.max()
        after = rows[(rows.time > cut) & (rows.time <= cut + ahead) & rows.id.isin(last.index)]
        after = after[after.time - after.id.map(last) <= ahead]
        if len(after):
            asked.append((past[past.id.isin(after.id)], after))
    return Blocks(series, seen[seen.time <= cuts[0]], asked)


def fit_forecaster(blocks: Blocks, **options: Any) -> SequenceForecaster:
    """Return a forecaster that was fitted to what comes before the blocks."""
    forecaster = SequenceForecaster(max_lead_time=blocks.series.horizon, targets="y", **options)
    return forecaster.fit(blocks.train, id="id", time="time")


def measure_simple(blocks: Blocks) -> dict[str, float]:
    """Return mean absolute errors of simple forecasts."""
    errors: dict[str, list[np.ndarray]] = {}
    for past, after in blocks.asked:
        for key, part in after.groupby("id"):
            y, at = past[past.id == key], part.time.to_numpy()
            for method, guess in forecast_simply(y, at, blocks.series.periods).items():
                errors.setdefault(method, []).append(abs(guess - part.y.to_numpy()))
    return {method: float(np.concatenate(parts).mean()) for method, parts in errors.items()}


def measure_boosting(blocks: Blocks, origins: int = 600) -> float:
    """Return the mean absolute error of boosting on lags, simple forecasts and the calendar."""
    series, ahead = blocks.series, pd.Timedelta(blocks.series.horizon)

    def features(past: pd.DataFrame, at: np.ndarray) -> np.ndarray:
        y = past.y.to_numpy(np.float64)[-24:]
        lags = np.pad(y, (24 - len(y), 0), constant_values=np.nan)
        when, lead = pd.DatetimeIndex(at), (at - past.time.to_numpy()[-1]) / np.timedelta64(1, "m")
        simple = forecast_simply(past, at, series.periods).values()
        features_of_rows = np.column_stack(
            [lead, when.hour + when.minute / 60, when.dayofweek, *simple]
        )
        return np.concatenate([features_of_rows, np.broadcast_to(lags, (len(at), 24))], 1)

    x, y, random = [], [], np.random.default_rng(0)
    groups = [part for _, part in blocks.train.groupby("id") if len(part) > 50]
    for part in groups:
        times = part.time.to_numpy()
        count = min(origins // len(groups), len(part) - 30)
        for place in random.choice(np.arange(25, len(part) - 1), count, replace=False):
            stop = np.searchsorted(times, times[place] + ahead.to_timedelta64(), "right")
            later = part.iloc[place + 1 : stop]
            if len(later):
                past = part.iloc[max(0, place + 1 - CONTEXT) : place + 1]
                x.append(features(past, later.time.to_numpy()))
                y.append(later.y.to_numpy())
    model = HistGradientBoostingRegressor(loss="absolute_error", random_state=0)
    model.fit(np.concatenate(x), np.concatenate(y))
    errors = [
        abs(model.predict(features(past[past.id == key], part.time.to_numpy())) - part.y)
        for past, after in blocks.asked
        for key, part in after.groupby("id")
    ]
    return float(np.concatenate(errors).mean())


def measure_ets(blocks: Blocks) -> float | None:
    """Return the mean absolute error of AutoETS of statsforecast; ``None`` if it cannot be had.

    It is fitted to the 500 rows before each block, where these and the block are even.
    """
    try:
        from statsforecast.models import AutoETS
    except ImportError:
        return None
    errors = []
    for past, after in blocks.asked:
        for key, part in after.groupby("id"):
            history = past[past.id == key].tail(500)
            times = np.concatenate([history.time.to_numpy(), part.time.to_numpy()])
            gaps = np.diff(times)
            if (gaps != gaps[0]).any():
                continue
            season = round(pd.Timedelta(blocks.series.periods[0]) / pd.Timedelta(gaps[0]))
            fitted = AutoETS(season_length=season if season <= 24 else 1)
            predicted = fitted.forecast(history.y.to_numpy(np.float64), h=len(part))["mean"]
            errors.append(abs(predicted - part.y.to_numpy()))
    asked = sum(after.id.nunique() for _, after in blocks.asked)
    return float(np.concatenate(errors).mean()) if len(errors) > 0.9 * asked else None


def measure(name: str, drop: float, options: dict) -> dict:
    """Return mean absolute errors of one series by method, coverage, and seconds of the fit."""
    blocks = list_blocks(name, drop)
    start = time.process_time()
    forecaster = fit_forecaster(blocks, **options)
    seconds = time.process_time() - start
    errors, inside = [], []
    for past, after in blocks.asked:
        true, asked = after.y.to_numpy(), {"at": after[["id", "time"]]}
        if options.get("intervals"):
            predictions, low, high = forecaster.predict(past, **asked, interval=0.8)
            inside.append((low[:, 0] <= true) & (true <= high[:, 0]))
        else:
            predictions = forecaster.predict(past, **asked)
        errors.append(abs(predictions[:, 0] - true))
    simple = measure_simple(blocks)
    means = {"forecaster": float(np.concatenate(errors).mean()), **simple}
    best = min(simple, key=simple.__getitem__)
    return {
        "series": name,
        "dropped": drop,
        "mae": means,
        "best_simple": best,
        "ratio": means["forecaster"] / simple[best],
        "coverage_80": float(np.concatenate(inside).mean()) if inside else None,
        "shares": forecaster.shares_,
        "seconds": round(seconds),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--series", nargs="+", default=list(SERIES), choices=list(SERIES))
    parser.add_argument("--drop", nargs="+", type=float, default=[0.0], help="shares of the rows")
    parser.add_argument("--ensemble", type=int, default=1)
    parser.add_argument("--intervals", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file of the numbers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print one row for each series and share of dropped rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options = {
        "ensemble": arguments.ensemble,
        "intervals": arguments.intervals,
        "random_state": arguments.seed,
    }
    print("| series | dropped | forecaster, MAE | best simple | ratio | 80 % holds | CPU s |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    rows = []
    for name in arguments.series:
        for drop in arguments.drop:
            row = measure(name, drop, options)
            rows.append(row)
            best, held = row["best_simple"], row["coverage_80"]
            print(
                f"| {name} | {100 * drop:.0f} % | {row['mae']['forecaster']:.4g} | "
                f"{row['mae'][best]:.4g} ({best}) | {row['ratio']:.3f} | "
                f"{'' if held is None else f'{100 * held:.0f} %'} | {row['seconds']} |",
                flush=True,
            )
    ratios = np.log([row["ratio"] for row in rows])
    print(f"\nGeometric mean of the ratios: {np.exp(ratios.mean()):.3f}")
    if arguments.out is not None:
        result = {"options": options, "rows": rows}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
