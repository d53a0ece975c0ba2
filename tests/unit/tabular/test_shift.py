"""Warnings of tables that are unlike those of the training."""

import warnings

import numpy as np
import pytest

from tauflow.errors import ShiftWarning
from tauflow.tabular.shift import summarise, summarise_gaps, warn_shift


def draw(seed, count):
    """Return features of ids, owners of rows, and time steps, with tails and missing values."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, count)
    owner = np.repeat(np.arange(count), lengths)
    size = len(owner)

    def vary(deviation):
        return rng.normal(0, deviation, count)[owner] + rng.normal(0, deviation, size)

    features = {
        "temperature": 37 + vary(0.5),
        "creatinine": np.exp(vary(0.4)),
        "glucose": 130 * np.exp(vary(0.25)),
        "lactate": np.where(rng.random(size) < 0.5, 2 * np.exp(vary(0.3)), np.nan),
        "change": vary(1.0),
        "tails": rng.standard_cauchy(count)[owner],
        "alarms": rng.poisson(0.3, size) * 1.0,
        "female": (rng.random(count) < 0.5)[owner] * 1.0,
        "rare": np.where((rng.random(count) < 0.15)[owner], rng.normal(0, 1, size), np.nan),
    }
    return features, owner, rng.exponential(1.0, size)


def compare(old, new, **more):
    """Return the warnings of one table after the training on another."""
    features, owner, gaps = old
    summary = summarise(list(features), list(features.values()), owner)
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        warn_shift(summary, summarise_gaps(gaps), *new, **more)
    assert all(message.category is ShiftWarning for message in messages)
    return [str(message.message) for message in messages]


@pytest.mark.parametrize(("trained", "asked"), [(100, 100), (40, 10), (100, 1), (12, 5), (2, 40)])
def test_tables_of_the_same_distribution_are_let_pass(trained, asked):
    splits = range(40)
    messages = [m for s in splits for m in compare(draw(s, trained), draw(1000 + s, asked))]
    assert len(messages) <= 0.02 * len(splits), messages


@pytest.mark.thorough
@pytest.mark.slow
def test_fewer_than_two_in_a_hundred_splits_warn():
    for trained, asked in [(100, 100), (40, 10), (100, 1), (12, 5), (2, 40)]:
        messages = [m for s in range(200) for m in compare(draw(s, trained), draw(1000 + s, asked))]
        assert len(messages) < 4, messages


def test_other_units_and_empty_columns_are_named_in_one_warning():
    features, owner, gaps = draw(1, 200)
    features["temperature"] = 1.8 * features["temperature"] + 32
    features["creatinine"] = 88.4 * features["creatinine"]
    features["glucose"] = features["glucose"] / 18.02
    features["lactate"] = np.full(len(owner), np.nan)
    features["change"] = 1000 * features["change"]
    (message,) = compare(draw(0, 200), (features, owner, 60 * gaps))
    for part in (
        r"'temperature': median 98.",
        "(likely 1.8 x + 32)",
        "(likely x 88.4)",
        "(likely / 18.02)",
        "'lactate': no value, was in ",
        "'change': median",
        "(likely x 1000)",
        "time steps: median",
        "(likely x 60)",
    ):
        assert part in message
    assert "tails" not in message


def test_one_row_far_outside_is_told():
    features, owner, gaps = draw(1, 1)
    features = {name: values[:1] for name, values in features.items()}
    features["temperature"] = np.array([98.6])
    (message,) = compare(draw(0, 100), (features, owner[:1], gaps[:1]))
    assert "'temperature': median 98.6" in message


@pytest.mark.parametrize("share", [0.01, 0.1, 0.45])
def test_sequences_in_another_unit_are_told_among_others_in_the_right_one(share):
    features, owner, gaps = draw(1, 100)
    is_other = owner < 100 * share
    features["temperature"] = np.where(
        is_other, 1.8 * features["temperature"] + 32, features["temperature"]
    )
    ids = [f"patient {n}" for n in range(100)]
    (message,) = compare(draw(0, 200), (features, owner, gaps), ids=ids)
    count = "1 sequence" if share == 0.01 else f"{round(100 * share)} sequences"
    assert f"'temperature': {count} of 100 outside the range" in message
    assert "(likely 1.8 x + 32): patient 0" in message
    assert message.count("': ") == 1


def test_many_sequences_far_below_a_wide_range_are_told():
    features, owner, gaps = draw(1, 100)
    is_other = owner < 30
    features["glucose"] = np.where(is_other, features["glucose"] / 18.02, features["glucose"])
    (message,) = compare(draw(0, 200), (features, owner, gaps))
    assert "'glucose': " in message
    assert " of 100 outside the range" in message
    assert "(likely / 18.02)" in message


def test_last_values_to_forecast_name_their_sequences():
    old = draw(0, 100)
    features, owner, gaps = draw(1, 4)
    high, deviation = old[0]["change"].max(), old[0]["change"].std()
    features["change"] = np.where(owner == 2, high + 3 * deviation, features["change"])
    (message,) = compare(old, (features, owner, gaps), targets=["change"], ids=["a", "b", "c", "d"])
    assert "by up to 3 standard deviations" in message
    assert "in 1 sequence: c" in message


def test_nothing_is_compared_with_old_files():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_shift({}, (), *draw(0, 10))
