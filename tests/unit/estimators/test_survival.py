"""Times to events with censoring: likelihoods, known hazards, landmarks."""

import warnings

import numpy as np
import pandas
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import weibull_min

from tauflow.errors import ArgumentError, DataError, ShapeError, TimeError, UnknownNameError
from tauflow.estimators import SequenceSurvival
from tauflow.estimators.survival_heads import HazardHead, WeibullHead

SMALL = {"model": "gru", "hidden_size": 8, "epochs": 30, "lr": 0.02, "random_state": 0}
SMALL |= {"validation_fraction": 0}


def patients(count, seed=0):
    """Return visits every month; the risk doubles or halves with the value of the last visit.

    From visit to visit the value stays the same, except for a third of the patients, in whom it
    changes its sign at the third visit. Some are censored.
    """
    rng = np.random.default_rng(seed)
    X, t, durations, events = [], [], [], []
    for _ in range(count):
        first = rng.choice([-1.0, 1.0])
        values = np.full(6, first)
        if rng.random() < 1 / 3:
            values[2:] *= -1
        times = np.arange(6.0)
        rate = 0.2 * 3.0**values
        hazard, clock = rng.exponential(), 0.0
        for step in range(6):
            ends = np.inf if step == 5 else 1.0
            if hazard < rate[step] * ends:
                clock = step + hazard / rate[step]
                break
            hazard -= rate[step]
        censoring = rng.uniform(1, 12)
        durations.append(min(clock, censoring))
        events.append(clock <= censoring)
        seen = times < durations[-1]
        X.append(values[seen][:, None] + 0.0)
        t.append(times[seen])
    return X, t, np.array(durations), np.array(events)


@pytest.fixture(scope="module", params=["hazard", "weibull"])
def fitted(request):
    X, t, durations, events = patients(500)
    options = {"intervals": 5} if request.param == "hazard" else {}
    return SequenceSurvival(**SMALL, head=request.param, **options).fit(X, durations, events, t=t)


def draw():
    rng = np.random.default_rng(0)
    return rng.exponential(3.0, 40) + 0.01, rng.random(40) < 0.6


def test_the_weibull_likelihood_is_that_of_scipy():
    durations, events = draw()
    head = WeibullHead(2.5)
    outputs = np.random.default_rng(1).normal(0, 0.5, (40, 2))
    y = head.encode(durations, events)
    losses = head.make_loss().whole(torch.from_numpy(outputs), torch.from_numpy(y))
    true = weibull_min(np.exp(outputs[:, 1]), scale=2.5 * np.exp(outputs[:, 0]))
    # log-density by the logarithm of time, which does not depend on the unit
    expected = -np.where(events, true.logpdf(durations) + np.log(durations), true.logsf(durations))
    assert float(losses) == pytest.approx(expected.mean())
    hazard = head.compute_hazard(outputs, durations[:, None])
    np.testing.assert_allclose(hazard[:, 0], -true.logsf(durations))
    np.testing.assert_allclose(head.compute_median(outputs, np.zeros(40)), true.median())


def test_the_likelihood_of_hazards_is_an_integral():
    durations, events = draw()
    head = HazardHead.fit(durations, events, np.ones(40), 4)
    counts, _ = np.histogram(durations[events], head.edges)
    assert counts.min() >= counts.max() - 1
    outputs = np.random.default_rng(1).normal(0, 1, (40, 4))
    rates = np.log1p(np.exp(outputs)) / np.diff(head.edges)

    def hazard(time, row):
        return rates[row, min(np.searchsorted(head.edges[1:], time), 3)]

    expected, widths = [], []
    for row, (time, event) in enumerate(zip(durations, events, strict=True)):
        area = quad(hazard, 0, time, (row,), points=head.edges[1:-1], limit=200)[0]
        expected.append(area - event * np.log(hazard(time, row)))
        place = min(np.searchsorted(head.edges[1:], time), 3)
        widths.append(event * np.log(np.diff(head.edges)[place]))
        hazard_until = head.compute_hazard(outputs[row : row + 1], np.array([[time]]))
        assert hazard_until[0, 0] == pytest.approx(area, rel=1e-4)
    y = torch.from_numpy(head.encode(durations, events))
    loss = head.make_loss().whole(torch.from_numpy(outputs), y)
    assert float(loss) == pytest.approx(np.mean(expected) - np.mean(widths), rel=1e-4)
    weighted = head.make_loss().whole(torch.from_numpy(outputs), y, torch.arange(40.0))
    each = np.array(expected) - np.array(widths)
    assert float(weighted) == pytest.approx(np.average(each, weights=np.arange(40.0)), rel=1e-4)


@pytest.mark.parametrize("after", [0.0, 1.5, 8.0])
def test_medians_halve_survival(after):
    durations, events = draw()
    for head, outputs in (
        (HazardHead.fit(durations, events, np.ones(40), 4), 4),
        (WeibullHead(2.5), 2),
    ):
        x = np.random.default_rng(2).normal(0, 1, (10, outputs))
        start = np.full(10, after)
        ends = start + head.compute_median(x, start)
        halves = head.compute_hazard(x, ends[:, None]) - head.compute_hazard(x, start[:, None])
        np.testing.assert_allclose(halves, np.log(2), rtol=1e-6)


def test_survival_beyond_a_landmark_that_few_reach_is_a_number():
    """The probability of getting there underflows; what is left to go does not depend on it."""
    rng = np.random.default_rng(0)
    durations = 10 * rng.weibull(6, 60)
    X = [rng.normal(size=(3, 1)) for _ in durations]
    model = SequenceSurvival(model="gru", head="weibull", ensemble=1, epochs=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # samples that come after their event
        model.fit(X, durations, np.ones(60, bool))
    near, far = (model.predict_survival(X[:3], [1e-9, 1e9], at=at) for at in (2.0, 500.0))
    for survival in (near, far):
        np.testing.assert_allclose(survival[:, 0], 1.0, atol=1e-3)
        np.testing.assert_allclose(survival[:, 1], 0.0)


def test_known_hazards_are_learned(fitted):
    """Who has the value 1 throughout has the rate 0.6 from the sixth visit on, and -1 has 1/15."""
    times = np.array([0.5, 1.0, 2.0])
    X = [np.full((3, 1), 1.0), np.full((3, 1), -1.0)]
    survival = fitted.predict_survival(X, times, dt=1.0)
    expected = np.exp(-np.outer([0.6, 0.2 / 3], times))
    np.testing.assert_allclose(survival, expected, atol=0.08)
    medians = fitted.predict(X, dt=1.0)
    assert medians[0] == pytest.approx(np.log(2) / 0.6, rel=0.4)
    assert medians[1] > 3 * medians[0]


def test_the_concordance_is_near_that_of_the_true_risk(fitted):
    X, t, durations, events = patients(300, seed=1)
    assert 0.62 < fitted.score(X, durations, events, t=t, at=0.0) < 0.8
    assert fitted.score(X, durations, events, t=t) > 0.65
    assert fitted.score(X, durations, events, t=t, at=3.0) > 0.65


def test_a_landmark_knows_nothing_of_later_samples(fitted):
    X, times = [np.array([[1.0], [1.0], [-1.0], [-1.0]])], np.array([0.5, 2.0])
    survival = fitted.predict_survival(X, times, dt=1.0, at=1.0)
    early = fitted.predict_survival([X[0][:2]], times, dt=1.0)
    np.testing.assert_allclose(survival, early, rtol=1e-5)
    changed = fitted.predict_survival(X, times, dt=1.0)
    assert (changed > early).all()
    # Half a month after the sample: survival until then is known.
    later = fitted.predict_survival(X, times, dt=1.0, at=1.5)
    both = fitted.predict_survival([X[0][:2]], np.array([0.5, 1.0, 2.5]), dt=1.0)
    np.testing.assert_allclose(later[0], both[0, 1:] / both[0, 0], rtol=1e-5)
    assert fitted.predict_survival(X * 2, times, dt=1.0, at=[1.0, 2.0]).shape == (2, 2)


def test_samples_after_the_event_are_not_used():
    X, t, durations, events = patients(40)
    longer = [np.concatenate([x, [[9.0]]]) for x in X]
    after = [np.append(times, d + 1) for times, d in zip(t, durations, strict=True)]
    settings = {**SMALL, "epochs": 2, "dtype": "float64", "time_unit": 1.0, "impute": "mean"}
    model = SequenceSurvival(**settings).fit(X, durations, events, t=t)
    other = SequenceSurvival(**settings).fit(longer, durations, events, t=after)
    assert np.array_equal(model.edges_, other.edges_)


@pytest.mark.parametrize(("head", "intervals"), [("hazard", 12), ("weibull", 10)])
def test_the_unit_of_the_times_does_not_matter(head, intervals):
    """A third of the events are at the last sample; multiples of 0.1 differ from it by rounding."""
    rng = np.random.default_rng(0)
    steps = [np.cumsum(np.append(0, rng.integers(1, 5, rng.integers(1, 5)))) for _ in range(60)]
    X = [rng.normal(size=(len(each), 1)) for each in steps]
    wait, at = rng.integers(0, 3, 60), np.array([each[-1] for each in steps])
    answers = []
    for unit in (1.0, 0.1):
        t, durations = [each * unit for each in steps], (at + wait) * unit
        options = SMALL | {"epochs": 2, "head": head, "intervals": intervals}
        model = SequenceSurvival(**options).fit(X, durations, t=t)
        medians = model.predict(X, t=t)
        np.testing.assert_array_equal(medians, model.predict(X, t=t, at=at * unit))
        loss = model.result_.history[-1]["train_loss"]
        answers.append([loss, model.score(X, durations, t=t), *(medians / unit)])
    np.testing.assert_allclose(*answers, rtol=1e-3)


def test_columns_of_a_table_and_dates():
    X, t, durations, events = patients(30)
    table = pandas.DataFrame({"value": np.concatenate(X)[:, 0], "month": np.concatenate(t)})
    counts = [len(x) for x in X]
    table["id"] = np.repeat(np.arange(30), counts)
    table["until"], table["died"] = np.repeat(durations, counts), np.repeat(events, counts)
    small = {**SMALL, "epochs": 2}
    roles = {"id": "id", "time": "month"}
    named = SequenceSurvival(**small).fit(table, "until", "died", **roles)
    assert named.feature_names_in_.tolist() == ["value"]
    arrays = SequenceSurvival(**small).fit(X, durations, events, t=t)
    times = np.array([1.0, 3.0])
    expected = arrays.predict_survival(X, times, t=t)
    np.testing.assert_allclose(named.predict_survival(table, times), expected, rtol=1e-5)
    assert named.score(table, "until", "died") == pytest.approx(
        arrays.score(X, durations, events, t=t)
    )
    days = table.assign(
        month=pandas.Timestamp("2024-01-01") + pandas.to_timedelta(table["month"], "D")
    )
    spans = (durations * 86400e9).astype("timedelta64[ns]")
    dated = SequenceSurvival(**small).fit(
        days.drop(columns=["until", "died"]), spans, events, **roles
    )
    survival = dated.predict_survival(days, times.astype("timedelta64[D]"))
    np.testing.assert_allclose(survival, expected, atol=1e-3)
    medians = dated.predict(days)
    assert medians.dtype.kind == "m"
    for place in range(3):  # half are expected without an event at the moment that is predicted
        assert dated.predict_survival(days, medians)[place, place] == pytest.approx(0.5, abs=1e-4)
    weeks = dated.predict(days, at="1 week")
    np.testing.assert_array_equal(weeks, dated.predict(days, at=pandas.Timedelta(days=7)))
    with pytest.raises(TimeError, match="times holds numbers, and the times of the data are dates"):
        dated.predict_survival(days, times)
    with pytest.raises(TimeError, match=r"at holds '1 year', expected a span .* give days"):
        dated.predict(days, at="1 year")
    with pytest.raises(TimeError, match="the times of the data are numbers"):
        arrays.predict_survival(X, times.astype("timedelta64[D]"), t=t)


def test_it_can_be_saved_and_validated(fitted, tmp_path):
    X, t, durations, events = patients(20, seed=2)
    fitted.save(tmp_path / "survival.safetensors")
    loaded = SequenceSurvival.load(tmp_path / "survival.safetensors")
    assert np.array_equal(loaded.predict(X, t=t), fitted.predict(X, t=t))
    small = SequenceSurvival(**{**SMALL, "epochs": 2, "validation_fraction": "auto"})
    held = {"X": X[:8], "y": durations[:8], "events": events[:8], "t": t[:8]}
    small.fit(X[8:], durations[8:], events[8:], t=t[8:], validation=held)
    assert small.result_.best_epoch in (1, 2)


def test_bad_input_is_named(fitted):
    X, t, durations, events = patients(6)
    survival = SequenceSurvival(**SMALL)
    with pytest.raises(DataError, match=r"durations\[2\] is 0, expected more than 0"):
        survival.fit(X, np.where(np.arange(6) == 2, 0, durations), events, t=t)
    for wrong in (events + 1, np.where(events > 0, "yes", "no")):
        with pytest.raises(DataError, match="events must hold 1"):
            survival.fit(X, durations, wrong, t=t)
    with pytest.raises(DataError, match="no event was observed"):
        survival.fit(X, durations, np.zeros(6), t=t)
    with pytest.raises(ArgumentError, match="names a column, and X is no table"):
        survival.fit(X, "until", t=t)
    with pytest.raises(UnknownNameError, match="head"):
        SequenceSurvival(head="cox").fit(X, durations, events, t=t)
    with pytest.raises(ArgumentError, match="reads later samples"):
        SequenceSurvival(options={"bidirectional": True}).fit(X, durations, events, t=t)
    with pytest.raises(TimeError, match="at must be finite and 0 or more"):
        fitted.predict(X, t=t, at=-1.0)
    with pytest.raises(ShapeError, match=r"at has shape \(2,\)"):
        fitted.predict(X, t=t, at=[1.0, 2.0])
    with pytest.raises(ShapeError, match="times has shape"):
        fitted.predict_survival(X, 1.0, t=t)


def test_a_structured_array_of_scikit_survival_is_taken(fitted):
    X, t, durations, events = patients(30, seed=3)
    y = np.empty(30, [("cens", "?"), ("time", "<f8")])
    y["cens"], y["time"] = events, durations
    assert fitted.score(X, y, t=t) == fitted.score(X, durations, events, t=t)
    few = {**SMALL, "epochs": 1}
    first = SequenceSurvival(**few).fit(X, y, t=t).predict(X, t=t)
    second = SequenceSurvival(**few).fit(X, durations, events, t=t).predict(X, t=t)
    assert np.array_equal(first, second)
    with pytest.raises(DataError, match=r"two fields event \(bool\) and time, without events="):
        fitted.score(X, y, events, t=t)
    with pytest.raises(DataError, match="two fields event"):
        fitted.score(X, y[["time", "cens"]], t=t)


def test_samples_after_the_event_are_told_where_they_are_most():
    X, t, durations, events = patients(40)
    survival = SequenceSurvival(**{**SMALL, "epochs": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        survival.fit(X, durations, events, t=t)
    years = durations / 12
    late = sum(int((times > end).sum()) for times, end in zip(t, years, strict=True))
    with pytest.warns(
        UserWarning, match=f"{late} of {sum(map(len, t))} samples come after"
    ) as seen:
        survival.fit(X, years, events, t=t)
    assert [warning.filename for warning in seen] == [__file__]
