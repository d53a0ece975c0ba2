"""Periods and calendar inputs of forecasts at any time."""

import numpy as np
import pandas as pd
import pytest

from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceForecaster, training
from tauflow.estimators.seasons import (
    DAY,
    WEEK,
    YEAR,
    count_calendar_inputs,
    encode_calendar,
    find_cycles,
    find_periods,
)
from tauflow.tabular.sequences import Sequences


def rows_of(times, values, *, dated=False):
    clock = times.astype("datetime64[us]").astype(np.int64) / 1e6 if dated else times
    dt = np.diff(clock, prepend=clock[0])
    return Sequences(
        values=values[:, None],
        lengths=np.array([len(times)]),
        dt=dt,
        dated=dated,
        zoned=False if dated else None,
        moments=times if dated else None,
    )


@pytest.mark.parametrize("period", [3.7, 11.0, 24.0])
def test_the_period_of_irregular_samples_is_found(period):
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 600, 500))
    wave = np.where((times / period) % 1 < 0.3, 2.0, 0.0)  # no sine
    values = wave + 0.01 * times + 0.3 * rng.standard_normal(500)
    rows = rows_of(times, values)
    periods = find_periods(rows, rows.values, window=64)
    assert periods[-1] == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize(("period", "unit", "dropped"), [(24, 1.0, 0.0), (12, 0.1, 0.3)])
def test_the_period_of_long_regular_series_is_found(period, unit, dropped):
    rng = np.random.default_rng(0)
    steps = np.flatnonzero(rng.random(17_520) >= dropped)
    values = np.sin(2 * np.pi * steps / period) + 0.3 * rng.standard_normal(len(steps))
    rows = rows_of(steps * unit, values)
    periods = find_periods(rows, rows.values, window=64)
    assert periods == (pytest.approx(period * unit, rel=0.01),)


@pytest.mark.thorough
def test_a_longer_window_finds_longer_periods():
    rng = np.random.default_rng(0)
    steps = np.arange(9000)
    values = np.sin(2 * np.pi * steps / 1000) + np.sin(2 * np.pi * steps / 12)
    values += 0.3 * rng.standard_normal(9000)
    rows = rows_of(1.0 * steps, values)
    expected = [pytest.approx(12, rel=0.01), pytest.approx(1000, rel=0.03)]
    assert list(find_periods(rows, rows.values, window=1500)) == expected


def test_noise_has_no_period_and_neither_has_a_single_value():
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 600, 500))
    for values in (rng.standard_normal(500), np.full(500, 3.0), np.full(500, np.nan)):
        rows = rows_of(times, values)
        assert find_periods(rows, rows.values, window=64) == ()


@pytest.mark.parametrize(
    ("freq", "count", "window", "periods", "cycles"),
    [
        ("1h", 2000, 192, (DAY, WEEK), (DAY, WEEK)),
        ("1h", 200, 192, (DAY,), (DAY,)),
        ("5min", 2000, 96, (), (DAY,)),
        ("1D", 800, 64, (WEEK,), (WEEK, YEAR)),
        ("30D", 60, 64, (YEAR,), (YEAR,)),
        ("12h", 30, 64, (WEEK,), (WEEK,)),
    ],
)
def test_periods_of_dates_fit_the_samples(freq, count, window, periods, cycles):
    times = pd.date_range("2024-01-01", periods=count, freq=freq).to_numpy()
    rows = rows_of(times, np.zeros(count), dated=True)
    assert find_periods(rows, rows.values, window=window) == periods
    assert find_cycles(rows) == cycles


def test_calendar_inputs_are_those_of_pandas():
    times = pd.date_range("1969-12-20 03:00", periods=900, freq="7h")
    seconds = times.to_numpy().astype("datetime64[us]").astype(np.int64) / 1e6
    inputs = encode_calendar(seconds, (DAY, WEEK, YEAR))
    assert inputs.shape[1] == count_calendar_inputs((DAY, WEEK, YEAR))
    hour = 2 * np.pi * times.hour / 24
    np.testing.assert_allclose(inputs[:, 0], np.sin(hour), atol=1e-9)
    np.testing.assert_allclose(inputs[:, 3], np.cos(2 * hour), atol=1e-9)
    assert (inputs[:, 6] == (times.day_of_week > 4)).all()


def seasonal_table():
    rng = np.random.default_rng(0)
    hours = np.arange(24 * 40)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h")
    y = 10 + 3 * np.sin(2 * np.pi * hours / 24) + rng.standard_normal(len(hours))
    return pd.DataFrame({"id": "a", "time": times, "y": y})


@pytest.mark.slow
def test_the_default_is_ahead_of_seasonal_naive(monkeypatch):
    """With noise of deviation 1, whose mean absolute value is 0.8; naive errors are 1.13."""
    monkeypatch.setattr(training, "FORECAST_STEPS", 80)
    table = seasonal_table()
    past, after = table[: -24 * 4], table[-24 * 4 :]
    forecaster = SequenceForecaster(max_lead_time="24h", hidden_size=8, random_state=0)
    forecaster.fit(past, id="id", time="time")
    assert forecaster.window_ == 192
    assert forecaster.module_.periods == (24.0, 168.0)
    assert forecaster.module_.phases == 7
    errors, naive = [], []
    for day in range(4):
        known = pd.concat([past, after[: 24 * day]])
        asked = after[24 * day : 24 * (day + 1)]
        predictions = forecaster.predict(known, at=asked[["id", "time"]])[:, 0]
        errors.append(abs(predictions - asked.y))
        naive.append(abs(known.y.to_numpy()[-24:] - asked.y))
    assert np.mean(errors) < 0.85 * np.mean(naive)
    assert np.mean(errors) < 0.95


def test_a_forecaster_that_reads_the_calendar_needs_dates():
    table = seasonal_table()
    forecaster = SequenceForecaster(max_lead_time="3h", hidden_size=4, epochs=1, random_state=0)
    forecaster.fit(table[-100:], id="id", time="time")
    with pytest.raises(ArgumentError, match="fitted to dates"):
        forecaster.predict([table[["y"]][-50:]], dt=pd.Timedelta("1h"), at=["1h"])


def test_nothing_is_held_out_where_no_score_chooses(monkeypatch):
    monkeypatch.setattr(training, "FORECAST_STEPS", 4)
    table = seasonal_table()[-90:]
    small = {"max_lead_time": "3h", "hidden_size": 4, "random_state": 0}
    model = SequenceForecaster(**small)
    model.fit(table, id="id", time="time")
    assert model.result_.best_epoch == len(model.result_.history)
    assert all(row.get("valid") is None for row in model.result_.history)
