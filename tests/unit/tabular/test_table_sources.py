"""Files and frames of any library: typed by pandas, as exact and strict as cell by cell."""

import ast
import gzip
import inspect
import sys
from dataclasses import MISSING, fields

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_tables import NAN, changed, transform_table, visits, write

import tauflow.tabular.csv_file as csv_file
from tauflow.data import Schema, TableOptions, from_table, read_csv
from tauflow.errors import ArgumentError, DataError, MissingExtraError, TauflowError, TimeError
from tauflow.tabular import options
from tauflow.tabular.csv_file import read_csv_table

narwhals = pytest.importorskip("narwhals")
SAID = {"id": "patient", "time": "hours", "target": "died", "features": ["a", "b"]}


def batches(data):
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    return [part.tensors() for part in parts]


def assert_alike(data, two):
    assert data.card.notes == two.card.notes
    assert data.schema.outputs == two.schema.outputs
    for first, second in zip(batches(data), batches(two), strict=True):
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_columns_have_the_types_of_what_is_in_them(tmp_path):
    columns = {
        "id": ["007", "07", "7", "7"],
        "whole": [1, 2, 3, 2**53 + 1],
        "number": [0.1, NAN, 1e-320, 2.0],
        "exact": ["9007199254740993", "", "1", "2"],
        "far": ["1e400", "1", "2", "3"],
        "said": ["TRUE", "FALSE", "true", "True"],
        "text": [" x ", "NA", "1_0", '3" x'],
    }
    frame = read_csv_table(write(tmp_path / "t.csv", columns), names=["id"])
    kinds = {name: column.dtype.kind for name, column in frame.columns.items()}
    numbers = {"whole": "i", "said": "b", **dict.fromkeys(("number", "exact", "far"), "f")}
    assert kinds == {**dict.fromkeys(columns, "O"), **numbers}
    assert frame.columns["id"].tolist() == columns["id"]
    assert frame.columns["whole"].tolist() == columns["whole"]
    assert frame.columns["number"][2] == 1e-320
    assert frame.columns["said"].tolist() == [True, False, True, True]
    assert frame.columns["text"][[0, 2, 3]].tolist() == ["x", "1_0", '3" x']
    assert frame.find_missing("text").tolist() == [False, True, False, False]


def test_a_column_that_turns_into_text_late_is_text_from_the_start(tmp_path):
    late = [f"0{row}" for row in range(35)] + ["x"]
    frame = read_csv_table(write(tmp_path / "t.csv", visits(late=late, a=[*range(35), 0.5])))
    assert frame.columns["late"].tolist() == late
    assert frame.columns["a"].tolist() == [*range(35), 0.5]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_plain_files_are_read_by_pandas_alone(tmp_path, monkeypatch, end):
    def fail(*args):
        raise AssertionError

    monkeypatch.setattr(csv_file._CsvReader, "check_rows", fail)
    lines = (end or "\n").join(["id,a,b", "p,,x", "q,1.5,", "r,2,y"])
    (tmp_path / "t.csv").write_bytes((lines + end).encode())
    frame = read_csv_table(tmp_path / "t.csv")
    assert frame.row_numbers.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(frame.columns["a"], [NAN, 1.5, 2])


CELLS = st.sampled_from(
    [
        *(
            "",
            "1",
            "2",
            "-3",
            "0.50",
            "1e3",
            "NA",
            "nan",
            "-NaN",
            " 4 ",
            "x",
            "yes",
            "TRUE",
            "false",
        ),
        *(
            "1e400",
            "9007199254740993",
            "99999999999999999999",
            "1_0",
            "\xa01",
            "١٢",
            '"5"',
            '"a,b"',
        ),
        *(
            '"a""b"',
            '"',
            '5"',
            '"a\nb"',
            "\t",
            "\x1b",
            "2024-05-31",
            "20240531",
            "1,5",
            "\r",
            "a\0",
        ),
    ]
)
LINES = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from("pqrs"), st.integers(0, 99).map(str), CELLS, st.sampled_from("01")
        ),
        st.tuples(*[st.sampled_from(["p", "q", "0", "1", "2.5"])] * 4),
        st.lists(CELLS, max_size=5),
    ),
    max_size=12,
)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(lines=LINES, end=st.sampled_from(["\n", "\r\n", "\n\n", "\n ,,\n"]), sort=st.booleans())
def test_what_pandas_reads_is_what_a_strict_reader_reads(tmp_path_factory, lines, end, sort):
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    text = end.join([*(",".join(line) for line in [("id", "t", "a", "y"), *WHOLE, *lines]), ""])
    file.write_bytes(text.encode())
    options = {"id": "id", "time": "t", "target": "y", "sort": sort, "split": (1, 0, 1)}

    def read():
        try:
            return read_csv(file, **options)
        except TauflowError as error:
            return type(error), str(error)

    outcome = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file._CsvReader, "_is_plain", lambda file: False)
        strict = read()
    if isinstance(strict, tuple):
        assert outcome == strict
    else:
        assert_alike(outcome, strict)


WHOLE = [
    (id_, str(100 + 2 * step), f"{step / 3!r}", str(step % 2))
    for id_ in "pqrs"
    for step in range(3)
]


def frames():
    """Return the same visits as frames of several libraries."""
    table = visits(
        **changed("a", 4, None), dates=pandas.date_range("2024-05-31", periods=36, freq="h")
    )
    frame = pandas.DataFrame(table)
    made = [frame, frame.convert_dtypes(), narwhals.from_native(frame)]
    made.append(narwhals.from_native(frame.convert_dtypes()))
    made.append(narwhals.from_native(frame.astype({"patient": "category"})))
    for library, make in (("polars", "DataFrame"), ("pyarrow", "table")):
        if library in sys.modules or __import__("importlib.util").util.find_spec(library):
            made.append(
                getattr(__import__(library), make)({**table, "dates": table["dates"].tolist()})
            )
            if library == "pyarrow":
                made += made[-1].to_batches()
    return made


@pytest.mark.parametrize("time", ["hours", "dates"])
@pytest.mark.parametrize("place", range(len(frames())))
def test_frames_of_any_library_give_the_same(place, time):
    options = {**SAID, "time": time}
    first, other = frames()[0], frames()[place]
    assert_alike(from_table(other, **options), from_table(first, **options))
    ids, batch = transform_table(from_table(first, **options), other)
    assert ids == tuple(f"p{number:02d}" for number in range(12))
    assert batch.x.shape == (12, 3, 2)


def test_packed_files_give_the_same(tmp_path):
    plain = write(tmp_path / "visits.csv", visits(**changed("a", 4, NAN)))
    packed = tmp_path / "visits.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    data = read_csv(plain, **SAID)
    assert_alike(read_csv(packed, **SAID), data)
    assert_alike(from_table(str(packed), **SAID), data)
    assert data.card.name == from_table(packed, **SAID).card.name == "visits"
    write(plain, visits(**changed("hours", 5, "0.50")))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(TimeError, match=r"row 7, column 'hours' holds 0\.5"):
        read_csv(packed, **SAID)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"is a damaged gzip file .*Copy it again"):
        read_csv(packed, **SAID)


def test_parquet_is_read_as_the_frame_that_it_was(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(visits(**changed("a", 4, NAN)))
    file = tmp_path / "visits.parquet"
    frame.to_parquet(file)
    data = from_table(file, **SAID)
    assert_alike(data, from_table(frame, **SAID))
    assert_alike(read_csv(file, **SAID), data)
    for name, content in (("a.csv", file.read_bytes()), ("a.parquet", frame.to_csv(index=False))):
        other = tmp_path / "ward=north" / name  # which is no column
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert_alike(from_table(other, **SAID), data)
    assert torch.equal(transform_table(data, file)[1].x, transform_table(data, frame)[1].x)
    with pytest.raises(ArgumentError, match="delimiter is for a CSV file"):
        from_table(file, delimiter=";", **SAID)
    pandas.DataFrame(visits(**changed("hours", 5, 0.5))).to_parquet(file)
    with pytest.raises(
        TimeError, match=r"visits.parquet, row 5 \(counted from 0\), column 'hours'"
    ):
        from_table(file, **SAID)
    file.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        from_table(file, **SAID)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet")
    with pytest.raises(MissingExtraError, match="pyarrow"):
        from_table(file, **SAID)


def test_parquet_may_hold_what_is_no_column_of_a_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table(visits())
    file = tmp_path / "visits.parquet"
    parquet.write_table(table.append_column("a", table["b"]), file)
    with pytest.raises(ArgumentError, match="several columns are called 'a'"):
        from_table(file, **SAID)
    for cells in ([[1.0, 2.0]] * 36, [{"x": 1}] * 36):
        parquet.write_table(table.append_column("c", pyarrow.array(cells)), file)
        assert Schema.guess(file).features == ("b",)
        with pytest.raises(DataError, match=r"column 'c' holds .*expected a finite number"):
            from_table(file, **{**SAID, "features": ["a", "c"]})
        for table_options in ({**SAID, "target": "c"}, {**SAID, "static": ["c"]}):
            with pytest.raises(DataError, match=r"row 0 .*column 'c' .*expected one value"):
                from_table(file, **table_options)


def test_printing_shows_shapes(tmp_path):
    data = from_table(visits(), **SAID)
    shown = repr(data)
    assert "train=SequenceBatch(x=(8, 3, 2) float32, y=(8,) int64, dt=(8, 3) float32)" in shown
    assert "- Task: classification" in shown
    assert len(shown) < 1200
    assert "tensor" not in shown


def test_whole_numbers_beside_missing_values_keep_their_digits():
    codes = [2**53] * 3 + [2**53 + 1] * 3
    frame = pandas.DataFrame(visits(died=[*codes * 6]))
    frame["died"] = frame["died"].astype("Int64").mask(np.arange(36) == 1)
    data = from_table(narwhals.from_native(frame), **SAID)
    assert data.schema.outputs == ("9007199254740992", "9007199254740993")


def test_a_frame_that_is_not_computed_yet_is_refused():
    with pytest.raises(ArgumentError, match=r"LazyFrame that is not computed yet\. Collect it"):
        from_table(narwhals.from_native(pandas.DataFrame(visits())).lazy(), **SAID)


@pytest.mark.parametrize("library", ["pandas", "narwhals"])
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, library):
    file, frame = (
        write(tmp_path / "visits.csv", visits()),
        narwhals.from_native(pandas.DataFrame(visits())),
    )
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingExtraError, match=f"{library} is not installed. Install it with: pip"
    ):
        read_csv(file, **SAID) if library == "pandas" else from_table(frame, **SAID)


@pytest.mark.parametrize("function", [from_table, read_csv])
def test_the_options_are_said_once(function):
    shown = inspect.signature(function).parameters
    for field in fields(TableOptions):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        assert shown[field.name].default == default
        assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n    {field.name}: " in inspect.getdoc(function)
    tree = ast.parse(inspect.getsource(options))
    (table_options,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == "TableKwargs"
    ]
    for_editors = [node.target.id for node in table_options.body if isinstance(node, ast.AnnAssign)]
    assert for_editors == [field.name for field in fields(TableOptions)]
    with pytest.raises(TypeError, match="no option 'targets'"):
        function(visits(), id="patient", targets="died")


def test_a_row_without_any_value_is_skipped_as_an_empty_one(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id,a\n\np,1\n , \n,\nq,x\n", encoding="utf-8")
    with pytest.raises(DataError, match="row 6, column 'a' holds 'x'"):
        read_csv(file, id="id")
