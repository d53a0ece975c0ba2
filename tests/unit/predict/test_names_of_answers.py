"""No two columns of answers have one name."""

from dataclasses import replace

import pytest
import torch

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError
from tauflow.predict import Predictor

SAID = {"id": "patient", "time": "hours", "features": ["b"]}


def untrained(data):
    torch.manual_seed(0)
    rnn = tauflow.GRU(data.card.input_size, 3, return_sequences=data.card.per_step)
    return Predictor.from_data(tauflow.SequenceModel(rnn, data.card.target_size), data)


def called(table, *classes, per_step=False):
    """Return the table with other classes, of patients or of their rows."""
    owners = range(len(table)) if per_step else table["patient"]
    return table.assign(died=[classes[owner % 2] for owner in owners])


@pytest.mark.parametrize(
    ("change", "options", "twice", "before"),
    [
        (lambda t: called(t, "patient", "x"), {}, "patient", "'patient',"),
        (lambda t: called(t, "x", "hours", per_step=True), {}, "hours", "'patient', 'hours',"),
        (
            lambda t: called(t, "x", "row", per_step=True),
            {"time": None},
            "row",
            "'patient', 'row',",
        ),
        (
            lambda t: t.rename(columns={"b": "row"}),
            {"time": None, "target": None, "task": "next-step", "features": ["row"]},
            "row",
            "'patient', 'row', 'row predicted',",
        ),
        (
            lambda t: t.rename(columns={"b": "row"}),
            {
                "time": None,
                "target": None,
                "task": "next-step",
                "features": ["row"],
                "window": 1,
                "horizon": 2,
            },
            "row +1",
            r"'patient', 'row', 'row \+1', 'row \+2',",
        ),
    ],
    ids=["id", "time", "no time", "next step", "horizon"],
)
def test_tables_whose_answers_would_are_refused(change, options, twice, before, table):
    options = {"target": "died", **SAID, **options}
    twice = twice.replace("+", r"\+")
    with pytest.raises(ArgumentError, match=f"two columns called '{twice}': .* with {before}"):
        from_table(change(table), **options)


def test_names_of_columns_that_are_not_in_the_answers_are_free(table):
    data = from_table(called(table, "hours", "row"), target="died", **SAID)
    answers = untrained(data).predict_proba(table)
    assert list(answers) == ["patient", "hours", "row"]


def test_a_predictor_of_an_older_version_refuses_chances_alone(table, tmp_path):
    predictor = untrained(from_table(table, target="died", **SAID))
    older = replace(predictor.schema, outputs=("no", "patient"))
    Predictor(predictor.model, predictor.card, older).save(tmp_path / "older.safetensors")
    loaded = tauflow.load_predictor(tmp_path / "older.safetensors")
    assert list(loaded.predict(table)) == ["patient", "died"]
    with pytest.raises(ArgumentError, match="two columns called 'patient'"):
        loaded.predict_proba(table)
