"""A unit of time that models cannot learn in is pointed out."""

import warnings

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import TimeUnitWarning
from tauflow.estimators import SequenceClassifier
from tauflow.models import IPNet
from tauflow.training.preconditions import find_latest_time


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
    with pytest.warns(
        TimeUnitWarning, match=f"median time step .* is {gap:g}, .* by {gap:g}"
    ) as caught:
        trained(gap)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("gap", [0.011, 1.0, 99.0])
def test_gaps_near_the_time_constants_are_fine(gap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(gap)


def test_time_constants_may_be_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(0.005, rnn=tauflow.GNODE, tau=0.01)
    with pytest.warns(TimeUnitWarning, match=r"is 5, .* begin around 0\.01, .* by 500") as caught:
        trained(5.0, rnn=tauflow.GNODE, tau=0.01, solver="tsit5")
    assert "the cell with tau=5." in str(
        caught[0].message
    )  # what to do, and no page that is not at hand
    assert "docs/" not in str(caught[0].message)


def test_a_damping_is_a_time_constant_and_no_other_option_is_advised():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(0.005, rnn=tauflow.CTRNN, damping=100.0)
        trained(1.0, rnn=tauflow.CTRNN, damping=0.0)
    words = r"begin around 0\.01, .* by 200, of all parts\.$"
    with pytest.warns(TimeUnitWarning, match=words):
        trained(2.0, rnn=tauflow.CTRNN, damping=100.0, solver="tsit5")


def test_whole_numbers_and_parts_that_are_no_cells_tell_theirs():
    class Slow(tauflow.cells.CTRNNCell):
        time_constant = 50

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(500.0, rnn=lambda *args, **_: tauflow.RNN(Slow(*args, solver="tsit5")))
    part = torch.nn.Identity()
    part.uses_dt, part.tau = True, 50.0
    rnn = tauflow.CfC(2, 3, backend="reference")
    rnn.part = part
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(500.0, rnn=lambda *_, **__: rnn)


@pytest.mark.parametrize("gap", [1e-4, 1e4])
def test_a_memory_whose_clock_reads_ratios_alone_has_no_unit(gap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(gap, rnn=tauflow.HiPPO, timestamped=True)
    with pytest.warns(TimeUnitWarning):
        trained(gap, rnn=tauflow.HiPPO, timestamped=True, append_dt=True)


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


def test_the_last_time_is_that_of_a_sample():
    dt = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 50.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    batch = tauflow.SequenceBatch(torch.zeros(2, 3, 1), torch.zeros(2, 1), dt=dt, mask=mask)
    assert find_latest_time(batch) == 4.0
    assert find_latest_time(tauflow.SequenceBatch(batch.x, batch.y)) == 3.0


@pytest.mark.parametrize("horizon", [None, 7.0])
def test_models_made_by_name_span_their_training_data(horizon):
    options = {"reference_points": 4} | ({} if horizon is None else {"horizon": horizon})
    classifier = SequenceClassifier(model="ip-net", hidden_size=3, epochs=1, options=options)
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(8, 5, 2)), np.tile(np.arange(5) * 10.0, (8, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimeUnitWarning)
        classifier.fit(x, np.tile(["a", "b"], 4), t=t)
    (body,) = (part for part in classifier.module_.modules() if isinstance(part, IPNet))
    assert body.horizon == (4.0 if horizon is None else horizon)  # time steps of 10 are 1
