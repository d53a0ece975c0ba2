"""Forecasts: what they are trained on, of which times, and whether they come true."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from irregular_samples import SMALL, padded, sequences

from tauflow.errors import ArgumentError, DataError, TimeError, UnknownNameError
from tauflow.estimators import SequenceForecaster
from tauflow.estimators.forecast_targets import (
    add_lead_times,
    compute_typical_dt,
    take_future_samples,
)
from tauflow.tabular.sequences import Sequences


def rows_of(X, t):
    gaps = np.concatenate([np.diff(times_of_id, prepend=times_of_id[:1]) for times_of_id in t])
    return Sequences(values=np.concatenate(X), lengths=np.array([len(x) for x in X]), dt=gaps)


def test_what_follows_each_row_and_when():
    X, t, *_ = sequences(5)
    further = np.arange(1.0, 4.0) + np.arange(5)[:, None]
    samples = take_future_samples(rows_of(X, t), 3)
    times = add_lead_times(rows_of(X, t), further).lead_times
    row = 0
    for number, x in enumerate(X):
        for step in range(len(x)):
            for h in range(3):
                later = step + 1 + h
                beyond = later - len(x)
                expected = np.full(2, np.nan) if beyond >= 0 else x[later]
                np.testing.assert_array_equal(samples[row, h], expected)
                when = t[number][later] if beyond < 0 else t[number][-1] + further[number, beyond]
                assert times[row, h] == pytest.approx(when - t[number][step])
            row += 1
    assert compute_typical_dt(rows_of(X, [np.arange(len(x)) for x in X])) is None
    assert compute_typical_dt(rows_of(X, t)) == np.median(
        np.concatenate([np.diff(times_of_id) for times_of_id in t])
    )


def test_windows_hold_every_row_once_and_start_anew():
    X, t, *_ = sequences(7)
    all_rows = rows_of(X, t)
    cut = replace(all_rows, weight=np.arange(7.0)).cut_windows(3, 3)
    np.testing.assert_array_equal(cut.values, all_rows.values)
    assert cut.lengths.tolist() == [n for x in X for n in [3] * (len(x) // 3) + [len(x) % 3] if n]
    assert (
        np.bincount(cut.weight.astype(int), weights=cut.lengths).tolist()
        == all_rows.lengths.tolist()
    )
    assert (cut.dt[cut.starts] == 0).all()
    inner = np.setdiff1d(np.arange(len(cut.dt)), cut.starts)
    np.testing.assert_array_equal(cut.dt[inner], all_rows.dt[inner])


def test_a_wave_at_irregular_times_is_forecast():
    t = np.random.default_rng(0).uniform(0.2, 1.0, 160).cumsum()
    X = np.stack([np.sin(t), np.cos(t)], axis=1)
    forecaster = SequenceForecaster(
        **{**SMALL, "model": "gru", "hidden_size": 12, "epochs": 20, "batch_size": 16},
        horizon=2,
        targets=[0],
        window=16,
    )
    fitted = forecaster.fit(X[:120] * 50 + 7, t=t[:120])
    assert fitted.score(X[120:] * 50 + 7, t=t[120:]) > 0.8
    answer = fitted.predict(X[:120] * 50 + 7, t=t[:120], lead_time=t[120:122] - t[119])
    assert answer.shape == (2, 1)
    np.testing.assert_allclose((answer[:, 0] - 7) / 50, np.sin(t[120:122]), atol=0.3)


def test_a_horizon_is_a_longest_lead_time():
    series = np.sin(np.arange(80.0) / 3)[:, None] + 5
    small = {"model": "gru", "hidden_size": 4, "epochs": 2, "random_state": 0}
    expected = SequenceForecaster(**small, max_lead_time=3.0).fit(series)
    model = SequenceForecaster(**small, horizon=3).fit(series)
    answers = expected.predict(series, at=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(model.predict(series), answers)
    np.testing.assert_array_equal(model.predict(series, at=[3.0, 1.0]), answers[[2, 0]])
    scored = model.score_anomalies(series)
    assert scored["step"].tolist() == [*range(1, 80)]
    first = model.predict(series[:41], at=[1.0])[0, 0]
    assert scored["forecast"][40] == pytest.approx(first, rel=1e-6)


def test_forms_of_x_agree_and_missing_targets_do_not_count():
    X, t, *_ = sequences(missing=0.2)
    forecaster = SequenceForecaster(**SMALL, horizon=2)
    expected = forecaster.fit(X, t=t).predict(X, t=t)
    assert expected.shape == (len(X), 2, 2)
    array, lengths = padded(X)
    options = {"t": padded(t)[0], "lengths": lengths}
    predictions = forecaster.fit(array, **options).predict(array, **options)
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6)
    table = pd.DataFrame(np.concatenate(X), columns=["a", "b"]).assign(
        who=np.repeat(np.arange(len(X)), lengths), at=np.concatenate(t)
    )
    fitted = forecaster.fit(table, id="who", time="at")
    np.testing.assert_allclose(fitted.predict(table), expected, rtol=0, atol=1e-6)
    fitted = forecaster.fit(X, t=t)
    for part, answer in ((X[3:4], expected[3:4]), (X[3], expected[3])):
        when = t[3:4] if isinstance(part, list) else t[3]
        np.testing.assert_allclose(fitted.predict(part, t=when), answer, rtol=0, atol=1e-6)


def test_the_best_epoch_on_other_sequences_is_kept():
    X, t, *_ = sequences()
    fitted = SequenceForecaster(**SMALL).fit(X, t=t, validation={"X": X[:5], "t": t[:5]})
    assert fitted.result_.valid == min(row["valid"] for row in fitted.result_.history)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"horizon": 0}, ArgumentError, "horizon must be at least 1"),
        ({"window": 1}, ArgumentError, "window must be at least 2"),
        ({"targets": [2]}, ArgumentError, "targets holds 2, and X has the features 0 to 1"),
        ({"targets": ["a"]}, UnknownNameError, "targets='a' is unknown"),
        ({"targets": [True]}, ArgumentError, r"targets=\[True\] is no mask of the 2 features"),
        ({"targets": [True, 0]}, ArgumentError, r"targets=\[True, 0\] is no mask"),
        ({"options": {"bidirectional": True}}, ArgumentError, "reads what it is to forecast"),
        ({"model": "rnn-vae"}, ArgumentError, "reads what it is to forecast"),
    ],
)
def test_what_cannot_be_forecast_is_refused(changes, error, match):
    X, t, *_ = sequences(4)
    with pytest.raises(error, match=match):
        SequenceForecaster(**{**SMALL, **changes}).fit(X, t=t)


def test_times_ahead_of_dates_may_be_durations_of_any_kind():
    X, t, *_ = sequences(4)
    dates = [
        np.datetime64("2024-05-31", "ms") + (1000 * times_of_id).astype("m8[ms]")
        for times_of_id in t
    ]
    fitted = SequenceForecaster(**SMALL, horizon=2).fit(X, t=dates)
    expected = fitted.predict(X, t=dates, lead_time=["600s", "0.3333333333333333h"])
    with pytest.raises(TimeError, match=r"lead_time holds numbers, and the times.*are dates"):
        fitted.predict(X, t=dates, lead_time=[600.0, 1200.0])
    durations = [pd.Timedelta("10min"), pd.Timedelta("20min")]
    for ahead in (
        durations,
        [durations] * 4,
        [duration.to_pytimedelta() for duration in durations],
    ):
        np.testing.assert_array_equal(fitted.predict(X, t=dates, lead_time=ahead), expected)
    predictions = fitted.predict(X, t=dates, lead_time=pd.TimedeltaIndex(durations))
    np.testing.assert_array_equal(predictions, expected)


def test_times_ahead_are_checked():
    X, t, *_ = sequences(4)
    named = pd.DataFrame({"who": [0, 0, 1, 1], "a": [1, 2, 3, 4], "b": [0, 1, 0, 1]})
    assert SequenceForecaster(**SMALL, targets=["b"]).fit(named, id="who").predict(named).shape == (
        2,
        1,
        1,
    )
    with pytest.raises(DataError, match="no sample follows another one"):
        SequenceForecaster(**SMALL).fit([x[:1] for x in X])
    fitted = SequenceForecaster(**SMALL, horizon=2).fit(X, t=t)
    with pytest.raises(
        TimeError, match=r"lead_time has shape \(3,\), expected \(H,\) or .* \(4, 2\)"
    ):
        fitted.predict(X, t=t, lead_time=[1, 2, 3])
    with pytest.raises(TimeError, match="above 0 and increase"):
        fitted.predict(X, t=t, lead_time=[2, 1])
    with pytest.raises(TimeError, match=r"lead_time holds 1 \(int\), expected numbers"):
        fitted.predict(X, t=t, lead_time=[1, pd.Timedelta("1h")])
    with pytest.raises(
        TimeError, match="lead_time holds durations, and the times of the data are numbers"
    ):
        fitted.predict(X, t=t, lead_time=[pd.Timedelta("1h"), pd.Timedelta("2h")])
    with pytest.raises(DataError, match="nothing to score"):
        fitted.score([x[:1] for x in X], t=[times_of_id[:1] for times_of_id in t])
    with pytest.raises(ArgumentError, match="time steps of the training data were all the same"):
        SequenceForecaster(**SMALL).fit(X).predict(X, lead_time=1.0)


@pytest.mark.parametrize(
    "targets", ["b", ["b"], 1, [1], [False, True], np.array([False, True]), np.array([1])]
)
def test_targets_may_be_one_or_several_or_a_mask(targets):
    random = np.random.default_rng(0)
    named = pd.DataFrame({"a": random.normal(size=30), "b": random.normal(size=30) + 50})
    predictions = SequenceForecaster(**SMALL, targets=targets).fit(named).predict(named)
    assert predictions.shape == (1, 1)
    assert predictions[0, 0] == pytest.approx(50, abs=5)


def test_steps_without_a_target_in_training_are_refused():
    series = np.sin(np.arange(80.0))[:, None]
    small = {"model": "gru", "hidden_size": 4, "epochs": 1, "random_state": 0}
    with pytest.raises(DataError, match=r"horizon=100, .* at most \d+ samples ahead"):
        SequenceForecaster(**small, horizon=100).fit(series)
    with pytest.raises(DataError, match=r"horizon=6, .* at most 3 samples ahead.* Set horizon=3"):
        SequenceForecaster(**small, horizon=6).fit([series[:4], series[20:24], series[40:44]])
    SequenceForecaster(**small, horizon=3).fit([series[:4], series[20:24], series[40:44]])
    with pytest.warns(UserWarning, match=r"no sample comes 500 after .* up to 80 ahead"):
        forecaster = SequenceForecaster(**small, max_lead_time=500.0).fit(series)
    assert forecaster.predict(series, at=[70.0]).shape == (1, 1)
    with pytest.raises(TimeError, match=r"asks for 400 .* trained for up to 80"):
        forecaster.predict(series, at=[400.0])


def test_the_default_times_that_lie_too_far_ahead_say_who_asks_for_them():
    X = [*np.zeros((40, 2, 1)), *np.zeros((5, 6, 1))]
    t = [np.array([0.0, 10.0])] * 40 + [np.arange(6.0)] * 5  # typically 10 apart
    forecaster = SequenceForecaster(
        horizon=4, hidden_size=4, epochs=1, random_state=0, validation_fraction=0
    ).fit(X, t=t)
    with pytest.raises(TimeError, match=r"horizon=4 without lead_time, .* asks for 40 after"):
        forecaster.predict(X, t=t)
