"""Text among the numbers of a target: named by row and column, unless classes are asked for."""

import numpy as np
import pandas
import pytest
from own_tables import write

from tauflow.data import from_table, read_csv
from tauflow.errors import DataError

SAID = {"id": "id", "time": "t", "target": "y"}
SPLIT = {"train": [str(number) for number in range(38)], "test": ["38", "39"]}
NUMBERS = [f"{number * 0.37:.2f}" for number in range(40)]
WHOLE = [str(number % 2) for number in range(40)]


def table(y):
    x = np.random.default_rng(0).normal(size=120)
    ids = np.repeat(np.arange(40), 3)
    cells = np.empty(40, object)
    cells[:] = y
    return {"id": ids, "t": np.tile(np.arange(3), 40), "x": x, "y": cells.repeat(3)}


def with_text(cells, text, places):
    return [text if place in places else cell for place, cell in enumerate(cells)]


CASES = {
    "below a limit": (with_text(NUMBERS, "<0.5", {17}), "<0.5", 17, "Write numbers alone"),
    "a unit": (with_text(NUMBERS, "1.5 mg", {3, 4}), "1.5 mg", 3, "Write numbers alone"),
    "a question mark": (with_text(NUMBERS, "?", {20, 21}), "?", 20, r"na_values=\['\?'\]"),
    "many question marks": (with_text(WHOLE, "?", set(range(0, 40, 7))), "?", 0, "--missing='\\?'"),
    "a point": (with_text(WHOLE, ".", {5}), ".", 5, r"na_values=\['\.'\]"),
    "a dash": (with_text(WHOLE, "-", {6, 7}), "-", 6, r"na_values=\['-'\]"),
    "a decimal comma": (with_text(NUMBERS, "1,5", {8}), "1,5", 8, "decimals with a point"),
    "a truth word": (with_text(WHOLE, "True", {9}), "True", 9, "Write numbers alone"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ["frame", "numbers", "file"])
def test_text_among_the_numbers_of_a_target_is_named(name, form, tmp_path):
    cells, text, place, cure = CASES[name]
    if form == "numbers":  # objects of which all but the text are numbers
        cells = [float(cell) if cell in NUMBERS or cell in WHOLE else cell for cell in cells]
    columns = table(cells)
    read, row = from_table, 3 * place
    if form == "file":
        columns, row = write(tmp_path / "f.csv", columns), 3 * place + 2
        read = read_csv
    elif form == "frame":
        columns = pandas.DataFrame(columns)
    match = rf"row {row}.*, column 'y' holds '{_escaped(text)}', .*{cure}.*task='classification'"
    with pytest.raises(DataError, match=match):
        read(columns, **SAID)
    if set(cells) <= {text, "0", "1", 0.0, 1.0}:
        data = read(columns, **SAID, task="classification", split=SPLIT)
        assert text in data.schema.outputs


def _escaped(text):
    return "".join(f"\\{letter}" if letter in ".?<" else letter for letter in text).replace(
        "\\<", "<"
    )


@pytest.mark.parametrize("text", ["-1.5", "1.5", "1e3"])
def test_numbers_that_are_text_beside_others(text, tmp_path):
    cells = with_text([float(cell) for cell in NUMBERS], text, {4, 5})
    with pytest.raises(DataError, match=f"row 12.*, column 'y' holds '{text}'"):
        from_table(table(cells), **SAID)
    data = read_csv(write(tmp_path / "f.csv", table(cells)), **SAID)
    assert data.card.task == "regress"
    wanted = [float(cell) for cell in cells]
    for part, ids in (("train", data.schema.ids["train"]), ("test", data.schema.ids["test"])):
        y = data.schema.unscale(getattr(data, part).y.double()).ravel()
        assert y.tolist() == pytest.approx([wanted[int(who)] for who in ids], rel=1e-5, abs=1e-5)


def test_a_marker_that_is_said_to_be_missing_leaves_numbers():
    for cells, marker in ((NUMBERS, "?"), (WHOLE, "-")):
        numbers = with_text([float(cell) for cell in cells], marker, {20, 21})
        data = from_table(table(numbers), **SAID, na_values=[marker])
        assert (data.card.task == "regress") == (cells is NUMBERS)
        assert data.schema.outputs == (("y",) if cells is NUMBERS else ("0", "1"))


@pytest.mark.parametrize(
    "y",
    [
        ["1", "2", "x"] * 13 + ["x"],
        ["I", "II", "3", "4", "5"] * 8,
        [0, 1, "ND", "None"] * 10,
        ["0", "1/2", "1"] * 13 + ["1"],
        ["10 mg", "20 mg"] * 20,
        ["1/2", "1/4"] * 20,
        ["5 mmol/L", "5.5 mmol/L"] * 20,
        ["37 \u00b0C", "38 \u00b0C"] * 20,
    ],
)
def test_numbers_with_units_or_words_are_refused_unless_they_are_classes(y, tmp_path):
    for source in (table(y), write(tmp_path / "f.csv", table(y))):
        with pytest.raises(DataError, match=r"no number as it is written.*task='classification'"):
            from_table(source, **SAID)
        data = from_table(source, **SAID, task="classification", split=SPLIT)
        assert data.schema.outputs == tuple(sorted(map(str, set(y))))


@pytest.mark.parametrize(
    "y",
    [
        ["a", "b"] * 20,
        ["<5", ">=5"] * 20,
        ["grade 1", "grade 2"] * 20,
        ["18-25", "26-40"] * 20,
        ["1st", "2nd"] * 20,
    ],
)
def test_texts_that_are_no_quantities_are_classes(y):
    assert from_table(table(y), **SAID).schema.outputs == tuple(sorted(set(y)))
