"""``tauflow impute`` and ``tauflow score``: gaps and surprises of a table."""

import re

import numpy as np
import pandas
import pytest


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (p, hour, p + hour if rng.random() > 0.2 else None, rng.normal(), "nurse")
        for p in range(12)
        for hour in (0, 1, 3, 4)
    ]
    frame = pandas.DataFrame(rows, columns=["patient", "hours", "a", "b", "by"])
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return frame


def test_gaps_are_filled_and_what_was_measured_stays(call, table, tmp_path):
    words = ["impute", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    result = call(*words, "--model", "gru", "--hidden-size", 2, "--out", "filled.csv")
    count = int(table["a"].isna().sum())
    assert f"filled.csv: 48 rows, {count} values filled\n" in result.stdout
    assert "RMSE on hidden values of 2 ids not trained on" in result.stderr
    assert re.search(r"imputer +linear interpolation +last value +mean", result.stderr)
    frame = pandas.read_csv(tmp_path / "filled.csv")
    assert list(frame) == list(table)
    assert frame["a"].notna().all()
    pandas.testing.assert_series_equal(frame["a"][table["a"].notna()], table["a"].dropna())
    refused = call(*words, "--out", "visits.csv", code=1).output
    assert "is the file of the rows. Name another one" in refused
    words[3] = "person"
    result = call(*words, "--out", "x.csv", code=1).output
    assert "has no column 'person' (id). Its columns: patient, hours, a, b, by" in result


def test_surprises_are_listed(call, table, tmp_path):
    table["a"] = table["a"].fillna(1.0)
    table[["patient", "hours", "a", "b"]].to_csv(tmp_path / "visits.csv", index=False)
    words = ["--csv", "visits.csv", "--id", "patient", "--time", "hours", "--task", "next-step"]
    small = ["--model", "gru", "--hidden-size", 2, "--epochs", 1]
    run = re.search(r"^Run: +(.*)$", call("run", *words, *small).output, re.MULTILINE)[1]
    changed = table[["patient", "hours", "a", "b"]].copy()
    changed.loc[7, "b"] = 90.0
    changed.to_csv(tmp_path / "new.csv", index=False)
    arguments = ["score", run, "--csv", "new.csv", "--calibrate", "visits.csv", "--below", 0.03]
    printed = call(*arguments).stdout.splitlines()
    assert printed[0] == "patient,hours,feature,value,forecast,score,probability"
    cells = next(line.split(",") for line in printed if line.startswith("1,4,b,"))
    assert float(cells[3]) == pytest.approx(90.0)
    assert float(cells[6]) == pytest.approx(1 / 37)  # larger than all of 12 ids, 3 rows each
    assert re.fullmatch(r"s\.csv: \d+ values?\n", call(*arguments, "--out", "s.csv").output)


def test_ids_stay_as_the_file_writes_them(call, tmp_path):
    lines = ["patient;hours;a"]
    for p in range(6):
        lines += [f"00{p};{hour};{'' if hour == 1 else f'{p + hour},5'}" for hour in range(4)]
    (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
    words = ["impute", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1]
    small = ["--model", "gru", "--hidden-size", 2, "--delimiter", ";", "--decimal", ","]
    call(*words, *small, "--out", "filled.csv")
    frame = pandas.read_csv(tmp_path / "filled.csv", dtype=str)
    assert frame["patient"].tolist() == [f"00{p}" for p in range(6) for _ in range(4)]
    assert frame["a"].notna().all()
    assert frame["a"][0] == "0.5"


IMPUTE = ("impute", "visits.csv", "--id", "patient", "--time", "hours", "--epochs", 1)
SMALL = ("--model", "gru", "--hidden-size", 2, "--out", "filled.csv")


@pytest.mark.parametrize("command", ["impute", "forecast"])
def test_numbers_with_text_among_them_are_no_text_to_leave_out(call, table, tmp_path, command):
    table["b"] = table["b"].astype(object)
    table.loc[5, "b"] = "<0.5"
    table.to_csv(tmp_path / "visits.csv", index=False)
    words = [command, *IMPUTE[1:], *SMALL]
    words += ["--max-lead-time", 3, "--at", 1] if command == "forecast" else []
    output = call(*words, code=1).output
    assert "visits.csv, row 7, column 'b' holds '<0.5', expected a finite number" in output
    table.loc[5, "b"] = "-"
    table.to_csv(tmp_path / "visits.csv", index=False)
    assert "(--missing=-)" in call(*words, code=1).output
    output = call(*words, "--missing=-")
    assert "Left out, as they hold no numbers: by." in output.stderr


@pytest.mark.filterwarnings("ignore:features without a value")
def test_values_that_stay_missing_are_not_counted_as_filled(call, table, tmp_path):
    table.assign(c=None).to_csv(tmp_path / "visits.csv", index=False)
    count = int(table["a"].isna().sum())
    for features, more in ([], ", c."), (["--features", "a,c"], None):
        result = call(*IMPUTE, *SMALL, *features)
        assert f"filled.csv: 48 rows, {count} values filled" in result.stdout
        assert more is None or more in result.stderr


@pytest.mark.parametrize("option", ["--features", "--static"])
def test_columns_that_are_not_there_are_named(call, table, option):
    output = call(*IMPUTE, *SMALL, option, "bb", code=1).output
    assert "visits.csv has no column 'bb'" in output
    assert "Did you mean 'b'?" in output


def test_a_column_has_one_role(call, table):
    output = call(*IMPUTE, *SMALL, "--features", "a,hours", code=1).output
    assert "column 'hours' is a feature, and is named as id, time or static too" in output


def test_dates_in_another_form_and_order_are_read(call, table, tmp_path):
    hours = pandas.to_timedelta(table["hours"], unit="h")
    table["hours"] = (pandas.Timestamp("2024-01-31 23:00") + hours).dt.strftime("%d.%m.%Y %H:%M")
    mixed = table.sample(frac=1, random_state=0)
    mixed.to_csv(tmp_path / "visits.csv", index=False)
    output = call(*IMPUTE, *SMALL, code=1).output
    assert "(--time-format '%d.%m.%Y %H:%M')" in output
    form = ["--time-format", "%d.%m.%Y %H:%M"]
    assert "or pass sort=True (--sort)" in call(*IMPUTE, *SMALL, *form, code=1).output
    assert "Sorted by time" in call(*IMPUTE, *SMALL, *form, "--sort").stderr
    frame = pandas.read_csv(tmp_path / "filled.csv")
    assert frame["patient"].tolist() == mixed["patient"].tolist()
    there = mixed["a"].notna().to_numpy()
    assert np.allclose(frame["a"][there], mixed["a"][there])
    assert frame["hours"][0] == str(pandas.to_datetime(mixed["hours"].iloc[0], format=form[1]))


def test_time_zones_stay(call, table, tmp_path):
    pytest.importorskip("pyarrow")
    times = pandas.Timestamp("2024-03-30 22:30", tz="Europe/Berlin")
    table["hours"] = times + pandas.to_timedelta(table["hours"], unit="h")
    table.to_parquet(tmp_path / "visits.parquet")
    call("impute", "visits.parquet", *IMPUTE[2:], *SMALL[:-1], "filled.parquet")
    frame = pandas.read_parquet(tmp_path / "filled.parquet")
    assert str(frame["hours"].dt.tz) == "Europe/Berlin"
    assert (frame["hours"] == table["hours"]).all()


@pytest.mark.parametrize("command", ["impute", "forecast"])
def test_scores_stand_beside_their_columns(call, table, tmp_path, command):
    table["by"] = np.where(table["patient"] % 2, "nurse", "robot")
    table["b"] *= 1e6
    table.to_csv(tmp_path / "visits.csv", index=False)
    words = [command, *IMPUTE[1:], *SMALL, "--features", "by,a,b"]
    words += ["--max-lead-time", 3, "--at", 1] if command == "forecast" else []
    output = call(*words).stderr
    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line[:2] in "a b "}
    assert float(rows["a"][-1]) < 100 < 1e5 < float(rows["b"][-1])
    assert "robot" not in output
