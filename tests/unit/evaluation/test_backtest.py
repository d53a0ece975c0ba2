"""Back-tests show what forecasts would have been, from what was known then."""

import numpy as np
import pandas
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, root_mean_squared_error

from tauflow import GRU, Predictor, Recipe, SequenceModel, train
from tauflow.data import from_table, read_csv
from tauflow.errors import ArgumentError, DataError, TauflowError, UnknownNameError
from tauflow.estimators import SequenceForecaster, SequenceRegressor
from tauflow.evaluation import backtest
from tauflow.evaluation.backtest_baselines import forecast_naively

SMALL = {"model": "gru", "hidden_size": 4, "epochs": 2, "lr": 0.02, "random_state": 0}
RNG = np.random.default_rng(0)
DAY = np.sin(2 * np.pi * np.arange(200) / 12)[:, None] + 0.1 * RNG.normal(size=(200, 1))


@pytest.fixture(scope="module")
def fitted():
    return SequenceForecaster(**SMALL, horizon=3, intervals="conformal").fit(DAY[:150])


@pytest.fixture(scope="module")
def patients():
    rows = []
    for name, count, start in (("x", 40, 0.0), ("y", 30, 20.0), ("z", 4, 0.0)):
        times = start + RNG.exponential(size=count).cumsum()
        part = {"who": name, "when": times, "a": RNG.normal(size=count).cumsum()}
        part["b"] = RNG.normal(size=count)
        rows.append(pandas.DataFrame(part))
    frame = pandas.concat(rows, ignore_index=True)
    frame.loc[::7, "a"] = np.nan
    return frame


def test_naive_forecasts_and_scores_are_those_counted_by_hand(fitted):
    report = backtest(fitted, DAY, origins=4, step=5, season=12, interval=0.8, boosting=False)
    frame = report.frame
    assert frame["model"].unique().tolist() == [
        *("SequenceForecaster", "persistence", "drift", "seasonal naive")
    ]
    ends = [182, 187, 192, 197]  # rows that are known at each origin
    assert sorted(frame["origin"].unique()) == [end - 1 for end in ends]
    for name, part in frame.groupby("model"):
        for end in ends:
            here = part[part["origin"] == end - 1]
            np.testing.assert_array_equal(here["truth"], DAY[end : end + 3, 0])
            predictions = here["prediction"].to_numpy()
            if name == "persistence":
                assert (predictions == DAY[end - 1, 0]).all()
            elif name == "seasonal naive":
                np.testing.assert_array_equal(predictions, DAY[end - 12 : end - 9, 0])
            elif name == "drift":
                slope = (DAY[end - 1, 0] - DAY[0, 0]) / (end - 1)
                np.testing.assert_allclose(predictions, DAY[end - 1, 0] + slope * np.arange(1, 4))
            else:
                alone = fitted.predict(DAY[:end], interval=0.8)
                for column, values in zip(("prediction", "low", "high"), alone, strict=True):
                    np.testing.assert_allclose(here[column], values[:, 0], rtol=1e-5)
    scores = report.scores().set_index(["model", "step"])
    ours = frame[(frame["model"] == "SequenceForecaster") & (frame["step"] == 2)]
    row = scores.loc["SequenceForecaster", 2]
    truth, predictions = ours["truth"], ours["prediction"]
    assert row["mae"] == pytest.approx(mean_absolute_error(truth, predictions))
    assert row["rmse"] == pytest.approx(root_mean_squared_error(truth, predictions))
    scale = np.abs(DAY[12:182, 0] - DAY[:170, 0]).mean()
    assert row["mase"] == pytest.approx(mean_absolute_error(truth, predictions) / scale)
    ends = [mean_pinball_loss(truth, ours[c], alpha=a) for c, a in (("low", 0.1), ("high", 0.9))]
    assert row["pinball"] == pytest.approx(np.mean(ends))
    assert row["coverage"] == pytest.approx(truth.between(ours["low"], ours["high"]).mean())
    assert scores.loc["drift"]["coverage"].isna().all()
    assert report.scores(["model"])["count"].tolist() == [12] * 4


def test_nothing_after_an_origin_is_seen(fitted):
    later = DAY.copy()
    later[190:] = 99.0
    both = [backtest(fitted, X, origins=10, step=1, refit=False).frame for X in (DAY, later)]
    early = [frame[frame["origin"] < 190].drop(columns="truth") for frame in both]
    pandas.testing.assert_frame_equal(*early)
    refit = [backtest(fitted, X, origins=4, step=4, refit=True).frame for X in (DAY, later)]
    early = [frame[frame["origin"] < 190].drop(columns="truth") for frame in refit]
    assert early[0]["origin"].nunique() == 2
    pandas.testing.assert_frame_equal(*early)


def test_a_window_slides_and_refitting_learns_from_what_is_known(fitted):
    short = backtest(fitted, DAY, origins=2, window=20, boosting=False).frame
    rows_of_model = short[short["model"] == "SequenceForecaster"]
    alone = fitted.predict(DAY[174:194])[:, 0]
    np.testing.assert_allclose(rows_of_model["prediction"].head(3), alone, rtol=1e-5)
    again = backtest(fitted, DAY, origins=2, refit=True, boosting=False).frame
    fresh = SequenceForecaster(**SMALL, horizon=3, intervals="conformal").fit(DAY[:194])
    rows_of_model = again[again["model"] == "SequenceForecaster"]
    np.testing.assert_allclose(
        rows_of_model["prediction"].head(3), fresh.predict(DAY[:194])[:, 0], rtol=1e-4, atol=1e-5
    )


def test_gradient_boosting_learns_a_season_from_lags(fitted):
    scores = backtest(fitted, DAY, origins=8, lags=14).scores(["model"]).set_index("model")
    assert scores.loc["gradient boosting", "mae"] < 0.5 * scores.loc["persistence", "mae"]


def test_several_ids_have_origins_by_time_or_by_their_own_rows(patients):
    model = SequenceForecaster(**SMALL, horizon=2, targets=["a"])
    model.fit(patients, id="who", time="when")
    by_id = backtest(model, patients, origins=3, by="id", boosting=False).frame
    assert by_id["id"].unique().tolist() == ["x", "y"]  # z has too few rows
    last = by_id[(by_id["id"] == "y") & (by_id["step"] == 2)]["time"].max()
    assert last == patients.loc[patients["who"] == "y", "when"].max()
    by_time = backtest(model, patients, origins=3, step=4, boosting=False).frame
    assert (by_time["origin"] <= by_time["time"]).all()
    for origin, part in by_time.groupby("origin"):
        rows = patients[(patients["who"] == part["id"].iloc[0]) & (patients["when"] <= origin)]
        assert rows["when"].max() == origin
    ours = by_id[by_id["model"] == "SequenceForecaster"].iloc[-2:]
    cut = patients[patients["who"] == "y"].iloc[:-2]
    ahead = patients[patients["who"] == "y"]["when"].iloc[-2:].to_numpy() - cut["when"].iloc[-1]
    alone = model.predict(cut, lead_time=ahead[None])
    np.testing.assert_allclose(ours["prediction"], alone[0, :, 0], rtol=1e-5)
    last_value = by_id[by_id["model"] == "persistence"].iloc[-1]["prediction"]
    assert last_value == cut["a"].dropna().iloc[-1]
    assert by_id["truth"].isna().any()  # not counted
    assert (
        by_id.dropna(subset=["truth", "prediction"]).shape[0]  # later than learned
        == backtest(model, patients, origins=3, by="id", boosting=False)
        .scores(["model"])["count"]
        .sum()
    )


def test_a_predictor_is_given_what_is_known_ahead():
    hours = pandas.date_range("2024-01-30", periods=200, freq="h").astype(str)
    table = pandas.DataFrame({"time": hours, "load": DAY[:, 0], "clock": np.arange(200) % 12})
    options = {"time": "time", "window": 12, "horizon": 3, "known": ["clock"]}
    data = from_table(table[:150], task="next-step", **options)
    torch.manual_seed(0)
    body = GRU(data.card.input_size, 4, return_sequences=False)
    model = SequenceModel(body, data.card.target_size)
    train(model, train=data, recipe=Recipe(epochs=1), progress=False)
    predictor = Predictor.from_data(model, data, intervals=True)
    frame = backtest(predictor, table, origins=2, step=10, interval=0.5, boosting=False).frame
    first = frame[frame["model"] == "Predictor"].head(3)
    new = table[:190].copy()
    new.loc[187:, "load"] = np.nan
    alone = predictor.predict(new, interval=0.5)
    names = [f"load +{step}" for step in (1, 2, 3)]
    np.testing.assert_allclose(first["prediction"], alone[names].to_numpy()[0])
    np.testing.assert_allclose(first["low"], alone[[f"{n} low" for n in names]].to_numpy()[0])
    assert first["time"].tolist() == hours[187:190].tolist()
    assert predictor.predict(new, tidy=True)["time"].astype(str).tolist() == hours[187:190].tolist()
    with pytest.raises(ArgumentError, match="a Predictor holds a model alone"):
        backtest(predictor, table, refit=True)


def test_a_table_is_read_as_that_of_the_training(tmp_path):
    days = pandas.date_range("2024-01-30", periods=200, freq="D").strftime("%d.%m.%Y")
    wide = pandas.DataFrame({"day": days, "a": DAY[:, 0], "b": DAY[::-1, 0]})
    long = wide.melt("day", ["a", "b"], "what", "amount")
    long["amount"] = [str(amount).replace(".", ",") for amount in long["amount"]]
    long.loc[[3, 150], "amount"] = "nil"
    long.to_csv(tmp_path / "long.csv", sep=";", index=False)
    options = {"time": "day", "time_format": "%d.%m.%Y", "na_values": ["nil"], "task": "next-step"}
    cells = {"delimiter": ";", "decimal": ",", "long": ["what", "amount"]}
    sizes = {"window": 12, "horizon": 3, "missing": "inputs"}
    data = read_csv(tmp_path / "long.csv", **sizes, **options, **cells)
    torch.manual_seed(0)
    body = GRU(data.card.input_size, 4, return_sequences=False)
    predictor = Predictor.from_data(SequenceModel(body, data.card.target_size), data)
    frame = backtest(predictor, tmp_path / "long.csv", origins=4, boosting=False).frame
    rows_of_model = frame[(frame["model"] == "Predictor") & (frame["target"] == "a")]
    np.testing.assert_allclose(rows_of_model["truth"], wide["a"].tail(12))
    known = long[long["day"].isin(days[:197])]
    last = predictor.predict(known, decimal=",")[[f"a +{step}" for step in (1, 2, 3)]]
    np.testing.assert_allclose(rows_of_model["prediction"].tail(3), last.to_numpy()[0], rtol=1e-5)
    assert frame["origin"].iloc[-1] == pandas.to_datetime(days[196], format="%d.%m.%Y")
    with pytest.raises(UnknownNameError, match=r"no column 'amount' \(long\)"):
        backtest(predictor, long.drop(columns="amount"))


def test_columns_and_ids_that_are_missing_are_named(patients):
    model = SequenceForecaster(**SMALL, horizon=2, targets=["a"]).fit(
        patients, id="who", time="when"
    )
    with pytest.raises(UnknownNameError, match=r"no column 'a' \(target\)"):
        backtest(model, patients.drop(columns="a"))
    with pytest.raises(UnknownNameError, match=r"no column 'when' \(time\)"):
        backtest(model, patients.drop(columns="when"))
    for column, message in (("who", "expected an id"), ("when", "expected a number")):
        holed = patients.astype({column: object})
        holed.loc[3, column] = None
        with pytest.raises(TauflowError, match=message):
            backtest(model, holed)


def test_distributions_are_scored_by_their_deciles(fitted):
    report = backtest(fitted, DAY, origins=3, crps=True, boosting=False)
    naive = report.frame[report.frame["model"] == "persistence"]
    np.testing.assert_allclose(naive["crps"], (naive["truth"] - naive["prediction"]).abs())
    rows_of_model = report.frame[report.frame["model"] == "SequenceForecaster"]
    end = 191
    deciles = [fitted.predict(DAY[:end])]
    for level in (0.2, 0.4, 0.6, 0.8):
        low, high = fitted.predict(DAY[:end], interval=level)[1:]
        deciles = [low, *deciles, high]
    losses = [
        2 * mean_pinball_loss(DAY[end : end + 3], decile, alpha=alpha / 10)
        for alpha, decile in enumerate(deciles, 1)
    ]
    here = rows_of_model.loc[rows_of_model["origin"] == end - 1, "crps"]
    assert here.mean() == pytest.approx(np.mean(losses))
    scores = report.scores(["model"]).set_index("model")["crps"]
    assert scores["SequenceForecaster"] == pytest.approx(rows_of_model["crps"].mean())


def test_forecasts_at_any_time_are_tried_at_the_times_of_rows(patients):
    model = SequenceForecaster(**SMALL, max_lead_time=2.5, targets=["b"])
    model.fit(patients, id="who", time="when")
    frame = patients[patients["who"] != "z"]
    frame_of_backtest = backtest(model, frame, origins=2, by="id", boosting=False).frame
    rows_of_model = frame_of_backtest[frame_of_backtest["model"] == "SequenceForecaster"]
    longest = rows_of_model["time"] - rows_of_model["origin"]
    assert rows_of_model["step"].max() > 1
    assert (rows_of_model["prediction"].isna() == (longest > 2.5)).all()
    row = rows_of_model[(rows_of_model["id"] == "x") & (longest <= 2.5)].iloc[-1]
    past = frame[(frame["who"] == "x") & (frame["when"] <= row["origin"])]
    alone = model.predict(past, at=[row["time"] - row["origin"]])
    assert row["prediction"] == pytest.approx(alone.item(), abs=1e-5)


def test_ids_are_forecast_by_what_was_fitted_to_others(patients, tmp_path):
    model = SequenceForecaster(**SMALL, targets=["b"])
    model.fit(patients, id="who", time="when")
    options = {"origins": 2, "by": "id", "boosting": False, "id_folds": 3}
    frame = backtest(model, patients, **options).frame
    rows_of_model = frame[(frame["model"] == "SequenceForecaster") & (frame["id"] == "y")]
    others = SequenceForecaster(**SMALL, targets=["b"])
    others.fit(patients[patients["who"] != "y"], id="who", time="when")
    rows_of_id = patients[patients["who"] == "y"]
    lead = [[rows_of_model["time"].iloc[-1] - rows_of_model["origin"].iloc[-1]]]
    alone = others.predict(
        rows_of_id[rows_of_id["when"] <= rows_of_model["origin"].iloc[-1]], lead_time=lead
    )
    assert rows_of_model["prediction"].iloc[-1] == pytest.approx(alone.item(), abs=1e-5)
    # A file and a frame of another library are read alike.
    patients.to_csv(tmp_path / "p.csv", index=False)
    sources = [tmp_path / "p.csv", pytest.importorskip("polars").from_pandas(patients)]
    for source in sources:
        again = backtest(model, source, origins=2, by="id", boosting=False).frame
        same = backtest(model, patients, origins=2, by="id", boosting=False).frame
        np.testing.assert_allclose(again["prediction"], same["prediction"], rtol=1e-5)
    with pytest.raises(ArgumentError, match="id_folds=4: an estimator is fitted"):
        backtest(model, patients, origins=2, by="id", id_folds=4)


def test_the_picture_shows_error_and_forecasts(fitted):
    report = backtest(fitted, DAY, origins=5, interval=0.8)
    left, right = report.plot().axes
    assert len(left.get_lines()) == report.frame["model"].nunique()
    assert len(right.collections) == 5  # bands
    with pytest.raises(UnknownNameError, match="target='load'"):
        report.plot(target="load")


def test_bad_input_is_refused(fitted, patients):
    for arguments, error, why in (
        ({"origins": 0}, ArgumentError, "origins must be at least 1"),
        ({"origins": 100}, DataError, "too few for 100 origins 3 rows apart"),
        ({"by": "group"}, UnknownNameError, "by='group'"),
        ({"window": 1}, ArgumentError, "window must be at least 2"),
        ({"t": np.arange(3)}, DataError, "t has shape"),
    ):
        with pytest.raises(error, match=why):
            backtest(fitted, DAY, **arguments)
    with pytest.raises(ArgumentError, match="got a SequenceRegressor"):
        backtest(SequenceRegressor(**SMALL), DAY)
    with pytest.raises(ArgumentError, match="needs a fitted estimator"):
        backtest(SequenceForecaster(**SMALL), DAY)
    with pytest.raises(ArgumentError, match="one series"):
        backtest(fitted, DAY[:, 0])


def test_drift_goes_on_from_the_last_value_at_its_own_row():
    """A line stays on itself where the last rows lack a value."""
    line = 3.0 + 0.5 * np.arange(13)[:, None]
    history = line[:10].copy()
    history[[0, 7, 8, 9]] = np.nan
    drift = forecast_naively([history, line[:10]], 3, None)["drift"]
    np.testing.assert_allclose(drift, np.stack([line[10:], line[10:]]))


def test_the_scale_of_an_id_ends_before_its_own_first_origin():
    hours = np.arange(40.0)
    steady = pandas.DataFrame({"who": "x", "when": hours, "a": np.sin(hours)})
    late = pandas.DataFrame({"who": "y", "when": hours[24:], "a": 2.0 ** np.arange(16)})
    both = pandas.concat([steady, late], ignore_index=True)
    forecaster = SequenceForecaster(**SMALL, horizon=2).fit(both, id="who", time="when")
    frame = backtest(forecaster, both, origins=5, step=4, boosting=False).frame
    frame = frame[frame["id"] == "y"]
    first = int(frame["origin"].min())
    known = late.loc[late["when"] <= first, "a"].to_numpy()
    assert len(known) < len(late) - 2
    assert frame["scale"].unique() == pytest.approx([np.abs(np.diff(known)).mean()])


def test_a_forecaster_is_given_what_is_known_ahead():
    rng = np.random.default_rng(1)
    frame = pandas.DataFrame({"when": np.arange(60.0), "y": rng.normal(size=60).cumsum()})
    frame["drug"], frame["dose"] = rng.choice(["a", "b"], 60), rng.integers(0, 2, 60)
    frame["other"] = rng.normal(size=60)
    measured = ["y", "other"]
    frame.loc[53, measured] = np.nan  # no sample: what comes later is counted from row 52
    options = {"max_lead_time": 3.0, "targets": ["y"], "known": ["dose", "drug"]}
    model = SequenceForecaster(**SMALL, **options).fit(frame[:40], time="when")
    predictions = _get_predictions(backtest(model, frame, origins=2, boosting=False))
    for first, leads, place in ((57, [1.0, 2.0, 3.0], slice(3, 6)), (54, [2.0, 3.0], slice(0, 2))):
        table = frame[: first + 3].copy()
        table.loc[first:, measured] = np.nan
        alone = model.predict(table, at=leads)[:, 0]
        np.testing.assert_allclose(predictions[place], alone, rtol=1e-5)
        table.loc[first:, "dose"] = 1 - table.loc[first:, "dose"]
        assert not np.allclose(model.predict(table, at=leads)[:, 0], alone, rtol=1e-5)
    assert np.isnan(predictions[2])  # four steps after row 52
    X, t = frame[["y", "dose", "other"]].to_numpy(), np.arange(60.0)
    model = SequenceForecaster(**SMALL, max_lead_time=3.0, targets=[0], known=[1])
    model.fit(X[:40], t=t[:40])
    later = X.copy()
    later[57:, [0, 2]] = np.nan
    alone = model.predict(later, t=t, at=[1.0, 2.0, 3.0])[:, 0]
    predictions = _get_predictions(backtest(model, X, t=t, origins=1, boosting=False))
    np.testing.assert_allclose(predictions, alone, rtol=1e-5)


def _get_predictions(report):
    frame = report.frame
    return frame.loc[frame["model"] == "SequenceForecaster", "prediction"].to_numpy()


def test_ids_with_times_of_their_own_are_all_forecast_and_no_row_twice():
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame({"who": np.repeat(np.arange(6), 60), "y": rng.normal(size=360)})
    frame["when"] = np.sort(rng.uniform(0, 60, (6, 60))).ravel()
    model = SequenceForecaster(**SMALL, horizon=3).fit(frame, id="who", time="when")
    options = {"origins": 10, "boosting": False}
    naive = backtest(model, frame, **options).frame.query("model == 'persistence'")
    assert not naive.duplicated(["id", "time"]).any()
    assert (naive.groupby("id")["origin"].nunique() >= 4).all()
    assert len(naive) == naive["time"].nunique()
    # With the same times, and without any, each id has as many rows between two origins.
    same = frame.assign(when=np.tile(np.arange(60.0), 6))
    by_time, by_id = (backtest(model, same, by=by, **options).frame for by in ("time", "id"))
    pandas.testing.assert_frame_equal(by_time, by_id)
    untimed = frame.drop(columns="when")
    model = SequenceForecaster(**SMALL, horizon=3).fit(untimed, id="who")
    assert len(backtest(model, untimed, **options).frame) == len(by_id)


def test_moments_between_ids_one_after_another_are_no_origins():
    frame = pandas.DataFrame({"who": np.repeat([0, 1, 2], 30), "y": np.tile(DAY[:30, 0], 3)})
    frame["when"] = np.arange(90.0) + 70 * frame["who"]
    model = SequenceForecaster(**SMALL, horizon=3).fit(frame, id="who", time="when")
    for origins, counts in ((12, {1: 3, 2: 9}), (27, {0: 9, 1: 9, 2: 9})):
        report = backtest(model, frame, origins=origins, boosting=False).frame
        assert report.groupby("id")["origin"].nunique().to_dict() == counts
    with pytest.raises(DataError, match=r"too few for 28 origins .* leaves 27"):
        backtest(model, frame, origins=28)


def test_times_that_are_rounded_are_not_too_late():
    frame = pandas.DataFrame({"when": 0.1 * np.arange(120), "y": np.sin(np.arange(120) / 5)})
    model = SequenceForecaster(**SMALL, max_lead_time=0.3).fit(frame[:80], time="when")
    predictions = _get_predictions(backtest(model, frame, origins=12, boosting=False))
    assert len(predictions) == 36
    assert np.isfinite(predictions).all()


def test_times_may_be_nanoseconds_apart():
    gaps = np.tile([100, 300], 40)
    gaps[79] = 900  # the last row comes too late
    when = np.datetime64("2024-01-01") + gaps.cumsum().astype("m8[ns]")
    frame = pandas.DataFrame({"when": when, "y": DAY[:80, 0]})
    model = SequenceForecaster(**SMALL, max_lead_time=np.timedelta64(700, "ns"))
    model.fit(frame[:60], time="when")
    predictions = _get_predictions(backtest(model, frame, origins=2, boosting=False))
    lead = np.array([100, 400], "m8[ns]")
    alone = np.stack([model.predict(frame[:end], at=lead)[:, 0] for end in (76, 78)])
    np.testing.assert_allclose(predictions, [*alone[0], alone[1, 0], np.nan], rtol=1e-5)


def test_columns_that_the_fit_did_not_have_are_left_out_of_the_next():
    frame = pandas.DataFrame({"when": np.arange(80.0), "y": DAY[:80, 0], "who": "x"})
    more = frame.assign(later=frame["y"].shift(-3))
    model = SequenceForecaster(**SMALL, horizon=3).fit(frame[:60], id="who", time="when")
    options = {"origins": 1, "refit": True, "boosting": False}
    without, beside = (backtest(model, data, **options).frame for data in (frame, more))
    pandas.testing.assert_frame_equal(without, beside)


def test_times_are_read_as_fit_reads_them():
    hours = pandas.date_range("2024-03-30", periods=80, freq="h", tz="Europe/Berlin")
    values = DAY[:80]
    counts = pandas.Series(range(80), dtype="Int64")
    for t, at in ((counts, [1.0, 2.0, 3.0]), (hours, ["1h", "2h", "3h"])):
        model = SequenceForecaster(**SMALL, max_lead_time=at[-1]).fit(values[:60], t=t[:60])
        report = backtest(model, values, t=t, origins=2, boosting=False)
        alone = model.predict(values[:77], t=t[:77], at=at)[:, 0]
        np.testing.assert_allclose(_get_predictions(report)[3:], alone, rtol=1e-5)
    assert report.frame["origin"].unique().tolist() == [hours[73], hours[76]]
    for index in (hours.tz_localize(None), pandas.period_range("2024-03-30", periods=80, freq="h")):
        series = pandas.Series(values[:, 0], index=index, name="y")
        model = SequenceForecaster(**SMALL, max_lead_time="3h").fit(series[:60])
        report = backtest(model, series, origins=1, boosting=False)
        alone = model.predict(series[:77], at=["1h", "2h", "3h"])
        np.testing.assert_allclose(_get_predictions(report), alone.ravel(), rtol=1e-5)
