"""States that overflow over too long a gap: the gap is named, and nothing else is blamed on it."""

import pytest
import torch

import tauflow
from tauflow.errors import NonFiniteError

FLOWS = ["ct-rnn", "ode-lstm", "gru-ode", "bidirectional-rnn"]
INF = float("inf")


def inputs(gap=1e15):
    """Return five sequences, of which one has a long gap that recurs until its end."""
    torch.manual_seed(0)
    x, dt = torch.randn(5, 30, 2), torch.rand(5, 30)
    dt[3, 7:] = gap
    dt[3, 9] *= 2
    return x, dt


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*FLOWS, "lem", "lstm-euler"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_gap_the_limit_and_the_cure_are_named(name, backend):
    rnn = tauflow.build(name, 2, 4, backend=backend)
    cell = type(rnn.cell).__name__
    x, dt = inputs()
    with pytest.raises(
        NonFiniteError,
        match=rf"\.forward: the state of {cell} overflows in sequence 3, whose time step of "
        r"2e\+15 at step 9 is longer than its solver's steps can follow: they are stable up to a "
        r"time step of [\d.]+ .*Choose a larger unit of time, at least [\d.e+]+ times as many",
    ):
        rnn(x, dt=dt)
    others = torch.arange(5) != 3
    assert rnn(x[others], dt=dt[others])[0].isfinite().all()


@pytest.mark.parametrize("name", FLOWS)
def test_a_thousand_units_are_too_many(name):
    x, dt = inputs(1e3)
    with pytest.raises(NonFiniteError, match="time step of 2000 at step 9"):
        tauflow.build(name, 2, 4)(x, dt=dt)


def test_more_substeps_are_a_cure():
    x, dt = inputs(30.0)
    with pytest.raises(NonFiniteError, match=r"at least 7\.18 times as many substeps"):
        tauflow.CTRNN(2, 4)(x, dt=dt)
    assert tauflow.CTRNN(2, 4, substeps=3 * 10)(x, dt=dt)[0].abs().max() < 10


def test_where_no_time_step_is_stable_no_number_of_substeps_is_named():
    torch.manual_seed(0)
    rnn = tauflow.LTC(2, 4, solver="euler", substeps=1, dt_offset=1.0)
    assert rnn.cell.max_stable_dt() == 0
    with pytest.raises(NonFiniteError, match=r"stable up to a time step of 0 .* more substeps, or"):
        rnn(torch.randn(1, 300, 2))


def test_layers_and_directions_are_looked_at():
    rnn = tauflow.CTRNN(2, 4, num_layers=2, bidirectional=True)
    x, dt = inputs(1e3)
    with pytest.raises(NonFiniteError, match=r"CTRNN\.forward: .* sequence 3, .* at step 9"):
        rnn(x, dt=dt)


def test_what_was_not_finite_before_goes_its_way():
    x, dt = inputs()
    rnn, start = tauflow.CTRNN(2, 4), torch.zeros(5, 4)
    bad_x, bad_start = x.clone(), start.clone()
    bad_x[3, 0], bad_start[3] = INF, INF
    for arguments in ((bad_x, start), (x, bad_start)):
        y, h = rnn(*arguments, dt=dt)
        assert not h[3].isfinite().any()
        assert y[:3].isfinite().all()
    with torch.no_grad():
        rnn.cell.b[0] = INF
    assert not rnn(x, dt=dt)[1].isfinite().all()


def test_transforms_see_numbers():
    """Nothing can be looked at inside them."""
    x, dt = inputs()
    rnn = tauflow.CTRNN(2, 4)
    y = torch.func.vmap(lambda x, dt: rnn(x, dt=dt)[0])(x, dt)
    assert not y[3].isfinite().all()


def test_large_finite_states_are_no_overflow():
    x, dt = inputs(0.5)
    hx = torch.full((5, 4), 3e38)
    assert tauflow.CTRNN(2, 4)(x, hx, dt=dt)[1].isfinite().all()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_state_that_grows_without_a_limit_is_named(layers):
    rnn = tauflow.build("slice", 2, 8, num_layers=layers)
    torch.manual_seed(0)
    x, dt = torch.randn(3, 400, 2), torch.rand(3, 400)
    x[1] *= 1e3
    with pytest.raises(
        NonFiniteError, match=r"SLiCECell overflows in sequence 1, although .* grows"
    ):
        rnn(x, dt=dt)
    others = torch.tensor([0, 2])  # of two layers, the second overflows after more steps
    assert rnn(x[others, :50], dt=dt[others, :50])[0].isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        assert not rnn(x, dt=dt)[0].isfinite().all()
