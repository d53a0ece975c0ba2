"""A forecast over a horizon is reported row by row, beside the last value."""

import pytest
import torch
from torch import nn

from tauflow.data import from_table
from tauflow.experiments.report.answered import answered
from tauflow.experiments.report.own_table import errors
from tauflow.experiments.run.baselines import baselines


class LastAgain(nn.Module):
    """Says that everything stays as it is."""

    def forward(self, x, **_):
        return x[:, -1, :1].repeat(1, 3), None


def test_errors_grow_with_the_horizon_as_the_values_move_on():
    table = {"t": [float(row) for row in range(200)], "a": [2.0 * row for row in range(200)]}
    data = from_table(table, time="t", window=10, horizon=3)
    found = answered(LastAgain(), data)
    (listing,) = errors(found, data)
    assert listing.title == "Errors by horizon"
    assert listing.headers == ("target", "model", "training mean", "as now")
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
    (listing,) = errors(answered(LastAgain(), data), data)
    assert listing.headers == ("target", "model", "training mean", "as now", "a season ago")
    found = [float(row[4]) for row in listing.rows]
    ago = [2, 2, 4] if season == 2 else [4, 4, 4]
    assert found == pytest.approx([3.0 * rows for rows in ago], rel=1e-3)
    assert f"a season ago: that of {season} rows before" in listing.caption
    assert dict(baselines(data, "mse"))["seasonal naive"] == pytest.approx(
        sum((error / float(data.table.y_scale[0])) ** 2 for error in found) / 3, rel=1e-3
    )
