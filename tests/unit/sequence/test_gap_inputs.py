"""Gaps, absolute times, masks and lengths: the same question asked in different words."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

import tauflow
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, DtypeError, ShapeError, TimeError

B, T, D, H = 3, 5, 2, 4


class Recorder(AbstractCell):
    """Add up the gaps it is given, so that the state shows them."""

    paper = "none"

    def __init__(self, input_size: int, hidden_size: int = 1) -> None:
        super().__init__(input_size, hidden_size)

    def reset_parameters(self, generator=None) -> None:
        """Draw nothing."""

    def step(self, x, h, dt):
        return h + dt


class Missing(AbstractCell):
    """Count the features that were measured."""

    paper = "none"
    uses_observed = True

    def __init__(self, input_size: int, hidden_size: int = 1) -> None:
        super().__init__(input_size, hidden_size)

    def reset_parameters(self, generator=None) -> None:
        """Draw nothing."""

    def step(self, x, h, dt, observed=None):
        return h if observed is None else h + observed.sum(-1, keepdim=True).to(h.dtype)


def elapsed(**times: object) -> list[list[float]]:
    """Return the time that the cell has seen at every step."""
    y, _ = tauflow.RNN(Recorder(1))(torch.zeros(2, T, 1, dtype=torch.float64), **times)
    return y.squeeze(-1).tolist()


TIMES = torch.tensor([[3.0, 4.0, 6.0, 6.0, 9.0], [0.0, 1.0, 3.0, 7.0, 15.0]]).double()
MASK = torch.tensor([[True, False, True, False, True], [False, True, True, True, False]])


def test_default_gap_is_one():
    assert elapsed() == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("gap", [2, 2.0, torch.tensor(2.0), torch.tensor(2)])
def test_one_number_is_the_gap_of_every_step(gap):
    assert elapsed(dt=gap) == [[2, 4, 6, 8, 10]] * 2


@pytest.mark.parametrize("gap", [1e40, 10**400, -(10**400), Fraction(10**400)])
def test_a_number_that_is_too_large_is_refused(gap):
    rnn, x = tauflow.GRU(2, 3), torch.zeros(1, 4, 2)
    for call in (lambda: rnn(x, dt=gap), lambda: rnn.step(x[:, 0], dt=gap)):
        with pytest.raises(TimeError, match=r"time step is too large for torch\.float32"):
            call()
    assert rnn(x, dt=3e38)[0].isfinite().all()
    if gap == 1e40:
        assert rnn.double()(x.double(), dt=gap)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.int32])
def test_absolute_times_count_from_the_first_sample(dtype):
    expected = [[0, 1, 3, 3, 6], [0, 1, 3, 7, 15]]
    assert elapsed(t=TIMES.to(dtype)) == expected
    assert elapsed(t=TIMES.to(dtype).unsqueeze(-1)) == expected


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("masked", [False, True])
def test_integer_times_keep_their_digits(dtype, masked):
    """Nanoseconds since 1970 have more digits than double precision."""
    start = {torch.int64: 1_700_000_000_000_000_000, torch.int32: 2_000_000_000}.get(dtype, 1)
    times = TIMES.long().mul(10).add(start).to(dtype)
    mask = {"mask": MASK} if masked else {}
    assert elapsed(t=times, **mask) == elapsed(t=TIMES * 10, **mask)


def test_integer_times_may_lie_before_zero_and_go_on():
    rnn, x = tauflow.RNN(Recorder(1)), torch.zeros(2, T, 1, dtype=torch.float64)
    times = TIMES.long() * 100 - 1_700_000_000_000_000_000
    uncut, last = rnn(x, t=times)
    begun, h = rnn(x[:, :2], t=times[:, :2])
    rest, end = rnn(x[:, 2:], h, t=times[:, 1:])
    torch.testing.assert_close(torch.cat([begun, rest], dim=1), uncut)
    assert end.tolist() == last.tolist() == [[600.0], [1500.0]]


def test_integer_times_must_not_run_backwards():
    times = torch.tensor([[1_700_000_000_000_000_100, 1_700_000_000_000_000_000]])
    with pytest.raises(TimeError, match="time runs backwards by 100 at sequence 0, step 1"):
        tauflow.RNN(Recorder(1))(torch.zeros(1, 2, 1), t=times)


def test_a_masked_step_ends_no_gap_of_absolute_times():
    """The time that passes during masked steps is not lost."""
    assert elapsed(t=TIMES, mask=MASK) == [[0, 0, 3, 3, 6], [0, 0, 2, 6, 6]]


def test_a_masked_step_drops_its_own_gap():
    gaps = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]] * 2)
    assert elapsed(dt=gaps, mask=MASK) == [[1, 1, 5, 5, 21], [0, 2, 6, 14, 14]]
    assert elapsed(dt=2.0, mask=MASK) == [[2, 2, 4, 4, 6], [0, 2, 4, 6, 6]]


@pytest.mark.parametrize("lengths", [[5, 2], torch.tensor([5, 2]), (5, 2)])
def test_lengths_mask_the_right_end(lengths):
    t = TIMES.clone()
    t[1, 2:] = float("nan")
    assert elapsed(t=t, lengths=lengths) == [[0, 1, 3, 3, 6], [0, 1, 1, 1, 1]]
    t[1, 2:] = -5.0  # time may run backwards in padding
    assert elapsed(t=t, lengths=lengths) == [[0, 1, 3, 3, 6], [0, 1, 1, 1, 1]]


def test_time_stamps_keep_their_digits_in_single_precision():
    """Seconds since 1970 with steps of 10 ms do not fit into float32; their gaps do."""
    stamps = 1.7e9 + 0.01 * torch.arange(T, dtype=torch.float64)
    y, _ = tauflow.RNN(Recorder(1))(torch.zeros(1, T, 1), t=stamps[None])
    assert y.dtype is torch.float32
    torch.testing.assert_close(y[0, :, 0], 0.01 * torch.arange(T), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["ltc", "cfc", "augmented-lstm"])
def test_mask_equals_lengths_and_dt_equals_t(name):
    rnn = tauflow.build(name, D, H, num_layers=2, bidirectional=True).double()
    x, t = torch.randn(2, T, D).double(), TIMES
    lengths = torch.tensor([2, 5])
    mask = torch.arange(T) < lengths[:, None]
    gaps = torch.diff(t, dim=1, prepend=t[:, :1])
    results = [
        rnn(x, t=t, lengths=lengths),
        rnn(x, t=t, mask=mask),
        rnn(x, dt=gaps, lengths=lengths),
        rnn(x, dt=gaps.unsqueeze(-1), mask=mask),
    ]
    for y, h in results[1:]:
        torch.testing.assert_close(y, results[0][0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(h, results[0][1], rtol=1e-10, atol=1e-12)


def test_gaps_take_gradients():
    rnn = tauflow.LTC(D, H).double()
    x = torch.randn(2, 3, D).double()
    dt = (torch.rand(2, 3).double() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda dt: rnn(x, dt=dt)[0], [dt])
    t = torch.cumsum(dt.detach(), 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: rnn(x, t=t)[0], [t])


def test_observed_reaches_the_cell_step_by_step():
    observed = torch.tensor([[[1, 1], [0, 1], [0, 0]], [[0, 0], [1, 1], [1, 0]]]).bool()
    rnn = tauflow.RNN(Missing(2))
    y, _ = rnn(torch.zeros(2, 3, 2), observed=observed)
    assert y.squeeze(-1).tolist() == [[2, 3, 3], [0, 2, 3]]
    mask = torch.tensor([[True, False, True], [True, True, False]])
    y, _ = rnn(torch.zeros(2, 3, 2), observed=observed, mask=mask)
    assert y.squeeze(-1).tolist() == [[2, 2, 2], [0, 2, 2]]
    both = tauflow.RNN(Missing(2), bidirectional=True)
    y, _ = both(torch.zeros(2, 3, 2), observed=observed)
    assert y[..., 1].tolist() == [[3, 1, 0], [3, 3, 1]]


X = torch.zeros(B, T, D)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"dt": torch.ones(B, T), "t": torch.ones(B, T)}, ArgumentError, "not both"),
        (
            {"mask": torch.ones(B, T, dtype=torch.bool), "lengths": [T] * B},
            ArgumentError,
            "mask or lengths, not both",
        ),
        ({"dt": torch.ones(B)}, ShapeError, r"dt has shape \(3,\).*dt\[:, None\]\.expand"),
        ({"dt": torch.ones(T)}, ShapeError, r"dt has shape \(5,\), expected \(B, T\) = \(3, 5\)"),
        ({"dt": torch.ones(B, T, D)}, ShapeError, r"dt has shape \(3, 5, 2\)"),
        ({"t": torch.ones(T, B)}, ShapeError, r"t has shape \(5, 3\)"),
        ({"dt": -1.0}, TimeError, "dt is -1 at sequence 0, step 0"),
        ({"dt": float("nan")}, TimeError, "dt is not finite"),
        ({"dt": torch.full((B, T), torch.inf)}, TimeError, "dt is not finite at sequence 0"),
        ({"t": torch.ones(B, T).cumsum(1).flip(1)}, TimeError, "time runs backwards by 1"),
        ({"dt": torch.ones(B, T, dtype=torch.bool)}, DtypeError, r"dt must be .*torch\.bool"),
        (
            {"mask": torch.ones(B, T)},
            DtypeError,
            r"mask has dtype torch\.float32, expected .*torch\.bool",
        ),
        ({"mask": torch.ones(T, dtype=torch.bool)}, ShapeError, r"mask has shape \(5,\)"),
        (
            {"mask": torch.ones(B, T, D, dtype=torch.bool)},
            ShapeError,
            r"mask has shape .*Where single features were measured is observed=",
        ),
        ({"lengths": [1, 2]}, ShapeError, r"lengths has shape \(2,\), expected \(B,\) = \(3,\)"),
        ({"lengths": [1, 2, 6]}, ArgumentError, r"between 0 and T = 5, got \[1, 2, 6\]"),
        ({"lengths": [1, -2, 5]}, ArgumentError, "between 0 and T = 5"),
        (
            {"observed": torch.ones(B, T, D, dtype=torch.bool)},
            ArgumentError,
            r"LTCCell does not model missing features.*missing='inputs' of tauflow\.data\.",
        ),
        ({"observed": torch.ones(B, T, D)}, DtypeError, r"observed has .*torch\.bool"),
        ({"observed": torch.ones(B, T, dtype=torch.bool)}, ShapeError, "observed has shape"),
        ({"hx": torch.zeros(B, H + 1)}, ShapeError, r"hx has shape \(3, 5\), expected \(3, 4\)"),
        ({"hx": torch.zeros(B, H).double()}, DtypeError, r"hx has dtype torch\.float64"),
    ],
)
def test_a_bad_call_is_refused_by_name(arguments, error, match):
    with pytest.raises(error, match=rf"^LTC\.forward: .*{match}"):
        tauflow.LTC(D, H)(X, **arguments)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"x": np.zeros((B, T, D))}, "x must be .*got ndarray"),
        ({"t": [[1.0] * T] * B}, "t must be .*got list"),
        ({"dt": [1.0] * T}, "dt must be .*got list"),
        ({"dt": np.ones((B, 1))}, "dt must be .*got ndarray"),
        ({"dt": "1"}, "dt must be .*got str"),
        ({"mask": [[True] * T] * B}, "mask .*list"),
        ({"lengths": [1.0, 2.0, 3.0]}, "lengths .*integers"),
        ({"lengths": "abc"}, "lengths .*integers"),
        ({"observed": [True]}, "observed .*list"),
        ({"hx": "state"}, "hx must be a tensor or a tuple of them, got str"),
    ],
)
def test_a_call_with_the_wrong_type_is_refused_by_name(arguments, match):
    with pytest.raises(DtypeError, match=match):
        tauflow.LTC(D, H)(**{"x": X, **arguments})


@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        (torch.zeros(B, T, D + 1), ShapeError, r"x has shape \(3, 5, 3\), expected \(B, T, 2\)"),
        (torch.zeros(D), ShapeError, r"x has shape \(2,\)"),
        (torch.zeros(B, 0, D), ShapeError, "T >= 1"),
        (torch.zeros(B, T, D).long(), DtypeError, r"x has dtype torch\.int64"),
    ],
)
def test_bad_inputs_are_refused_by_name(x, error, match):
    with pytest.raises(error, match=match):
        tauflow.LTC(D, H)(x)


@pytest.mark.parametrize("name", ["ltc", "cfc", "lstm"])
def test_inputs_of_another_precision_than_the_parameters_are_refused(name):
    with pytest.raises(DtypeError, match=r"x has dtype torch\.float32.*torch\.float64"):
        tauflow.build(name, D, H).double()(X)


def test_unbatched_calls_take_unbatched_companions():
    rnn = tauflow.LTC(D, H).double()
    x, t = torch.randn(T, D).double(), torch.arange(T)
    mask = torch.tensor([True, True, False, True, False])
    y, h = rnn(x, t=t, mask=mask)
    batch: tuple[Tensor, Tensor] = rnn(x[None], t=t[None], mask=mask[None])
    torch.testing.assert_close(y, batch[0][0])
    torch.testing.assert_close(h, batch[1][0])
    y, _ = rnn(x, lengths=torch.tensor(3))
    torch.testing.assert_close(y, rnn(x[None], lengths=[3])[0][0])
    with pytest.raises(ShapeError, match=r"dt has shape \(1, 5\), expected \(T,\) = \(5,\)"):
        rnn(x, dt=torch.ones(1, T))
