"""Values that do not follow from those before are found, at irregular times with missing values."""

import numpy as np
import pandas
import pytest

from tauflow.errors import DataError
from tauflow.estimators import SequenceForecaster


def decays(count, seed):
    """Return values that decay towards 0 with the time, with some noise, and their times."""
    rng = np.random.default_rng(seed)
    X, t = [], []
    for _ in range(count):
        gaps = rng.uniform(0.2, 2.0, 15)
        x = [rng.normal(0, 0.5)]
        x += [0.0] * 14
        for step in range(1, 15):
            x[step] = x[step - 1] * np.exp(-gaps[step]) + rng.normal(0, 0.05 + 0.1 * gaps[step])
        X.append(np.stack([x, rng.normal(50, 5, 15)], axis=1))
        t.append(gaps.cumsum())
    return X, t


@pytest.fixture(scope="module")
def forecaster():
    X, t = decays(40, 0)
    options = {"model": "gru", "hidden_size": 12, "epochs": 30, "lr": 0.02, "batch_size": 16}
    return SequenceForecaster(**options, targets=[0], validation_fraction=0, random_state=0).fit(
        X, t=t
    )


def test_planted_values_are_the_most_surprising(forecaster):
    normal, times = decays(200, 1)
    X, t = decays(200, 2)
    X[3][7, 0] += 5.0
    X[6][5, 0] = np.nan
    scores = forecaster.score_anomalies(X, t=t, calibrate_on={"X": normal, "t": times})
    assert list(scores) == [
        *("sequence", "step", "feature", "value", "forecast", "score", "probability")
    ]
    assert len(scores) == 200 * 14 - 1
    worst = scores.loc[scores["score"].abs().idxmax()]
    assert worst[["sequence", "step", "feature"]].tolist() == [3, 7, 0]
    assert worst["value"] == X[3][7, 0]
    assert worst["probability"] == pytest.approx(1 / (200 * 14 + 1))
    rest = scores[(scores["sequence"] != 3)]
    assert np.mean(rest["probability"] <= 0.1) == pytest.approx(0.1, abs=0.03)


def test_the_forecast_of_a_value_is_that_of_the_rows_before(forecaster):
    X, t = decays(5, 3)
    scores = forecaster.score_anomalies(X, t=t)
    row = scores[(scores["sequence"] == 2) & (scores["step"] == 6)].iloc[0]
    ahead = [t[2][6] - t[2][5]]
    alone = forecaster.predict([X[2][:6]], t=[t[2][:6]], lead_time=ahead)
    assert row["forecast"] == pytest.approx(float(alone[0, 0, 0]), rel=1e-4)


def test_tables_have_their_ids_and_names():
    X, t = decays(6, 4)
    table = pandas.DataFrame(np.concatenate(X), columns=["a", "b"])
    table["id"], table["time"] = np.repeat(list("uvwxyz"), 15), np.concatenate(t)
    forecaster = SequenceForecaster(model="gru", hidden_size=4, epochs=1, random_state=0)
    scores = forecaster.fit(table, id="id", time="time").score_anomalies(table)
    assert scores["sequence"].unique().tolist() == list("uvwxyz")
    assert scores["feature"].iloc[:2].tolist() == ["a", "b"]
    with pytest.raises(DataError, match="calibrate by"):
        forecaster.score_anomalies(table[table["id"] == "u"])


def test_time_steps_that_are_rounded_are_not_too_long():
    t = 0.1 * np.arange(120)
    X = np.sin(np.arange(120) / 5)[:, None]
    options = {"model": "gru", "hidden_size": 2, "epochs": 1, "random_state": 0}
    forecaster = SequenceForecaster(**options, max_lead_time=0.1).fit(X, t=t)
    assert len(forecaster.score_anomalies(X, t=t)) == 119  # all but the first
