"""Another table is read as the one that a model was trained on."""

import pytest
import torch
from own_tables import NAN, by_id, changed, transform_table, visits, write

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError, TimeError, UnknownNameError

SAID = {"id": "patient", "time": "hours", "features": ["a", "b"]}


def without(table, column):
    return {name: cells for name, cells in table.items() if name != column}


@pytest.mark.parametrize("missing", ["observed", "inputs"])
@pytest.mark.parametrize("target", ["died", "level"])
def test_the_same_rows_give_the_same_inputs(tmp_path, missing, target):
    table = visits(**changed("a", 4, NAN), level=[row / 7 for row in range(36)])
    data = from_table(table, target=target, missing=missing, **SAID)
    ids, batch = transform_table(data, without(table, target))
    assert ids == tuple(dict.fromkeys(table["patient"]))
    for place, name in enumerate(ids):
        piece = by_id(data)[name][1]
        assert torch.equal(batch.x[place], piece.x[0])
        assert torch.equal(batch.dt[place], piece.dt[0])
        assert batch.observed is None or torch.equal(batch.observed[place], piece.observed[0])
    assert (batch.observed is None) == (missing == "inputs")
    assert batch.y.shape[1:] == data.train.y.shape[1:]
    assert (batch.y_mask is not None) == data.card.per_step
    file = write(tmp_path / "new.csv", without(table, target))
    assert torch.equal(transform_table(data, file)[1].x, batch.x)


def test_sequences_of_any_length_are_scaled_by_the_old_table():
    data = from_table(visits(), target="died", time_unit="h", **SAID)
    new = {"patient": ["x", "y", "x"], "hours": [1.0, 2.0, 4.0], "a": [1.0, 2.0, 3.0]}
    ids, batch = transform_table(data, {**new, "b": [0.0, 0.0, 0.0]})
    assert ids == ("x", "y")
    assert batch.mask.tolist() == [[True, True], [True, False]]
    assert batch.dt.tolist() == [[0.0, 3.0], [0.0, 0.0]]
    back = data.schema.unscale_inputs(batch.x)
    assert back[0, :, 0].tolist() == pytest.approx([1.0, 3.0], abs=1e-5)


def test_the_last_row_looks_ahead():
    data = from_table(visits(), **SAID)
    _, batch = transform_table(data, visits(), lead_time=10.0)
    assert batch.x.shape == (12, 3, 3)
    want = by_id(data)["p00"][1].x[0]
    torch.testing.assert_close(batch.x[0, :2], want)
    assert data.schema.unscale_inputs(batch.x)[0, :, 2].tolist() == pytest.approx([1.5, 2.5, 10.0])


@pytest.mark.parametrize(
    ("target", "table", "options", "message"),
    [
        (None, {}, {}, "lead_time must say how long after the last row"),
        (None, {}, {"lead_time": -1.0}, "lead_time must be a number above 0"),
        ("died", {}, {"lead_time": 1.0}, "the model has no input for it"),
    ],
)
def test_what_does_not_fit(target, table, options, message):
    data = from_table(visits(), target=target, **SAID)
    with pytest.raises(ArgumentError, match=message):
        transform_table(data, visits(**table), **options)


def test_missing_values_are_told_also_where_the_training_had_none():
    data = from_table(visits(), target="died", **SAID)
    assert transform_table(data, visits())[1].observed is None
    _, batch = transform_table(data, visits(**changed("b", 1, NAN)))
    assert (~batch.observed).nonzero().tolist() == [[0, 1, 1]]
    assert batch.x[0, 1, 1] == 0.0
    model = tauflow.SequenceModel(tauflow.CfC(2, 3, return_sequences=False), 2)
    with pytest.raises(ArgumentError, match=r"CfC.* does not model missing features"):
        model(batch.x, dt=batch.dt, mask=batch.mask, observed=batch.observed)


def test_inputs_of_the_training_say_of_their_own_features_alone_what_is_missing():
    table = visits(**changed("a", 4, NAN))
    data = from_table(table, target="died", missing="inputs", **SAID)
    assert transform_table(data, table)[1].x.shape[2] == 3
    with pytest.raises(ArgumentError, match=r"row 1 .*: feature 'b' has missing values, and in"):
        transform_table(data, visits(**changed("b", 1, NAN)))


def test_numbers_are_no_dates_where_they_were_none_before():
    counts = [20240530, 20240531, 20240532] * 12
    data = from_table(visits(hours=counts), target="died", **SAID)
    new = {"patient": ["x", "x"], "hours": [20240531, 20240601], "a": [1, 2], "b": [3, 4]}
    assert transform_table(data, new)[1].dt.tolist() == [[0.0, 70.0]]


@pytest.mark.parametrize(
    ("hours", "message"),
    [
        ([0.0, 4.0, 1.5], r"time runs backwards. Sort the rows by time\.$"),
        ([0.0, 4.0, 4.0], r"Put what was measured at one time into one row\.$"),
        ([0.0, "1,5", 4.0], r"column 'hours' holds '1,5', .* decimals with a point\.$"),
        (["13.01.2024", 1.0, 4.0], r"Correct it, or remove the row\.$"),
    ],
)
def test_what_cannot_be_passed_is_not_advised(hours, message):
    data = from_table(visits(), **SAID)
    with pytest.raises(TimeError, match=message):
        transform_table(data, visits(hours=hours * 12))
    with pytest.raises(DataError, match=r"holds '2,5', .* decimals with a point\.$"):
        transform_table(data, visits(a=["2,5"] * 36))


def test_columns_and_units_have_to_be_there():
    data = from_table(visits(), target="died", **SAID)
    with pytest.raises(UnknownNameError, match=r"no column 'b' \(feature\)"):
        transform_table(data, without(visits(), "b"))
    dates = ["2024-05-01", "2024-05-02", "2024-05-04"] * 12
    dated = from_table(visits(hours=dates), target="died", time_unit="h", **SAID)
    with pytest.raises(TimeError, match="'hours' are numbers, but dates in the other table"):
        transform_table(dated, visits())
    assert transform_table(dated, visits(hours=dates))[1].dt[0].tolist() == [0.0, 24.0, 48.0]


def test_a_number_too_far_from_those_of_the_training_is_refused():
    data = from_table(visits(b=[1e-9 * (row % 3) for row in range(36)]), target="died", **SAID)
    with pytest.raises(DataError, match=r"'b' is 1e\+38 in a row, too far from"):
        transform_table(data, visits(**changed("b", 3, 1e38)))
