"""Tables of a user's own, trained on from Python."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError
from tauflow.runs.baselines import score_baselines
from tauflow.runs.report.example_sequences import predict_examples

RECIPE = tauflow.Recipe(lr=0.02, epochs=10, batch_size=16)
SAID = {"id": "patient", "time": "when", "features": ["a", "b"], "time_unit": "h"}


def visits():
    """Return 60 patients; b tells who dies, y is 10 + 4 b, a tenth of b is missing."""
    rng = np.random.default_rng(0)
    rows = []
    for patient in range(60):
        dies = patient % 2
        for hour in rng.exponential(1.0, 6).cumsum():
            b = dies - 0.5 + 0.3 * rng.normal()
            seen = b if rng.random() > 0.1 else float("nan")
            rows.append((patient, hour, rng.normal(), seen, bool(dies), 10 + 4 * b))
    frame = pandas.DataFrame(rows, columns=["patient", "hours", "a", "b", "died", "y"])
    frame["when"] = pandas.Timestamp("2024-05-31") + pandas.to_timedelta(frame["hours"], unit="h")
    return frame


def trained(data, rnn):
    card = data.card
    model = tauflow.SequenceModel(rnn(card.input_size, 8, card.per_step), card.target_size)
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    names = {"loss": card.loss, "metric": card.metric}
    return model, tauflow.train(model, recipe=RECIPE, seed=0, **parts, **names)


@pytest.mark.parametrize(
    ("missing", "rnn"),
    [
        ("inputs", lambda width, size, each: tauflow.GRU(width, size, return_sequences=each)),
        ("observed", lambda width, size, each: tauflow.GRUD(width, size, return_sequences=each)),
    ],
)
def test_every_task_is_trained_by_the_batches_alone(missing, rnn):
    frame = visits()
    died = from_table(frame, target="died", missing=missing, **SAID)
    assert trained(died, rnn)[1].test > 0.8 > dict(score_baselines(died, "accuracy")).popitem()[1]
    level = from_table(frame, target="y", missing=missing, **SAID)
    assert trained(level, rnn)[1].test < 0.6 * dict(score_baselines(level, "mse"))["training mean"]


def test_parts_may_be_made_by_group_or_by_time(tmp_path):
    frame = visits()
    frame["ward"] = frame["patient"] // 5
    frame.to_csv(tmp_path / "visits.csv", index=False)
    for read, table in ((from_table, frame), (read_csv, tmp_path / "visits.csv")):
        grouped = read(table, target="died", group="ward", **SAID)
        wards = [
            {int(name) // 5 for name in grouped.schema.ids[part]}
            for part in ("train", "valid", "test")
        ]
        assert sum(map(len, wards)) == len(set.union(*wards)) == 12
        cut = read(table, target="y", split_by="time", split=(0.5, 0.0, 0.5), **SAID)
        assert cut.train.x.shape[:2] == cut.test.x.shape[:2] == (60, 3)


def test_predictions_are_shown_in_the_units_of_the_table():
    frame = visits()
    data = from_table(frame, target="y", missing="inputs", **SAID)
    model, _ = trained(data, lambda width, size, each: tauflow.GRU(width, size))
    shown = predict_examples(model, data, sequences=1)[0]
    truth = frame[frame["patient"].astype(str) == data.schema.ids["test"][0]]["y"]
    assert shown.truth[0] == pytest.approx(truth.tolist(), rel=1e-4)
    assert np.mean(shown.predicted[0]) == pytest.approx(truth.mean(), abs=2.0)
    elapsed = frame["hours"][truth.index]
    assert shown.time == pytest.approx((elapsed - elapsed.iloc[0]).tolist(), abs=1e-4)


def test_models_without_missingness_refuse_observed():
    data = from_table(visits(), target="died", **SAID)
    with pytest.raises(ArgumentError, match="append it to x as features"):
        trained(data, lambda width, size, each: tauflow.CfC(width, size, return_sequences=each))


def test_persistence_repeats_what_was_measured_last():
    table = {
        "who": ["a", "a", "a", "a", "b", "b", "b", "b", "c", "c", "c", "c"],
        "v": [1.0, None, 3.0, 4.0] * 3,
    }
    data = from_table(table, id="who", scale=False)
    # From 1, (1) and 3 to 3 and 4; the second target is missing: errors 2 and 1.
    assert dict(score_baselines(data, "mse"))["persistence"] == pytest.approx((4 + 1) / 2)
    hidden = replace(data.test, x=data.test.x.masked_fill(~data.test.observed, 99.0))
    assert dict(score_baselines(replace(data, test=hidden), "mse"))["persistence"] == 2.5
    assert torch.equal(data.test.y_mask[0, :], torch.tensor([False, True, True]))
