"""A unit of time that models cannot learn in is pointed out."""

import warnings

import pytest
import torch

import tauflow
from tauflow.errors import TimeUnitWarning


def trained(gap, rnn=tauflow.CfC, **options):
    torch.manual_seed(0)
    dt = torch.full((4, 6), gap)
    dt[:, 0] = 0.0
    batch = tauflow.SequenceBatch(torch.randn(4, 6, 2), torch.randn(4, 6, 1), dt=dt)
    model = tauflow.SequenceModel(rnn(2, 3, backend="reference", **options), 1)
    recipe = tauflow.Recipe(epochs=1, batch_size=4, select="last")
    parts = {"train": batch, "valid": None, "test": None}
    tauflow.train(model, **parts, loss="mse", metric="mse", recipe=recipe, seed=0)


@pytest.mark.parametrize("gap", [0.009, 101.0])
def test_the_number_to_divide_by_is_said(gap):
    with pytest.warns(TimeUnitWarning, match=f"median gap .* is {gap:g}, .* by {gap:g}") as told:
        trained(gap)
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize("gap", [0.011, 1.0, 99.0])
def test_gaps_near_the_time_constants_are_fine(gap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(gap)


def test_time_constants_may_be_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(0.005, rnn=tauflow.GNODE, tau=0.01)
    with pytest.warns(TimeUnitWarning, match=r"is 5, .* begin around 0\.01, .* by 500") as told:
        trained(5.0, rnn=tauflow.GNODE, tau=0.01, solver="tsit5")
    assert "with tau=5." in str(told[0].message)  # what to do, and no page that is not at hand
    assert "docs/" not in str(told[0].message)


def test_a_tau_of_what_reads_no_gaps_is_none():
    rnn = tauflow.CfC(2, 3, backend="reference")
    rnn.sampler = torch.nn.Identity()
    rnn.sampler.tau = 0.0  # a temperature
    with pytest.warns(TimeUnitWarning, match="begin around 1,"):
        trained(101.0, rnn=lambda *_, **__: rnn)


def test_models_that_read_no_gaps_are_not_concerned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(1e-6, rnn=tauflow.LSTM)
