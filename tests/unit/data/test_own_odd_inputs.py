"""Saved indexes, unknown options, names that look alike, odd signs: read alike, or named."""

import unicodedata

import numpy as np
import pandas
import pytest
from own_tables import NAN, by_id, visits, write

from tauflow.data import from_table, read_csv, transform_table
from tauflow.data.table.files import read_table
from tauflow.data.table.options import TableOptions
from tauflow.errors import DataError, OptionError, UnknownNameError

SAID = {"id": "patient", "time": "hours", "target": "died"}


def saved(tmp_path, frame, kind):
    """Return a frame that was saved with its index, read by another library."""
    arrow = pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "f.parquet")
    table = arrow.parquet.read_table(tmp_path / "f.parquet")
    if kind == "record batch":
        return table.combine_chunks().to_batches()[0]
    if kind == "Polars":
        return pytest.importorskip("polars").read_parquet(tmp_path / "f.parquet")
    if kind == "frame":
        return pandas.DataFrame({name: table[name].to_pylist() for name in table.column_names})
    return {"file": tmp_path / "f.parquet", "table": table}[kind]


@pytest.mark.parametrize("kind", ["file", "table", "record batch", "Polars", "frame"])
def test_a_saved_index_is_no_feature(tmp_path, kind):
    pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(visits())
    frame.index = np.random.default_rng(0).permutation(36)
    given = saved(tmp_path, frame, kind)
    data = from_table(given, **SAID)
    assert data.schema.inputs == ("a", "b")
    assert "Saved index of a pandas frame, left out: __index_level_0__." in data.card.notes
    assert transform_table(data, given)[1].x.shape == (12, 3, 2)
    named = from_table(given, **SAID, features=["a", "__index_level_0__"])
    assert named.schema.inputs == ("a", "__index_level_0__")  # as it was asked for


@pytest.mark.parametrize("kind", ["file", "table", "record batch"])
def test_a_named_index_is_a_column_where_it_is_named(tmp_path, kind):
    pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(visits(row=list(range(36)), other=[1.0, 2.0, 3.0] * 12))
    given = saved(tmp_path, frame.set_index(["patient", "row"]), kind)
    data = from_table(given, **SAID)
    assert data.schema.inputs == ("a", "b", "other")
    assert "Saved index of a pandas frame, left out: row." in data.card.notes


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("tagret", "Did you mean 'target'?"),
        ("targets", "Did you mean 'target'?"),
        ("sep", "Here it is called 'delimiter'."),
        ("missing_values", "Here it is called 'na_values'."),
        ("date_format", "Here it is called 'time_format'."),
        ("categorical", "astype({'ward': 'category'})"),
        ("qqqq", "Options: missing, id, time"),
    ],
)
@pytest.mark.parametrize("function", [from_table, read_csv])
def test_unknown_options_are_named_with_the_right_one(function, wrong, advice):
    with pytest.raises(OptionError) as error:
        function(visits(), id="patient", **{wrong: "x"})
    assert isinstance(error.value, TypeError)
    assert f"no option {wrong!r}" in str(error.value)
    assert advice in str(error.value)


@pytest.mark.parametrize("name", ["Größe", "Température", "Ångström"])
@pytest.mark.parametrize("role", ["features", "target", "id"])
def test_names_that_look_alike_are_told_apart(tmp_path, name, role):
    two = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    said = {**SAID, role: [two[0]] if role == "features" else two[0]}
    table = visits(**{two[1]: [1.0] * 36})
    for given in (table, write(tmp_path / "v.csv", table)):
        with pytest.raises(UnknownNameError) as error:
            from_table(given, **said)
        assert f"no column {two[0]!a}" in str(error.value)
        assert f"but {two[1]!a}, which looks the same" in str(error.value)


@pytest.mark.parametrize(
    ("two", "shown"),
    [
        ([32, "32"], ("'32' (str)", "'32' (int)")),
        ([True, "True"], ("'True' (str)", "'True' (bool)")),
        ([1.5, "1.5"], ("'1.5' (str)", "'1.5' (float)")),
        (["x", "y"], ("'y'", "'x'")),
    ],
)
def test_a_static_number_and_the_text_of_it(two, shown):
    age = [two[0]] * 2 + [two[1]] + [two[0]] * 33
    with pytest.raises(DataError) as error:
        from_table(visits(age=age), static=["age"], **SAID)
    assert f"holds {shown[0]}, but row 0 of the same id holds {shown[1]}, and" in str(error.value)


@pytest.mark.parametrize(
    ("cell", "number", "decimal"),
    [
        ("\u22121.5", -1.5, "."),
        ("\u22122", -2.0, "."),
        ("\u22121e\u22123", -0.001, "."),
        ("\u22120,25", -0.25, ","),
    ],
)
@pytest.mark.parametrize("of", ["file", "mapping"])
def test_a_typographic_minus_is_a_minus(tmp_path, cell, number, decimal, of):
    columns = {"a": ["1", cell, "3", ""], "b": [1, 2, 3, 4]}
    options = TableOptions(decimal=decimal, delimiter=";")
    if of == "file":
        table = write(tmp_path / "t.csv", columns, delimiter=";")
    else:
        table, options = columns, TableOptions(decimal=decimal)
    found = read_table(table, options).numbers("a")
    np.testing.assert_array_equal(found, [1, number, 3, NAN])


def test_a_typographic_minus_among_targets_and_times(tmp_path):
    hours = ["\u22121.5", "0", "2.5"] * 12
    level = [f"\u2212{row}" if row % 3 else f"{row}.5" for row in range(36)]
    file = write(tmp_path / "v.csv", visits(hours=hours, level=level))
    data = from_table(file, **{**SAID, "target": "level"}, features=["a"], time_unit=None)
    assert data.schema.task == "regression"
    np.testing.assert_allclose(data.train.dt[0], [0, 1.5, 2.5])
    _, one, _ = by_id(data)["p01"]
    assert data.schema.unscale(one.y.double())[0, :, 0].tolist() == pytest.approx([3.5, -4, -5])


@pytest.mark.parametrize("cell", ["\u20131.5", "1\u22122", "\u2212", "\u2212\u22121"])
def test_other_dashes_are_no_minus(cell):
    with pytest.raises(DataError, match=r"row 4 .*expected a finite number"):
        from_table(visits(a=["1", "2", "3", "4", cell, "6"] * 6), **SAID)
