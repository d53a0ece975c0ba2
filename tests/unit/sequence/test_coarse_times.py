"""Absolute times at the border of a module: too coarse ones are refused, with the cure."""

import pytest
import torch

import tauflow
from tauflow.errors import TimeError
from tauflow.models import LatentODE, SeFT, Transformer
from tauflow.sequence.inputs import prepare_inputs

START = 1_700_000_000
STEPS = torch.tensor([[0, 1, 2, 5, 6], [0, 3, 4, 4, 9]])
GAPS = [[0, 1, 1, 3, 1], [0, 3, 1, 0, 5]]
X = torch.zeros(2, 5, 1)
MASK = torch.tensor([[True, False, True, True, False], [True, True, True, True, True]])


def gaps(**times):
    return prepare_inputs("rnn", 1, X, **times).dt.squeeze(-1).tolist()


@pytest.mark.parametrize("masked", [False, True])
def test_most_calls_are_seen_to_be_fine_at_a_glance(masked, monkeypatch):
    monkeypatch.setattr("tauflow.sequence.time_steps.find_precision_loss", None)
    mask = {"mask": MASK} if masked else {}
    assert gaps(t=STEPS.float(), **mask) == gaps(t=STEPS, **mask)
    clock = torch.rand(2, 5, generator=torch.Generator().manual_seed(0)).cumsum(1) + 30
    clock[0, 1] = clock[0, 0] + 1e-5  # one tiny gap among others
    gaps(t=clock, **mask)


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_seconds_since_1970_in_single_precision_are_refused(masked, goes_on):
    times = (START + STEPS).float()
    if goes_on:
        times = torch.cat([times[:, :1] - 1, times], dim=1)
    mask = {"mask": MASK} if masked else {}
    with pytest.raises(
        TimeError,
        match=r"^rnn: times t of sequence 0 have dtype float32, in which numbers near 1\.7e\+09 "
        r"lie 128 apart: .* Give times as integers or torch\.float64 from the start .*, subtract "
        r"each sequence's first time before rounding, or give dt\.$",
    ):
        gaps(t=times, has_initial_state=goes_on, **mask)


@pytest.mark.parametrize(
    "times",
    [
        START + STEPS,
        (START + STEPS).double(),
        (START + STEPS) * 10**9 // 10**9,
        STEPS.float(),
        STEPS.half(),
        (100_000 + STEPS).float(),
    ],
)
def test_exact_times_give_exact_gaps(times):
    assert gaps(t=times) == GAPS


def test_nanoseconds_are_subtracted_as_integers():
    assert gaps(t=START * 10**9 + STEPS) == GAPS
    far = torch.tensor([[-(2**62), 2**62 - 1]])
    assert prepare_inputs("rnn", 1, X[:1, :2], t=far).dt.flatten().tolist() == [0, 2.0**63]


def test_what_stands_in_the_padding_does_not_matter():
    times = STEPS.float()
    times[0, 3:] = 1.7e9
    assert gaps(t=times, lengths=[3, 5])[0] == [0, 1, 1, 0, 0]


def test_the_sequence_with_coarse_times_is_named():
    times = STEPS.double()
    times[1] = (START + STEPS[1]).float().double()
    assert gaps(t=times)[1] != GAPS[1]  # converted back, which nothing tells from equal times
    with pytest.raises(TimeError, match="times t of sequence 1 have dtype float32"):
        gaps(t=times.float())


def test_coarse_times_of_one_short_call_are_refused():
    """A control loop with a clock in seconds since the start of the machine."""
    clock = torch.tensor([[200_000.31, 200_000.32]])
    with pytest.raises(TimeError, match=r"numbers near 200000 lie 0\.015625 apart"):
        prepare_inputs("rnn", 1, torch.zeros(1, 1, 1), t=clock, has_initial_state=True)
    assert prepare_inputs("rnn", 1, torch.zeros(1, 1, 1), t=clock[:, 1:]).dt.item() == 0


def test_modules_refuse_and_gaps_are_not_looked_at_twice():
    cfc = tauflow.CfC(1, 3)
    with pytest.raises(TimeError, match=r"^CfC\.forward: times t of sequence 0"):
        cfc(X, t=(START + STEPS).float())
    y, _ = cfc(X, t=START + STEPS)
    torch.testing.assert_close(y, cfc(X, dt=torch.tensor(GAPS).float())[0])


def test_a_model_that_reads_absolute_times_refuses_those_that_do_not_fit_its_dtype():
    model = SeFT(1, 4).eval()
    with pytest.raises(
        TimeError,
        match=r"^SeFT\.forward: times t of sequence 0 have dtype float32, .* reads absolute "
        r"times in the dtype of x\. Subtract each sequence's first time",
    ):
        model(X, t=START + STEPS)
    near, _ = model(X, t=STEPS)
    torch.testing.assert_close(model(X, t=STEPS.double())[0], near)
    exact, _ = model.double()(X.double(), t=START + STEPS)
    assert exact.isfinite().all()


@pytest.mark.parametrize("model", [LatentODE(1, 2), Transformer(1, 4)])
def test_a_model_of_gaps_alone_takes_any_exact_times(model):
    model.eval()
    torch.testing.assert_close(model(X, t=START + STEPS)[0], model(X, t=STEPS)[0])
