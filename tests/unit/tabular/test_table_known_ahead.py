"""Forecasts that are told what is known ahead: of the rows to predict, and demanded for them."""

import numpy as np
import pytest
import torch
from own_tables import NAN

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError
from tauflow.predict import Predictor, load_predictor

SAID = {"time": "t", "known": ["plan"], "scale": False, "time_unit": None}


def series(rows=200, **more):
    """Return a load that is the plan of the same row, and a plan that cannot be guessed."""
    plan = np.random.default_rng(0).normal(size=rows).round(3).tolist()
    return {"t": [2.0 * row for row in range(rows)], "load": plan, "plan": plan, **more}


def ahead(rows, history):
    """Return a series whose last rows hold the plan alone."""
    table = series(rows)
    return {**table, "load": [*table["load"][:history], *[NAN] * (rows - history)]}


@pytest.mark.parametrize("missing", ["observed", "inputs"])
def test_each_row_is_told_the_plan_of_the_rows_to_predict(missing):
    data = from_table(series(), window=10, horizon=3, missing=missing, **SAID)
    assert data.schema.inputs == ("load", "plan", "plan +1", "plan +2", "plan +3")
    assert data.schema.outputs == ("load +1", "load +2", "load +3")
    assert torch.equal(data.train.x[:, -1, 2:], data.train.y)  # the load is what the plan was
    assert torch.equal(data.train.x[:, :-1, 2], data.train.x[:, 1:, 1])
    assert data.train.observed is None
    following = from_table(series(), missing=missing, **SAID)
    assert following.schema.inputs == ("load", "plan", "plan +1")
    assert torch.equal(following.test.x[..., 2:], following.test.y)


def test_what_was_not_known_ahead_is_in_no_input():
    table, data = series(), from_table(series(), window=10, horizon=3, **SAID)
    table["load"] = [value if row < 50 else -value for row, value in enumerate(table["load"])]
    other = from_table(table, window=10, horizon=3, **SAID)
    until = 13  # windows from row 0, 3, ... end before row 50
    assert torch.equal(data.train.x[:until], other.train.x[:until])


def test_text_may_be_known_ahead():
    day = ["work" if row % 7 < 5 else "rest" for row in range(200)]
    data = from_table(series(day=day), window=5, horizon=1, **{**SAID, "known": ["day"]})
    names = ("load", "plan", "day=rest +1", "day=work +1", "day=rest", "day=work")
    assert data.schema.inputs == names
    assert data.schema.outputs == ("load +1", "plan +1")
    assert torch.equal(data.train.x[:, :-1, 2:4], data.train.x[:, 1:, 4:])


class Told(torch.nn.Module):
    """Answers with the inputs that hold the plan of the rows to predict."""

    def __init__(self, steps, per_step):
        super().__init__()
        self.steps, self.per_step = steps, per_step

    def forward(self, x, **_):
        known_ahead = x[..., 2 : 2 + self.steps]
        return (known_ahead if self.per_step else known_ahead[:, -1]), None


def test_predictions_are_for_the_rows_that_hold_the_plan_alone():
    data = from_table(series(), window=10, horizon=3, **SAID)
    predicted = Predictor.from_data(Told(3, per_step=False), data).predict(ahead(43, 40))
    assert list(predicted) == ["t", "t +1", "t +2", "t +3", "load +1", "load +2", "load +3"]
    assert predicted.iloc[0, :4].tolist() == [78.0, 80.0, 82.0, 84.0]
    assert predicted.iloc[0, 4:].tolist() == pytest.approx(series()["plan"][40:43])
    uneven = {"t": np.cumsum(1 + np.arange(200) % 3).tolist()}
    data = from_table(series(**uneven), **SAID)
    new = {**ahead(41, 40), "t": uneven["t"][:41]}
    predicted = Predictor.from_data(Told(1, per_step=True), data).predict(new)
    assert len(predicted) == 40
    assert predicted["t predicted"].tolist() == uneven["t"][1:41]
    assert predicted["load"].tolist() == pytest.approx(series()["plan"][1:41])


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (series(43), r"row 40 .*'load' holds .* which is to be predicted: the last 3 rows"),
        (ahead(3, 0), "too few rows"),
        ({**ahead(43, 40), "plan": [*series()["plan"][:42], NAN]}, "row 42.*'plan' is empty"),
    ],
)
def test_rows_to_predict_that_are_none(new, words):
    data = from_table(series(), window=10, horizon=3, **SAID)
    with pytest.raises(DataError, match=words):
        Predictor.from_data(Told(3, per_step=False), data).predict(new)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"known": ["plan"], "target": "plan"}, "known is for forecasts"),
        ({"known": ["plan"], "target": "plan", "task": "next-step"}, "cannot be forecast too"),
        ({"known": ["plan"], "static": ["plan"]}, "cannot be static too"),
        ({"known": ["plan"], "features": ["load"]}, "is no feature"),
        ({"known": "plan"}, "must be a list"),
    ],
)
def test_what_cannot_be_known_ahead(options, words):
    with pytest.raises(ArgumentError, match=words):
        from_table(series(plan=[1.0] * 200), time="t", **options)


def test_a_time_ahead_is_said_by_the_rows():
    data = from_table(series(), **SAID)
    model = tauflow.SequenceModel(tauflow.Elman(3, 2), 1)
    with pytest.raises(ArgumentError, match="the rows to predict say when"):
        Predictor.from_data(model, data).predict(ahead(41, 40), lead_time=1.0)


@pytest.mark.parametrize("more", [{}, {"window": 10, "horizon": 3}])
def test_the_scale_of_what_is_known_ahead_is_of_training_rows_alone(more):
    options = {**SAID, "scale": True}
    table = series()
    plan = [value if row < 140 else 1e6 for row, value in enumerate(table["plan"])]
    data = from_table(table, **options, **more)
    other = from_table({**table, "plan": plan}, **options, **more)
    assert torch.equal(data.train.x, other.train.x)
    if not more:
        ahead = np.array(table["plan"][1:140])
        assert float(data.schema.x_mean[2]) == pytest.approx(ahead.mean())
        assert float(data.schema.x_scale[2]) == pytest.approx(ahead.std())


UNEVEN = np.cumsum(1 + np.arange(200) % 3).astype(float)


class Whole(torch.nn.Module):
    """Answers with the inputs that hold how far ahead the rows to predict are."""

    def forward(self, x, **_):
        return x[:, -1, 5:8], None


@pytest.mark.parametrize("missing", ["observed", "inputs"])
def test_over_a_horizon_each_row_is_told_how_far_ahead_the_next_ones_are(missing):
    table = series(t=UNEVEN.tolist())
    data = from_table(table, window=10, horizon=3, missing=missing, **SAID)
    expected_names = ("gap ahead +1", "gap ahead +2", "gap ahead +3")
    assert data.schema.inputs == ("load", "plan", "plan +1", "plan +2", "plan +3", *expected_names)
    rows = np.arange(9, 9 + 3 * 3, 3)  # windows from row 0, 3, ...: their last rows
    gaps = np.stack([UNEVEN[rows + step] - UNEVEN[rows] for step in (1, 2, 3)], axis=1)
    np.testing.assert_allclose(data.train.x[:3, -1, 5:], gaps)
    assert any("lead times of the rows to predict are inputs" in note for note in data.card.notes)
    new = ahead(43, 40)
    new["t"] = [*UNEVEN[:40], *(UNEVEN[39] + np.array([0.5, 4.0, 90.0]))]
    predicted = Predictor.from_data(Whole(), data).predict(new)
    assert predicted.iloc[0, 1:4].tolist() == pytest.approx(new["t"][40:])
    assert predicted.iloc[0, 4:].tolist() == pytest.approx([0.5, 4.0, 90.0])


def test_a_saved_network_is_told_how_far_ahead_it_is_asked(tmp_path):
    data = from_table(series(t=UNEVEN.tolist()), window=10, horizon=2, **{**SAID, "scale": True})
    rnn = tauflow.Elman(data.card.input_size, 4, return_sequences=False)
    predictor = Predictor.from_data(tauflow.SequenceModel(rnn, 2), data)
    predictor.save(tmp_path / "it")
    answers = []
    for far in (1.0, 30.0):
        new = ahead(42, 40)
        new["t"] = [*UNEVEN[:40], UNEVEN[39] + far, UNEVEN[39] + far + 1]
        answers.append(load_predictor(tmp_path / "it").predict(new).iloc[0, 3:].tolist())
        assert answers[-1] == pytest.approx(predictor.predict(new).iloc[0, 3:].tolist())
    assert answers[0] != pytest.approx(answers[1])


def test_even_times_tell_nothing_and_what_is_not_told_is_said():
    known = from_table(series(), window=10, horizon=3, **SAID)
    assert not any("Time steps differ" in note for note in known.card.notes)
    options = {**SAID, "known": None}
    unknown = from_table(series(t=UNEVEN.tolist()), window=10, horizon=3, **options)
    assert unknown.schema.inputs == ("load", "plan")
    assert any(
        "lead times of the rows to predict are no inputs" in note for note in unknown.card.notes
    )
