"""``tauflow explain``: contributions as a table and as a picture."""

import csv
import re

import pandas
import pytest


@pytest.fixture
def trained(call, tmp_path):
    rows = [("patient", "hours", "a", "died")]
    rows += [(p, hour, p % 2 + hour, "ny"[p % 2]) for p in range(12) for hour in (0, 1, 3)]
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    words = ["--csv", "visits.csv", "--id", "patient", "--time", "hours", "--target", "died"]
    small = ["--model", "gru", "--hidden-size", 2, "--epochs", 1]
    return re.search(r"^Run: +(.*)$", call("run", *words, *small).output, re.MULTILINE)[1]


def test_contributions_are_written_and_drawn(call, trained, tmp_path):
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,0,1\nx,2,3\n07,0,0\n")
    words = ["explain", trained, "--csv", "new.csv"]
    result = call(*words, "--id", "x", "--out", "why.csv", "--plot", "x.png", "--output", "y")
    assert result.output == "why.csv: 2 rows\n"
    frame = pandas.read_csv(tmp_path / "why.csv")
    assert list(frame) == ["patient", "hours", "feature", "value", "attribution"]
    assert frame[["patient", "hours", "value"]].to_numpy().tolist() == [["x", 0, 1], ["x", 2, 3]]
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    call(*words, "--id", "07", "--out", "why.csv", "--plot", "x.svg")
    assert "<svg" in (tmp_path / "x.svg").read_text()
    printed = call(*words, "--method", "occlusion").stdout
    assert printed.startswith(
        "patient,hours,feature,value,attribution,attribution_measured\nx,0,a,"
    )
    assert re.match(
        r"feature,attribution,share\na,[\d.e-]+,1.0\n", call(*words, "--summary").stdout
    )


def test_bad_input_is_named(call, trained, tmp_path):
    (tmp_path / "new.csv").write_text("patient,hours,a\nx,0,1\ny,2,3\n")
    words = ["explain", trained, "--csv", "new.csv"]
    assert (
        "a picture of one id. Name it with --id" in call(*words, "--plot", "a.png", code=1).output
    )
    assert "must end in .png" in call(*words, "--plot", "a.gif", "--id", "x", code=1).output
    assert "'z'" in call(*words, "--id", "z", code=1).output
    assert "Name another one" in call(*words, "--out", "new.csv", code=1).output
