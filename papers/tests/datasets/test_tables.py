from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tauflow.errors import DataError
from tauflow_papers.datasets.real.tables import check_row_count, parse_matrix, parse_table

COLUMNS = ("when", "a", "b")


def table(text, header=None, **options):
    return parse_table("t.csv", text.encode(), COLUMNS, header=header, **options)


def test_rows_become_columns():
    t = table('when,a,b\r\n"2020-01-02",1.5,x\r\n2020-01-03,-2e3,y\r\n', header=COLUMNS)
    assert t.cells("b") == ["x", "y"]
    assert t.numbers(["a"]).tolist() == [[1.5], [-2000.0]]
    assert t.codes("b", {"x": 3, "y": 0}).tolist() == [3, 0]
    assert t.datetimes("when", "%Y-%m-%d") == [datetime(2020, 1, 2), datetime(2020, 1, 3)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_numbers_survive_exactly(values):
    t = parse_table("t", "\n".join(map(repr, values)).encode(), ["v"])
    assert t.numbers(["v"])[:, 0].tolist() == values


def test_missing_values_become_nan():
    t = table("d,?,1\nd,2,?")
    np.testing.assert_array_equal(
        t.numbers(["a", "b"], missing="?"), [[np.nan, 1.0], [2.0, np.nan]]
    )


def test_spaces_may_be_many_and_lead():
    assert table("  d   1 2\nd 3   4\n", delimiter=" ").numbers(["a", "b"]).tolist() == [
        [1.0, 2.0],
        [3.0, 4.0],
    ]


@pytest.mark.parametrize("cell", ["x", "", "nan", "inf", "1,5".replace(",", ";"), "?"])
def test_cell_that_is_no_number_is_located(cell):
    t = table(f"when,a,b\nd,1,2\nd,3,{cell}\n", header=COLUMNS)
    with pytest.raises(DataError, match=r"t\.csv, line 3, column 'b' holds .* a finite number"):
        t.numbers(["a", "b"])


def test_large_integers_are_exact():
    assert table("633790226057226795,1,x\n-3,2,y").integers("when").tolist() == [
        633790226057226795,
        -3,
    ]


@pytest.mark.parametrize("cell", ["1.0", "", "x", "9" * 19, "--1"])
def test_cell_that_is_no_integer_is_located(cell):
    with pytest.raises(DataError, match=r"line 2, column 'a' holds .*, expected an integer"):
        table(f"d,1,2\nd,{cell},3").integers("a")


def test_matrix_is_read_line_by_line():
    content = b"  1.5000000e+00  -2.0e-1\r\n 3 4\n"
    assert parse_matrix("m", content, 2).tolist() == [[1.5, -0.2], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "m holds no rows"),
        (b"1 2\n1\n", "m, line 2 has 1 field, expected 2"),
        (b"1 2\n1 x\n", "m, line 2, column 2 holds 'x', expected a finite number"),
        (b"1 nan", "m, line 1, column 2 holds 'nan'"),
        (b"\xff 1", "m, line 1, column 1 holds"),
    ],
)
def test_matrix_with_a_fault_is_refused(content, message):
    with pytest.raises(DataError, match=message):
        parse_matrix("m", content, 2)


def test_not_a_number_is_not_the_missing_mark():
    with pytest.raises(DataError, match="line 2, column 'a' holds 'nan'"):
        table("d,?,1\nd,nan,?").numbers(["a"], missing="?")


def test_unknown_code_and_time_are_located():
    t = table("2020-01-02,1,x\n2020-13-02,1,z")
    with pytest.raises(DataError, match=r"line 2, column 'b' holds 'z', expected one of 'x', 'y'"):
        t.codes("b", {"x": 0, "y": 1})
    with pytest.raises(DataError, match=r"line 2, column 'when' holds '2020-13-02', expected a"):
        t.datetimes("when", "%Y-%m-%d")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1 holds the columns \(none\), expected when, a, b; it lacks when, a, b"),
        ("when,b\n", "it lacks a"),
        ("when,b,a\n1,2,3", "the order differs"),
        ("when,a,b\n", "t.csv holds no rows"),
        ("when,a,b\n1,2,3\n1,2\n", r"line 3 has 2 fields, expected 3 \(when, a, b\)"),
        ("when,a,b\n1,2,3,4\n", "line 2 has 4 fields"),
        ("when,a,b\n1,2,3\n\n1,2,3\n", "line 3 has 0 fields"),
    ],
)
def test_wrong_shape_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        table(text, header=COLUMNS)


def test_table_without_rows_or_text_is_refused():
    with pytest.raises(DataError, match=r"t\.csv holds no rows"):
        table("\n \n")
    with pytest.raises(DataError, match=r"t is not a text file in UTF-8"):
        parse_table("t", b"\xff\xfe\x00", COLUMNS)
    with pytest.raises(DataError, match=r"t\.csv is not such a table \(field larger than"):
        table('a,"b,c\n' + 40_000 * "1,2,3\n")  # a stray mark makes the rest one field


def test_unexpected_length_is_refused():
    check_row_count("t.csv", 5, 5)
    with pytest.raises(DataError, match=r"t\.csv has 4 rows, expected 5: it is cut off"):
        check_row_count("t.csv", 4, 5)
