"""A schema is guessed, edited, fitted, saved and applied to any table."""

import json
from dataclasses import fields

import numpy as np
import pandas
import pytest
import torch
from own_tables import visits

from tauflow.data import Schema, TableOptions, from_table
from tauflow.errors import (
    ArgumentError,
    DataError,
    DataNotFoundError,
    OptionError,
    UnknownNameError,
)
from tauflow.tabular.describe import describe_table

SAID = {"id": "patient", "time": "hours", "target": "died"}


@pytest.fixture
def frame():
    """A table with all kinds of columns: static text, a note, a copy of the times."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(visits())
    frame["sex"] = np.repeat(["f", "m"] * 6, 3)
    frame["year"] = 1990 + np.tile([0, 1, 2], 12)
    frame["note"] = [f"text {k}" for k in range(36)]
    frame["note"] = frame["note"].where(frame.index > 0, "x")
    frame["level"] = rng.normal(size=36)
    frame["a"] = rng.normal(size=36)
    return frame


def test_a_guess_says_why_and_reads_the_table(frame):
    schema = Schema.guess(frame)
    assert (schema.id, schema.time, schema.targets) == ("patient", "hours", ("died",))
    assert schema.static == ("sex",)
    assert not schema.is_fitted
    assert schema.reasons[:2] == (
        "Id: 'patient' (12 different values).",
        "Time: 'hours' (3 different values).",
    )
    assert schema.load(frame).schema.inputs[-2:] == ("sex=f", "sex=m")
    assert Schema.guess(frame, time="year").time == "year"
    with pytest.raises(OptionError, match=r"no option 'label'"):
        Schema.guess(frame, label="died")
    spread = pandas.DataFrame({"month": [1, 2, 3] * 9, "year": np.repeat(range(9), 3), "a": 1.5})
    with pytest.raises(DataError, match=r"do not fit: .* spread over the columns"):
        Schema.guess(spread)


def test_its_roles_are_those_of_the_guess(frame):
    guess = describe_table(frame, {})
    assert Schema.guess(frame).roles == {name: role.name for name, role in guess.roles.items()}


def test_an_edit_changes_what_is_named_and_is_not_fitted(frame):
    fitted = Schema.guess(frame).fit(frame)
    assert fitted.is_fitted
    assert set(fitted.decided) <= {"features", "task", "per_step"}
    edited = fitted.replace(time="year")
    assert (edited.time, edited.id, edited.is_fitted) == ("year", "patient", False)
    names_of_reasons = [line.split(":")[0] for line in edited.reasons]
    assert names_of_reasons == ["Id", "Target", "Static"]
    again = edited.replace(time="hours").fit(frame)
    assert again == fitted
    assert again != fitted.replace(target="level").fit(frame)
    with pytest.raises(OptionError, match="no option 'colour'"):
        fitted.replace(colour="red")
    with pytest.raises(UnknownNameError, match="task"):
        fitted.replace(task="guessing")
    with pytest.raises(ArgumentError, match="not fitted, so that no scale is known"):
        edited.transform(frame)


def test_options_alone_make_the_schema_of_from_table():
    data = Schema(**SAID).load(visits())
    other = from_table(visits(), **SAID)
    assert data.schema == other.schema
    assert torch.equal(data.train.x, other.train.x)
    assert repr(other.schema) == "Schema(id='patient', time='hours', target='died')"


NAMED = {"id": "patient", "time": "hours", "split": (0.6, 0.2, 0.2)}
WINDOWS = {"window": 3, "horizon": 2, "target": "a"}


@pytest.mark.parametrize("missing", ["observed", "inputs"])
@pytest.mark.parametrize(
    "options",
    [
        {"target": "died", "static": ["sex"]},
        {"target": "state", "features": ["a", "b"]},
        {"target": ["level", "b"], "per_step": True},
        {"target": "mean"},
        {"target": "code", "task": "classification"},
        {"features": ["a", "level"]},
        {"target": "a", "task": "next-step", "known": ["b"]},
        WINDOWS,
        {**WINDOWS, "known": ["b"], "stride": 1},
    ],
    ids=str,
)
def test_the_parts_are_what_the_schema_makes_of_their_rows(options, missing):
    rng = np.random.default_rng(1)
    count = 8
    frame = pandas.DataFrame({"patient": np.repeat([f"p{k}" for k in range(20)], count)})
    frame["hours"] = frame.groupby("patient").cumcount() + rng.uniform(0, 0.5, len(frame))
    frame["a"], frame["b"], frame["level"] = rng.normal(size=(3, len(frame)))
    frame["sex"] = np.repeat(rng.choice(["f", "m"], 20), count)
    frame["died"] = np.repeat(rng.choice([True, False], 20), count)
    frame["mean"] = np.repeat(rng.normal(size=20), count)
    frame["code"] = np.repeat(np.arange(20) % 2, count)
    frame["state"] = rng.choice(["calm", "ill", "well"], len(frame))
    for column in ("level", "a", "state"):
        frame.loc[rng.random(len(frame)) < 0.1, column] = None
    keep = rng.random(len(frame)) > 0.1
    columns = ["patient", "hours", "a", "b", "level", *options.get("static", ())]
    columns += [
        column for column in np.atleast_1d(options.get("target", "a")) if column not in columns
    ]
    frame = frame[keep][columns]
    data = from_table(frame, missing=missing, **NAMED, **options)
    for part in ("train", "valid", "test"):
        expected, names = getattr(data, part), data.schema.ids[part]
        batch = data.schema.transform(frame[frame["patient"].isin(names)], targets=True)
        for name, value in expected.tensors().items():
            tensor = batch.tensors()[name]
            assert torch.equal(tensor, value[:, : tensor.shape[1]] if name == "mask" else value), (
                name
            )
        more = batch.tensors().keys() - expected.tensors().keys()
        assert all(bool(batch.tensors()[name].all()) for name in more)


def test_a_class_that_is_new_is_named(frame):
    data = from_table(frame, **SAID, features=["a"])
    frame.loc[3:5, "died"] = "maybe"
    with pytest.raises(DataError, match=r"row 3 .* column 'died' holds 'maybe', a class that"):
        data.schema.transform(frame, targets=True)
    with pytest.raises(UnknownNameError, match=r"no column 'died' \(target\)"):
        data.schema.transform(frame.drop(columns="died"), targets=True)
    assert data.schema.transform(frame.drop(columns="died")).y.shape == (12,)
    ahead = from_table(frame, id="patient", time="hours", features=["a"])
    with pytest.raises(ArgumentError, match="lead_time: the rows to predict say when"):
        ahead.schema.transform(frame, targets=True, lead_time=1.0)


def test_json_gives_it_back(tmp_path, frame):
    fitted = Schema.guess(frame).replace(split={"train": ["p00", "p01"], "test": ["p02"]})
    frame = frame[frame["patient"] < "p03"]
    fitted = fitted.fit(frame)
    text = fitted.to_json(tmp_path / "schema.json")
    for source in (text, tmp_path / "schema.json", str(tmp_path / "schema.json")):
        back = Schema.from_json(source)
        assert {field.name for field in fields(back)} == {field.name for field in fields(fitted)}
        assert back.to_dict() == fitted.to_dict()
        assert back.split == fitted.split
        assert str(back) == str(fitted)
        assert torch.equal(back.transform(frame).x, fitted.transform(frame).x)
    assert "p05" not in text
    plain = Schema(**SAID)
    assert Schema.from_json(plain.to_json()) == plain
    assert isinstance(plain, TableOptions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "of version 2, and this tauflow reads up to 1"),
        ({"gap": "wide"}, "no schema that to_json wrote .gap must be a float"),
        ({"gap": 1e308}, "gap must be a number from 1e-30 to 1e.30, got 1e.308"),
        ({"task": "guess"}, "no schema that to_json wrote .*task"),
        ({"colour": 1}, "no schema that to_json wrote"),
        ({"summary": {"a": [1.0] * 11}}, "no schema that to_json wrote .*6 quantiles"),
        ({"summary": {"a": [1.0] * 3}}, "no schema that to_json wrote"),
        ({"gap_summary": [1.0, 2.0]}, "no schema that to_json wrote .*gap_summary"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    entries = json.loads(Schema(**SAID).to_json())
    with pytest.raises(DataError, match=message):
        Schema.from_json(json.dumps({**entries, **change}))
    (tmp_path / "a.json").write_text("[1, 2")
    with pytest.raises(DataError, match="no schema that to_json wrote"):
        Schema.from_json(tmp_path / "a.json")
    with pytest.raises(DataNotFoundError, match=r"b\.json cannot be read"):
        Schema.from_json(tmp_path / "b.json")


def test_it_is_printed_with_all_columns(frame):
    text = str(Schema.guess(frame).fit(frame))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert set(frame.columns) <= set(lines)
    assert "static" in lines["sex"]
    assert "categories f, m" in lines["sex"]
    assert "mean" in lines["level"]
    assert "one target per id: classes no, yes." in text
    assert "a time step of 1 is 2." in text
    assert "Split: 0.7, 0.15, 0.15, by id, seed 0." in text
    assert "Times: a time step of 1 is the median." in str(Schema(**SAID))
