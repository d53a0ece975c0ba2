import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow.data import from_table
from tauflow.errors import ArgumentError


def test_values_are_compared_with_their_forecasts(runs, table):
    predictor = tauflow.load_predictor(runs["next-step"].directory)
    changed = table.copy()
    place = int(np.flatnonzero(table["patient"] == 3)[-1])  # no row of the patient comes after it
    changed.loc[place, "b"] = 500.0
    scores = predictor.score_anomalies(changed, calibrate_on=table)
    assert list(scores)[:2] == ["patient", "hours"]
    worst = scores.loc[scores["score"].abs().idxmax()]
    assert worst["hours"] == table.loc[place, "hours"]
    assert (worst["feature"], worst["value"]) == ("b", pytest.approx(500.0))
    there = table[["a", "b"]].notna().to_numpy() & table.duplicated("patient").to_numpy()[:, None]
    assert len(scores) == there.sum()
    forecasts = predictor.predict(table, lead_time=1.0)
    before = forecasts.groupby("patient")[["b"]].shift().assign(hours=table["hours"]).dropna()
    calm = predictor.score_anomalies(table).query("feature == 'b'")
    np.testing.assert_allclose(calm["forecast"], before["b"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(calm["hours"], before["hours"])
    share = calm["probability"].rank(method="max") / len(calm)
    np.testing.assert_allclose(calm["probability"], share, atol=0.05)


def test_a_model_of_classes_is_refused(runs, table):
    predictor = tauflow.load_predictor(runs["classification"].directory)
    with pytest.raises(ArgumentError, match="no forecast of each next row"):
        predictor.score_anomalies(table)


@pytest.mark.filterwarnings("ignore:other values of inputs that were constant")
def test_values_of_a_sensor_that_never_moved_in_training_are_those_of_the_table():
    rows = [(p, hour, p + 0.1 * hour, 5.0, "up") for p in range(20) for hour in range(6)]
    table = pandas.DataFrame(rows, columns=["who", "hour", "a", "stuck", "state"])
    data = from_table(table, id="who", time="hour", task="next-step", target=["a", "stuck"])
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.GRU(data.card.input_size, 4), 2)
    predictor = tauflow.Predictor.from_data(model, data)
    new = table[table["who"] < 10].astype({"a": float})
    new.loc[3, ["a", "stuck"]] = [40.0000001, 9.0]
    scores = predictor.score_anomalies(new).set_index(["who", "hour", "feature"])
    assert scores.loc[(0, 3, "stuck"), "value"] == 9.0
    assert scores.loc[(0, 3, "stuck"), "probability"] == scores["probability"].min()
    assert scores.loc[(0, 3, "a"), "value"] == 40.0000001
    explained = predictor.explain(new[new["who"] == 0], output="a").values.set_index(
        ["feature", "hour"]
    )
    assert explained.loc[("stuck", 3), "value"] == 9.0
    assert explained.loc[("stuck", 3), "attribution"] == 0.0
    assert (explained.loc["state", "value"] == "up").all()
