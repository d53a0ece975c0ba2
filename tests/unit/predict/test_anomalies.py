import numpy as np
import pytest

import tauflow
from tauflow.errors import ArgumentError


def test_values_are_compared_with_their_forecasts(runs, table):
    predictor = tauflow.load_predictor(runs["next-step"].directory)
    changed = table.copy()
    place = int(np.flatnonzero(table["patient"] == 3)[-1])  # no row of the patient comes after it
    changed.loc[place, "b"] = 500.0
    found = predictor.score_anomalies(changed, calibrate_on=table)
    assert list(found)[:2] == ["patient", "hours"]
    worst = found.loc[found["score"].abs().idxmax()]
    assert worst["hours"] == table.loc[place, "hours"]
    assert (worst["feature"], worst["value"]) == ("b", pytest.approx(500.0))
    there = table[["a", "b"]].notna().to_numpy() & table.duplicated("patient").to_numpy()[:, None]
    assert len(found) == there.sum()
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
