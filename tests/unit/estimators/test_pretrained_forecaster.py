"""The pretrained forecaster as people use it."""

import numpy as np
import pandas as pd
import pytest
import torch

from tauflow.errors import ArgumentError, DataError, ModelFileError, TimeError
from tauflow.estimators import PretrainedForecaster, SequenceForecaster
from tauflow.pretraining.network import NetworkOptions, ZeroShotNetwork

TINY = NetworkOptions(hidden_size=6, backbone_units=6, width=8, attention_size=4)


@pytest.fixture
def forecaster(monkeypatch):
    torch.manual_seed(0)
    network = ZeroShotNetwork(TINY).eval()
    monkeypatch.setattr("tauflow.estimators.pretrained.load_weights", lambda: network)
    return SequenceForecaster.from_pretrained()


def make_table(ids=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for key in range(ids):
        t = np.cumsum(rng.exponential(1.0, 8)) + 0.1
        rows.append(pd.DataFrame({"who": f"p{key}", "day": t, "a": rng.normal(size=8), "b": 2.0}))
    return pd.concat(rows, ignore_index=True)


def test_times_asked_for_come_back_bit_for_bit(forecaster):
    table = make_table()
    at = table.groupby("who", as_index=False)["day"].last()
    at["day"] += 0.1 + np.arange(4) / 3
    forecast = forecaster.forecast(table, at, id="who", time="day", interval=0.8)
    assert len(forecast) == 4 * 2 * 3  # ids, targets, and ends with the median
    merged = forecast.merge(at, on=["who", "day"])
    assert len(merged) == len(forecast)
    wide = forecast[forecast.target == "a"].pivot_table(
        index="who", columns="quantile", values="value"
    )
    assert (wide[0.1] <= wide[0.9]).all()


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_moments_asked_for_keep_their_time_zone(forecaster, library):
    table = make_table()
    table["day"] = pd.Timestamp("2024-01-01", tz="Europe/Berlin") + pd.to_timedelta(
        table["day"], "D"
    )
    at = table.groupby("who", as_index=False)["day"].last()
    at["day"] += pd.Timedelta("36h")
    times = at
    if library == "polars":
        times = pytest.importorskip("polars").from_pandas(at)
    elif library == "arrow":
        times = pytest.importorskip("pyarrow").Table.from_pandas(at)
    forecast = forecaster.forecast(table, times, id="who", time="day", targets="a")
    assert forecast["day"].tolist() == at["day"].tolist()


def test_lead_times_dates_and_arrays(forecaster):
    table = make_table()
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["day"], "D")
    forecast = forecaster.forecast(table, "24h,48h", id="who", time="day", targets="a")
    last = table.groupby("who")["day"].last()
    expected = [last[who] + pd.Timedelta(days=n) for who in last.index for n in (1, 2)]
    gap = (forecast["day"] - pd.Series(expected)).abs().max()
    assert gap <= pd.Timedelta("1us")
    y = np.random.default_rng(0).normal(size=(20, 2))
    assert forecaster.predict(y, at=[1, 2, 3]).shape == (1, 3, 2)
    assert forecaster.predict_quantiles(y, [1.5]).shape == (1, 1, 2, 9)


def test_quantiles_of_whole_numbers_are_whole(forecaster):
    table = make_table(ids=25)
    table["n"] = (3 * table["a"]).round()
    options = {"id": "who", "time": "day", "targets": ["n", "a"]}
    quantiles = forecaster.predict_quantiles(table, at=[1.0, 2.0], **options)
    assert "other ids" in forecaster.methods_["n"]
    assert (quantiles[:, :, 0] == np.round(quantiles[:, :, 0])).all()
    assert (quantiles[:, :, 1] != np.round(quantiles[:, :, 1])).all()
    forecaster.fit(table, steps=0, **options)
    person = table[table.who == "p3"]
    fitted = forecaster.predict_quantiles(person, at=[1.0, 2.0], targets=["n"])
    assert (fitted == np.round(fitted)).all()
    stream = forecaster.stream("n")
    stream.push(0.0, 2.0)
    assert (stream.forecast(1.0) % 1 == 0).all()
    stream.push(1.0, 2.5)
    assert (stream.forecast(2.0) % 1 != 0).any()


def test_wide_intervals_have_tails_of_a_normal(forecaster):
    y = np.random.default_rng(0).normal(size=(30, 1))
    middle, low, high = forecaster.predict(y, at=[1], interval=0.8)
    _, lower, higher = forecaster.predict(y, at=[1], interval=0.95)
    ratio = 1.959964 / 1.281552
    np.testing.assert_allclose(higher - middle, ratio * (high - middle), rtol=1e-5)
    np.testing.assert_allclose(middle - lower, ratio * (middle - low), rtol=1e-5)


@pytest.mark.parametrize("interval", [0.0, 1.0, 80])
def test_an_interval_of_all_values_has_no_ends(forecaster, interval):
    with pytest.raises(ArgumentError, match="interval must be a share between 0 and 1"):
        forecaster.predict(np.zeros((5, 1)), at=[1], interval=interval)


def test_targets_without_values_and_gaps(forecaster):
    table = make_table()
    table.loc[table.who == "p1", "a"] = np.nan
    table.loc[table.index % 3 == 0, "a"] = np.nan
    forecast = forecaster.forecast(table, [1.0], id="who", time="day", targets="a")
    assert forecast["value"].isna().tolist() == [False, True, False, False]


def test_a_table_of_many_ids_is_blended_and_says_so(forecaster):
    table = make_table(30)
    blended = forecaster.forecast(table, [1.0], id="who", time="day", targets="a")
    assert "other ids" in forecaster.methods_["a"]
    plain = SequenceForecaster.from_pretrained(blend=False)
    forecast = plain.forecast(table, [1.0], id="who", time="day", targets="a")
    assert plain.methods_ == {"a": "zero-shot"}
    assert not np.allclose(forecast["value"], blended["value"])
    scores = plain.backtest(table, id="who", time="day", targets="a")
    assert scores.loc["a", "forecasts"] > 30
    assert 0 < scores.loc["a", "inside_80"] <= 1


def test_the_order_of_ids_changes_nothing(forecaster):
    table = make_table(ids=90)
    shuffled = pd.concat(
        [rows for _, rows in sorted(table.groupby("who"), key=lambda g: g[0][::-1])]
    )
    forecasts = [
        forecaster.forecast(frame, [1.0, 5.0], id="who", time="day", targets="a", interval=0.8)
        .sort_values(["who", "day", "quantile"])["value"]
        .to_numpy()
        for frame in (table, shuffled)
    ]
    assert shuffled["who"].tolist() != table["who"].tolist()
    np.testing.assert_allclose(forecasts[0], forecasts[1], rtol=1e-4, atol=1e-5)


def test_fit_save_load_and_stream(forecaster, tmp_path):
    table = make_table(24)
    forecaster.fit(table, id="who", time="day", targets="a", steps=20)
    new = make_table(3, seed=5)[["who", "day", "a"]]
    predictions = forecaster.predict(new, at=[1.0, 2.0])
    forecaster.save(tmp_path / "fitted.safetensors")
    read = PretrainedForecaster.load(tmp_path / "fitted.safetensors")
    np.testing.assert_array_equal(read.predict(new, at=[1.0, 2.0]), predictions)
    stream = read.stream("a")
    rows = new[new.who == "p0"]
    for t, y in zip(rows["day"], rows["a"], strict=True):
        stream.push(t, y)
    last = rows["day"].iloc[-1]
    (alone,) = read.predict_quantiles(rows, [1.0, 2.0])
    np.testing.assert_allclose(stream.forecast([last + 1, last + 2]), alone[:, 0], rtol=1e-6)
    with pytest.raises(ModelFileError):
        SequenceForecaster.load(tmp_path / "fitted.safetensors")


def test_another_table_changes_nothing_of_what_was_fitted(forecaster, tmp_path):
    table = make_table(3)
    forecaster.fit(table, id="who", time="day", targets="a", steps=0)
    expected = forecaster.forecast(table, [1.0], targets="a")
    other = table.rename(columns={"who": "subject", "day": "when"})[["when", "a", "subject"]]
    forecast = forecaster.forecast(other, [1.0], id="subject", time="when")
    assert forecast["subject"].tolist() == expected["who"].tolist()
    np.testing.assert_array_equal(forecast["value"], expected["value"])
    forecaster.save(tmp_path / "fitted.safetensors")
    for each in (forecaster, PretrainedForecaster.load(tmp_path / "fitted.safetensors")):
        pd.testing.assert_frame_equal(each.forecast(table, [1.0], targets="a"), expected)


def test_numbers_and_dates_are_not_compared(forecaster, tmp_path):
    numbers = make_table(3)
    dates = numbers.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers["day"], "h"))
    spans = numbers.assign(day=pd.to_timedelta(numbers["day"], "h"))
    for fitted, fitted_at, other, at in (
        (numbers, 1.0, dates, "1h"),
        (dates, "1h", numbers, 1.0),
        (spans, "1h", numbers, 1.0),
    ):
        forecaster.fit(fitted, id="who", time="day", targets="a", steps=0)
        forecaster.save(tmp_path / "fitted.safetensors")
        for each in (forecaster, PretrainedForecaster.load(tmp_path / "fitted.safetensors")):
            with pytest.raises(TimeError, match="fitted to times that are"):
                each.forecast(other, [at], targets="a")
            assert len(each.forecast(fitted, [fitted_at], targets="a"))


def test_times_are_given_as_they_were_for_the_fit(forecaster, tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 20, 1))
    numbers = np.tile(np.arange(20.0), (3, 1))
    dates = np.datetime64("2024-01-01") + numbers.astype("m8[h]")
    untimed = {}
    for fitted, others in (
        (untimed, ({"t": numbers}, {"t": dates}, {"dt": 1.0})),
        ({"t": numbers}, (untimed,)),
        ({"t": dates}, (untimed,)),
    ):
        forecaster.fit(values, **fitted, steps=0)
        forecaster.save(tmp_path / "fitted.safetensors")
        for each in (forecaster, PretrainedForecaster.load(tmp_path / "fitted.safetensors")):
            for other in others:
                with pytest.raises(ArgumentError, match="fitted to sequences with"):
                    each.forecast(values, [1.0], **other)
            at = "1h" if fitted.get("t") is dates else 1.0
            assert len(each.forecast(values, [at], **fitted)) == 3


def test_bad_input_is_named(forecaster):
    with pytest.raises(TimeError, match="above 0"):
        forecaster.predict(np.zeros((5, 1)), at=[0.0])
    stream = forecaster.stream()
    with pytest.raises(DataError, match="no sample"):
        stream.forecast(1.0)
    stream.push(1.0, 2.0)
    with pytest.raises(TimeError, match="order of their times"):
        stream.push(1.0, 2.0)
    with pytest.raises(TimeError, match="after the last"):
        stream.forecast(0.5)
    with pytest.raises(ArgumentError, match="at is empty"):
        stream.forecast([])
    for samples in (forecaster.stream(), stream):
        with pytest.raises(TimeError, match="must be finite, got nan"):
            samples.push(np.nan, 1.0)
        with pytest.raises(DataError, match=r"must be finite, or NaN .* got inf"):
            samples.push(5.0, np.inf)
