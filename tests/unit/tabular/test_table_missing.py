"""What means a missing value: the usual words, and those that ``na_values`` names."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from own_tables import NAN, transform_table, unpadded, visits, write

import tauflow
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data import TableOptions, from_table, read_csv
from tauflow.errors import ArgumentError, DataError
from tauflow.tabular.column_profile import find_missing_markers
from tauflow.tabular.files import read_table

FROZEN = Path(__file__).parents[2] / "frozen"
SAID = {"id": "patient", "time": "hours", "target": "died"}
WORDS = ["nil", "-", "?", "-999"]


def holed(marker, rows=(0, 4, 5, 20)):
    """Return a column with a marker in some rows, and the same with NaN there."""
    written = [marker if row in rows else f"{row * 0.25}" for row in range(36)]
    return written, [NAN if row in rows else row * 0.25 for row in range(36)]


@pytest.mark.parametrize("marker", WORDS)
@pytest.mark.parametrize("of", ["file", "frame", "mapping"])
def test_named_words_are_missing_as_pandas_reads_them(tmp_path, marker, of):
    written, values = holed(marker)
    file = write(tmp_path / "v.csv", visits(a=written))
    table = {"file": file, "mapping": visits(a=written)}.get(of)
    if of == "frame":
        table = pandas.DataFrame(visits(a=written))
    data = from_table(table, na_values=[marker, "never"], **SAID)
    right = pandas.read_csv(file, na_values=[marker])["a"].to_numpy()
    np.testing.assert_array_equal(right, values)
    values_read = np.concatenate([x[:, 0] for _, x in sorted(unpadded(data).items())])
    np.testing.assert_allclose(values_read, right, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "Int64"])
def test_a_number_stands_for_all_numbers_equal_to_it(dtype):
    values = np.arange(36.0)
    values[[3, 9]] = -99
    frame = pandas.DataFrame(visits(a=values)).astype({"a": dtype})
    data = from_table(frame, na_values=[-99], **SAID)
    values[[3, 9]] = NAN
    values_read = np.concatenate([x[:, 0] for _, x in sorted(unpadded(data).items())])
    np.testing.assert_allclose(values_read, values, atol=1e-5)
    large = np.where(np.arange(36) == 3, -99, 2**53 + 1 + 2 * np.arange(36))
    read = read_table({"a": large}, TableOptions(na_values=["-99"]))
    assert read.columns["a"].tolist() == [None if x == -99 else x for x in large.tolist()]


def test_targets_and_categories_too():
    table = visits(died=(["yes"] * 3 + ["no"] * 3 + ["?"] * 3) * 4, b=["x", "y", "-"] * 12)
    data = from_table(table, na_values=["?", "-"], **SAID)
    assert data.schema.outputs == ("no", "yes")
    assert data.schema.inputs == ("a", "b=x", "b=y")
    assert "Left out: 4 ids without a target: p02, p05, p08 and 1 more." in data.card.notes


def test_a_predictor_reads_new_tables_likewise(tmp_path):
    written, values = holed("nil")
    file = write(tmp_path / "v.csv", visits(a=written))
    data = read_csv(file, na_values=["nil"], missing="inputs", **SAID)
    model = tauflow.SequenceModel(
        tauflow.GRU(data.card.input_size, 4, return_sequences=False), data.card.target_size
    )
    tauflow.Predictor.from_data(model, data).save(tmp_path / "p.safetensors")
    later = tauflow.load_predictor(tmp_path / "p.safetensors")
    assert later.schema.na_values == ("nil",)
    answers = later.predict_proba(file).to_numpy()[:, 1:].astype(float)
    again = later.predict_proba(pandas.DataFrame(visits(a=values))).to_numpy()[:, 1:].astype(float)
    np.testing.assert_allclose(answers, again)
    batch = transform_table(data, file)[1]
    assert int((batch.x[:, :, -1] == 0).sum()) == 4


def test_a_predictor_from_before_the_option_loads(tmp_path):
    (stored,) = (FROZEN / "trained").rglob("predictor.safetensors")
    kind, table = "predictor", FROZEN / "visits.csv"
    tensors, config = read_tensor_file(stored, kind, error=DataError, advice="")
    del config["table"]["options"]["na_values"]
    write_tensor_file(tmp_path / "old.safetensors", kind, tensors, config)
    old = tauflow.load_predictor(tmp_path / "old.safetensors")
    assert old.schema.na_values is None
    assert old.predict(table).equals(tauflow.load_predictor(stored).predict(table))


@pytest.mark.parametrize("word", ["NA", "nan", "null", "N/A", "<NA>"])
@pytest.mark.parametrize("kind", ["object", "string", "category", "polars", "mapping"])
def test_text_in_a_typed_frame_is_text(word, kind):
    died = pandas.Series(visits()["died"], dtype=object)
    died[3:6] = word
    table = pandas.DataFrame(visits()).assign(died=died)
    if kind == "polars":
        table = pytest.importorskip("polars").DataFrame(visits(died=died.tolist()))
    elif kind == "mapping":
        table = visits(died=died.tolist())
    elif kind != "object":
        table["died"] = died.astype(kind)
    options = {**SAID, "target": "level", "features": ["died"]}
    level = np.arange(36) / 7
    table = {**table, "level": level} if kind == "mapping" else table
    table = table.assign(level=level) if hasattr(table, "assign") else table
    if kind == "polars":
        table = table.with_columns(level=level)
    data = from_table(table, **options)
    shown = {text for _, texts in (*data.schema.categories, *data.schema.unseen) for text in texts}
    assert shown == {"no", "yes", word}
    data = from_table(table, **options, na_values=[word])
    shown = {text for _, texts in (*data.schema.categories, *data.schema.unseen) for text in texts}
    assert shown == {"no", "yes"}


@pytest.mark.parametrize("nothing", [None, pandas.NA, pandas.NaT, NAN, np.datetime64("NaT", "us")])
def test_objects_that_are_no_value(nothing):
    cells = [nothing if row % 7 == 0 else row / 4 for row in range(36)]
    column = np.empty(36, object)
    column[:] = cells
    data = from_table(pandas.DataFrame(visits()).assign(a=column), **SAID)
    right = [NAN if row % 7 == 0 else row / 4 for row in range(36)]
    values_read = np.concatenate([x[:, 0] for _, x in sorted(unpadded(data).items())])
    np.testing.assert_allclose(values_read, right, atol=1e-6)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1", "2.5", "nil", "3"], ("nil",)),
        (["1", "2.5", "-", "NA", "3", "?"], ("-", "?")),
        (["1", "2", "N/A", "None", "7"], ("None",)),
        (["1", "2", "-999", "7"], ()),  # a number is never taken for a word
        (["1", "2", "x", "-"], ()),
        (["1", "-", "?"], ()),
        (["south", "north", "unknown"], ()),
    ],
)
def test_words_that_seem_to_be_missing_values(tmp_path, cells, words):
    columns = {"a": list(range(len(cells))), "b": cells}
    table = read_table(write(tmp_path / "t.csv", columns), TableOptions())
    assert find_missing_markers(table) == words


@pytest.mark.parametrize("word", ["nil", "-", "None", "?"])
def test_an_error_about_such_a_cell_names_the_option(word):
    written, _ = holed(word)
    quoted = "'?'" if word == "?" else word
    with pytest.raises(DataError) as error:
        from_table(visits(a=written), **SAID)
    advice = f"If {word!r} means a missing value, pass na_values=[{word!r}] (--missing={quoted})"
    assert advice in str(error.value)
    from_table(visits(a=written), na_values=[word], **SAID)  # the advice works
    data = from_table(visits(), **SAID)
    with pytest.raises(DataError, match="expected a finite number") as error:
        transform_table(data, visits(a=written))
    assert "na_values" not in str(error.value)  # which cannot be passed there


@pytest.mark.parametrize("values", ["nil", [], ()])
def test_it_is_a_list(values):
    with pytest.raises(ArgumentError, match=r"na_values must be a list of texts .* \['nil', '-'\]"):
        TableOptions(na_values=values)


@pytest.mark.parametrize("rule", [["nil"], "nil", ("?", "-"), "N/A"])
def test_missing_says_something_else(rule):
    with pytest.raises(ArgumentError, match=r"'observed' or 'inputs'.*na_values=\['nil', '-'\]"):
        from_table(visits(), missing=rule, **SAID)


@pytest.mark.parametrize("role", ["patient", "hours"])
def test_a_needed_cell_that_is_read_as_missing_is_shown(tmp_path, role):
    cells = [("NA" if row == 3 else cell) for row, cell in enumerate(visits()[role])]
    table = write(tmp_path / "v.csv", visits(**{role: cells}))
    with pytest.raises(ValueError, match=f"column '{role}' is empty"):
        from_table(table, **SAID)
