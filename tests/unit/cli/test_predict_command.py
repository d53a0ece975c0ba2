"""``tauflow predict``: what was trained is used."""

import csv
import errno
import gzip
import re
from contextlib import nullcontext
from pathlib import Path

import pandas
import pytest
from matplotlib.figure import Figure

from tauflow import GRU, Predictor, SequenceModel
from tauflow.data import from_table
from tauflow.errors import ArgumentError, TimeError
from tauflow.predict.prediction_files import write_predictions


@pytest.fixture
def trained(call, tmp_path):
    rows = [("patient", "hours", "a", "died")]
    rows += [(p, hour, p % 2 + hour, "ny"[p % 2]) for p in range(12) for hour in (0, 1, 3)]
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    words = ["--csv", "visits.csv", "--id", "patient", "--time", "hours", "--target", "died"]
    small = ["--model", "gru", "--hidden-size", 2, "--epochs", 1]
    return re.search(r"^Run: +(.*)$", call("run", *words, *small).output, re.MULTILINE)[1]


def test_answers_are_printed_or_written(call, trained, tmp_path):
    (tmp_path / "new.csv").write_text("patient;hours;a\nx;0;1\nx;2;3\ny;0;0\n")
    words = ["predict", trained, "--csv", "new.csv", "--delimiter", ";"]
    printed = call(*words).stdout
    assert re.fullmatch(r"patient,died\nx,[ny]\ny,[ny]\n", printed)
    assert call(*words, "--out", "predictions.csv").output == "predictions.csv: 2 answers\n"
    assert (tmp_path / "predictions.csv").read_text() == printed
    assert call(*words, "--proba").stdout.startswith("patient,n,y\nx,0.")
    refused = call(*words, "--out", tmp_path / "new.csv", code=1).output
    assert "is the file of the new rows, --csv. Name another one" in refused
    assert (tmp_path / "new.csv").read_text() == "patient;hours;a\nx;0;1\nx;2;3\ny;0;0\n"
    assert not list(tmp_path.glob(".*"))


def test_answers_come_in_the_format_that_the_name_says(call, trained, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,0,1\nx,2,3\n07,0,0\n")
    words = ["predict", trained, "--csv", "new.csv", "--proba"]
    printed = call(*words).stdout
    for name in ("answers.parquet", "answers.PQ"):
        assert call(*words, "--out", name).output == f"{name}: 2 answers\n"
        frame = pandas.read_parquet(tmp_path / name)
        assert frame.to_csv(index=False) == printed
        assert frame["patient"].tolist() == ["x", "07"]
    call(*words, "--out", "predictions.csv.gz")
    assert gzip.decompress((tmp_path / "predictions.csv.gz").read_bytes()).decode() == printed
    assert b"partial" not in (tmp_path / "predictions.csv.gz").read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("answers.xlsx", "would be CSV, which its name does not say"),
        ("answers.json.zip", "would be CSV, which its name does not say"),
        (".", "it is a folder. Add a file name"),
        ("none/predictions.csv", "there is no folder none. Create it first"),
    ],
)
def test_files_that_cannot_be_answers_are_refused_before(call, trained, monkeypatch, out, words):
    monkeypatch.setattr("tauflow.predict.load_predictor", None)
    for command in ("predict", "score", "explain", "backtest"):
        output = call(command, trained, "--csv", "visits.csv", "--out", out, code=1).output
        assert words in output


def test_decimals_may_be_written_otherwise_than_in_training(call, trained, tmp_path):
    (tmp_path / "points.csv").write_text("patient,hours,a\nx,0.5,1.5\nx,2,3\n")
    (tmp_path / "commas.csv").write_text("patient;hours;a\nx;0,5;1,5\nx;2;3\n")
    words = ["predict", trained, "--proba", "--csv"]
    others = ["--delimiter", ";", "--decimal", ","]
    assert call(*words, "commas.csv", *others).stdout == call(*words, "points.csv").stdout
    refused = call(*words, "commas.csv", *others[:2], code=1).output
    assert "decimals with a point. Or pass decimal=',' (--decimal)." in refused


def test_what_parquet_cannot_hold_is_said_and_leaves_the_old_answers(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "answers.parquet"
    path.write_text("old")
    twice = pandas.DataFrame([[1, 2]], columns=["patient", "patient"])
    with pytest.raises(ArgumentError, match=r"cannot hold these .* as CSV: answers\.csv\."):
        write_predictions([twice], path)
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["answers.parquet"]


def test_a_refused_file_leaves_the_old_answers(call, trained, tmp_path):
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,2,1\nx,1,3\n")
    (tmp_path / "predictions.csv").write_text("old")
    words = ["predict", trained, "--csv", "new.csv", "--out", "predictions.csv"]
    failed = call(*words, code=1)
    assert isinstance(failed.exception.__cause__, TimeError)
    assert "row 3, column 'hours' holds 1, before 2" in failed.output
    assert "--sort" not in failed.output  # which this command does not take
    assert (tmp_path / "predictions.csv").read_text() == "old"


def test_intervals_spreads_and_tidy_rows(call, tmp_path):
    rows = [("patient", "hours", "a", "dose")]
    rows += [(p, hour, p % 5 + hour, p % 5 + 0.1 * hour) for p in range(60) for hour in (0, 1, 3)]
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    table = ["--csv", "visits.csv", "--id", "patient", "--time", "hours", "--target", "dose"]
    small = ["--model", "gru", "--hidden-size", 2, "--epochs", 1, "--ensemble", 2]
    printed = call("run", *table, *small, "--intervals", "gaussian").output
    run = re.search(r"^Run: +(.*)$", printed, re.MULTILINE)[1]
    assert "seeds 0 to 1" in printed
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,0,1\nx,2,3\n")
    words = ["predict", run, "--csv", "new.csv"]
    header, *answers = call(*words, "--interval", 80, "--spread").stdout.splitlines()
    assert header == "patient,hours,dose,dose low,dose high,dose std"
    assert len(answers) == 2
    header, *answers = call(*words, "--interval", 80, "--tidy").stdout.splitlines()
    assert header == "patient,hours,target,quantile,value"
    assert [line.split(",")[3] for line in answers] == ["0.1", "", "0.9"] * 2
    assert "Give 90 for 90 %" in call(*words, "--interval", 0.9, code=1).output
    assert "is no rule" in call("run", *table, "--threshold", "best", code=1).output
    assert "tauflow" not in call("show", run).output.splitlines()[0]


def test_forecasts_of_a_predictor_are_tried_on_the_past(call, tmp_path, monkeypatch):
    rows = [("hour", "load")] + [(h, round(10 + (h % 6) + 0.01 * h, 2)) for h in range(120)]
    for name, part in (("train.csv", rows[:90]), ("all.csv", rows)):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(part)
    data = from_table(tmp_path / "train.csv", time="hour", task="next-step", window=6, horizon=2)
    network = GRU(data.card.input_size, 2, return_sequences=False)
    Predictor.from_data(SequenceModel(network, data.card.target_size), data).save(
        run := tmp_path / "predictor.safetensors"
    )
    words = ["backtest", run, "--csv", "all.csv", "--origins", 5]
    out = ["--season", 6, "--out", "found.csv", "--plot", "found.png"]
    shown = call(*words, *out).output
    assert re.search(r"^Predictor +1 +[\d.]+", shown, re.MULTILINE)
    assert re.search(r"^seasonal naive +2 +0\.06 ", shown, re.MULTILINE)  # 6 rows at 0.01
    backtest_table = pandas.read_csv(tmp_path / "found.csv")
    assert len(backtest_table) == 5 * 5 * 2
    assert (tmp_path / "found.png").stat().st_size > 1_000
    assert "must end in .png" in call(*words, "--plot", "found.txt", code=1).output
    assert call("predict", run, "--csv", "all.csv").stdout.splitlines()[0] == (
        "hour,from,step,target,value"
    )

    def fill_disk(figure, file, **options):
        with open(file, "wb") if isinstance(file, Path) else nullcontext(file) as stream:
            stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    before = (tmp_path / "found.png").read_bytes()
    monkeypatch.setattr(Figure, "savefig", fill_disk)
    assert "found.png" in call(*words, "--plot", "found.png", code=1).output
    assert (tmp_path / "found.png").read_bytes() == before


def test_an_unknown_calibration_is_refused_before_training(call, trained, tmp_path):
    words = ["--csv", "visits.csv", "--id", "patient", "--time", "hours", "--target", "died"]
    before = sorted(tmp_path.rglob("run.json"))
    output = call("run", *words, "--epochs", 1, "--calibrate", "platt", code=1).output
    assert "calibrate='platt' is unknown" in output
    assert sorted(tmp_path.rglob("run.json")) == before
