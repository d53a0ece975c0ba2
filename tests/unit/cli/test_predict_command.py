"""``tauflow predict``: what was trained is used."""

import csv
import re

import pytest

from tauflow.errors import TimeError


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
    assert call(*words, "--out", "answers.csv").output == "answers.csv: 2 answers\n"
    assert (tmp_path / "answers.csv").read_text() == printed
    assert call(*words, "--proba").stdout.startswith("patient,n,y\nx,0.")
    assert not list(tmp_path.glob(".*"))


def test_a_refused_file_leaves_the_old_answers(call, trained, tmp_path):
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,2,1\nx,1,3\n")
    (tmp_path / "answers.csv").write_text("old")
    words = ["predict", trained, "--csv", "new.csv", "--out", "answers.csv"]
    failed = call(*words, code=1)
    assert isinstance(failed.exception.__cause__, TimeError)
    assert "row 3, column 'hours' holds 1, before 2" in failed.output
    assert "--sort" not in failed.output  # which this command does not take
    assert (tmp_path / "answers.csv").read_text() == "old"
