"""Features that predict the target by themselves are named; scores against scikit-learn."""

import numpy as np
import pandas
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from tauflow.data import from_table
from tauflow.tabular.leaks import compute_auroc, compute_r2

IDS, ROWS = 120, 5
RNG = np.random.default_rng(0)
DIED = RNG.permutation(np.arange(IDS) % 4 == 0).astype(int)


def stays(**columns):
    """Return stays with two ordinary features; columns hold a value per stay, or per row."""
    frame = pandas.DataFrame(
        {
            "stay": np.repeat(np.arange(IDS), ROWS),
            "hour": np.tile(np.arange(ROWS), IDS),
            "pulse": RNG.normal(size=IDS * ROWS) + np.repeat(DIED, ROWS),
            "age": np.repeat(RNG.integers(20, 90, IDS), ROWS),
            "died": np.repeat(DIED, ROWS),
        }
    )
    wide = {k: np.repeat(v, ROWS) if len(v) == IDS else v for k, v in columns.items()}
    return frame.assign(**wide)


def leaks(frame, target="died", **options):
    data = from_table(frame, id="stay", time="hour", target=target, **options)
    return [note for note in data.card.notes if "alone predicts" in note]


def at_the_end(values):
    """Return values that only the last row of each stay has; noise before."""
    rows = RNG.normal(size=(IDS, ROWS))
    rows[:, -1] = values
    return rows.ravel()


SURVIVAL = np.where(DIED, RNG.integers(1, 500, IDS), 500 + RNG.integers(0, 9, IDS))
LEAKS = {
    "copy": DIED,
    "copy with other words": np.where(DIED, "yes", "no"),
    "last value": at_the_end(DIED + 0.1 * RNG.normal(size=IDS)),
    "time to event": SURVIVAL,
    "time of death, missing for others": np.where(DIED, RNG.integers(1, 500, IDS), np.nan),
    "discharge, missing for the dead": np.where(DIED, np.nan, RNG.integers(1, 500, IDS)),
}


@pytest.mark.parametrize("kind", LEAKS)
def test_what_is_known_only_afterwards_is_named(kind):
    (note,) = leaks(stays(leak=LEAKS[kind]))
    name = "leak=" if kind == "copy with other words" else "leak' (1)"
    assert f"'{name}" in note
    assert "'pulse'" not in note
    assert "'age'" not in note
    assert "predicts 'died' on the training split (AUROC of at least 0.995)" in note


def test_targets_of_rows_are_held_against_the_values_of_their_rows():
    hours = np.tile(np.arange(ROWS), IDS)
    alarm = (RNG.random(IDS * ROWS) < 0.2).astype(int)
    frame = stays(alarm=alarm, siren=np.where(alarm, 7.5, np.nan), hour2=hours)
    (note,) = leaks(frame, "alarm")
    assert "'siren' (1)" in note
    assert not leaks(frame.assign(siren=np.roll(frame.siren, 1)), "alarm")


def test_values_are_predicted_by_copies_in_other_units():
    celsius = RNG.normal(37, 1, IDS * ROWS)
    frame = stays(temp=celsius, fahrenheit=celsius * 1.8 + 32)
    frame.loc[::7, "fahrenheit"] = np.nan
    (note,) = leaks(frame, "temp")
    assert "'fahrenheit' (1)" in note
    assert "R2 of at least 0.999" in note
    noisy = frame.assign(fahrenheit=frame.fahrenheit + RNG.normal(0, 0.2, len(frame)))
    assert not leaks(noisy, "temp")


def test_each_of_several_targets_is_looked_at():
    frame = stays(level=RNG.normal(size=IDS * ROWS), flow=RNG.normal(size=IDS * ROWS))
    (note,) = leaks(frame.assign(twice=2 * frame.flow), ("level", "flow"))
    assert "predicts 'flow'" in note


def test_ordinary_tables_have_no_such_note():
    few = stays()[lambda f: f.stay < 12]  # a feature fits so few classes by chance
    assert not leaks(stays())
    assert not leaks(few.assign(x=few.died + few.hour))
    assert not leaks(stays(), "pulse")
    data = from_table(stays(copy=DIED), id="stay", time="hour", task="next-step")
    assert not any("alone predicts" in note for note in data.card.notes)


def auroc(x, y):
    return compute_auroc(pandas.DataFrame(x), pandas.Series(y)).to_numpy()


def test_the_area_is_that_of_scikit_learn():
    x = RNG.normal(size=(300, 4)).round(1)
    x[:, 3] = 5.0
    y = (x[:, 0] + RNG.normal(size=300) > 1).astype(float)
    for column, area in zip(x.T, auroc(x, y), strict=True):
        right = roc_auc_score(y, column)
        assert area == pytest.approx(max(right, 1 - right), abs=1e-12)
    x[::3, 1] = np.nan
    right = roc_auc_score(y, np.nan_to_num(x[:, 1], nan=-99.0))
    assert auroc(x[:, 1:2], y) == pytest.approx(max(right, 1 - right), abs=1e-12)
    three = np.digitize(x[:, 0] + RNG.normal(size=300), [-0.5, 0.5]).astype(float)
    pairs = [roc_auc_score(three[k] == b, x[k, 0]) for k, b in _pairs(three)]
    assert auroc(x[:, :1], three) == pytest.approx(
        np.mean([max(area, 1 - area) for area in pairs]), abs=1e-12
    )


def _pairs(y):
    return [((y == a) | (y == b), b) for a, b in [(0, 1), (0, 2), (1, 2)]]


def test_the_share_of_variance_is_that_of_scikit_learn():
    x = RNG.normal(1e6, 1, size=(200, 3))
    y = x[:, 0] + RNG.normal(0, 0.1, 200)
    x[::4, 1] = np.nan
    x[:, 2] = 3.0
    shares = compute_r2(pandas.DataFrame(x), pandas.Series(y)).to_numpy()
    for column, share in zip(x.T[:2], shares, strict=False):
        there = ~np.isnan(column)
        line = column[there, None]
        right = LinearRegression().fit(line, y[there]).score(line, y[there])
        assert share == pytest.approx(right, abs=1e-9)
    assert shares[2] == 0
