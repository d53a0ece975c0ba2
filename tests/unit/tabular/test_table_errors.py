import gzip

import numpy as np
import pandas
import pytest
from own_tables import changed, visits, write

from tauflow.data import TableOptions, from_table, read_csv
from tauflow.errors import ArgumentError, DataError, DataNotFoundError, UnknownNameError

SAID = {"id": "patient", "time": "hours", "target": "died", "features": ["a", "b"]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            changed("a", 7, "high"),
            "row 9, column 'a' holds 'high', expected a finite number. Write",
        ),
        (changed("b", 35, "1,5"), "row 37, column 'b' holds '1,5', .*decimals with a point"),
        (changed("a", 0, "inf"), "row 2, column 'a' holds 'inf', expected a finite"),
        (changed("a", 0, 10**400), "row 2, column 'a' holds '1000000.*expected a finite"),
        (changed("a", 0, "1_0"), "row 2, column 'a' holds '1_0', expected a finite"),
        (changed("a", 5, "TRUE"), "row 7, column 'a' holds 'TRUE', expected a finite"),
        (changed("a", 2, "1.8e308"), "row 4, column 'a' holds 'inf', expected a finite"),
        (
            changed("a", 2, 1.7e308),
            r"row 4, column 'a' holds '1.7e\+308', .* up to 3.4e\+38, the la",
        ),
        (changed("patient", 3, None), "row 5, column 'patient' is empty, expected an id"),
        ({"a": [None] * 36, "b": [None] * 36}, "no feature has a value in the training split"),
        ({"died": [None] * 36}, "column 'died' is empty in every row"),
        ({"died": ["no"] * 36}, "'died' holds 'no' in every row: there is only one class"),
    ],
)
def test_cells_are_named_by_row_and_column(tmp_path, table, message):
    with pytest.raises(DataError, match=message):
        read_csv(write(tmp_path / "visits.csv", visits(**table)), **SAID)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"id": "Patient"},
            r"no column 'Patient' \(id\). Did you mean 'patient'\?.*: patient, hours",
        ),
        ({"time": "hour"}, r"'hour' \(time\). Did you mean 'hours'"),
        ({"target": "dead"}, r"'dead' \(target\). Did you mean 'died'"),
        ({"features": ["a", "bb"]}, r"'bb' \(feature\)"),
        ({"task": "regresion"}, "Did you mean 'regression'"),
        ({"missing": "mask"}, "Choose from: observed, inputs"),
    ],
)
def test_unknown_names(options, message):
    with pytest.raises(UnknownNameError, match=message):
        from_table(visits(), **{**SAID, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "a,b"}, "features must be a list of column names, got 'a,b'"),
        ({"features": []}, "Name at least one"),
        ({"features": ["a", "died"]}, "'died' is the target; a model would read off the answer"),
        ({"features": ["patient"]}, "column 'patient' is the id"),
        ({"features": ["a", "a"]}, "column 'a' is named twice"),
        ({"target": "patient"}, "column 'patient' is named as id and as target"),
        ({"target": "hours"}, "column 'hours' is named as time and as target"),
        ({"target": None, "task": "regression"}, "task='regression' needs a target"),
        ({"target": None, "per_step": False}, "next-step prediction has a target at every step"),
        (
            {"target": "b", "features": ["a"], "per_step": False},
            r"row 1 \(counted from 0\), column 'b' holds '1.0', but row 0 of the same id, 'p00'",
        ),
        ({"time": None, "sort": True}, "time_unit and sort are for a column of times"),
        ({"time": None, "time_unit": "h"}, "time_unit and sort are for a column of times"),
        ({"split": (0.8, 0.2)}, "split must be three numbers"),
        ({"split": (0.8, 0.2, 0.0)}, "must leave something for training and test"),
        ({"split": (0.8, -0.2, 0.4)}, "split must be a number of 0 or more"),
        ({"split_seed": -1}, "split_seed must be at least 0"),
        ({"split_seed": 2**32}, r"split_seed must be less than 2\*\*32 = 4294967296"),
        ({"id": 0}, r"column of the id must be named by text, got 0 \(int\).* is '0' here"),
        ({"id": ["patient"]}, "column of the id must be named by text"),
        ({"features": ["a", 5]}, "column of the feature must be named by text, got 5"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(ArgumentError, match=message):
        from_table(visits(), **{**SAID, **options})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 2]], "must be a pandas DataFrame, or a mapping of column names to arrays"),
        ({"patient": [1, 2], "a": [1]}, "equally long, got patient: 2, a: 1"),
        ({"patient": [1, 2], "a": np.ones((2, 3))}, r"'a' has shape \(2, 3\), expected one value"),
    ],
)
def test_things_that_are_no_table(table, message):
    with pytest.raises(ArgumentError, match=message):
        from_table(table, id="patient")


@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
@pytest.mark.parametrize("resolution", ["ns", "us", "ms", "s", "h", "D"])
def test_dates_and_durations_are_no_numbers(kind, resolution):
    moments = np.arange(36).astype(f"{kind}[{resolution}]")
    word = "dates" if kind == "datetime64" else "durations"
    message = rf"column 'a' holds {word} \({kind}\[{resolution}\]\), expected numbers"
    undated = np.full(36, "NaT", moments.dtype)
    for a in (moments, undated):
        with pytest.raises(DataError, match=message):
            from_table(visits(a=a), **SAID)
    with pytest.raises(DataError, match=message):
        from_table(visits(a=moments), id="patient", time="hours", features=["a", "b"])
    for task in (None, "classification", "regression"):
        with pytest.raises(DataError, match=message):
            from_table(visits(a=moments), **{**SAID, "target": "a", "features": ["b"]}, task=task)


@pytest.mark.parametrize("resolution", ["ns", "us", "ms", "s"])
def test_dates_of_frames_are_no_numbers(resolution):
    frame = pandas.DataFrame(visits())
    frame["a"] = pandas.to_datetime(frame["a"], unit="h").astype(f"datetime64[{resolution}]")
    with pytest.raises(DataError, match="Divide durations, or dates minus a first one, by a unit"):
        from_table(frame, **SAID)
    frame["a"] = (frame["a"] - frame["a"].min()) / np.timedelta64(1, "h")
    assert from_table(frame, **SAID).schema.inputs == ("a", "b")
    frame["a"] = pandas.to_datetime(frame["a"], unit="h").dt.tz_localize("Europe/Berlin")
    with pytest.raises(DataError, match=r"column 'a' holds dates \(datetime64.*expected numbers"):
        from_table(frame, **SAID)


@pytest.mark.parametrize("form", ["{:.0f}%", "$ {:.2f}", "{:.1f} \u20ac", "\u2212{:.1f}"])
def test_numbers_with_signs_are_no_texts(form):
    signed = visits(a=[form.format(abs(number)) for number in visits()["a"]])
    with pytest.raises(DataError, match=r"column 'a' holds .*Write the number alone"):
        from_table(signed, **SAID)
    with pytest.raises(DataError, match=r"seem to be numeric. Write the number alone"):
        from_table(signed, **{**SAID, "target": "a", "features": ["b"]})


def test_what_may_be_lost_is_said(tmp_path):
    def find_notes(table, word, **options):
        return [note for note in from_table(table, **options).card.notes if word in note]

    assert not find_notes(visits(), "Warning", **SAID)
    unknown = visits(a=np.where(np.arange(len(visits()["a"])) % 5, visits()["a"], -999))
    (note,) = find_notes(unknown, "Warning", **SAID)
    assert "-999 in 'a'" in note
    assert "na_values=['-999'] (--missing=-999)" in note
    assert not find_notes(unknown, "-999 in", **SAID, na_values=["-999"])

    write(tmp_path / "visits.csv", visits(a=np.arange(36.0) + 50, b=np.arange(36.0) % 5 + 9))
    names, *rows = (tmp_path / "visits.csv").read_text(encoding="utf-8").splitlines()
    cells = dict(zip(names.split(","), rows[0].split(","), strict=True))
    (tmp_path / "rows.csv").write_text("\n".join(rows), encoding="utf-8")
    roles = {role: cells[SAID[role]] for role in ("id", "time", "target")}
    (note,) = find_notes(tmp_path / "rows.csv", "row 1 is read as names", **roles)
    assert "put one before it" in note

    frame = pandas.DataFrame(visits()).set_index("hours")
    roles = {name: value for name, value in SAID.items() if name != "time"}
    (note,) = find_notes(frame, "index of the frame", **roles)
    assert "hours, is not read: reset_index()" in note
    with pytest.raises(UnknownNameError, match=r"no column 'hours' \(time\).*reset_index\(\)"):
        from_table(frame, **SAID)


def test_a_column_called_as_another_input():
    named = visits()
    named["a measured"] = named["b"]
    features = {**SAID, "features": ["a", "a measured"]}
    assert from_table(named, missing="inputs", **features).schema.inputs == ("a", "a measured")
    named["a"] = [None, *named["a"][1:]]
    with pytest.raises(ArgumentError, match="several columns are called 'a measured'"):
        from_table(named, missing="inputs", **features)
    named = visits(a=["x", "y"] * (len(visits()["a"]) // 2))
    named["a=x"] = named["b"]
    with pytest.raises(ArgumentError, match="several columns are called 'a=x'"):
        from_table(named, **{**SAID, "features": ["a", "a=x"]})


def test_an_empty_table():
    with pytest.raises(DataError, match="the table holds no rows"):
        from_table({"patient": [], "a": []}, id="patient")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"file\.csv is empty\. Its first row has to name the columns"),
        (b"\xef\xbb\xbf", r"file\.csv is empty\. Its first row has to name the columns"),
        (
            gzip.compress(b"", mtime=0),
            r"file\.csv is empty\. Its first row has to name the columns",
        ),
        (b" ,\r\n\n", r"file\.csv holds empty cells and lines alone\. Its first row"),
        (b"id,a\n", "holds no rows below the row of column names"),
        (b"id,a\n\n1,2\n1,2,3\n", r"row 4 has 3 cells, but there are 2 columns \(id, a\)"),
        (b"id;a\n1;2\n", "its cells seem to be separated by ';'"),
        (b"id,\n1,2\n", "row 1: column 2 has no name"),
        (b",id,a\n0,1,2\n", r"column 1 has no name.*index_label='time'.*index=False"),
        (b"# by hand\n1,2\n", r"row 2 has 2 cells, but there is 1 column.*Remove titles"),
        (b"id  a\n 1  2\n", "seem to be separated by spaces"),
        (b"id,a\n1,x\n1,\xffb\n", r"UTF-8: line 3 holds the byte 0xff; in Latin-1 it is '1,\xffb'"),
        ("id,a\n1,2\n".encode("utf-16"), "is text in UTF-16"),
        (b"PK\x03\x04\x14", "is an Excel workbook, or a zip archive"),
        (b"BZh91AY", "is compressed, and not by gzip"),
        (b"ARROW1\0\0", "is binary, such as"),
        (b"<!DOCTYPE html>", "is HTML, XML or JSON"),
        (b' [{"id": 1, "a": 2}]', "is HTML, XML or JSON"),
        (b'id,a\n1,2\n1,"3 mm" x\n1,2\n', "row 3 is not CSV .*quotation mark"),
        (b'id,a\n1,2\n1,"3 mm\n1,2\n', "row 3 is not CSV .*quotation mark"),
        (
            b'id,n,a\n1,x,2\n1,"3 mm,2\n2,x,2\n2,4",2\n1,x,3\n',
            "row 3 holds 3 lines.*swallowed rows",
        ),
    ],
)
def test_files_that_are_no_table(tmp_path, content, message):
    file = tmp_path / "file.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_csv(file, id="id")


def test_files_that_are_not_there(tmp_path):
    write(tmp_path / "visits.csv", visits())
    with pytest.raises(DataNotFoundError, match=r"no file .*Did you mean 'visits.csv'"):
        read_csv(tmp_path / "visit.csv", **SAID)


def test_two_columns_of_one_name(tmp_path):
    (tmp_path / "file.csv").write_text("id,a,a\n1,2,3\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="row 1: several columns are called 'a'"):
        read_csv(tmp_path / "file.csv", id="id")


def test_other_delimiters_and_byte_order_marks(tmp_path):
    file = write(tmp_path / "visits.csv", visits(), delimiter=";")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_csv(file, delimiter=";", **SAID).sizes == (8, 2, 2)
    with pytest.raises(ArgumentError, match="delimiter must be a single character, or 'tab'"):
        read_csv(file, delimiter=";;", **SAID)
    with pytest.raises(ArgumentError, match=r"must be a single character.*got ''"):
        read_csv(file, delimiter="", **SAID)


def test_tabs_are_named_as_the_message_says(tmp_path):
    file = write(tmp_path / "visits.tsv", visits(), delimiter="\t")
    with pytest.raises(DataError, match=r"delimiter='\\t' \(--delimiter '\\t'\)"):
        read_csv(file, **SAID)
    for delimiter in ("\t", "\\t", "tab"):
        assert read_csv(file, delimiter=delimiter, **SAID).sizes == (8, 2, 2)


def test_quoted_cells_may_hold_line_breaks_and_commas(tmp_path):
    file = write(tmp_path / "visits.csv", visits(note=["one, two,\nthree", 'a "b"', "c"] * 12))
    assert read_csv(file, **SAID).sizes == (8, 2, 2)


def test_columns_whose_names_hold_commas_are_told_apart():
    with pytest.raises(UnknownNameError, match="Its columns: patient, hours, a, b, died, 'c, d'"):
        from_table(visits(**{"c, d": [0.0] * 36}), **{**SAID, "id": "absent"})


def test_features_need_a_column():
    with pytest.raises(ArgumentError, match="no column left for features"):
        from_table({"who": ["a", "b"], "t": [0, 0]}, id="who", time="t")


def test_options_are_checked_when_made():
    with pytest.raises(ArgumentError, match="per_step must be True or False"):
        TableOptions("patient", per_step="yes")
