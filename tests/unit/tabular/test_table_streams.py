"""What a table may be read from, and what a small file may not cost."""

import csv
import gzip
import io
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas
import pytest
from own_tables import visits, write

from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError, DataError, DataNotFoundError
from tauflow.tabular import file_content
from tauflow.tabular.csv_file import read_csv_table

SAID = {"id": "patient", "time": "hours", "target": "died"}


def content(delimiter=","):
    frame = pandas.DataFrame(visits())
    return frame.to_csv(index=False, sep=delimiter)


def parquet():
    pytest.importorskip("pyarrow")
    held = io.BytesIO()
    pandas.DataFrame(visits()).to_parquet(held)
    return io.BytesIO(held.getvalue())


OPEN = {
    "text": lambda: io.StringIO(content()),
    "bytes": lambda: io.BytesIO(content().encode()),
    "gzip": lambda: io.BytesIO(gzip.compress(content().encode())),
    "Parquet": parquet,
}


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize("function", [read_csv, from_table])
def test_open_files(kind, function):
    data, right = function(OPEN[kind](), **SAID), from_table(visits(), **SAID)
    assert data.card.source == "an open file"
    assert data.schema.ids == right.schema.ids
    np.testing.assert_array_equal(data.train.x.numpy(), right.train.x.numpy())


def test_an_open_file_of_the_disk_is_named_in_messages(tmp_path):
    path = write(tmp_path / "v.csv", visits(hours=["0.5", "0.50", "1"] * 12))
    with path.open() as file, pytest.raises(ValueError, match=r"v\.csv, row 3, .* holds 0\.5"):
        read_csv(file, **SAID)
    with pytest.raises(DataError, match=r"the open file cannot be read .*closed file"):
        read_csv(file, **SAID)
    with (tmp_path / "w.csv").open("w") as file, pytest.raises(DataError, match="not readable"):
        read_csv(file, **SAID)


@pytest.mark.parametrize("table", [["a.csv", "b.csv"], None, 3])
def test_what_is_no_file_or_table(table):
    with pytest.raises(ArgumentError, match=r"path of a file, or an open file, got .*concat"):
        read_csv(table, **SAID)
    with pytest.raises(ArgumentError, match=r"must be a pandas DataFrame.*pandas\.concat"):
        from_table(table, **SAID)


def test_the_home_folder_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "v.csv", visits())
    for path in ("~/v.csv", Path("~/v.csv")):
        assert read_csv(path, **SAID).card.name == "v"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="is a folder, expected a file"):
        from_table(tmp_path / "empty", **SAID)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_devices_and_pipes_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.parquet")
    for path in (tmp_path / "pipe.csv", tmp_path / "pipe.parquet", "/dev/zero", "/dev/null"):
        with pytest.raises(DataError, match="is no regular file"):
            from_table(path, **SAID)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("begin", [b"", b"id,t,y,x\n1,0,1,", b"id,t,y,x\n1,0,1,2\n2,"])
@pytest.mark.parametrize("fill", [b"\0", b"1"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_long_line_costs_little_memory(tmp_path, monkeypatch, begin, fill, packed):
    monkeypatch.setattr(file_content, "MAX_LINE_BYTES", 1 << 20)
    content = begin + fill * 40_000_000
    file = tmp_path / "v.csv"
    file.write_bytes(gzip.compress(content, 1) if packed else content)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="has a line of more than 1 MiB, and is no table"):
            read_csv(file, id="id", time="t", target="y")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


def test_memory_that_runs_out_is_said(tmp_path, monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr("tauflow.tabular.files.read_csv_table", fail)
    with pytest.raises(DataError, match=r"v\.csv needs more memory than there is"):
        read_csv(write(tmp_path / "v.csv", visits()), **SAID)


@pytest.mark.thorough
def test_many_columns_are_what_pandas_reads(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(size=(4, 30_000)).round(3)
    frame = pandas.DataFrame(values, columns=[f"c{number}" for number in range(30_000)])
    frame.insert(0, "id", ["a", "a", "b", "b"])
    frame.to_csv(tmp_path / "w.csv", index=False)

    csv_frame = read_csv_table(tmp_path / "w.csv", names=["id"])
    assert list(csv_frame.columns) == list(frame.columns)
    values_read = np.stack([csv_frame.columns[name] for name in frame.columns[1:]], axis=1)
    np.testing.assert_array_equal(values_read, values)
    monkeypatch.setattr(file_content, "MAX_LINE_BYTES", 1 << 16)
    with pytest.raises(DataError, match="has a line of more than"):
        read_csv_table(tmp_path / "w.csv", names=["id"])


@pytest.mark.thorough
def test_names_are_checked_in_linear_time():
    columns = {f"c{number}": [1.0] for number in range(200_000)}  # squared: 2e10 comparisons
    with pytest.raises(ArgumentError, match="several columns are called '7'"):
        from_table({**columns, "7": [1.0], 7: [2.0]})


@pytest.mark.parametrize("place", ["name", "category", "id"])
def test_half_a_pair_of_unicode_is_an_error(place):
    odd = {"name": {"a\udc80b": [1.0] * 36}, "category": {"c": ["a\udc80", "b"] * 18}}
    table = visits(**odd.get(place, {"patient": ["a\udc80"] * 3 + visits()["patient"][3:]}))
    with pytest.raises((ArgumentError, DataError), match=r"control character '\\udc80'"):
        from_table(table, **SAID)
    cells = [pandas.Series(column, dtype=object) for column in table.values()]
    frame = pandas.DataFrame(dict(enumerate(cells)))
    frame.columns = pandas.Index(list(table), dtype=object)
    with pytest.raises((ArgumentError, DataError), match=r"control character '\\udc80'"):
        from_table(frame, **SAID)


@pytest.mark.parametrize(
    "cells",
    [
        ("1", "2", "3"),
        ("1.5", "", "-2e3"),
        ("1", "NA", "3"),
        ("?", "2", "3"),
        ("01", "2", "1"),
        ("True", "False", "true"),
        ("1_000", "2", "3"),
        ("9007199254740993", "1", "2"),
        ("\u0661", "2", "3"),
        ('" a ,b"', " c", "d "),
        ("inf", "1", "nan"),
        ("2024-05-31", "", "2024-06-01"),
    ],
)
@pytest.mark.parametrize("role", ["text", None])
@pytest.mark.parametrize("more", ["", "\n", " ,,\n", 'q,"x\ny",0\n'])
def test_cells_are_those_of_a_strict_reader(cells, role, more, tmp_path):
    path = tmp_path / "table.csv"
    text = "id,a,b\n" + more + "".join(f"p{n},{cell},1.25\n" for n, cell in enumerate(cells))
    path.write_text(text, newline="")
    options = {"names": ["id", *["a"] * (role == "text")]}
    frame = read_csv_table(path, **options, na_values=["?"])
    with path.open(newline="") as file:
        lines = {n: row for n, row in enumerate(csv.reader(file, strict=True), start=1)}
    filled = {n: row for n, row in lines.items() if n > 1 and any(map(str.strip, row))}
    assert frame.row_numbers.tolist() == list(filled)
    for place, row in enumerate(filled.values()):
        for name, cell in zip(("id", "a", "b"), map(str.strip, row), strict=True):
            held = frame.columns[name][place]
            if cell in ("", "NA", "nan", "?"):
                assert frame.find_missing(name)[place]
            else:
                assert str(held).lower() == cell.lower() or held == float(cell)


@pytest.mark.parametrize(
    ("early", "late"), [("01", "x"), ("True", "no"), ("3", str(2**64 - 1)), ("", "x"), ("1", "")]
)
def test_all_of_a_long_column_decides_what_it_holds(tmp_path, early, late):
    count = 300_000  # more rows than pandas reads together
    (tmp_path / "v.csv").write_text("a,b\n" + f"1,{early}\n" * count + f"1,{late}\n")
    (tmp_path / "short.csv").write_text(f"a,b\n1,{early}\n1,{late}\n")
    long, short = (read_csv_table(tmp_path / name).columns["b"] for name in ("v.csv", "short.csv"))
    assert long.dtype == short.dtype
    assert list(map(repr, long[[0, -1]])) == list(map(repr, short))


@pytest.mark.parametrize("row", ["1,2", "1,2,", "", ",,", "1,,", "1,2,3,4"])
@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_count_as_in_a_strict_reader(tmp_path, row, place, end):
    lines = ["a,b,c", "1,2,3", "4,5,6"]
    lines.insert(place, row)
    (tmp_path / "v.csv").write_bytes(end.join([*lines, ""]).encode())
    records = list(csv.reader(lines))
    cells = [len(cells) for cells in records if any(cells)]
    if set(cells) != {3}:
        with pytest.raises(DataError, match=f"row {place + 1} has {len(records[place])} cells"):
            read_csv_table(tmp_path / "v.csv")
        return
    filled = [number for number, cells in enumerate(records, start=1) if any(cells)][1:]
    table = read_csv_table(tmp_path / "v.csv")
    assert table.row_numbers.tolist() == filled
    assert [float(records[n - 1][0]) for n in filled] == table.columns["a"].tolist()
