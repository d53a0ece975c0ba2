"""However sequences are written down, the same comes out."""

import datetime

import numpy as np
import pandas as pd
import polars
import pytest
from irregular_samples import SMALL, padded, sequences
from sklearn.metrics import get_scorer

from tauflow.errors import ArgumentError, DataError, TimeError, UnknownNameError
from tauflow.estimators import SequenceClassifier, SequenceRegressor

MODELS = ["cfc", "gru-d"]


def both(model, **more):
    return SequenceClassifier(model=model, **{**SMALL, **more}), sequences(missing=0.2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("impute", ["mean", "last"])
@pytest.mark.parametrize("model", MODELS)
def test_a_list_is_the_padded_array_with_lengths(model, impute):
    estimator, (X, t, y, _) = both(model, impute=impute)
    expected = estimator.fit(X, y, t=t).predict_proba(X, t=t)
    array, lengths = padded(X, fill=np.inf)  # whatever stands there
    times, _ = padded(t, fill=-1.0)
    fitted = estimator.fit(array, y, t=times, lengths=lengths)
    np.testing.assert_allclose(
        fitted.predict_proba(array, t=times, lengths=lengths), expected, rtol=0, atol=1e-6
    )
    gaps = [np.diff(times_of_id, prepend=times_of_id[:1]) for times_of_id in t]
    np.testing.assert_allclose(estimator.fit(X, y, dt=gaps).predict_proba(X, dt=gaps), expected)


@pytest.mark.parametrize("model", MODELS)
def test_parts_and_other_orders_are_answered_alike(model):
    estimator, (X, t, y, _) = both(model)
    probabilities_of_all = estimator.fit(X, y, t=t).predict_proba(X, t=t)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = estimator.predict_proba([X[n] for n in order], t=[t[n] for n in order])
    np.testing.assert_allclose(shuffled, probabilities_of_all[order], rtol=0, atol=1e-6)
    for part in (slice(0, 1), slice(3, 9)):
        probabilities = estimator.predict_proba(X[part], t=t[part])
        np.testing.assert_allclose(probabilities, probabilities_of_all[part], rtol=0, atol=1e-6)


def test_time_may_be_the_last_axis():
    X = np.random.default_rng(0).normal(size=(12, 5, 3))
    y = X[:, :, 0].sum(1)
    expected = SequenceRegressor(**SMALL).fit(X, y).predict(X)
    turned = X.swapaxes(1, 2)
    model = SequenceRegressor(**SMALL, layout="BIT").fit(turned, y)
    np.testing.assert_array_equal(model.predict(turned), expected)
    np.testing.assert_array_equal(model.predict(list(turned)), expected)


def frame(X, t, y):
    rows = [
        {"who": f"p{n}", "at": when, "a": x[0], "b": x[1], "target": y[n]}
        for n, part in enumerate(X)
        for x, when in zip(part, t[n], strict=True)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_table_is_the_list_of_its_ids(kind):
    estimator, (X, t, y, _) = both("gru-d")
    expected = estimator.fit(X, y, t=t).predict_proba(X, t=t)
    table = frame(X, t, y)
    mixed = table.sample(frac=1, random_state=0, replace=False).sort_values("at", kind="stable")
    firsts = [int(name[1:]) for name in mixed["who"].unique()]
    if kind == "polars":
        mixed = pytest.importorskip("polars").from_pandas(mixed)
    if kind == "arrow":
        mixed = pytest.importorskip("pyarrow").Table.from_pandas(mixed, preserve_index=False)
    fitted = estimator.fit(table, "target", id="who", time="at")
    np.testing.assert_allclose(fitted.predict_proba(mixed), expected[firsts], rtol=0, atol=1e-6)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    assert fitted.score(mixed, "target") == fitted.score(table, table["target"])
    columns = {name: table[name].to_numpy() for name in table}
    of_dict = estimator.fit(columns, "target", id="who", time="at")
    np.testing.assert_allclose(of_dict.predict_proba(mixed), expected[firsts], rtol=0, atol=1e-6)
    per_row = estimator.fit(table.drop(columns="target"), table["target"], id="who", time="at")
    np.testing.assert_allclose(per_row.predict_proba(table), expected, rtol=0, atol=1e-6)
    weight = np.arange(len(X)) + 1.0
    expected = estimator.fit(X, y, weight, t=t).predict_proba(X, t=t)
    of_rows = weight[table["who"].str[1:].astype(int)]
    weighted = estimator.fit(table, "target", of_rows, id="who", time="at")
    np.testing.assert_allclose(weighted.predict_proba(table), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_in_a_list_are_told_by_the_names_of_their_columns(kind):
    estimator, (X, t, y, _) = both("gru-d")
    expected = estimator.fit(X, y, t=t).predict_proba(X, t=t)
    frames = [pd.DataFrame(x, columns=["a", "b"]) for x in X]
    mixed = [table[["b", "a"]] if place % 2 else table for place, table in enumerate(frames)]
    others = [table.assign(more="text")[["more", "b", "a"]] for table in frames]
    if kind == "polars":
        of = pytest.importorskip("polars").from_pandas
    if kind == "arrow":
        of = pytest.importorskip("pyarrow").Table.from_pandas
    if kind != "pandas":
        mixed, others = ([of(part) for part in parts] for parts in (mixed, others))
    fitted = estimator.fit(mixed, y, t=t)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    for parts in (mixed, others):  # others, as those of one table, are left out
        np.testing.assert_allclose(fitted.predict_proba(parts, t=t), expected, rtol=0, atol=1e-6)
    long = pd.concat(frames, keys=range(len(X)), names=["who"]).reset_index("who")
    long["at"] = np.concatenate(t)
    probabilities = fitted.predict_proba(long[["b", "a", "who", "at"]], id="who", time="at")
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-6)


def test_frames_in_a_list_that_do_not_fit_are_refused():
    X, _, y, _ = sequences(8)
    frames = [pd.DataFrame(x, columns=["a", "b"]) for x in X]
    estimator = SequenceClassifier(**SMALL)
    with pytest.raises(DataError, match=r"X\[7\] has the columns a, c, and X\[0\] has a, b"):
        estimator.fit([*frames[:-1], frames[-1].set_axis(["a", "c"], axis=1)], y)
    with pytest.raises(ArgumentError, match=r"X\[7\] is a ndarray, and X\[0\] a data frame"):
        estimator.fit([*frames[:-1], X[-1]], y)
    with pytest.raises(
        DataError, match=r"X\[7\], row 0 .* column 'b' holds 'high', expected a fin"
    ):
        estimator.fit([*frames[:-1], frames[-1].assign(b="high")], y)
    with pytest.raises(ArgumentError, match="layout='BIT' is for arrays"):
        SequenceClassifier(**SMALL, layout="BIT").fit(frames, y)
    estimator.fit(frames, y)
    with pytest.raises(UnknownNameError, match=r"X\[0\] has no column 'b' \(feature\)"):
        estimator.predict([table[["a"]] for table in frames])
    with pytest.raises(ArgumentError, match="fitted to arrays, which name no features"):
        estimator.fit(X, y).predict(frames)
    numbered = [pd.DataFrame(x) for x in X]  # of which scikit-learn takes no names either
    assert estimator.fit(X, y).predict(numbered).tolist() == estimator.predict(X).tolist()


@pytest.mark.parametrize("kind", ["numbers", "text", "categories"])
def test_an_index_of_ids_says_whose_targets_and_weights_are(kind):
    X, t, y, number = sequences()
    who = np.random.default_rng(0).permutation(1000)[: len(X)]
    table = frame(X, t, y).assign(who=np.repeat(who, [len(x) for x in X]))
    if kind != "numbers":
        table["who"] = table["who"].astype(str)
    if kind == "categories":
        table["who"] = table["who"].astype("category")
    features, of_rows = table.drop(columns="target"), table["target"]
    roles = {"id": "who", "time": "at"}
    weight = pd.Series(np.repeat(number**2, [len(x) for x in X]))
    estimator = SequenceClassifier(**SMALL)
    expected = estimator.fit(features, of_rows, weight, **roles).predict_proba(features)
    of_ids = of_rows.groupby(table["who"], observed=True).first()
    weights = weight.groupby(table["who"], observed=True).first()
    assert of_ids.tolist() != y.tolist()
    fitted = estimator.fit(features, of_ids, weights, **roles)
    np.testing.assert_array_equal(fitted.predict_proba(features), expected)
    score = fitted.score(features, of_rows, weight)
    assert fitted.score(features, of_ids, weights) == pytest.approx(score)
    right = fitted.predict(features) == y
    assert score == pytest.approx(np.average(right, weights=number**2))
    for by_place in (y, pd.Series(y)):
        fitted = estimator.fit(features, by_place, number**2, **roles)
        np.testing.assert_array_equal(fitted.predict_proba(features), expected)
    with pytest.raises(DataError, match=r"y has one entry per id, and its index holds 1, 2, 3 and"):
        estimator.fit(features, pd.Series(y, index=np.arange(len(y)) + 1), **roles)


def test_tables_of_one_row_per_id_are_matched_by_row_or_id():
    frame = pd.DataFrame({"who": [3, 1, 2, 0], "a": [3.0, -1.0, 2.0, -2.0]})
    y = (frame["a"] > 0).rename("positive")
    estimator = SequenceClassifier(**{**SMALL, "epochs": 60})
    for targets in (y, y.set_axis(frame["who"]).sort_index(), y.tolist()):
        assert estimator.fit(frame, targets, id="who").predict(frame).tolist() == y.tolist()
    part = frame.iloc[::-1]
    assert estimator.fit(part, y.iloc[::-1], id="who").predict(frame).tolist() == y.tolist()


@pytest.mark.parametrize("library", [pd.DataFrame, polars.DataFrame])
def test_a_target_in_a_table_without_ids_is_no_feature(library):
    rows = np.random.default_rng(0).normal(size=(24, 3))
    X, y = rows[:, ::2], (rows[:, 1] > 0).astype(int)
    features, estimator = {"a": X[:, 0], "b": X[:, 1]}, SequenceClassifier(**SMALL)
    expected = estimator.fit(X, y).predict_proba(X)
    accuracy = estimator.score(X, y)
    table = library({"died": y, **features})
    model = estimator.fit(table, "died", validation=(table, "died"))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    model = estimator.fit(table, "died")
    np.testing.assert_array_equal(model.predict_proba(library(features)), expected)
    assert model.score(table, "died") == accuracy
    with pytest.raises(DataError, match=r"y is called 'died'.*give y='died'"):
        estimator.fit(table, pd.Series(y, name="died"))
    with pytest.raises(UnknownNameError, match=r"no column 'dead' \(target\)"):
        estimator.fit(table, "dead")


def test_dates_count_in_seconds_in_tables_and_arrays():
    X, t, y, _ = sequences(8)
    dates = [
        np.datetime64("2024-05-31", "ms") + (1000 * times_of_id).astype("m8[ms]")
        for times_of_id in t
    ]
    arrays = SequenceClassifier(**SMALL).fit(X, y, t=dates)
    table = SequenceClassifier(**SMALL).fit(frame(X, dates, y), "target", id="who", time="at")
    assert table.schema_.gap == pytest.approx(arrays.schema_.gap)
    np.testing.assert_allclose(
        table.predict_proba(frame(X, dates, y)), arrays.predict_proba(X, t=dates), atol=1e-6
    )
    gaps = [np.diff(date, prepend=date[:1]) for date in dates]
    probabilities = arrays.predict_proba(X, dt=gaps)
    np.testing.assert_allclose(probabilities, arrays.predict_proba(X, t=dates), atol=1e-6)
    hourly = [np.full(len(date), np.timedelta64(1, "h")) for date in dates]
    expected = SequenceClassifier(**SMALL).fit(X, y, dt=hourly).predict_proba(X, dt=hourly)
    for gap in (np.timedelta64(1, "h"), datetime.timedelta(hours=1), pd.Timedelta("1h")):
        probabilities = SequenceClassifier(**SMALL).fit(X, y, dt=gap)
        np.testing.assert_array_equal(probabilities.predict_proba(X, dt=gap), expected)
    with pytest.raises(ArgumentError, match="time_unit must be a number above 0, got np"):
        SequenceClassifier(**SMALL, time_unit=np.timedelta64(3600, "s")).fit(X, y, t=dates)
    with pytest.raises(TimeError, match="fitted to times that are dates, and these are numbers"):
        arrays.predict(X, t=t)
    with pytest.raises(TimeError, match="fitted to times that are dates, and these are numbers"):
        table.predict(frame(X, t, y))


def zoned(dates, zone="Europe/Berlin"):
    return [pd.DatetimeIndex(date).tz_localize("UTC").tz_convert(zone) for date in dates]


AS_DATES = {
    "indices": zoned,
    "several zones": lambda dates: [*zoned(dates[:3], "Asia/Kolkata"), *zoned(dates[3:])],
    "series": lambda dates: [pd.Series(stamps) for stamps in zoned(dates)],
    "objects": lambda dates: [stamps.to_pydatetime().tolist() for stamps in zoned(dates)],
    "naive objects": lambda dates: [date.astype("M8[us]").tolist() for date in dates],
}


@pytest.mark.parametrize("how", AS_DATES)
def test_dates_with_time_zones_are_those_in_utc(how):
    X, t, y, _ = sequences(8)
    # Over the night in which clocks are set back.
    hours = [np.round(100 * times_of_id).astype("m8[m]") for times_of_id in t]
    dates = [np.datetime64("2024-10-26T20:00", "ms") + hour for hour in hours]
    expected = SequenceClassifier(**SMALL).fit(X, y, t=dates)
    model = SequenceClassifier(**SMALL).fit(X, y, t=AS_DATES[how](dates))
    assert model.schema_.gap == expected.schema_.gap
    np.testing.assert_array_equal(
        model.predict_proba(X, t=AS_DATES[how](dates)), expected.predict_proba(X, t=dates)
    )
    array, lengths = padded(X)
    late = [date[np.minimum(np.arange(array.shape[1]), len(date) - 1)] for date in dates]
    again = model.predict_proba(array, t=AS_DATES[how](late), lengths=lengths)
    np.testing.assert_allclose(again, expected.predict_proba(X, t=dates), rtol=0, atol=1e-6)


def test_dates_with_and_without_time_zones_are_refused_together():
    X, t, y, _ = sequences(8)
    plain = [
        np.datetime64("2024-10-26", "us") + (1e6 * times_of_id).astype("m8[us]")
        for times_of_id in t
    ]
    aware, estimator = zoned(plain), SequenceClassifier(**SMALL)
    inside = [*plain[:-1], [*aware[-1][:-1], pd.Timestamp(plain[-1][-1])]]
    for dates in ([*plain[:-1], aware[-1]], [*aware[:-1], plain[-1]], inside):
        with pytest.raises(TimeError, match="an offset from UTC in either every date"):
            estimator.fit(X, y, t=dates)
    with pytest.raises(TimeError, match="t must be numbers or dates, got object"):
        estimator.fit(X, y, t=[stamps.astype(str).astype(object) for stamps in plain])
    with pytest.raises(TimeError, match=r"X\[7\], row 0 .* column 't' is empty"):
        estimator.fit(X, y, t=[*aware[:-1], aware[-1].where(aware[-1] > aware[-1][0])])


def test_dates_that_are_objects_keep_their_nanoseconds():
    X = np.zeros((2, 2, 1))
    start = pd.Timestamp("2024-10-26 01:00", tz="Asia/Kolkata")
    t = [[start, start + pd.Timedelta(place, "ns")] for place in (1001, 1001)]
    fitted = SequenceRegressor(**SMALL).fit(X, [0.0, 1.0], t=t)
    assert fitted.schema_.gap == pytest.approx(1001e-9)
    far = datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc)
    with pytest.raises(
        TimeError, match=r"X\[0\], row 0 .* holds '0001-01-01 00:.*expected a number, or a date"
    ):
        fitted.predict(X, t=[[far, t[0][1]], t[1]])


def test_numbers_that_may_be_places_or_ids_are_refused():
    X, t, y, _ = sequences()
    who = np.random.default_rng(0).permutation(len(X))
    table = frame(X, t, y).assign(who=np.repeat(who, [len(x) for x in X]))
    features, numbered = table.drop(columns="target"), pd.Series(y)
    estimator = SequenceClassifier(**SMALL)
    with pytest.raises(DataError, match=r"y is numbered 0, 1, 2 .* ids of 'who', too, in another"):
        estimator.fit(features, numbered, id="who", time="at")
    expected = estimator.fit(features, y, id="who", time="at").predict_proba(features)
    named = pd.Series(y, index=pd.Index(who, name="who")).sort_index()
    probabilities = estimator.fit(features, named, id="who", time="at").predict_proba(features)
    np.testing.assert_array_equal(probabilities, expected)


def test_large_targets_keep_their_digits():
    X, *_ = sequences()
    y = 1e8 + np.array([x[:, 0].mean() for x in X])
    near = SequenceRegressor(**{**SMALL, "epochs": 30}).fit(X, y - 1e8)
    far = SequenceRegressor(**{**SMALL, "epochs": 30}).fit(X, y)
    np.testing.assert_allclose(far.predict(X) - 1e8, near.predict(X), atol=1e-3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_scores_of_classes_of_an_ordered_dtype_are_those_of_their_texts(library):
    """Scorers take the columns of predict_proba as those of the sorted classes."""
    X = [np.full((4, 1), k % 3, np.float32) for k in range(30)]
    order, plain = ["mid", "high", "low"], np.array(["low", "mid", "high"])[np.arange(30) % 3]
    y = pd.Series(pd.Categorical(plain, order, ordered=True))
    if library == "polars":
        y = polars.Series(plain.tolist(), dtype=polars.Enum(order))
    estimator = SequenceClassifier(**{**SMALL, "epochs": 60})
    for name in ("roc_auc_ovr", "neg_log_loss"):
        expected = get_scorer(name)(estimator.fit(X, plain), X, plain)
        score = get_scorer(name)(estimator.fit(X, y), X, plain)
        assert score == expected, name
    assert estimator.score(X, y) == np.mean(estimator.predict(X) == plain)
