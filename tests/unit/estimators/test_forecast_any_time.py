"""Forecasts at times that are asked for."""

import re

import numpy as np
import pandas as pd
import pytest

from tauflow.errors import ArgumentError, DataError, ShiftWarning, TimeError, UnknownNameError
from tauflow.estimators import SequenceCollection, SequenceForecaster
from tauflow.estimators.forecast_queries import make_windows, plan_forecast, plan_training
from tauflow.tabular.sequences import Sequences

SMALL = {"model": "gru", "hidden_size": 12, "lr": 0.01, "random_state": 0, "validation_fraction": 0}


def decays(count, seed=0, start=0):
    """Return a table of decays from 1 or so, each at its own rate and irregular times."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(start, start + count):
        t = np.sort(rng.uniform(0, 20, 24))
        y = rng.uniform(1, 3) * np.exp(-rng.uniform(0.05, 0.3) * t) + 0.005 * rng.normal(size=24)
        rows.append(pd.DataFrame({"id": f"p{number}", "t": t, "y": y, "z": rng.normal(size=24)}))
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def fitted():
    forecaster = SequenceForecaster(
        **SMALL,
        epochs=16,
        origin_step=4,
        recipe={"schedule": "one_cycle"},
        max_lead_time=6.0,
        targets=["y"],
        intervals="conformal",
    )
    return forecaster.fit(decays(60), id="id", time="t", validation=decays(20, 2))


def test_decays_are_continued_far_better_than_by_their_last_value(fitted):
    table = decays(30, seed=3)
    past = table[table["t"] < 14]
    future = table[(table["t"] >= 14)].merge(past.groupby("id")["t"].max().rename("last"), on="id")
    future = future[future["t"] < future["last"] + 6]
    predictions = fitted.predict(past, at=future[["id", "t"]])[:, 0]
    last = future.merge(past.groupby("id")["y"].last().rename("before"), on="id")["before"]
    errors = [
        np.mean((guess - future["y"].to_numpy()) ** 2) for guess in (predictions, last.to_numpy())
    ]
    assert errors[0] < 0.25 * errors[1]
    assert fitted.score(table) > 0.9


def test_each_answer_is_that_of_its_query_alone(fitted):
    table, at = decays(3, seed=1), np.array([4.0, 0.5, 2.5])
    together = fitted.predict(table, at=at)
    assert together.shape == (3, 3, 1)
    np.testing.assert_allclose(fitted.predict(table, at=at[::-1])[:, ::-1], together, atol=1e-5)
    for place in range(3):
        alone = fitted.predict(table, at=at[[place]])
        np.testing.assert_allclose(alone, together[:, [place]], atol=1e-5)
    per_id = np.stack([at, at + 1, at + 2])
    each = fitted.predict(table, at=per_id)
    np.testing.assert_allclose(each[0], together[0], atol=1e-5)
    # As a table, in any order and any number of each id.
    last = table.groupby("id")["t"].max()
    queries = pd.DataFrame({"id": ["p2", "p0", "p2"]})
    queries["t"] = last[queries["id"]].to_numpy() + at[[1, 0, 2]]
    asked = fitted.predict(table, at=queries)
    expected = together[[2, 0, 2], [1, 0, 2]]
    np.testing.assert_allclose(asked, expected, atol=1e-5)


def test_training_windows_hold_nothing_after_their_origin():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 3))
    values[rng.random((30, 3)) < 0.3] = np.nan
    rows = Sequences(values=values, lengths=np.array([12, 18]), dt=rng.uniform(0.1, 1.0, 30))
    known = np.array([2])
    for features in (known, known[:0]):
        queries = plan_training(rows, np.array([0]), features, features, 2.0, 1)
        later = values.copy()
        windows, places = make_windows(rows, queries, features, 5)
        assert len(queries)
        assert (queries.origin < queries.row).all()
        assert windows.is_query.sum() == len(queries) == len(set(places.tolist()))
        clock = (
            np.cumsum(windows.dt) - np.cumsum(windows.dt)[windows.starts][windows.sequence_index]
        )
        for number in (0, len(queries) // 2, len(queries) - 1):
            later = values.copy()  # other values after the origin of one query
            hidden = np.setdiff1d(np.arange(3), features)
            later[np.ix_(np.arange(queries.origin[number] + 1, 30), hidden)] = 99.0
            query = queries.select(np.array([number]))
            changed = Sequences(values=later, lengths=rows.lengths, dt=rows.dt)
            for source in (rows, changed):
                window, _ = make_windows(source, query, features, 5)
                if source is rows:
                    expected = window
                np.testing.assert_array_equal(window.values, expected.values)
            of = windows.sequence_index == windows.sequence_index[places[number]]
            samples = windows.values[of & ~windows.is_query]
            np.testing.assert_array_equal(window.values[:-1], samples)
            assert np.isnan(window.values[-1, hidden]).all()
            lead = (
                np.cumsum(rows.dt)[queries.row[number]] - np.cumsum(rows.dt)[queries.base[number]]
            )
            ends = np.flatnonzero(of & ~windows.is_query)[-1]
            if not len(features):
                assert clock[places[number]] - clock[ends] == pytest.approx(lead)


def test_training_asks_for_all_values_within_the_longest_lead_time():
    dt = np.array([0.0, 1.0, 0.5, 2.0, 1.0])
    rows = Sequences(values=np.arange(5.0)[:, None], lengths=np.array([5]), dt=dt)
    none = np.empty(0, np.int64)
    queries = plan_training(rows, np.array([0]), none, none, 2.0, 1)
    pairs = set(zip(queries.origin.tolist(), queries.row.tolist(), strict=True))
    assert pairs == {(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)}
    queries = plan_training(rows, np.array([0]), none, none, 2.0, 2)
    assert set(queries.origin.tolist()) == {3, 1}
    asked = plan_forecast(rows, none, 2.0, np.array([0, 0]), np.array([2.0, 0.5]))
    assert asked.origin.tolist() == asked.base.tolist() == [4, 4]


def doses(count, seed):
    """Return a table of levels that rise by a dose, which is known in advance, and fall again."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        level, clock = 0.0, 0.0
        for _ in range(40):
            gap = rng.uniform(0.5, 1.5)
            level, clock = level * np.exp(-0.4 * gap), clock + gap
            if rng.random() < 0.4:
                dose = rng.uniform(1, 3)
                level += dose
                rows.append((number, clock, np.nan, dose))
            else:
                rows.append((number, clock, level, np.nan))
    return pd.DataFrame(rows, columns=["id", "t", "level", "dose"])


def test_planned_doses_are_known_and_later_levels_are_not():
    forecaster = SequenceForecaster(
        **{**SMALL, "lr": 0.02},
        epochs=15,
        max_lead_time=6.0,
        targets="level",
        known=["dose"],
        origin_step=5,
    )
    forecaster.fit(doses(50, 0), id="id", time="t")
    table = doses(20, 1)
    origin = table["t"] < 30
    planned = table[origin | (table["t"] < 34)].copy()
    planned.loc[planned["t"] >= 30, "level"] = np.nan
    planned = planned.dropna(subset=["level", "dose"], how="all")
    asked = table[(table["t"] >= 30) & (table["t"] < 34) & table["level"].notna()]
    without = forecaster.predict(table[origin], at=asked[["id", "t"]])[:, 0]
    predictions = forecaster.predict(planned, at=asked[["id", "t"]])[:, 0]
    truth = asked["level"].to_numpy()
    assert np.mean((predictions - truth) ** 2) < 0.3 * np.mean((without - truth) ** 2)


@pytest.mark.parametrize("is_collection", [False, True])
def test_a_text_that_is_missing_makes_no_sample_of_known_values(is_collection):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat(["p", "q"], 40), "t": np.tile(np.arange(40.0), 2)})
    table["y"], table["dose"] = rng.normal(size=(2, 80))
    table["drug"] = rng.choice(["a", "b"], 80)
    forecaster = SequenceForecaster(**SMALL, epochs=1, max_lead_time=3.0, targets="y")
    forecaster.set_params(known=["dose"]).fit(table, id="id", time="t")
    planned = table.assign(**{n: table[n].mask(table["t"] >= 30) for n in ("y", "drug")})
    planned.loc[29, "y"] = np.nan  # of p, which is a sample by its drug
    if is_collection:
        planned = SequenceCollection(planned, id="id", time="t")
    forecasts = forecaster.forecast(planned, [1.0, 3.0])
    assert forecasts["t"].tolist() == [30.0, 32.0, 30.0, 32.0]
    alone = forecaster.predict(planned, at=pd.DataFrame({"id": ["p", "q"], "t": [32.0, 32.0]}))
    np.testing.assert_array_equal(forecasts["value"][1::2], alone[:, 0])


def test_tidy_forecasts_have_a_row_for_each_id_time_target_and_quantile(fitted):
    table = decays(2, seed=4)
    frame = fitted.forecast(table, at=[1.0, 3.0], interval=0.9)
    assert list(frame.columns) == ["id", "t", "target", "quantile", "value"]
    assert len(frame) == 2 * 2 * 3
    assert frame["quantile"].tolist()[::3] == [0.05] * 4
    last = table.groupby("id")["t"].max()
    np.testing.assert_allclose(frame["t"][::3], np.repeat(last, 2) + np.array([1, 3, 1, 3]))
    answers, low, high = fitted.predict(table, at=[1.0, 3.0], interval=0.9)
    np.testing.assert_allclose(frame["value"][0::3], low.ravel())
    np.testing.assert_allclose(frame["value"][1::3], answers.ravel())
    np.testing.assert_allclose(frame["value"][2::3], high.ravel())


def walks(count, seed):
    """Return random walks, whose forecasts are the surer the sooner they are for."""
    rng = np.random.default_rng(seed)
    dt = rng.uniform(0.2, 1.0, (count, 30))
    t, y = dt.cumsum(1), (np.sqrt(dt) * rng.normal(size=dt.shape)).cumsum(1)
    ids = np.repeat(np.arange(count), 30)
    return pd.DataFrame({"id": ids, "t": t.ravel(), "y": y.ravel()})


@pytest.mark.thorough
@pytest.mark.sampled(4)
@pytest.mark.parametrize("intervals", ["conformal", "quantile"])
def test_intervals_hold_their_share_at_every_lead_time(intervals):
    forecaster = SequenceForecaster(**SMALL, epochs=2, max_lead_time=6.0, intervals=intervals)
    forecaster.fit(walks(60, 0), id="id", time="t", validation=walks(60, 1))
    table = walks(300, 2)
    origin = table.groupby("id")["t"].transform(lambda t: t.iloc[14])
    past = table[table["t"] <= origin]
    later = table[(table["t"] > origin) & (table["t"] < origin + 6)]
    lead = (later["t"] - origin[later.index]).to_numpy()
    _, low, high = (
        bound[:, 0] for bound in forecaster.predict(past, at=later[["id", "t"]], interval=0.8)
    )
    inside = (low <= later["y"]) & (later["y"] <= high)
    for first, last in ((0, 1.5), (1.5, 3), (3, 4.5), (4.5, 6)):
        part = (lead > first) & (lead < last)
        assert inside[part].mean() == pytest.approx(0.8, abs=0.1)
    share = forecaster.measure_coverage(table, [0.8])[0.8]
    assert share == pytest.approx(0.8, abs=0.05)
    wide = (high - low)[lead > 4].mean() / (high - low)[lead < 1].mean()
    assert wide > 1.6  # sqrt(5 / 0.6) of a random walk


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
def test_intervals_follow_data_that_change_once_they_are_calibrated_again():
    forecaster = SequenceForecaster(**SMALL, epochs=2, max_lead_time=6.0, intervals="conformal")
    forecaster.fit(walks(60, 0), id="id", time="t", validation=walks(60, 1))
    later, test = (walks(60, seed).assign(y=lambda t: 4 * t["y"]) for seed in (2, 3))
    assert forecaster.measure_coverage(test, [0.8])[0.8] < 0.5
    weights = [p.clone() for p in forecaster.module_.parameters()]
    assert forecaster.recalibrate(later) is forecaster
    assert forecaster.measure_coverage(test, [0.8])[0.8] == pytest.approx(0.8, abs=0.06)
    for before, after in zip(weights, forecaster.module_.parameters(), strict=True):
        assert (before == after).all()


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
def test_coverage_since_a_time_counts_no_value_before():
    forecaster = SequenceForecaster(**SMALL, epochs=1, max_lead_time=6.0, intervals="conformal")
    forecaster.fit(walks(20, 0), id="id", time="t", validation=walks(20, 1))
    table = walks(20, 2)
    changed = table.assign(y=table["y"].where(table["t"] < 12, 1e4 * table["t"]))  # too steep
    assert forecaster.measure_coverage(changed, [0.8], since=12.0)[0.8] == 0
    assert forecaster.measure_coverage(changed, [0.8], since=0)[0.8] > 0
    with pytest.raises(TimeError, match="at least one"):
        forecaster.predict(table, at=[])
    with pytest.raises(TimeError, match="and since are dates"):
        forecaster.measure_coverage(table, since=pd.Timestamp("2024-01-01"))
    with pytest.raises(DataError):
        forecaster.measure_coverage(table, since=1e6)
    wave = np.sin(np.arange(90))[:, None]
    forecaster.fit(wave, validation=wave)
    with pytest.raises(ArgumentError, match="since= is a time of a table"):
        forecaster.measure_coverage(wave, since=3)


def test_dates_and_durations(tmp_path):
    table = decays(6)
    table["t"] = pd.Timestamp("2024-05-31", tz="Europe/Berlin") + pd.to_timedelta(table["t"], "h")
    forecaster = SequenceForecaster(**SMALL, epochs=1, max_lead_time="6h").fit(
        table, id="id", time="t"
    )
    frame = forecaster.forecast(table, at="90 minutes, 3h")
    last = table.groupby("id")["t"].max()
    steps = pd.to_timedelta([1.5, 1.5, 3, 3] * 6, "h")
    expected = pd.DatetimeIndex(last).repeat(4) + steps
    assert str(frame["t"].dt.tz) == "Europe/Berlin"
    assert (abs(frame["t"] - expected) < pd.Timedelta("1ms")).all()
    queries = frame.loc[frame["target"] == "y", ["id", "t"]]
    same = forecaster.predict(table, at=queries)
    np.testing.assert_allclose(same.ravel(), frame["value"], rtol=1e-4, atol=1e-5)
    with pytest.raises(TimeError, match=r"at holds numbers, and the times.*are dates.*'24h'"):
        forecaster.predict(table, at=[1.0, 2.0])
    mixed = forecaster.predict(table, at=[pd.Timedelta("1h"), "90min", np.timedelta64(2, "h")])
    np.testing.assert_array_equal(mixed, forecaster.predict(table, at="1h, 1.5 hours, 120min"))
    hours = re.escape(str(pd.Timedelta("7h").to_pytimedelta()))
    with pytest.raises(TimeError, match=rf"at asks for {hours} after .* for up to 6:00:00\."):
        forecaster.predict(table, at="7h")
    with pytest.raises(TimeError, match=r"at holds '1 year', expected .* give days"):
        forecaster.predict(table, at="1 year")
    with pytest.raises(TimeError, match="max_lead_time holds numbers"):
        SequenceForecaster(**SMALL, max_lead_time=6.0).fit(table, id="id", time="t")
    forecaster.save(tmp_path / "forecaster.safetensors")
    loaded = SequenceForecaster.load(tmp_path / "forecaster.safetensors")
    np.testing.assert_array_equal(
        loaded.forecast(table, at="1h")["value"], forecaster.forecast(table, at="1h")["value"]
    )
    with pytest.raises(TimeError, match="those of at are numbers"):
        forecaster.predict(table, at=queries.assign(t=1.0))


def test_a_series_without_times_counts_in_rows():
    wave = np.sin(np.arange(200) / 3)[:, None]
    forecaster = SequenceForecaster(**SMALL, epochs=2, max_lead_time=4, window=20).fit(wave)
    predictions = forecaster.predict(wave, at=[1, 2.5])
    assert predictions.shape == (2, 1)
    frame = forecaster.forecast(wave, at=[1, 2.5])
    assert frame["lead_time"].tolist() == [1.0, 2.5]
    np.testing.assert_allclose(frame["value"], predictions[:, 0])


def test_wrong_arguments_are_refused(fitted):
    table = decays(2)
    last = table.groupby("id")["t"].max()
    cases = [
        (TimeError, "above 0", {"at": [0.0]}),
        (TimeError, "trained for up to 6", {"at": [7.0]}),
        (TimeError, "durations, and the times of the data are numbers", {"at": "1h"}),
        (TimeError, "expected a span of time such as '24h'", {"at": "soon"}),
        (ArgumentError, "is asked when", {}),
        (ArgumentError, "is asked when", {"at": [1.0], "lead_time": [1.0]}),
        (UnknownNameError, "the id 'p9'", {"at": pd.DataFrame({"id": ["p9"], "t": [1.0]})}),
        (TimeError, "not after its last", {"at": pd.DataFrame({"id": ["p1"], "t": last["p1"]})}),
        (ArgumentError, "the columns y beside", {"at": table[["id", "t", "y"]]}),
        (UnknownNameError, "t", {"at": table[["id", "y"]]}),
    ]
    for error, words, arguments in cases:
        with pytest.raises(error, match=words):
            fitted.predict(table, **arguments)
    with pytest.raises(ArgumentError, match="Fit one with max_lead_time"):
        SequenceForecaster(**SMALL, epochs=1).fit(np.zeros((9, 1)) + np.arange(9)[:, None]).predict(
            np.zeros((9, 1)), at=[1]
        )
    for parameters, words in (
        ({"horizon": 2, "max_lead_time": 3.0}, "Give one of them"),
        ({"known": ["z"]}, "Give max_lead_time too"),
        ({"max_lead_time": 3.0, "known": ["y"], "targets": ["y"]}, "known in advance and a target"),
        ({"max_lead_time": 3.0, "model": "transformer"}, "a step of a cell"),
    ):
        with pytest.raises(ArgumentError, match=words):
            SequenceForecaster(**{**SMALL, **parameters}).fit(table, id="id", time="t")
    with pytest.raises(TimeError, match="must be above 0"):
        SequenceForecaster(**SMALL, max_lead_time=0.0).fit(table, id="id", time="t")
    with pytest.raises(DataError, match="within max_lead_time=1e-09"):
        SequenceForecaster(**SMALL, max_lead_time=1e-9).fit(table, id="id", time="t")


@pytest.mark.filterwarnings("ignore::tauflow.errors.ShiftWarning")
@pytest.mark.parametrize("horizon", [{"horizon": 3}, {"max_lead_time": 3.0}])
def test_times_are_given_each_time_or_never(horizon, tmp_path):
    y, t = np.sin(np.arange(60.0))[:, None], np.cumsum(np.random.default_rng(0).random(60))
    at = {} if "horizon" in horizon else {"at": [1.0]}
    for times, other in (({"t": t}, {}), ({}, {"t": t})):
        forecaster = SequenceForecaster(**SMALL, **horizon, epochs=1).fit(y, **times)
        forecaster.save(tmp_path / "fitted.safetensors")
        for each in (forecaster, SequenceForecaster.load(tmp_path / "fitted.safetensors")):
            assert np.isfinite(each.score(y, **times))
            with pytest.raises(ArgumentError, match="each time, or never"):
                each.score(y, **other)
            with pytest.raises(ArgumentError, match="each time, or never"):
                each.predict(y, **at, **other)


def test_what_stands_for_missing_values_is_no_option_of_forecasts_at_any_time():
    for options in ({"max_lead_time": 3.0}, {"model": "gru", "horizon": 3}):
        forecaster = SequenceForecaster(**options, impute="mean")
        with pytest.raises(ArgumentError, match=r"impute='mean' is not used .* by a cell"):
            forecaster.fit(decays(3), id="id", time="t")


def test_the_coverage_of_a_target_without_values_is_not_zero():
    forecaster = SequenceForecaster(**SMALL, epochs=1, max_lead_time=6.0, intervals="conformal")
    table = walks(20, 0).assign(z=lambda t: t["y"] ** 2)
    forecaster.fit(table, id="id", time="t", validation=table)
    with pytest.warns(ShiftWarning, match="'z': no value"):
        share = forecaster.measure_coverage(table.assign(z=np.nan), [0.8])[0.8]
    assert share[0] > 0
    assert np.isnan(share[1])
