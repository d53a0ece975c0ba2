"""The neural Hawkes process as an estimator of scikit-learn's kind, on tables of events."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tauflow.errors import ArgumentError, DataError, OptionError, TimeError, UnknownNameError
from tauflow.estimators import SequenceHawkes
from tauflow.zoo import S2P2

END, RATE, JUMP, DECAY = 20.0, 0.5, 1.2, 2.0
ROLES = {"id": "who", "time": "at", "type": "what"}
SMALL = {"hidden_size": 12, "epochs": 25, "lr": 0.02, "batch_size": 20, "random_state": 0}


def simulate(count, seed=0):
    """Return streams in which every event causes 0.6 of the other type on average."""
    rng, rows = np.random.default_rng(seed), []
    for who in range(count):
        events = [(at, "a") for at in rng.uniform(0, END, rng.poisson(RATE * END) + 1)]
        for at, what in events:
            after = at + rng.exponential(1 / DECAY, rng.poisson(JUMP / DECAY))
            events += [(later, "ba"["ab".index(what)]) for later in after if later < END]
        rows += [(who, at, what) for at, what in sorted(events)]
    return pd.DataFrame(rows, columns=["who", "at", "what"])


def exact_likelihood(table):
    """Return the log-likelihood per event of the process that was simulated."""
    total = 0.0
    for _, events in table.groupby("who"):
        t, kind = events["at"].to_numpy(), events["what"].to_numpy()
        for k, (at, what) in enumerate(zip(t, kind, strict=True)):
            before = kind[:k] != what
            base = RATE * (what == "a")
            total += np.log(base + JUMP * np.exp(-DECAY * (at - t[:k][before])).sum())
        total -= RATE * END + (JUMP / DECAY * (1 - np.exp(-DECAY * (END - t)))).sum()
    return total / len(table)


@pytest.fixture(scope="module")
def fitted():
    return SequenceHawkes(**SMALL).fit(simulate(120), **ROLES, start=0, end=END)


def test_its_likelihood_lies_between_a_poisson_process_and_the_true_one(fitted):
    new = simulate(60, seed=1)
    rates = new["what"].value_counts() / (60 * END)
    shares = new["what"].value_counts(normalize=True)
    poisson = (shares * np.log(rates)).sum() - 1
    likelihood, exact = fitted.score(new, start=0, end=END), exact_likelihood(new)
    assert poisson + 0.5 * (exact - poisson) < likelihood < exact + 0.02


def test_the_score_is_the_likelihood_of_the_model_in_the_unit_of_the_times(fitted):
    stream = simulate(1, seed=2)
    unit = fitted.time_unit_
    types = torch.from_numpy((stream["what"] == "b").to_numpy().astype(int))[None]
    t = torch.from_numpy(stream["at"].to_numpy() / unit).float()[None]
    with torch.no_grad():
        expected = fitted.module_.log_likelihood(types, t, END / unit)
    likelihood = fitted.score(stream, start=0, end=END)
    assert likelihood == pytest.approx(float(expected) / len(stream) - np.log(unit), rel=1e-5)
    minutes = simulate(40).assign(at=lambda table: table["at"] * 60)
    few = {**SMALL, "epochs": 2}
    slow = SequenceHawkes(**few).fit(minutes, **ROLES, start=0, end=60 * END)
    fast = SequenceHawkes(**few).fit(simulate(40), **ROLES, start=0, end=END)
    change = slow.score(minutes, start=0, end=60 * END) - fast.score(simulate(40), start=0, end=END)
    assert change == pytest.approx(-np.log(60), abs=1e-3)


def clockwork(count=40):
    """Return events of which one follows the other after 1 and 3 units of time in turn."""
    rows = []
    for who in range(count):
        length = 9 + who % 4
        gaps = np.where(np.arange(length) % 2, 1.0, 3.0)
        rows += [(who, at, k % 2) for k, at in enumerate(10.0 * who + gaps.cumsum())]
    return pd.DataFrame(rows, columns=["who", "at", "what"])


@pytest.mark.thorough
def test_it_learns_which_event_comes_next_and_when():
    table = clockwork()
    process = SequenceHawkes(**{**SMALL, "epochs": 150, "validation_fraction": 0}).fit(
        table, **ROLES
    )
    lengths = table.groupby("who").size().to_numpy()
    assert (process.predict(table) == lengths % 2).all()
    times = process.predict_time(table)
    assert np.abs(times - np.where(lengths % 2, 1.0, 3.0)).mean() < 0.5
    frame = process.predict_next(table)
    assert list(frame) == ["who", "in", "what", "P(0)", "P(1)"]
    assert frame["who"].tolist() == list(range(40))
    np.testing.assert_allclose(frame["in"], times)
    proba = process.predict_proba(table)
    np.testing.assert_allclose(frame[["P(0)", "P(1)"]], proba)
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-5)
    later = table.groupby("who")["at"].max() + 0.5
    waited = process.predict_time(table.assign(now=table["who"].map(later)), now="now")
    assert waited.mean() < times.mean()


def test_dates_and_rows_of_several_streams_in_any_order_are_the_same():
    table = simulate(30)
    dated = table.assign(at=pd.Timestamp("2024-05-01") + pd.to_timedelta(table["at"], unit="s"))
    few = {**SMALL, "epochs": 2}
    start = pd.Timestamp("2024-05-01")
    end = start + pd.Timedelta(END, unit="s")
    plain = SequenceHawkes(**few).fit(table, **ROLES, start=0, end=END)
    moments = SequenceHawkes(**few).fit(dated, **ROLES, start=start, end=end)
    np.testing.assert_allclose(
        moments.score(dated, start=start, end=end), plain.score(table, start=0, end=END), rtol=1e-4
    )
    mixed = table.sort_values("at", kind="stable").reset_index(drop=True)
    forecasts = plain.predict_next(mixed, start=0).set_index("who")
    expected = plain.predict_next(table, start=0).set_index("who").loc[forecasts.index]
    np.testing.assert_allclose(forecasts["in"], expected["in"], rtol=1e-3)
    waits = moments.predict_next(dated, start=start)
    expected = plain.predict_next(table, start=0)["in"]
    np.testing.assert_allclose(waits["in"] / pd.Timedelta("1s"), expected, rtol=1e-3)
    assert (moments.predict_time(dated, start=start) == waits["in"]).all()
    columns = table.assign(begin=0.0, until=END)
    assert plain.score(columns, start="begin", end="until") == plain.score(table, start=0, end=END)
    with pytest.raises(TimeError, match="fitted to times that are numbers; these are dates"):
        plain.predict(dated)


def test_it_is_cloned_saved_and_validated_like_others(fitted, tmp_path):
    new = simulate(5, seed=3)
    fitted.save(tmp_path / "events.safetensors")
    again = SequenceHawkes.load(tmp_path / "events.safetensors")
    assert again.score(new, start=0, end=END) == fitted.score(new, start=0, end=END)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(new)
    few = {**SMALL, "epochs": 3}
    held = SequenceHawkes(**few).fit(simulate(30), **ROLES, validation=simulate(5, seed=9))
    assert held.result_.valid is not None
    assert (held.predict(new) == held.predict(new)).all()
    same = SequenceHawkes(**few).fit(simulate(30), **ROLES, validation={"X": simulate(5, seed=9)})
    assert (same.predict_proba(new) == held.predict_proba(new)).all()


def test_another_process_is_chosen_by_name(tmp_path):
    few = {**SMALL, "model": "s2p2", "options": {"layers": 1, "states": 3}, "epochs": 12}
    learned = SequenceHawkes(**few).fit(simulate(60), **ROLES, start=0, end=END)
    assert isinstance(learned.module_, S2P2)
    assert len(learned.module_.layers) == 1
    new = simulate(30, seed=1)
    likelihood = learned.score(new, start=0, end=END)
    rate = len(new) / (30 * END)
    poisson = np.log(rate / 2) - 1  # both types at one rate
    assert poisson < likelihood < exact_likelihood(new) + 0.02
    learned.save(tmp_path / "events.safetensors")
    again = SequenceHawkes.load(tmp_path / "events.safetensors")
    assert again.score(new, start=0, end=END) == likelihood
    with pytest.raises(UnknownNameError, match="unknown point process 'hawkes'"):
        SequenceHawkes(**{**SMALL, "model": "hawkes"}).fit(simulate(8), **ROLES)
    with pytest.raises(OptionError, match=r"has no option 'layers'\. It takes none"):
        SequenceHawkes(**SMALL, options={"layers": 2}).fit(simulate(8), **ROLES)


def with_empty(table):
    """Return the streams, the last of which has no event."""
    there = table[table["who"] < 7]
    return pd.concat([there, pd.DataFrame({"who": [7], "at": [np.nan], "what": [None]})])


def test_streams_without_a_row_are_named_by_ids():
    table = simulate(8)
    there = table[table["who"] < 7]
    options = {**ROLES, "start": 0, "end": END}
    by_row = SequenceHawkes(**SMALL).fit(with_empty(table), **options)
    by_ids = SequenceHawkes(**SMALL).fit(there, **options, ids=range(8))
    bounds = {"start": 0, "end": END}
    assert by_ids.score(there, **bounds, ids=[7]) == by_row.score(with_empty(table), **bounds)
    assert by_ids.predict_next(there, start=0, now=END, ids=[7, 8])["who"].tolist()[-2:] == [7, 8]
    with pytest.raises(ArgumentError, match="ids names 9, of which X has no row"):
        SequenceHawkes(**SMALL).fit(there.assign(z=END), **{**options, "end": "z"}, ids=[9])


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (lambda t: t.to_numpy(), {}, ArgumentError, "a row for each event"),
        (lambda t: t.drop(columns="what"), {}, UnknownNameError, "what"),
        (lambda t: t.assign(what=[None, *t["what"][1:]]), {}, DataError, "a type"),
        (lambda t: t.assign(at=t["at"][::-1].to_numpy()), {}, TimeError, "backwards|decrease"),
        (lambda t: with_empty(t), {}, TimeError, "'7' has no event. Give start and end"),
        (lambda t: with_empty(t), {"start": 0}, TimeError, "'7' has no event"),
        (
            lambda t: pd.concat([t, with_empty(t)[-1:]]),
            {"start": 0, "end": END},
            DataError,
            "'7' has a row without time and type, and another",
        ),
        (
            lambda t: t.assign(at=np.nan, what=None),
            {"start": 0, "end": END},
            DataError,
            "at least one stream must have an event",
        ),
        (lambda t: t, {"start": 15.0}, TimeError, "start is after the first event of who '"),
        (lambda t: t, {"end": 1.0}, TimeError, "before the last event"),
        (lambda t: t, {"end": "tomorrow"}, TimeError, "neither a column nor a time"),
        (lambda t: t, {"end": "what"}, TimeError, "neither a column nor a time"),
        (lambda t: t.assign(z=t["at"] + 30), {"end": "z"}, TimeError, "one time for all events"),
        (lambda t: t.groupby("who").head(1), {}, TimeError, "of no length"),
    ],
)
def test_what_is_no_stream_of_events_is_refused(change, options, error, message):
    with pytest.raises(error, match=message):
        SequenceHawkes(**SMALL).fit(change(simulate(8)), **ROLES, **options)


def test_other_types_are_refused_and_a_failed_fit_changes_nothing(fitted):
    new = simulate(3, seed=4)
    with pytest.raises(DataError, match=r"holds 'c', and the .* the types a, b"):
        fitted.predict(new.assign(what="c"))
    before = fitted.score(new, start=0, end=END)
    with pytest.raises(TimeError):
        fitted.fit(new, **ROLES, end=-1.0)
    assert fitted.score(new, start=0, end=END) == before


def make_poisson(rates, **options):
    """Return a process of two types of constant rates, in the unit of the times."""
    ties = pd.DataFrame(
        {"who": [0, 0, 0, 0, 1], "at": [0.5, 0.5, 3, 3, 1], "what": [0, 1, 0, 1, 1]}
    )
    process = SequenceHawkes(**{**SMALL, "epochs": 1}, **options).fit(
        ties, **ROLES, start=0, end=10
    )
    with torch.no_grad():
        process.module_.double().weight.zero_()
        rate = torch.tensor(rates, dtype=torch.float64) * process.time_unit_
        process.module_.log_scale.copy_((rate / np.log(2)).log())
    return process, ties


def test_events_at_one_time_are_taken():
    rates = np.array([1.4, 0.35])
    process, ties = make_poisson(rates)
    expected = (2 * np.log(rates[0]) + 3 * np.log(rates[1]) - 20 * rates.sum()) / 5
    assert process.score(ties, start=0, end=10) == pytest.approx(expected, rel=1e-6)


def test_streams_without_events_count():
    rates = np.array([1.4, 0.35])
    process, ties = make_poisson(rates)
    none = pd.DataFrame({"who": ["x", "y"], "at": [np.nan] * 2, "what": [np.nan] * 2})
    table = pd.concat([none[:1], ties, none[1:]]).assign(until=lambda t: t["who"].eq("y") * 5 + 10)
    expected = (2 * np.log(rates[0]) + 3 * np.log(rates[1]) - 45 * rates.sum()) / 5
    assert process.score(table, start=0, end="until") == pytest.approx(expected, rel=1e-6)
    frame = process.predict_next(table, start=0, now="until")
    assert frame["who"].tolist() == ["x", 0, 1, "y"]
    np.testing.assert_allclose(frame["in"], 1 / rates.sum(), rtol=1e-5)


def test_a_rate_is_that_of_all_streams_also_those_without_events():
    rng, rows = np.random.default_rng(0), []
    for who in range(300):
        times = np.sort(rng.uniform(0, 1, rng.poisson(0.5)))
        rows += [(who, at, "a") for at in times] or [(who, np.nan, None)]
    table = pd.DataFrame(rows, columns=["who", "at", "what"])
    moments = pd.Timestamp("2024-05-01") + pd.to_timedelta(table["at"], unit="D")
    bounds = {"start": pd.Timestamp("2024-05-01"), "end": pd.Timestamp("2024-05-02")}
    few = {"hidden_size": 2, "epochs": 25, "lr": 0.05, "random_state": 0, "validation_fraction": 0}
    process = SequenceHawkes(**few).fit(table.assign(at=moments), **ROLES, **bounds)
    unit = process.time_unit_ / 86_400
    at = torch.tensor([[0.25, 0.5, 0.9]]) / unit
    with torch.no_grad():
        rate = process.module_.intensity(torch.zeros(1, 0).long(), torch.zeros(1, 0), at) / unit
    expected = table["at"].notna().sum() / 300
    np.testing.assert_allclose(rate[0, :, 0], expected, atol=0.1)


def test_times_long_after_the_start_stay_precise():
    """The state has forgotten the start by then, so that its time does not matter."""
    few = {"hidden_size": 4, "epochs": 2, "random_state": 0, "validation_fraction": 0}
    process = SequenceHawkes(**few).fit(simulate(8), **ROLES)
    new = simulate(1, seed=1)
    for ask in (process.predict_time, process.predict_proba):
        near, far = (ask(new, start=start, now=END + 1) for start in (-1e4, -3e7))
        np.testing.assert_allclose(far, near, rtol=1e-3)
