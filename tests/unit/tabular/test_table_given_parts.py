"""Parts that the user says: by lists of ids, or by a column."""

import pytest
from own_tables import changed, transform_table, visits

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.predict import Predictor, load_predictor

IDS = [f"p{number:02d}" for number in range(12)]
GIVEN = {"train": IDS[3:], "valid": IDS[2:3], "test": IDS[:2]}
SAID = {"id": "patient", "time": "hours", "target": "died"}


def by_column(parts=GIVEN, **more):
    of_each = {name: part for part, ids in parts.items() for name in ids}
    return visits(part=[of_each[name] for name in visits()["patient"]], **more)


@pytest.mark.parametrize("way", ["ids", "column"])
def test_ids_are_in_the_parts_that_were_said(way):
    if way == "ids":
        data = from_table(visits(), split=GIVEN, **SAID)
    else:
        data = from_table(by_column(), split_column="part", **SAID)
    assert {part: list(ids) for part, ids in data.schema.ids.items()} == GIVEN
    assert data.card.sizes == (9, 1, 2)
    assert data.schema.inputs == ("a", "b")  # the column of parts is no feature
    assert "9 for training, 1 for validation, 2 for the test" in data.card.split
    ids, _ = transform_table(data, visits())  # which needs no such column
    assert list(ids) == IDS


def test_ids_may_be_numbers_and_validation_may_lack():
    numbers = [int(name[1:]) for name in visits()["patient"]]
    options = {"train": range(2, 12), "test": [0, 1]}
    data = from_table(visits(patient=numbers), split=options, **SAID)
    assert data.valid is None
    assert data.schema.ids["test"] == ("0", "1")


def test_whole_numbers_are_the_same_ids_as_floating_point():
    numbers = [int(name[1:]) for name in visits()["patient"]]
    for of_table, options in ((float, int), (int, float)):
        split = {
            "train": [options(number) for number in range(2, 12)],
            "test": [options(0), options(1)],
        }
        data = from_table(visits(patient=[of_table(n) for n in numbers]), split=split, **SAID)
        assert data.schema.ids["test"] == (str(of_table(0)), str(of_table(1)))
    floats, twice = visits(patient=[float(n) for n in numbers]), {"train": range(12), "test": [0.0]}
    with pytest.raises(DataError, match=r"id '0.0' is in 'train' and in 'test'"):
        from_table(floats, split=twice, **SAID)


def test_ids_are_not_kept_in_the_file_of_a_predictor(tmp_path):
    data = from_table(visits(), split=GIVEN, **SAID)
    body = tauflow.Elman(2, 3, return_sequences=False)
    Predictor.from_data(tauflow.SequenceModel(body, 2), data).save(tmp_path / "p.safetensors")
    assert b"p03" not in (tmp_path / "p.safetensors").read_bytes()
    assert load_predictor(tmp_path / "p.safetensors").predict(visits())["patient"].tolist() == IDS


WRONG = [
    ({"train": IDS[1:], "test": IDS[:2]}, "id 'p01' is in 'train' and in 'test'"),
    ({"train": IDS[2:], "test": ["p00", "p1"]}, "names id 'p1'.*Did you mean 'p"),
    ({"train": IDS[2:], "test": IDS[:1]}, "split leaves out 1 id: p01"),
]


@pytest.mark.parametrize(("split", "words"), WRONG)
def test_ids_that_do_not_fit(split, words):
    with pytest.raises(DataError, match=words):
        from_table(visits(), split=split, **SAID)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"split": {"train": IDS, "tset": IDS}}, UnknownNameError, "tset"),
        ({"split": {"train": IDS, "test": []}}, ArgumentError, "at least one"),
        ({"split": {"train": IDS}}, ArgumentError, "no ids for 'test'"),
        ({"split": GIVEN, "group": "b"}, ArgumentError, "so does group"),
        ({"split": GIVEN, "split_by": "time"}, ArgumentError, "so does split_by"),
        ({"split": GIVEN, "split_column": "part"}, ArgumentError, "so does split"),
        ({"split": GIVEN, "id": None}, ArgumentError, "there is no id"),
    ],
)
def test_what_contradicts_given_parts(options, error, words):
    with pytest.raises(error, match=words):
        from_table(visits(), **{**SAID, **options})


@pytest.mark.parametrize(
    ("row", "value", "words"),
    [
        (4, "valid", "row 4 .*'valid'.*'p01', holds 'test'.*two parts"),
        (4, None, "row 4.* is empty, expected a part"),
    ],
)
def test_a_column_of_parts_that_does_not_fit(row, value, words):
    table = by_column()
    table["part"][row] = value
    with pytest.raises(DataError, match=words):
        from_table(table, split_column="part", **SAID)


def test_a_part_of_another_name_is_refused():
    parts = {"train": IDS[3:], "tests": IDS[:3]}
    with pytest.raises(DataError, match="'tests' for id 'p00', expected train, valid, test"):
        from_table(by_column(parts), split_column="part", **SAID)


def test_a_part_whose_ids_have_no_target_is_refused():
    died = [None if name in GIVEN["test"] else died for name, died in _died()]
    with pytest.raises(DataError, match="no id of the test split has a target"):
        from_table(visits(died=died), split=GIVEN, **SAID)


def _died():
    return zip(visits()["patient"], visits()["died"], strict=True)


def test_an_id_in_two_pieces_is_refused_unless_times_join_them():
    table = visits(**changed("patient", 30, "p01"))
    with pytest.raises(DataError, match=r"row 30 .*holds 'p01' again, after row 5"):
        from_table(table, id="patient", target="died", features=["a", "b"])
    table = visits(**changed("patient", 30, "p01"), hours=[float(row) for row in range(36)])
    died = ["yes" if name > "p05" else "no" for name in table["patient"]]
    data = from_table({**table, "died": died}, **SAID)
    assert sum(data.card.sizes) == 12
