"""``tauflow inspect``: what a file seems to be, and a command that works."""

import csv
import re
import shlex

import numpy as np
import pandas
import pytest


def records():
    """Return 40 stays with a value per row, and who died."""
    rows = []
    for stay in range(40):
        for hour in range(8):
            rows.append((stay, hour * (1 + stay % 3), "HR", 60 + stay % 7 + hour, stay % 2))
            if hour % 3 == 0:
                rows.append((stay, hour * (1 + stay % 3), "Lactate", 1 + hour / 9, stay % 2))
    return pandas.DataFrame(rows, columns=["stay", "hours", "parameter", "value", "died"])


def suggested(output):
    (words,) = re.findall(r"^  tauflow ((?:run|forecast) .*)$", output, re.MULTILINE)
    return shlex.split(words)


def test_a_long_table_is_recognised_and_its_command_trains(call, tmp_path):
    records().to_csv(tmp_path / "stays.csv", index=False)
    output = call("inspect", "stays.csv").output
    assert "40 sequences of 8 times." in output
    assert re.search(r"hours +time", output)
    assert re.search(r"died +target .*0 50 %, 1 50 %", output)
    words = suggested(output)
    assert words[2:] == shlex.split("--id stay --time hours --target died --long parameter,value")
    trained = call(*words, "--epochs", 1, "--model", "gru-d", "--hidden-size", 2).output
    assert "Task: classification, one target per id" in trained


def test_decimals_may_have_commas(call, tmp_path):
    frame = records().astype({"value": float})
    frame.to_csv(tmp_path / "stays.csv", index=False, sep=";", decimal=",")
    output = call("inspect", "stays.csv", "--delimiter", ";", "--decimal", ",").output
    assert re.search(r"value +value", output)
    words = suggested(output)
    assert words[words.index("--decimal") :][:2] == ["--decimal", ","]
    small = ["--epochs", 1, "--model", "gru-d", "--hidden-size", 2]
    assert "Task: classification" in call(*words, *small).output


def test_dates_tell_their_unit_and_one_series_is_cut_into_windows(call, tmp_path):
    times = pandas.date_range("2024-05-31", periods=400, freq="15min")
    frame = pandas.DataFrame(
        {"timestamp": times, "power": [k * 7 % 50 for k in range(400)], "note": [None] * 400}
    )
    frame.to_csv(tmp_path / "power.csv", index=False)
    output = call("inspect", "power.csv").output
    assert "median 15 minutes" in output
    assert re.search(r"note +left out +nothing +100 %", output)
    words = suggested(output)
    assert words[2:] == ["--time", "timestamp", "--features", "power", "--window", "100"]
    words = [*words[:-1], 20, "--season", 8, "--epochs", 1]
    trained = call(*words, "--model", "gru", "--hidden-size", 2).output
    assert trained.index("\npersistence") < trained.index("\nseasonal naive")
    refused = call(*words, "--horizon", 4, code=1).output
    assert "tauflow forecast TABLE --time TIME --max-lead-time 24h" in " ".join(refused.split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("long", [False, True])
def test_the_command_sorts_and_leaves_out_columns_without_values(call, tmp_path, long):
    frame = records().pivot_table("value", ["stay", "hours", "died"], "parameter").reset_index()
    frame = frame.rename(columns={"Lactate": "Lactate, blood"}).assign(label=None, note="")
    if long:
        frame = frame.melt(["stay", "hours", "died"], var_name="item").query("item != 'note'")
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "stays.csv", index=False)
    words = suggested(call("inspect", "stays.csv").output)
    place = words.index("--features") + 1
    assert sorted(next(csv.reader([words[place]]))) == ["HR", "Lactate, blood"]
    assert ("--sort" in words) == (not long)
    trained = call(*words, "--epochs", 1, "--model", "gru-d", "--hidden-size", 2).output
    assert "Task: classification, one target per id" in trained
    frame.sort_values(["stay", "hours"]).to_csv(tmp_path / "stays.csv", index=False)
    assert "--sort" not in suggested(call("inspect", "stays.csv").output)


def test_rows_of_one_time_are_noticed_and_what_is_wrong_is_said(call, tmp_path):
    frame = pandas.DataFrame(
        {"id": np.repeat(range(9), 4), "time": [0, 0, 1, 2, *[0, 1, 2, 3] * 8]}
    )
    frame["a"] = np.arange(36) * 7 % 36
    frame.to_csv(tmp_path / "t.csv", index=False)
    output = call("inspect", "t.csv").output
    assert suggested(output)[-2:] == ["--duplicates", "mean"]
    assert "Merged: 1 of 36 rows, with the same id and time as an earlier one" in output
    frame.assign(time=[None, 0, 1, 2] * 9).to_csv(tmp_path / "t.csv", index=False)
    output = call("inspect", "t.csv", "--time", "time").output
    assert "It cannot be read so: t.csv, row 2, column 'time' is empty" in output
    assert "Suggested command" not in output
    assert "there is no file" in call("inspect", "u.csv", code=1).stderr


@pytest.mark.parametrize("packed", ["parquet", "csv.gz"])
def test_packed_files(call, tmp_path, packed):
    pytest.importorskip("pyarrow")
    frame = records()
    getattr(frame, "to_parquet" if packed == "parquet" else "to_csv")(
        tmp_path / f"s.{packed}", index=False
    )
    assert "40 sequences" in call("inspect", f"s.{packed}").output


@pytest.mark.parametrize(("unit", "span"), [("", "1.5"), ("h", "1.5h")])
def test_a_horizon_is_the_longest_time_of_a_forecast(call, tmp_path, unit, span):
    times = 0.5 * np.arange(120)
    if unit:
        times = pandas.Timestamp("2024-05-31") + pandas.to_timedelta(times, unit)
    frame = pandas.DataFrame({"t": times, "a, b": np.sin(np.arange(120)), "c": range(120, 0, -1)})
    frame.to_csv(tmp_path / "series.csv", index=False)
    options = ["--time", "t", "--window", 20, "--horizon", 3, "--target", '"a, b"']
    words = suggested(call("inspect", "series.csv", *options).output)
    assert words[0] == "forecast"
    assert words[words.index("--max-lead-time") + 1] == span
    assert words[words.index("--targets") + 1] == '"a, b"'
    small = ["--epochs", 1, "--model", "gru", "--hidden-size", 2]
    assert "Errors up to 3 rows ahead" in call(*words, *small).stderr


@pytest.mark.parametrize("options", [["--long", "item,value"], ["--time", "none"]])
def test_no_command_is_suggested_that_would_not_forecast_so_many_rows(call, tmp_path, options):
    times = pandas.date_range("2024-05-31", periods=120, freq="h")
    frame = pandas.DataFrame({"t": times, "a": np.sin(np.arange(120)), "b": np.arange(120.0)})
    if "--long" in options:  # of which tauflow forecast reads none
        frame = frame.melt("t", var_name="item").sort_values("t")
    else:
        frame = frame.drop(columns="t")
    frame.to_csv(tmp_path / "series.csv", index=False)
    options = [*options, "--window", 20]
    assert suggested(call("inspect", "series.csv", *options, "--horizon", 1).output)[0] == "run"
    refused = " ".join(call("inspect", "series.csv", *options, "--horizon", 3).output.split())
    assert "Suggested command" not in refused
    assert "No command forecasts 3 rows of it: tauflow forecast needs times" in refused
    words = suggested(call("inspect", "series.csv", *options[:2]).output)
    assert words[:2] == ["run", "series.csv"]
