"""A forecast over a horizon is reported row by row, beside the last value."""

import pytest
import torch
from torch import nn

from tauflow.data import from_table
from tauflow.experiments.report.answered import answered
from tauflow.experiments.report.own_table import errors


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
