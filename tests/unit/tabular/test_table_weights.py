"""A column says how much the sequences of each id count in the loss."""

import numpy as np
import pytest
import torch
from own_tables import changed, visits

import tauflow
from tauflow.data import Schema, from_table
from tauflow.errors import ArgumentError, DataError, UnknownNameError

SAID = {"id": "patient", "time": "hours", "target": "died", "weight": "w"}
WEIGHTS = np.repeat(np.arange(1.0, 13.0) / 4, 3)


def test_the_training_part_has_the_weight_of_each_id():
    data = from_table(visits(w=WEIGHTS), **SAID)
    assert data.schema.inputs == ("a", "b")
    expected = [(int(name[1:]) + 1) / 4 for name in data.schema.ids["train"]]
    assert data.train.weight.tolist() == expected
    assert data.valid.weight is None
    assert data.test.weight is None
    assert data.schema.roles["w"] == "weight"
    plain = from_table(visits(), **{**SAID, "weight": None}).train.tensors()
    assert all(torch.equal(value, getattr(data.train, name)) for name, value in plain.items())
    guessed = Schema.guess(visits(w=WEIGHTS), weight="w").fit(visits(w=WEIGHTS))
    assert guessed.inputs == ("b",)  # as a numbers the rows


def test_every_window_has_the_weight_of_its_id():
    data = from_table(visits(w=WEIGHTS), **SAID, window=2, stride=1)
    expected = [(int(name[1:]) + 1) / 4 for name in data.schema.ids["train"]]
    assert len(expected) > 12
    assert data.train.weight.tolist() == expected


def test_an_id_of_weight_two_counts_as_two_ids():
    """The gradient of a weighted mean is that of the mean in which the sequence stands twice."""
    batch = from_table(visits(w=np.repeat([2.0, *np.ones(11)], 3)), **SAID).train
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.GRU(2, 3, return_sequences=False), 2)
    twice = torch.cat([torch.arange(len(batch)), (batch.weight == 2).nonzero().flatten()])
    repeated = batch[twice]
    out, _ = model(batch.x, dt=batch.dt)
    each = torch.nn.functional.cross_entropy(out, batch.y, reduction="none")
    weighted = (each * batch.weight).sum() / batch.weight.sum()
    again, _ = model(repeated.x, dt=repeated.dt)
    plain = torch.nn.functional.cross_entropy(again, repeated.y)
    assert weighted.item() == pytest.approx(plain.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (-1.0, r"row 4 .* column 'w' holds '-1.0', expected a weight above 0"),
        (9.0, r"row 4 .* column 'w' holds '9.0', expected a weight .* the same in all rows"),
        (None, r"row 4 .* column 'w' is empty, expected a weight"),
        ("heavy", r"row 4 .* column 'w' holds 'heavy', expected a finite number"),
    ],
)
def test_what_is_no_weight(cell, message):
    table = visits(w=list(WEIGHTS))
    table["w"][4] = cell
    with pytest.raises(DataError, match=message):
        from_table(table, **SAID)


def test_it_is_one_column_with_one_role():
    with pytest.raises(UnknownNameError, match=r"no column 'w' \(weight\)"):
        from_table(visits(), **SAID)
    with pytest.raises(ArgumentError, match="named as target and as weight"):
        from_table(visits(**changed("died", 0, "yes")), **{**SAID, "weight": "died"})
