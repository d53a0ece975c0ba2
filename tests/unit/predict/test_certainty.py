"""Answers of predictors with intervals, thresholds and spreads, wide and tidy."""

import numpy as np
import pandas
import pytest
import torch

from tauflow import GRU, Predictor, Recipe, SequenceModel, load_predictor, train
from tauflow.data import from_table
from tauflow.errors import ArgumentError, DataError
from tauflow.evaluation import choose_threshold
from tauflow.models import Calibrated, Ensemble

RECIPE = Recipe(epochs=2, lr=0.01, batch_size=32)


def visits(count=90):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(count), 4)
    hours = pandas.Timestamp("2024-01-30") + pandas.to_timedelta(np.tile([0, 1, 3, 6], count), "h")
    a = rng.normal(size=4 * count)
    died = np.repeat(np.where(rng.random(count) < 0.4, "yes", "no"), 4)
    dose = np.repeat(100 + 10 * rng.normal(size=count), 4)
    frame = {"id": ids, "time": hours.astype(str), "a": a, "died": died, "dose": dose}
    return pandas.DataFrame(frame)


def trained(target, count=1, spread=None, table=None, **more):
    table = visits() if table is None else table
    options = {"id": "id", "time": "time", "features": ["a"], **more}
    data = from_table(table, **({"target": target, **options} if target else options))
    members = []
    for seed in range(count):
        torch.manual_seed(seed)
        body = GRU(data.card.input_size, 4, return_sequences=data.card.per_step)
        members.append(SequenceModel(body, data.card.target_size, spread=spread))
        train(members[-1], train=data, recipe=RECIPE, progress=False)
    return Ensemble(members, data.card.task) if count > 1 else members[0], data


def test_a_threshold_decides_and_is_kept_in_the_file(tmp_path):
    model, data = trained("died")
    rule = {"sensitivity": 0.8}
    predictor = Predictor.from_data(model, data, calibrate="isotonic", threshold=rule)
    assert isinstance(predictor.model, Calibrated)
    valid = predictor.predict_proba(data.valid)[:, 1].double().numpy()
    chosen = choose_threshold(data.valid.y.numpy() == 1, valid, rule)
    assert predictor.certainty.threshold.value == pytest.approx(chosen)
    predictor.save(tmp_path / "p.safetensors")
    again = load_predictor(tmp_path / "p.safetensors")
    new = visits(20)
    assert again.predict(new).equals(predictor.predict(new))
    probability = again.predict_proba(new)["yes"]
    assert again.predict(new)["died"].eq("yes").equals(probability >= chosen)
    tidy = again.predict(new, tidy=True)
    assert list(tidy) == ["id", "target", "class", "probability", "predicted"]
    assert tidy["id"].tolist() == np.repeat(np.arange(20), 2).tolist()
    assert tidy.groupby("id")["probability"].sum().to_numpy() == pytest.approx(np.ones(20))
    decisions = tidy[tidy["predicted"]].set_index("id")["class"]
    assert decisions.tolist() == again.predict(new)["died"].tolist()
    always = Predictor.from_data(model, data, threshold=0.0, positive=0)
    assert set(always.predict(new)["died"]) == {"no"}


@pytest.mark.parametrize("spread", [None, "quantile", "gaussian"])
def test_intervals_are_in_units_of_the_table(spread, tmp_path):
    model, data = trained("dose", count=2, spread=spread)
    predictor = Predictor.from_data(model, data, intervals=True)
    predictor.save(tmp_path / "p.safetensors")
    predictor = load_predictor(tmp_path / "p.safetensors")
    new = visits(20)
    wide = predictor.predict(new, interval=0.8, spread=True)
    assert list(wide) == ["id", "dose", "dose low", "dose high", "dose std"]
    assert wide["dose"].equals(predictor.predict(new)["dose"])
    assert (wide["dose low"] < wide["dose high"]).all()
    low, high = data.schema.unscale(data.valid.y).quantile(torch.tensor([0.1, 0.9]).double())
    width = (wide["dose high"] - wide["dose low"]).mean()
    assert width == pytest.approx(float(high - low), rel=0.5)
    held = predictor.predict(data.valid, interval=0.8)
    assert held.shape == (len(data.valid), 1, 3)
    truth = data.schema.unscale(data.valid.y)
    inside = (held[..., 1] <= truth) & (truth <= held[..., 2])
    assert int(inside.sum()) >= int(0.8 * len(truth))
    tidy = predictor.predict(new, interval=0.8, tidy=True)
    assert list(tidy) == ["id", "target", "quantile", "value"]
    assert tidy["quantile"].head(3).fillna(-1).tolist() == [0.1, -1, 0.9]
    assert tidy["value"].to_numpy().reshape(-1, 3) == pytest.approx(
        wide[["dose low", "dose", "dose high"]].to_numpy()
    )


def test_tidy_forecasts_say_which_time_they_are_for():
    rng = np.random.default_rng(0)
    hours = pandas.date_range("2024-01-30", periods=400, freq="h").astype(str)
    table = {"id": np.zeros(400, int), "time": hours, "a": rng.normal(size=400)}
    table["b"] = 5 + rng.normal(size=400)
    options = {"features": ["a", "b"], "window": 12, "horizon": 3, "split_by": "time"}
    model, data = trained(None, table=table, task="next-step", **options)
    predictor = Predictor.from_data(model, data, intervals=True)
    new = {name: cells[:30] for name, cells in table.items()}
    tidy = predictor.predict(new, interval=0.5, tidy=True)
    assert list(tidy) == ["id", "time", "from", "step", "target", "quantile", "value"]
    assert len(tidy) == 3 * 2 * 3
    assert tidy["target"].unique().tolist() == ["a", "b"]
    assert (tidy["from"] == pandas.Timestamp("2024-01-31 05:00")).all()
    later = tidy["from"] + pandas.to_timedelta(tidy["step"], unit="h")
    assert (tidy["time"] == later).all()
    wide = predictor.predict(new, interval=0.5)
    point = tidy[tidy["quantile"].isna()].set_index(["target", "step"])["value"]
    assert point["b", 2] == wide["b +2"].item()
    rows, data = trained(None, table=table, task="next-step", features=["a"], split_by="time")
    each = Predictor.from_data(rows, data).predict(new, tidy=True)
    assert list(each) == ["id", "time", "from", "target", "value"]
    assert (each["time"] == each["from"] + pandas.Timedelta("1h")).all()


def test_answers_that_cannot_be_given_are_refused(tmp_path):
    model, data = trained("died")
    plain = Predictor.from_data(model, data)
    with pytest.raises(ArgumentError, match="intervals are of values"):
        plain.predict(visits(3), interval=0.9)
    with pytest.raises(ArgumentError, match="members of an ensemble"):
        plain.predict_proba(visits(3), spread=True)
    with pytest.raises(ArgumentError, match="that of their probabilities"):
        plain.predict(visits(3), spread=True)
    with pytest.raises(ArgumentError, match="intervals are of values"):
        Predictor.from_data(model, data, intervals=True)
    values, numbers = trained("dose")
    with pytest.raises(ArgumentError, match="this predictor has no intervals"):
        Predictor.from_data(values, numbers).predict(visits(3), interval=0.9)
    with pytest.raises(ArgumentError, match="decides between two classes"):
        Predictor.from_data(values, numbers, threshold="f1")
    with pytest.raises(ArgumentError, match="is for probabilities of classes"):
        Predictor.from_data(values, numbers, calibrate="temperature")
    from dataclasses import replace

    with pytest.raises(ArgumentError, match="has none"):
        Predictor.from_data(model, replace(data, valid=None), threshold="f1")
    alike = replace(data, valid=replace(data.valid, y=torch.zeros_like(data.valid.y)))
    with pytest.raises(DataError, match="one class alone"):
        Predictor.from_data(model, alike, calibrate="temperature")
