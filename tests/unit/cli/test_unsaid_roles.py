"""``run`` and ``tune`` without roles print what the columns seem to be."""

import html
import re
import shlex

import numpy as np
import pandas
import pytest

from tauflow.cli.table_options import format_cli_options, resolve_source
from tauflow.errors import ArgumentError

SMALL = ("--epochs", 1, "--model", "gru", "--hidden-size", 2)


def visits(**columns):
    frame = pandas.DataFrame(
        {
            "ptnum": np.repeat(np.arange(30), 5),
            "days": np.tile([0, 3, 10, 20, 50], 30),
            "fev": np.random.default_rng(0).normal(size=150),
        }
    )
    return frame.assign(**columns)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(frame):
        frame.to_csv(tmp_path / "t.csv", index=False)
        return "t.csv"

    return written


@pytest.mark.parametrize("command", ["run", "tune"])
def test_without_roles_columns_and_options_are_printed(call, file, command):
    file(visits(sex=np.repeat([0, 1], 75), died=np.repeat([0, 1, 0], 50)))
    error = call(command, "t.csv", *SMALL[2:4], code=1).stderr
    assert "nothing says which column of t.csv is the id or the time" in error
    assert re.search(r"^ *ptnum +whole numbers, 30 different +id$", error, re.M)
    words = shlex.split(error.rpartition("The columns look like this:")[2])
    assert words == ["--id", "ptnum", "--time", "days", "--target", "died", "--static", "sex"]
    assert "30 ids" in call("run", "t.csv", *words, *SMALL).output


def test_options_that_name_no_column_are_not_enough(file):
    file(visits())
    for roles in ({}, {"window": 3, "split_seed": 4}, {"target": ("fev",)}):
        with pytest.raises(ArgumentError, match=r"--id, --time; none if no column is"):
            resolve_source("t.csv", None, roles)
    assert resolve_source("t.csv", None, {"id": "ptnum"}).table.id == "ptnum"


def test_many_merged_rows_have_no_command(call, file):
    file(visits(days=np.tile([0, 0, 10, 20, 50], 30)))
    error = call("run", "t.csv", *SMALL, code=1).stderr
    assert "30 rows of 150 have the time of another one of their id" in error
    words = ["--id", "ptnum", "--time", "days", "--duplicates", "mean"]
    assert "30 of 150 rows" in call("run", "t.csv", *words, *SMALL).output


def test_a_forgotten_id_is_an_error(call, file):
    file(visits(days=np.arange(150), visit=np.tile(range(5), 30)))
    error = call("run", "t.csv", "--time", "visit", *SMALL, code=1).stderr
    assert "time runs backwards" in error
    assert "name the column that tells them apart: id (--id)" in error


def test_id_none_is_one_sequence(call, file):
    file(visits(days=np.arange(150)))
    assert resolve_source("t.csv", None, {"time": "days", "id": "none"}).table.id is None
    output = call("run", "t.csv", "--time", "days", "--id", "none", *SMALL).output
    assert "cut by time" in output
    file(visits(none=1).rename(columns={"ptnum": "none", "none": "b"}))
    assert resolve_source("t.csv", None, {"time": "days", "id": "none"}).table.id == "none"


def test_what_cannot_be_read_is_said(call, file):
    file(visits(days="later"))
    error = call("run", "t.csv", code=1).stderr
    assert "They cannot be read as they seem to be: column 'days' is named like a time" in error
    dates = pandas.to_datetime(visits()["days"], unit="D")
    mixed = dates.dt.strftime("%Y-%m-%d").where(dates.index > 0, dates.dt.strftime("%d.%m.%Y"))
    file(visits(days=mixed))
    assert "t.csv, row 2, column 'days' holds" in call("run", "t.csv", code=1).stderr


def test_options_are_written_as_a_command_line_reads_them():
    options = {
        "id": "a b",
        "target": ("y",),
        "features": ("x", "u, v"),
        "per_step": False,
        "scale": False,
        "sort": True,
        "na_values": ("-", "nil"),
        "horizon": 3,
    }
    assert shlex.join(format_cli_options(options)) == (
        "--id 'a b' --target y --features 'x,\"u, v\"' --per-id --sort --no-scale --horizon 3 "
        "--missing=-,nil"
    )


def test_inspect_keeps_what_is_given(call, file):
    file(visits(died=np.repeat([0, 1, 0], 50), born="2000-01-01"))
    output = call("inspect", "t.csv", "--target", "fev").output
    (words,) = re.findall(r"^  tauflow (run .*)$", output, re.M)
    assert words == "run t.csv --id ptnum --time days --target fev --features died --static died"


def test_inspect_counts_in_words(call, file):
    file(visits()[:5].assign(ptnum=1))
    output = call("inspect", "t.csv").output
    assert "1 sequence of 5 rows." in output
    file(visits())
    assert "30 sequences of 5 rows." in call("inspect", "t.csv").output


def test_a_feature_that_predicts_the_target_alone_is_named_everywhere(call, file, tmp_path):
    died = np.repeat(np.arange(90) % 3 == 0, 5).astype(int)
    frame = pandas.DataFrame(
        {
            "ptnum": np.repeat(np.arange(90), 5),
            "days": np.tile([0, 3, 10, 20, 50], 90),
            "fev": np.random.default_rng(0).normal(size=450),
            "died": died,
            "days_to_death": np.where(died, 77.0, np.nan),
        }
    )
    warning = "'died' on the training split (AUROC of at least 0.995): 'days_to_death' (1)."
    assert warning in " ".join(call("inspect", file(frame)).output.split())
    words = ("--id", "ptnum", "--time", "days", "--target", "died")
    output = call("run", "t.csv", *words, *SMALL).output
    assert warning in " ".join(output.split())
    report = tmp_path / re.search(r"^Run: +(\S+)", output, re.M)[1] / "report.html"
    assert warning in html.unescape(report.read_text())
    assert "alone predicts" not in call("inspect", file(frame.drop(columns="days_to_death"))).output
