"""The index of a data frame: dates and durations are the times, other names are refused."""

import numpy as np
import pandas
import pytest

from tauflow.errors import DataError, TimeError
from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

GAPS = np.random.default_rng(0).exponential(3600, 60)
DATES = pandas.to_datetime("2024-01-01") + pandas.to_timedelta(GAPS.cumsum(), unit="s")
FRAME = pandas.DataFrame({"v": np.sin(np.arange(60) / 3)}, index=DATES)
INDEXES = {
    "dates": DATES,
    "named": DATES.rename("when"),
    "zoned": DATES.tz_localize("Europe/Berlin"),
    "durations": DATES - DATES[0],
    "objects": pandas.Index(list(DATES), dtype=object),
    "arrow": pandas.Index(pandas.array(DATES, dtype="timestamp[ns][pyarrow]")),
}


def forecast(X, columns=None, **options):
    model = SequenceForecaster(model="cfc", hidden_size=3, epochs=1, random_state=0)
    new = {} if columns else options
    return model.fit(X, **options).predict(X, **new)


def expected(X=FRAME):
    return forecast(X.to_numpy(), t=X.index.to_numpy())


@pytest.mark.parametrize("kind", INDEXES)
def test_times_of_one_series_are_read(kind):
    np.testing.assert_array_equal(forecast(FRAME.set_axis(INDEXES[kind])), expected())


def test_a_series_is_a_frame_of_one_column():
    np.testing.assert_array_equal(forecast(FRAME["v"]), expected())


def test_periods_are_read_by_their_start():
    hours = pandas.period_range("2024-01-01", periods=60, freq="h")
    even = FRAME.set_axis(hours)
    np.testing.assert_array_equal(
        forecast(even), forecast(even.to_numpy(), t=hours.to_timestamp().to_numpy())
    )


@pytest.mark.parametrize("estimator", [SequenceClassifier, SequenceRegressor, SequenceForecaster])
def test_times_of_a_list_of_frames_are_read(estimator):
    frames = [FRAME[:25], FRAME[25:40], FRAME[40:]]
    targets = [] if estimator is SequenceForecaster else [[0, 1, 0]]
    predictions = []
    for X, t in (frames, None), ([f.to_numpy() for f in frames], [f.index for f in frames]):
        model = estimator(model="cfc", hidden_size=3, epochs=1, random_state=0)
        predictions.append(model.fit(X, *targets, t=t).predict(X, t=t))
    np.testing.assert_array_equal(*predictions)


@pytest.mark.parametrize("options", [{"id": "p", "time": "when"}, {"id": "p"}])
def test_ids_and_dates_in_the_index_of_a_table_are_read(options):
    table = pandas.concat([FRAME[:30].assign(p="a"), FRAME[30:].assign(p="b")])
    table = table.rename_axis("when")
    right = forecast(table.reset_index(), columns=True, id="p", time="when")
    predictions = forecast(table.set_index("p", append=True), columns=True, **options)
    np.testing.assert_array_equal(predictions, right)
    np.testing.assert_array_equal(forecast(table.rename_axis(None), columns=True, id="p"), right)


def test_a_column_of_times_needs_no_id():
    table = FRAME.rename_axis("when").reset_index()
    np.testing.assert_array_equal(forecast(table, columns=True, time="when"), expected())
    model = SequenceForecaster(
        model="cfc", hidden_size=3, epochs=1, random_state=0, max_lead_time="5h"
    )
    frame = model.fit(table, time="when").forecast(table, at=["1h", "2h"])
    assert frame["when"].tolist() == [DATES[-1] + pandas.Timedelta(h, "h") for h in (1, 2)]


HOURLY = pandas.DataFrame(
    {"v": np.sin(np.arange(60) / 4)},
    index=pandas.date_range("2024-03-29", periods=60, freq="h", tz="Europe/Berlin", name="when"),
)
FORMS = {
    "column": (HOURLY.reset_index(), {"time": "when"}, "when"),
    "index": (HOURLY, {}, "when"),
    "nameless": (HOURLY.rename_axis(None), {}, "index"),
    "series": (HOURLY["v"], {}, "when"),
    "list": ([HOURLY], {}, "time"),
    "array": (HOURLY.to_numpy(), {"t": HOURLY.index}, "time"),
}


@pytest.mark.parametrize("form", FORMS)
def test_dates_are_calendar_inputs_and_come_back_wherever_they_stand(form):
    model = SequenceForecaster(hidden_size=3, epochs=1, random_state=0, max_lead_time="3h")
    expected = model.fit(HOURLY.reset_index(), time="when").predict(HOURLY.reset_index(), at="2h")
    X, times, name = FORMS[form]
    again = {} if "time" in times else times
    np.testing.assert_array_equal(
        np.ravel(model.fit(X, **times).predict(X, at="2h", **again)), np.ravel(expected)
    )
    assert model.cycles_ == (86400.0,)
    answers = [
        model.forecast(X, at=["1h", "2h"], **again),
        SequenceForecaster.from_pretrained().forecast(X, ["1h", "2h"], **times),
    ]
    for frame in answers:
        moments = HOURLY.index[-1] + pandas.to_timedelta([1, 2], "h")
        assert list(frame[name]) == list(moments)
        assert str(frame[name].dt.tz) == "Europe/Berlin"
        assert ("sequence" in frame) is (name == "time")


@pytest.mark.parametrize("is_column", [False, True])
def test_durations_have_no_calendar(is_column):
    table = HOURLY.set_axis((HOURLY.index - HOURLY.index[0]).rename("when"))
    X, options = (table.reset_index(), {"time": "when"}) if is_column else (table, {})
    model = SequenceForecaster(hidden_size=3, epochs=1, random_state=0, max_lead_time="3h")
    frame = model.fit(X, **options).forecast(X, at="90min")
    assert model.cycles_ == ()
    assert frame["when"].tolist() == [table.index[-1] + pandas.Timedelta("90min")]


def test_lead_times_of_durations_alone_are_durations():
    model = SequenceForecaster(hidden_size=3, epochs=1, random_state=0, max_lead_time="3h")
    X, dt = HOURLY.to_numpy(), pandas.Timedelta("1h")
    frame = model.fit(X, dt=dt).forecast(X, at=["1h", "90min"], dt=dt)
    assert list(frame["lead_time"]) == list(pandas.to_timedelta([60, 90], "min"))


@pytest.mark.parametrize("levels", [["hours"], ["hours", "when"]])
@pytest.mark.parametrize("form", ["series", "list", "table"])
def test_any_other_named_index_is_refused_by_name(levels, form):
    table = FRAME.assign(hours=np.arange(60.0), when=DATES, p=np.arange(60) // 30)
    table = table.set_index(levels)[["v", "p"]]
    X = {"series": table[["v"]], "list": [table[:30], table[30:]], "table": table}[form]
    with pytest.raises(DataError, match=r"index 'hours'.*reset_index"):
        forecast(X, **({"id": "p"} if form == "table" else {}))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(60) / 2,
        [str(date) for date in DATES],
        pandas.interval_range(0, 60),
        ["ann", "ben"] * 30,
        pandas.Categorical(["ann", "ben"] * 30),
    ],
    ids=["numbers", "dates as text", "intervals", "ids", "categories"],
)
def test_an_index_without_a_name_that_says_more_than_rows_is_refused(values):
    frame = FRAME.set_axis(pandas.Index(values))
    with pytest.raises(DataError, match=r"index without a name that holds .*reset_index"):
        forecast(frame)
    with pytest.raises(DataError, match=r"X\[0\] has the index without a name"):
        forecast([frame, frame])


def test_numbers_and_names_of_rows_are_left_out():
    named, numbered = (
        FRAME.set_axis(x) for x in ([f"row {k}" for k in range(60)], range(60, 0, -1))
    )
    np.testing.assert_array_equal(forecast(named), forecast(numbered))


def test_an_index_of_several_levels_is_no_row_of_samples():
    table = FRAME.assign(p=np.arange(60) // 30).set_index("p", append=True)
    with pytest.raises(DataError, match="id= and time="):
        SequenceClassifier().fit(table, np.arange(60) % 2)


def test_some_frames_of_a_list_without_times_are_named():
    with pytest.raises(TimeError, match=r"X\[1\] has no times in its index"):
        forecast([FRAME[:30], FRAME[30:].reset_index(drop=True)])


def test_times_that_are_given_count_and_names_of_samples_are_no_times():
    assert not np.array_equal(forecast(FRAME, t=np.arange(60.0)), expected())
    rows = FRAME.set_axis([f"s{k}" for k in range(60)]).rename_axis("sample")
    SequenceClassifier(epochs=1, hidden_size=2).fit(rows, np.arange(60) % 2)
