"""Training that meets NaN or infinity blames time steps, if it can, before the learning rate."""

import pytest
import torch
from tiny_training_task import Affine
from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.errors import NonFiniteError
from tauflow.training import Recipe, train
from tauflow.training.preconditions import describe_longest_dt


class Limited(nn.Module):
    """A model that multiplies by its time steps, and says how long one may be."""

    def __init__(self, limit=5.0):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.limit = limit

    def max_stable_dt(self):
        return self.limit

    def forward(self, x, *, dt=None, mask=None):
        return self.w * x * dt.unsqueeze(-1), None


def data(gap=0.5):
    dt = torch.full((6, 4), 0.5)
    dt[2, 3], dt[4, 1] = gap, 1e30
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[4, 1] = False
    return SequenceBatch(torch.ones(6, 4, 1), torch.zeros(6, 4, 1), dt=dt, mask=mask)


def fit(model, split, valid=None, **changes):
    recipe = Recipe(**{"epochs": 2, "select": "last", "batch_size": 6, **changes})
    options = {"loss": "mse", "metric": "mse", "recipe": recipe, "seed": 0}
    return train(model, train=split, valid=valid, test=None, **options)


def test_the_longest_gap_counts_where_the_mask_is_true(monkeypatch):
    monkeypatch.setattr("tauflow.batch._MAX_ELEMENTS", 8)  # pieces of two sequences
    assert "time step of these data is 7, at sequence 2, step 3" in describe_longest_dt(
        Limited(), data(7.0)
    )
    plain = SequenceBatch(torch.ones(2, 3, 1), torch.ones(2))
    assert describe_longest_dt(Limited(), plain) == ""


def test_a_gap_beyond_a_limit_is_blamed_first():
    with pytest.raises(
        NonFiniteError,
        match=r"^the loss is inf at epoch 1, step 1, .*The longest time step of these data is "
        r"1e\+30, at sequence 2, step 3, and the solver steps of Limited are stable up to a time "
        r"step of 5 only: choose a larger unit of time, more substeps, or an adaptive solver\. No "
        r"update was made yet, so that lr is not the cause",
    ):
        fit(Limited(), data(1e30))


def test_the_data_that_are_scored_are_looked_at_too():
    with pytest.raises(NonFiniteError, match=r"mse on the valid data .* is 1e\+30, at sequence 2"):
        fit(Limited(), data(), data(1e30), lr=1e-6)


def test_words_go_with_the_gap():
    assert "far beyond the time constants" in describe_longest_dt(Affine(), data(101.0))
    assert describe_longest_dt(Affine(), data(99.0)) == ""
    assert describe_longest_dt(Limited(), data(4.9)) == ""
    assert "up to a time step of 5 only" in describe_longest_dt(
        nn.Sequential(Affine(), Limited()), data(5.1)
    )


def test_before_the_first_update_the_rate_is_not_blamed():
    split = data()
    extreme = SequenceBatch(split.x * 3e38, split.y, dt=split.dt)
    with pytest.raises(NonFiniteError, match="No update was made yet") as caught:
        fit(Affine(), extreme)
    assert "Lower lr" not in str(caught.value)
    with pytest.raises(NonFiniteError, match="Lower lr"):
        fit(Affine(), data(), lr=1e30)
