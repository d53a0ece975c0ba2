"""Trivial forecasts of a table, beside ones that pandas makes of its rows."""

import numpy as np
import pandas
import pytest

from tauflow.data import from_table
from tauflow.runs.baselines import score_baselines

SEASON, ROWS = 24, 24 * 60


def load(missing=0.0):
    rng = np.random.default_rng(0)
    hour = np.arange(ROWS)
    kw = 10 + 5 * np.sin(2 * np.pi * hour / SEASON) + 0.1 * rng.normal(size=ROWS)
    kw[rng.random(ROWS) < missing] = np.nan
    return pandas.DataFrame({"hour": hour, "kW": kw})


def by_pandas(table, window, first=ROWS - ROWS * 15 // 100):
    """Return the errors of both forecasts of the rows of the test split, and what persists."""
    ago, last, true = [], [], []
    part = table["kW"].iloc[first:].reset_index(drop=True)
    for start in range(0, len(part) - 1, window):
        piece = part.iloc[start : start + window]
        piece = piece.iloc[: min(window, len(part) - 1 - start)].ffill()
        last.append(piece)
        ago.append(piece.shift(SEASON - 1))
        true.append(part.shift(-1).iloc[piece.index])
    ago, last, true = map(pandas.concat, (ago, last, true))
    known, share = true.notna(), float(ago[true.notna()].isna().mean())
    last = last.fillna(table["kW"].iloc[: ROWS * 7 // 10].mean())
    errors = [((forecast - true)[known] ** 2).mean() for forecast in (last, ago.fillna(last))]
    return [*errors, share]


@pytest.mark.parametrize("window", [None, 24, 48, 100])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("missing_as", ["observed", "inputs"])
def test_what_has_no_season_behind_it_stays_as_it_is(window, missing, missing_as):
    table = load(missing)
    table_options = {"time": "hour", "target": "kW", "task": "next-step", "season": SEASON}
    data = from_table(table, window=window, missing=missing_as, **table_options)
    last, ago, share = by_pandas(table, window or ROWS)
    (named, persistence), (name, naive), _ = score_baselines(data, "mse")
    assert (named, name) == ("persistence", f"seasonal naive ({100 * share:.0f} % as persistence)")
    scale = float(data.schema.y_scale[0]) ** 2
    assert [scale * persistence, scale * naive] == pytest.approx([last, ago], rel=1e-3)


def test_the_season_beats_persistence_where_it_can_be_looked_up():
    data = from_table(load(), time="hour", window=96, horizon=24, season=SEASON)
    scores = dict(score_baselines(data, "mse"))
    assert scores["seasonal naive"] < 0.01 * scores["persistence"]


@pytest.mark.parametrize("sizes", [{}, {"window": 24, "horizon": 3}])
@pytest.mark.parametrize("also", [[], ["stuck"]])
def test_what_inputs_do_not_tell_is_not_forecast_trivially(sizes, also):
    table = load().assign(stuck=5.0)
    table_options = {"time": "hour", "target": ["kW", *also], "task": "next-step", "season": SEASON}
    usual = [
        name for name, _ in score_baselines(from_table(table, **table_options, **sizes), "mse")
    ]
    assert usual[0] == "persistence"
    table.loc[ROWS * 9 // 10 :, "stuck"] = 9.0  # as never in training, where its input is 0
    names = [
        name for name, _ in score_baselines(from_table(table, **table_options, **sizes), "mse")
    ]
    assert names == (["training mean"] if also else usual)
