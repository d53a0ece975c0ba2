"""A forecast over a horizon is reported row by row, beside the last value."""

import numpy as np
import pandas
import pytest
import torch
from torch import nn

from tauflow.data import from_table
from tauflow.runs.baselines import score_baselines
from tauflow.runs.report.sample_predictions import predict_samples
from tauflow.runs.report.table_sections import list_target_errors


class LastAgain(nn.Module):
    """Says that everything stays as it is."""

    def __init__(self, horizon=3):
        super().__init__()
        self.horizon = horizon

    def forward(self, x, **_):
        return x[:, -1, :1].repeat(1, self.horizon), None


def test_errors_grow_with_the_horizon_as_the_values_move_on():
    table = {"t": [float(row) for row in range(200)], "a": [2.0 * row for row in range(200)]}
    data = from_table(table, time="t", window=10, horizon=3)
    found = predict_samples(LastAgain(), data)
    (listing,) = list_target_errors(found, data)
    assert listing.title == "Errors by horizon"
    assert listing.headers == ("target", "model", "training mean", "persistence")
    assert [row[0] for row in listing.rows] == ["a +1", "a +2", "a +3"]
    for step, row in enumerate(listing.rows, start=1):
        assert [float(row[1]), float(row[3])] == pytest.approx([2.0 * step] * 2, rel=1e-3)
        assert float(row[2]) > 100
    assert torch.isfinite(found.truth).all()


@pytest.mark.parametrize("season", [2, 4])
def test_a_known_season_is_something_to_compare_with(season):
    """Of a sum of a line and of what comes again after two rows, the line is left."""
    a = [3.0 * row + 50 * (row % 2) for row in range(200)]
    data = from_table({"a": a}, window=10, horizon=3, season=season)
    (listing,) = list_target_errors(predict_samples(LastAgain(), data), data)
    assert listing.headers == ("target", "model", "training mean", "persistence", "seasonal naive")
    found = [float(row[4]) for row in listing.rows]
    ago = [2, 2, 4] if season == 2 else [4, 4, 4]
    assert found == pytest.approx([3.0 * rows for rows in ago], rel=1e-3)
    assert f"seasonal naive: the value {season} rows earlier" in listing.caption
    assert dict(score_baselines(data, "mse"))["seasonal naive"] == pytest.approx(
        sum((error / float(data.schema.y_scale[0])) ** 2 for error in found) / 3, rel=1e-3
    )


@pytest.mark.parametrize("missing", ["observed", "inputs"])
def test_missing_values_are_what_was_measured_before_them(missing):
    """A third of the values is missing; the listing says what pandas says, and the baselines do."""
    rng = np.random.default_rng(0)
    a = 100 + 3.0 * np.arange(400) + 50 * (np.arange(400) % 4)
    a[rng.random(400) < 0.3] = np.nan
    said = {"window": 10, "horizon": 2, "season": 4, "missing": missing}
    data = from_table({"a": a}, **said)
    (listing,) = list_target_errors(predict_samples(LastAgain(2), data), data)
    part = a[340:]
    shown = [part[start : start + 12] for start in range(0, len(part) - 11, 2)]
    shown = [one for one in shown if np.isfinite(one[10:]).any()]
    filled = [pandas.Series(one[:10]).ffill() for one in shown]
    for step in (0, 1):
        now = np.array([one.iloc[-1] for one in filled])
        ago = np.array([one.iloc[10 + step - 4] for one in filled])
        true = np.array([one[10 + step] for one in shown])
        wrong = [np.sqrt(np.nanmean((one - true) ** 2)) for one in (now, ago)]
        assert list(map(float, listing.rows[step][3:])) == pytest.approx(wrong, rel=1e-3)
    scores = dict(score_baselines(data, "mse"))
    counts = np.isfinite([one[10:] for one in shown]).sum(0)
    for name, column in (("persistence", 3), ("seasonal naive", 4)):
        squares = [float(row[column]) ** 2 for row in listing.rows]
        assert np.average(squares, weights=counts) / float(
            data.schema.y_scale[0]
        ) ** 2 == pytest.approx(scores[name], rel=1e-3)


@pytest.mark.parametrize(
    ("season", "words"), [(12, "or persistence where a window holds"), (14, None)]
)
def test_a_season_longer_than_the_window(season, words):
    data = from_table({"a": [2.0 * row for row in range(300)]}, window=10, horizon=3, season=season)
    (listing,) = list_target_errors(predict_samples(LastAgain(), data), data)
    assert ("seasonal naive" in listing.headers) == (words is not None)
    assert words is None or words in listing.caption
    if words:  # the window holds the last of the three alone
        found = [float(row[4]) for row in listing.rows]
        assert found == pytest.approx([2.0, 4.0, 2.0 * season], rel=1e-3)
