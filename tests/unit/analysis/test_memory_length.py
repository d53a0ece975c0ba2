"""How long networks remember, against linear maps and exponents known by heart."""

import math

import pytest
import torch
from torch import Tensor, nn

import tauflow
from tauflow.analysis import lyapunov_exponents, memory_length
from tauflow.batch import SequenceBatch
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.models import SequenceModel


class Linear(AbstractCell):
    """h' = exp(A dt) h + x, with a triangular A."""

    paper = "none"

    def __init__(self, input_size: int, hidden_size: int, rates: tuple[float, ...] = ()) -> None:
        super().__init__(input_size, hidden_size)
        A = torch.diag(torch.tensor(rates, dtype=torch.float64))
        self.A = nn.Parameter(A + 0.3 * torch.ones_like(A).triu(1))

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return torch.func.vmap(lambda a, v: torch.matrix_exp(a * self.A) @ v)(dt[:, 0], h) + x


def _data(B: int, T: int, dt: float = 1.0) -> SequenceBatch:
    torch.manual_seed(0)
    x = torch.randn(B, T, 2, dtype=torch.float64)
    return SequenceBatch(x, x[:, 0], dt=torch.full((B, T), dt, dtype=torch.float64))


@pytest.mark.parametrize("dt", [1.0, 0.25])
def test_a_linear_map_forgets_at_the_rate_of_its_slowest_mode(dt: float) -> None:
    rnn = tauflow.RNN(Linear(2, 2, (-0.5, -2.0)))
    found = memory_length(rnn, _data(3, 400, dt=dt), tolerance=1e-6)
    assert found.steps is not None
    assert found.time == pytest.approx(found.steps * dt)
    expected = math.log(1e6) / 0.5
    assert expected * 0.9 < found.time < expected * 1.15  # looked at every sixteenth of the way
    assert found.rate == pytest.approx(-0.5 * dt, rel=0.05)
    assert "samples" in str(found)


def test_an_integrator_never_forgets() -> None:
    found = memory_length(tauflow.RNN(Linear(2, 2, (0.0, -1.0))), _data(2, 100))
    assert found.steps is None
    assert found.time is None
    assert found.rate == pytest.approx(0.0, abs=0.02)
    assert "longer than 100 samples" in str(found)


def test_the_rate_is_the_largest_exponent_of_a_nonlinear_network() -> None:
    torch.manual_seed(1)
    rnn = tauflow.LTC(2, 6).double()
    data = _data(1, 400, dt=0.7)
    exponents = lyapunov_exponents(rnn, data.x[0], dt=data.dt[0] if data.dt is not None else None)
    found = memory_length(rnn, _data(4, 400, dt=0.7))
    assert (exponents.diff() <= 0).all()
    assert found.rate / 0.7 == pytest.approx(float(exponents[0]), rel=0.15)


def test_exponents_are_those_of_the_matrix() -> None:
    cell = Linear(2, 2, (-0.5, -2.0))
    x = torch.randn(300, 2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    found = lyapunov_exponents(cell, x, dt=0.5, generator=generator)
    torch.testing.assert_close(
        found, torch.tensor([-0.5, -2.0], dtype=torch.float64), atol=0.02, rtol=0
    )
    torch.testing.assert_close(
        lyapunov_exponents(cell, x, dt=0.5, count=1), found[:1], atol=0.02, rtol=0
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


def test_masks_layers_heads_and_missing_features() -> None:
    data = _data(3, 120)
    mask = torch.ones(3, 120, dtype=torch.bool)
    mask[:, 60:] = False
    padded = SequenceBatch(data.x, data.y, dt=data.dt, mask=mask)
    slow = tauflow.RNN(Linear(2, 2, (-0.01, -2.0)))
    assert memory_length(slow, padded).rate == pytest.approx(-0.01 * 60 / 120, abs=0.004)
    model = SequenceModel(tauflow.LTC(2, 4, num_layers=2), 3).double()
    assert memory_length(model, data).steps is not None
    observed = torch.rand(3, 120, 2) < 0.5
    missing = SequenceBatch(data.x, data.y, dt=data.dt, observed=observed)
    assert memory_length(tauflow.GRUD(2, 4).double(), missing).steps is not None


def test_what_has_no_state_to_forget_is_refused() -> None:
    data = _data(2, 5)
    with pytest.raises(ArgumentError, match="expected a sequence module"):
        memory_length(nn.Linear(2, 2), data)
    with pytest.raises(ArgumentError, match="bidirectional"):
        memory_length(tauflow.LTC(2, 3, bidirectional=True), data)
    with pytest.raises(ArgumentError, match="no sequence"):
        memory_length(tauflow.LTC(2, 3), data[:0])
    cell = Linear(2, 2, (-1.0, -1.0))
    with pytest.raises(ArgumentError, match="count=3, but the state has 2"):
        lyapunov_exponents(cell, data.x[0], count=3)
    with pytest.raises(ArgumentError, match="no time passes"):
        lyapunov_exponents(cell, data.x[0], dt=0.0)
