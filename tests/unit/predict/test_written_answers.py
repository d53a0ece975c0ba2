"""Answers are on disk before a file has their name, whatever its format."""

import os

import pandas
import pytest

from tauflow.predict.prediction_files import write_predictions

FRAMES = [pandas.DataFrame({"id": [1, 2], "y": [0.5, -1.0]}), pandas.DataFrame({"id": [3], "y": 2})]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_a_file_is_whole_and_on_disk_when_it_appears(name, tmp_path, monkeypatch):
    read = pandas.read_csv
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
        read = pandas.read_parquet
    sizes, fsync, path = [], os.fsync, tmp_path / name

    def recorded(number):
        if not path.exists():
            sizes.append(os.fstat(number).st_size)
        fsync(number)

    monkeypatch.setattr(os, "fsync", recorded)
    assert write_predictions(iter(FRAMES), path) == 3
    assert sizes == [path.stat().st_size]
    assert read(path).equals(pandas.concat(FRAMES, ignore_index=True))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["26:05:00", "01:00:00", None], ["26:05", "01:00", ""]),
        (["26:05:30", "01:00:00"], ["26:05:30", "01:00:00"]),
        (["00:00:00.5"], ["0 days 00:00:00.500000"]),
    ],
)
def test_elapsed_times_are_written_as_tables_have_them(tmp_path, times, expected):
    frame = pandas.DataFrame({"time": pandas.to_timedelta(times), "y": 1})
    write_predictions([frame], tmp_path / "a.csv")
    lines = (tmp_path / "a.csv").read_text().splitlines()[1:]
    assert [line.removesuffix(",1") for line in lines] == expected


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_answers_that_end_in_an_error_leave_the_old_file(name, tmp_path):
    def answers():
        yield FRAMES[0]
        raise KeyError("a cell of the second piece")

    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(KeyError):
        write_predictions(answers(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
