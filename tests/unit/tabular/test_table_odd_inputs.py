"""Saved indexes, unknown options, odd signs: read alike, or named."""

import numpy as np
import pandas
import pytest
from own_tables import transform_table, visits

from tauflow.data import from_table, read_csv
from tauflow.errors import OptionError

SAID = {"id": "patient", "time": "hours", "target": "died"}
LEFT_OUT = "Saved index of a pandas frame, left out unless named, as by --id or --time:"


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
    source = saved(tmp_path, frame, kind)
    data = from_table(source, **SAID)
    assert data.schema.inputs == ("a", "b")
    assert f"{LEFT_OUT} __index_level_0__." in data.card.notes
    assert transform_table(data, source)[1].x.shape == (12, 3, 2)
    named = from_table(source, **SAID, features=["a", "__index_level_0__"])
    assert named.schema.inputs == ("a", "__index_level_0__")  # as it was asked for


@pytest.mark.parametrize("kind", ["file", "table", "record batch"])
def test_a_named_index_is_a_column_where_it_is_named(tmp_path, kind):
    pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(visits(row=list(range(36)), other=[1.0, 2.0, 3.0] * 12))
    source = saved(tmp_path, frame.set_index(["patient", "row"]), kind)
    data = from_table(source, **SAID)
    assert data.schema.inputs == ("a", "b", "other")
    assert f"{LEFT_OUT} row." in data.card.notes


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("tagret", "Did you mean 'target'?"),
        ("targets", "Did you mean 'target'?"),
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
