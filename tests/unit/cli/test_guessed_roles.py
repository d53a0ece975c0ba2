"""``run`` and ``tune`` without roles, or with one that seems to be forgotten."""

import html
import re
import shlex

import numpy as np
import pandas
import pytest

from tauflow.cli.table_options import format_cli_options, resolve_source

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


def test_without_roles_they_are_guessed_and_told(call, file, tmp_path):
    file(visits(sex=np.repeat([0, 1], 75), died=np.repeat([0, 1, 0], 50)))
    output = call("run", "t.csv", *SMALL).output
    assert "The same in full: --id ptnum --time days --target died --static sex" in output
    assert "Id: 'ptnum' (30 different values; 'days' runs forward within each)." in output
    assert "Static: 'sex' (one value per id)." in output
    words = ("--id", "ptnum", "--time", "days", "--target", "died", "--static", "sex")
    told = call("run", "t.csv", *words, *SMALL).output
    assert "guessed" not in told
    first, second = (re.search(r"^Run: +(\S+)", one, re.M)[1] for one in (output, told))
    assert second == f"{first}-2"  # the same run
    assert "Roles of the columns were guessed" in (tmp_path / first / "report.html").read_text()


def test_roles_are_guessed_with_options_that_name_no_column(file):
    file(visits())
    source = resolve_source("t.csv", None, {"window": 3, "split_seed": 4})
    assert (source.table.id, source.table.window, source.table.split_seed) == ("ptnum", 3, 4)


def test_many_merged_rows_are_asked_for_by_name(call, file):
    file(visits(days=np.tile([0, 0, 10, 20, 50], 30)))
    error = call("run", "t.csv", *SMALL, code=1).stderr
    assert "30 of 150 rows, with the same id and time as an earlier one" in error
    words = shlex.split(error.rpartition("if this is right: ")[2])
    assert words == ["--id", "ptnum", "--time", "days", "--duplicates", "mean"]
    assert "30 of 150 rows" in call("run", "t.csv", *words, *SMALL).output


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_forgotten_id_is_an_error(call, file, command):
    file(visits(days=np.arange(150), visit=np.tile(range(5), 30)))
    error = call(command, "t.csv", "--time", "visit", code=1).stderr
    assert "looks like 30 sequences by 'ptnum'" in error
    assert "Give --id ptnum, or --id none for one sequence." in error


def test_id_none_is_one_sequence(call, file):
    file(visits(days=np.arange(150)))
    assert resolve_source("t.csv", None, {"time": "days", "id": "none"}).table.id is None
    output = call("run", "t.csv", "--time", "days", "--id", "none", *SMALL).output
    assert "cut by time" in output
    file(visits(none=1).rename(columns={"ptnum": "none", "none": "b"}))
    assert resolve_source("t.csv", None, {"time": "days", "id": "none"}).table.id == "none"


def test_a_forgotten_long_form_is_an_error(call, file):
    frame = visits(other=1.0).melt(["ptnum", "days"], var_name="what", value_name="value")
    file(frame)
    error = call("run", "t.csv", "--id", "ptnum", "--time", "days", code=1).stderr
    assert "looks like a long table, with a single value, 'value', per row" in error
    assert "Give --long what,value, or --long none." in error
    said = {"id": "ptnum", "time": "days", "duplicates": "last"}
    assert resolve_source("t.csv", None, {**said, "long": ("none",)}).table.long is None
    assert resolve_source("t.csv", None, {**said, "long": ("what", "value")}).table.long is not None


def test_what_cannot_be_read_names_the_columns(call, file):
    file(visits(days="later"))
    error = call("run", "t.csv", code=1).stderr
    assert "no column was given a role, and guessed ones do not fit" in error
    assert "'days' is named like a time, and cannot be read as one" in error
    assert "column 'days' holds 'later'" in error
    dates = pandas.to_datetime(visits()["days"], unit="D")
    mixed = dates.dt.strftime("%Y-%m-%d").where(dates.index > 0, dates.dt.strftime("%d.%m.%Y"))
    zoned = dates.astype(str).where(dates.index != 5, dates.astype(str) + " 00:00+01:00")
    for days, row in ((mixed, 2), (zoned, 7)):
        file(visits(days=days))
        assert f"t.csv, row {row}, column 'days' holds" in call("run", "t.csv", code=1).stderr


def test_options_are_written_as_a_command_line_reads_them():
    said = {
        "id": "a b",
        "target": ("y",),
        "features": ("x", "u, v"),
        "per_step": False,
        "scale": False,
        "sort": True,
        "na_values": ("-", "nil"),
        "horizon": 3,
    }
    assert shlex.join(format_cli_options(said)) == (
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
    output = call("run", "t.csv", *SMALL).output
    assert warning in " ".join(output.split())
    report = tmp_path / re.search(r"^Run: +(\S+)", output, re.M)[1] / "report.html"
    assert warning in html.unescape(report.read_text())
    assert "alone predicts" not in call("inspect", file(frame.drop(columns="days_to_death"))).output
