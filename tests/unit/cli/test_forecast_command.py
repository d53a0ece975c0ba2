"""``tauflow forecast``, and ``tauflow predict --at``: any variable at any time."""

import os
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from tauflow.estimators import SequenceForecaster


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (p, round(hour, 2), p + hour, None if rng.random() < 0.3 else rng.normal(), "nurse")
        for p in range(12)
        for hour in np.sort(rng.uniform(0, 10, 6))
    ]
    frame = pandas.DataFrame(rows, columns=["patient", "hours", "a", "b", "by"])
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return frame


def check_better_naive_forecasts(stderr, metric, columns):
    """Compare sentences on naive forecasts with the errors in columns of the printed table."""
    table = {cells[0]: cells[1:] for cells in map(str.split, stderr.splitlines()) if cells}
    for name in {"a", "b"} & table.keys():
        forecaster, *naive = (float(table[name][column]) for column in columns)
        sentence = rf"(?m)^{name}: .* scores better than the forecaster: {metric} {min(naive):g} "
        assert bool(re.search(sentence, stderr)) == (min(naive) < 0.999 * forecaster), stderr


def test_long_times_are_said_in_full(call, table, tmp_path):
    table.assign(hours=(table["hours"] * 2e6).round()).to_csv(tmp_path / "visits.csv", index=False)
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    words += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", 12345678]
    assert "RMSE up to 12345678 ahead" in call(*words, "--at", 1000, "--out", "f.csv").stderr


def test_a_table_is_forecast_at_any_time(call, table, tmp_path):
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    words += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", 5]
    result = call(*words, "--at", "1,2.5", "--out", "f.csv", "--save", "f.safetensors")
    assert "f.csv: 48 rows\n" in result.stdout  # 12 ids, 2 times, 2 targets
    assert "RMSE up to 5 ahead, of 2 ids not trained on" in result.stderr
    assert re.search(r"forecaster +last value +mean", result.stderr)
    check_better_naive_forecasts(result.stderr, "RMSE", [0, 1, 2])
    frame = pandas.read_csv(tmp_path / "f.csv")
    assert list(frame) == ["patient", "hours", "target", "value"]
    last = table.groupby("patient")["hours"].max()
    np.testing.assert_allclose(frame["hours"][:4], [last[0] + 1] * 2 + [last[0] + 2.5] * 2)
    # The same from its file, also at times of a table.
    again = call("predict", "f.safetensors", "--csv", "visits.csv", "--at", "1,2.5")
    np.testing.assert_allclose(
        [float(line.split(",")[-1]) for line in again.stdout.splitlines()[1:]], frame["value"]
    )
    frame.loc[[5, 2], ["patient", "hours"]].to_csv(tmp_path / "times.csv", index=False)
    call("predict", "f.safetensors", "--csv", "visits.csv", "--at", "times.csv", "--out", "g.csv")
    some = pandas.read_csv(tmp_path / "g.csv")
    np.testing.assert_allclose(some["value"], frame["value"][[4, 5, 2, 3]], rtol=1e-5)


def test_a_run_leaves_a_folder_that_predicts_at_any_time(call, table, tmp_path, monkeypatch):
    replaced, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (replaced.append(Path(b).name), replace(a, b)))
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    words += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", 5, "--interval", 80]
    table = pandas.concat([table.assign(patient=table["patient"] + 12 * k) for k in range(3)])
    table.to_csv(tmp_path / "visits.csv", index=False)
    result = call(*words)
    assert not result.stdout
    folder = tmp_path / "runs" / "visits" / "gru-forecast-seed0"
    scores = pandas.read_csv(folder / "scores.csv", index_col="target")
    assert "scores.csv" in replaced  # complete, or not there
    assert list(scores.index) == ["a", "b"]
    assert {"forecaster", "last value"} <= set(scores)
    printed = call("predict", str(folder), "--csv", "visits.csv", "--at", "1", "--interval", 80)
    lines = printed.stdout.splitlines()
    assert lines[0] == "patient,hours,target,quantile,value"
    assert len(lines) == 1 + 36 * 2 * 3
    loaded = SequenceForecaster.load(folder)
    forecast = loaded.forecast(table.drop(columns="by"), at=[1.0], interval=0.8)
    np.testing.assert_allclose(
        [float(line.split(",")[-1]) for line in lines[1:]], forecast["value"]
    )
    again = call(*words, "--at", "1")
    assert len(again.stdout.splitlines()) == len(lines)
    assert (folder.parent / "gru-forecast-seed0-2").is_dir()
    refused = call("predict", str(folder), "--csv", "visits.csv", code=1)
    assert "predict --at" in refused.output


def test_a_single_series_is_scored_on_its_last_rows(call, tmp_path):
    hours = pandas.date_range("2024-05-01", periods=400, freq="h")
    load = np.sin(2 * np.pi * np.arange(400) / 24) + 5
    pandas.DataFrame({"hour": hours, "kW": load}).to_csv(tmp_path / "load.csv", index=False)
    words = ["forecast", "load.csv", "--time", "hour", "--max-lead-time", "6h", "--epochs", 1]
    result = call(*words, "--model", "gru", "--hidden-size", 2, "--at", "1h")
    assert "Errors up to 6 rows ahead, from 13 origins after training:" in result.stderr
    scores = pandas.read_csv(tmp_path / "runs" / "load" / "gru-forecast-seed0" / "scores.csv")
    naive = scores.set_index("model").loc["seasonal naive"]  # exact, as the series repeats
    assert naive["mae"] < 1e-6
    assert "kW: seasonal naive scores better than the forecaster: MAE " in result.stderr
    assert result.stdout.splitlines()[0] == "hour,target,value"
    assert result.stdout.splitlines()[1].startswith("2024-05-17 16:00:00,kW,")
    pandas.DataFrame({"hour": hours, "kW": load}).to_csv(tmp_path / "later.csv", index=False)
    tested = call("backtest", "runs/load/gru-forecast-seed0", "--csv", "later.csv", "--season", 24)
    assert re.search(r"(?m)^SequenceForecaster +6 ", tested.stdout)
    assert re.search(r"(?m)^seasonal naive +1 +\S+e-\d+ ", tested.stdout)  # exact
    words[words.index("6h")] = "90h"
    result = call(*words, "--model", "gru", "--hidden-size", 2, "--at", "1h")
    assert "Not scored before it is trained on all rows: 80 rows are held out" in result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_intervals_of_one_target_and_dates(call, table, tmp_path):
    table["hours"] = pandas.Timestamp("2024-05-31") + pandas.to_timedelta(table["hours"], "h")
    table.to_csv(tmp_path / "visits.csv", index=False)
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    words += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", "5h", "--at", "30min"]
    small = [*words, "--targets", "a", "--features", "a,b", "--interval", 50]
    lines = table.sample(frac=1, random_state=0)
    lines = pandas.concat([lines.assign(patient=lines["patient"] + 12 * k) for k in range(2)])
    lines.sort_values(["patient", "hours"]).to_csv(tmp_path / "visits.csv", index=False)
    result = call(*small)
    assert re.search(r"mean in intervals of 50 %\na .* \d+\.\d%\n", result.stderr)
    printed = result.stdout.splitlines()
    assert printed[0] == "patient,hours,target,quantile,value"
    assert len(printed) == 1 + 24 * 3
    assert printed[1].split(",")[1:4:2][1] == "0.25"


def test_what_does_not_fit_is_refused(call, table):
    words = ["--csv", "visits.csv", "--at", "1"]
    assert "leave out --proba" in call("predict", "x", *words, "--proba", code=1).output
    output = call("predict", "none.safetensors", *words, code=1).output
    assert "none.safetensors" in output
    fit = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    fit += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", 5]
    assert "trained for up to" in call(*fit, "--at", "9", code=1).output
    assert "expected a span of time" in call(*fit, "--at", "soon", code=1).output


def test_a_file_of_times_and_later_rows_are_read_as_the_table_was(call, table, tmp_path):
    hours = pandas.to_timedelta(table["hours"], unit="h")
    table["hours"] = (pandas.Timestamp("2024-01-31 23:00") + hours).dt.strftime("%d.%m.%Y %H:%M:%S")
    table["b"] = [str(number).replace(".", ",").replace("nan", "?") for number in table["b"]]
    form = {"sep": ";", "decimal": ",", "index": False}
    table.to_csv(tmp_path / "visits.csv", **form)
    asked = table.groupby("patient")[["patient", "hours"]].tail(1)
    later = pandas.to_datetime(asked["hours"], format="%d.%m.%Y %H:%M:%S") + pandas.Timedelta("1h")
    asked = asked.assign(hours=later.dt.strftime("%d.%m.%Y %H:%M:%S"))
    asked.to_csv(tmp_path / "times.csv", **form)
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    words += ["--model", "gru", "--hidden-size", 2, "--max-lead-time", "5h", "--at", "times.csv"]
    words += ["--time-format", "%d.%m.%Y %H:%M:%S", "--delimiter", ";", "--decimal", ","]
    first = call(*words, "--missing", "?", "--save", "f.safetensors").stdout
    assert len(first.splitlines()) == 1 + 12 * 2
    again = call("predict", "f.safetensors", "--csv", "visits.csv", "--at", "times.csv").stdout
    assert [line.split(",")[:3] for line in again.splitlines()] == [
        line.split(",")[:3] for line in first.splitlines()
    ]


def test_a_table_is_forecast_without_training(call, table):
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--targets", "a"]
    result = call(*words, "--at", "1.5", "--interval", 80)
    lines = result.stdout.splitlines()
    assert lines[0] == "patient,hours,target,quantile,value"
    assert len(lines) == 1 + 12 * 3
    assert "Not trained on this table" in result.stderr
    assert re.search(r"forecasts +mae +mae_last_value", result.stderr)
    check_better_naive_forecasts(result.stderr, "MAE", [1, 2])
    assert "nothing says when" in call(*words, code=1).output
    assert "--window is for" in call(*words, "--at", "1", "--window", 5, code=1).output


def test_a_few_ids_are_scored_on_rows_after_training(call, tmp_path):
    walk = np.random.default_rng(0).normal(size=(4, 60)).cumsum(1)
    frame = pandas.DataFrame({"id": np.repeat(list("abcd"), 60), "t": np.tile(range(60), 4)})
    frame.assign(x=walk.ravel()).to_csv(tmp_path / "few.csv", index=False)
    words = ["forecast", "few.csv", "--id", "id", "--time", "t", "--max-lead-time", 3]
    result = call(*words, "--epochs", 1, "--model", "gru", "--hidden-size", 2)
    assert "from 4 origins after training" in result.stderr  # of 48 to 59, 3 rows at a time
    scores = pandas.read_csv(tmp_path / "runs" / "few" / "gru-forecast-seed0" / "scores.csv")
    late = walk[:, 47:].copy()
    errors = [late[:, k + 1 : k + 4] - late[:, k : k + 1] for k in (0, 3, 6, 9)]
    naive = scores.set_index("model").loc["persistence"]
    assert naive["mae"] == pytest.approx(np.abs(errors).mean())


def test_times_with_an_offset_are_in_order_when_summer_time_ends(call, tmp_path):
    hours = pandas.date_range("2024-10-20", periods=240, freq="h", tz="Europe/Berlin")
    texts = [hour.isoformat() for hour in hours]
    assert texts != sorted(texts)
    frame = pandas.DataFrame({"hour": texts, "power, kW": np.sin(np.arange(240) / 4)})
    frame.to_csv(tmp_path / "load.csv", index=False)
    words = ["forecast", "load.csv", "--time", "hour", "--targets", '"power, kW"', "--at", "2h"]
    small = ["--epochs", 1, "--model", "gru", "--hidden-size", 2]
    result = call(*words, "--max-lead-time", "3h", *small)
    assert "from 16 origins after training" in result.stderr
    # The run forecasts a series without ids.
    command = next(line for line in result.stderr.splitlines() if line.startswith("Next:"))
    words = command.split()[2:]
    words = [{"new.csv": "load.csv", "TIMES": "2h"}.get(word, word) for word in words]
    again = call(*words).stdout
    assert again == result.stdout
    time, *_ = again.splitlines()[1].split(",")
    assert pandas.Timestamp(time) == hours[-1] + pandas.Timedelta("2h")


def test_what_cannot_be_scored_is_trained(call, tmp_path):
    """Four fifths of the rows are too few to calibrate intervals, and all are enough."""
    frame = pandas.DataFrame({"t": range(140), "x": np.sin(np.arange(140) / 5)})
    frame.to_csv(tmp_path / "short.csv", index=False)
    words = ["forecast", "short.csv", "--time", "t", "--max-lead-time", 3, "--interval", 80]
    result = call(*words, "--epochs", 1, "--model", "gru", "--hidden-size", 2, "--at", 1)
    assert "Not scored before it is trained on all rows: intervals=" in result.stderr
    assert len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize(
    "option",
    [
        *(["--model", "no-such-cell"], ["--epochs", 3], ["--hidden-size", 8], ["--seed", 1]),
        ["--runs-dir", "elsewhere"],
    ],
    ids=lambda option: option[0],
)
def test_options_of_training_are_refused_without_it(call, table, option):
    words = ["forecast", "visits.csv", "--id", "patient", "--time", "hours", "--at", "1"]
    assert (
        f"{option[0]} is for a forecaster that is trained" in call(*words, *option, code=1).output
    )
