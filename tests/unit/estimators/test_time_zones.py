"""Dates with a time zone and dates without one are not mixed, whichever table they stand in."""

import numpy as np
import pandas as pd
import polars
import pytest

from tauflow.errors import TimeError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceHawkes

NAIVE = pd.DataFrame(
    {
        "id": np.repeat(["a", "b"], 60),
        "when": [*pd.date_range("2024-03-01", periods=60, freq="h")] * 2,
        "v": np.sin(np.arange(120) / 4),
    }
)
AWARE = NAIVE.assign(when=NAIVE["when"].dt.tz_localize("Asia/Tokyo"))
ROLES = {"id": "id", "time": "when"}
PAIRS = pytest.mark.parametrize(
    ("table", "other", "words"),
    [
        (AWARE, NAIVE, "have a time zone, and those of .* have none"),
        (NAIVE, AWARE, "have no time zone, and those of .* have one"),
    ],
    ids=["aware", "naive"],
)


def fit(table, **options):
    model = SequenceForecaster(
        hidden_size=3, epochs=1, random_state=0, max_lead_time="3h", **options
    )
    return model.fit(table, **ROLES)


def ask(table, hours=2):
    last = table.groupby("id", as_index=False)["when"].max()
    return last.assign(when=last["when"] + pd.Timedelta(hours, "h"))


@PAIRS
def test_a_forecaster_refuses_the_other_kind(table, other, words, tmp_path):
    model = fit(table, intervals="conformal", validation_fraction=0.3)
    model.save(tmp_path / "forecaster.safetensors")
    for forecaster in (model, SequenceForecaster.load(tmp_path / "forecaster.safetensors")):
        with pytest.raises(TimeError, match=words):
            forecaster.forecast(table, at=ask(other))
        with pytest.raises(TimeError, match=words):
            forecaster.forecast(table, at=ask(other).astype({"when": str}))
        with pytest.raises(TimeError, match=words):
            forecaster.predict(other, at="1h")
        with pytest.raises(TimeError, match=words):
            forecaster.measure_coverage(table, since=other["when"][9])


@PAIRS
def test_a_pretrained_forecaster_refuses_the_other_kind(table, other, words):
    forecaster = SequenceForecaster.from_pretrained()
    with pytest.raises(TimeError, match=words):
        forecaster.forecast(table, ask(other), **ROLES)
    forecaster.fit(table, steps=0, **ROLES)
    for _ in range(2):
        with pytest.raises(TimeError, match=words):
            forecaster.forecast(other, "1h")
    forecaster.fit(other, steps=0, **ROLES)


@PAIRS
def test_other_estimators_refuse_the_other_kind(table, other, words):
    y = pd.Series([0, 1], index=["a", "b"])
    classifier = SequenceClassifier(hidden_size=3, epochs=1).fit(table, y, **ROLES)
    with pytest.raises(TimeError, match=words):
        classifier.predict(other)
    process = SequenceHawkes(hidden_size=3, epochs=1)
    events = [t.assign(kind=np.where(t["v"] > 0, "up", "down")) for t in (table, other)]
    process.fit(events[0], id="id", time="when", type="kind")
    with pytest.raises(TimeError, match=words):
        process.predict(events[1])
    with pytest.raises(TimeError, match="neither a column nor a time like those"):
        process.predict(events[0], now=other["when"].max())


def test_the_same_instants_of_another_zone_are_answered_alike():
    model = fit(AWARE)
    expected = model.predict(AWARE, at=ask(AWARE))
    elsewhere = AWARE.assign(when=AWARE["when"].dt.tz_convert("Europe/Berlin"))
    queries = ask(elsewhere)
    for at in (queries, polars.from_pandas(queries), queries.astype({"when": str})):
        np.testing.assert_array_equal(model.predict(elsewhere, at=at), expected)
        frame = model.forecast(AWARE, at=at)
        assert (pd.to_datetime(frame["when"]) == queries["when"]).all()
