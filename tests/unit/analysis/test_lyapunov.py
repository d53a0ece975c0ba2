"""Lyapunov exponents, against linear maps and exponents known by heart."""

import math

import pytest
import torch
from known_systems import LinearCell
from torch import Tensor, nn

import tauflow
from tauflow.analysis import lyapunov_exponents
from tauflow.cells import MODELS, AbstractCell
from tauflow.errors import ArgumentError, NonFiniteError, ShapeError


def test_exponents_are_those_of_the_matrix() -> None:
    cell = LinearCell(2, 2, (-0.5, -2.0))
    x = torch.randn(300, 2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    exponents = lyapunov_exponents(cell, x, dt=0.5, generator=generator)
    torch.testing.assert_close(
        exponents, torch.tensor([-0.5, -2.0], dtype=torch.float64), atol=0.02, rtol=0
    )
    torch.testing.assert_close(
        lyapunov_exponents(cell, x, dt=0.5, count=1), exponents[:1], atol=0.02, rtol=0
    )


class Logistic(AbstractCell):
    """The logistic map at 4, whose exponent is the logarithm of 2."""

    paper = "none"

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return 4 * h * (1 - h) + 0 * x

    def initial_state(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 0.3)


def test_chaos_has_a_positive_exponent() -> None:
    x = torch.zeros(2000, 1, dtype=torch.float64)
    (exponent,) = lyapunov_exponents(Logistic(1, 1), x).tolist()
    assert exponent == pytest.approx(math.log(2), abs=0.02)


def test_exponents_begin_at_a_given_state() -> None:
    """The sum of the exponents of a map of one number is the mean logarithm of its slope."""
    x, start = torch.zeros(5, 1, dtype=torch.float64), 0.3
    (exponent,) = lyapunov_exponents(
        Logistic(1, 1), x, hx=torch.tensor([start], dtype=torch.float64)
    ).tolist()
    logs = []
    for _ in range(5):
        logs.append(math.log(abs(4 - 8 * start)))
        start = 4 * start * (1 - start)
    assert exponent == pytest.approx(sum(logs) / 5)


def test_exponents_are_the_same_in_every_call() -> None:
    """Even of a short run; and torch's generator stays as it was."""
    rnn, x, state = tauflow.GRU(2, 3), torch.randn(4, 2), torch.get_rng_state()
    first, second = (lyapunov_exponents(rnn, x) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_exponents_are_those_of_one_sequence() -> None:
    with pytest.raises(ShapeError, match=r"x has shape \(2, 5, 2\).*x\[0\]"):
        lyapunov_exponents(tauflow.GRU(2, 3), torch.randn(2, 5, 2))
    shapes = [
        lyapunov_exponents(
            tauflow.GRU(2, 3), x, dt=0.5, generator=torch.Generator().manual_seed(0)
        ).shape
        for x in (torch.randn(5, 2), torch.randn(1, 5, 2))
    ]
    assert shapes == [(3,), (3,)]


def test_what_a_step_leaves_nothing_of_does_not_come_back() -> None:
    torch.manual_seed(0)
    cell = tauflow.cells.ElmanCell(1, 30)
    with torch.no_grad():
        cell.W_h.normal_(0, 0.4)
    x = 0.1 * torch.randn(200, 1)
    assert float(lyapunov_exponents(cell, x, count=1)) > 0
    x[100] = 1e6  # tanh is flat here
    for dtype in (torch.float32, torch.float64):
        exponents = lyapunov_exponents(cell.to(dtype), x.to(dtype))
        assert exponents.dtype is dtype
        assert (exponents == -math.inf).all()
    ages = lyapunov_exponents(tauflow.GRUD(1, 3), torch.randn(30, 1))
    assert (ages[:3] > -100).all()
    assert (ages[3:] == -math.inf).all()  # of measured features, nothing is left


class LowRank(AbstractCell):
    """A step through two numbers, whatever the number of neurons."""

    paper = "none"

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.m, self.n = (nn.Parameter(torch.randn(hidden_size, 2) / 2) for _ in range(2))

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return torch.tanh(h @ self.n) @ self.m.T + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_that_are_rounding_alone_have_no_exponent(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    cell = LowRank(1, 5).to(dtype)
    exponents = lyapunov_exponents(cell, torch.zeros(100, 1, dtype=dtype))
    assert exponents.isfinite().tolist() == [True, True, False, False, False]
    # of the map between the two numbers, whose Jacobian is n^T m times a diagonal
    inner = (cell.n.T @ cell.m).detach().double()
    z, logs, q = torch.zeros(2).double(), torch.zeros(2).double(), torch.eye(2).double()
    for _ in range(100):
        q, r = torch.linalg.qr(inner @ (torch.diag(1 - torch.tanh(z) ** 2) @ q))
        z, logs = inner @ torch.tanh(z), logs + r.diagonal().abs().log()
    expected = (logs / 100).sort(descending=True).values
    torch.testing.assert_close(exponents[:2].double(), expected, atol=0.03, rtol=0)


def test_a_direction_that_shrinks_fast_is_no_rounding() -> None:
    rates = (-0.1, -15.0)  # e^-15 is 3e-7, near the rounding of float32
    cell = LinearCell(2, 2, rates).float()
    with torch.no_grad():
        cell.A.copy_(torch.diag(torch.tensor(rates)))
    exponents = lyapunov_exponents(cell, torch.zeros(50, 2))
    torch.testing.assert_close(exponents, torch.tensor(rates), rtol=0, atol=0.05)


def test_what_has_no_exponents_is_refused() -> None:
    cell, x = LinearCell(2, 2, (-1.0, -1.0)), torch.zeros(5, 2, dtype=torch.float64)
    with pytest.raises(ArgumentError, match="count=3, but the state has 2"):
        lyapunov_exponents(cell, x, count=3)
    with pytest.raises(ArgumentError, match="no time passes"):
        lyapunov_exponents(cell, x, dt=0.0)


MODELS_OF_THE_MISSING = [name for name, entry in MODELS.items() if entry.cell.uses_observed]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS_OF_THE_MISSING)
def test_nan_is_missing_where_a_cell_knows_of_that(name: str) -> None:
    torch.manual_seed(0)
    rnn = tauflow.build(name, 2, 4).double()
    x, dt = torch.randn(12, 2, dtype=torch.float64), torch.rand(12, dtype=torch.float64) + 0.1
    observed = torch.rand(12, 2) > 0.4
    x[~observed] = math.nan

    def seed() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    (exponent,) = lyapunov_exponents(rnn, x, dt=dt, count=1, generator=seed()).tolist()
    # what a call of the module does to the first tangent vector
    tangent = torch.randn(rnn.state_size, 1, generator=seed(), dtype=torch.float64)
    initial = rnn.initial_state()[0].detach()
    J = torch.autograd.functional.jacobian(lambda h: rnn(x, h, dt=dt)[1], initial)
    assert isinstance(J, Tensor)
    grown = torch.linalg.vector_norm(J @ tangent) / torch.linalg.vector_norm(tangent)
    assert exponent == pytest.approx(float(grown.log() / dt.sum()))
    filled, options = x.nan_to_num(7.0), {"observed": observed, "generator": seed()}
    assert lyapunov_exponents(rnn, filled, dt=dt, count=1, **options).tolist() == [exponent]


class Root(AbstractCell):
    """A step whose slope at 0 is infinite, though its value is not."""

    paper = "none"

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return h.sqrt() + 0 * x


def test_what_is_not_finite_has_no_exponents() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 2)
    stepped = tauflow.CTRNN(2, 4, solver="euler", substeps=1)
    with pytest.raises(NonFiniteError, match="time step of 20 at step 0 is longer"):
        lyapunov_exponents(stepped, x, dt=20.0)
    x[5] = math.nan
    with pytest.raises(NonFiniteError, match="LSTMCell does not model missing features"):
        lyapunov_exponents(tauflow.LSTM(2, 3), x)
    with pytest.raises(NonFiniteError, match="Jacobian of step 0 is not finite"):
        lyapunov_exponents(Root(1, 1), torch.zeros(3, 1))


def test_a_state_beyond_the_floats_is_no_memory_that_is_lost() -> None:
    growing, x = LinearCell(2, 2, (5.0, -1.0)), torch.ones(400, 2, dtype=torch.float64)
    torch.testing.assert_close(
        lyapunov_exponents(growing, x[:100]),
        torch.tensor([5.0, -1.0], dtype=torch.float64),
        atol=0.02,
        rtol=0,
    )
    # e^(5 * 142) is beyond the doubles
    with pytest.raises(NonFiniteError, match="overflows in sequence 0"):
        lyapunov_exponents(growing, x)
