"""How long networks remember, against linear maps and exponents known by heart."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import tauflow
from tauflow.analysis import lyapunov_exponents, memory_length
from tauflow.batch import SequenceBatch
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, ShapeError
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
    assert str(found).endswith("a sample)")


def test_an_integrator_never_forgets() -> None:
    found = memory_length(tauflow.RNN(Linear(2, 2, (0.0, -1.0))), _data(2, 100))
    assert found.steps is None
    assert found.time is None
    assert found.rate == pytest.approx(0.0, abs=0.02)
    assert "longer than 100 samples" in str(found)
    assert str(found).endswith("a sample)")


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
    assert memory_length(slow, padded).rate == pytest.approx(-0.01, abs=0.004)
    model = SequenceModel(tauflow.LTC(2, 4, num_layers=2), 3).double()
    assert memory_length(model, data).steps is not None
    observed = torch.rand(3, 120, 2) < 0.5
    missing = SequenceBatch(data.x, data.y, dt=data.dt, observed=observed)
    assert memory_length(tauflow.GRUD(2, 4).double(), missing).steps is not None


def test_padding_and_holes_are_no_samples() -> None:
    rnn = tauflow.RNN(Linear(2, 2, (-0.2, -2.0)))
    data = _data(3, 200, dt=0.5)
    assert data.dt is not None
    whole = memory_length(rnn, data)
    B, T = data.dt.shape
    x, dt = torch.zeros(B, 2 * T + 7, 2, dtype=torch.float64), torch.zeros(B, 2 * T + 7)
    mask = torch.zeros(B, 2 * T + 7, dtype=torch.bool)
    kept = slice(1, 2 * T, 2)  # every other step is a hole, and seven are padding
    x[:, kept], dt[:, kept], mask[:, kept] = data.x, data.dt.float(), True
    holes = memory_length(rnn, SequenceBatch(x, data.y, dt=dt.double(), mask=mask))
    assert (holes.steps, holes.time, holes.after) == (whole.steps, whole.time, whole.after)
    assert holes.rate == pytest.approx(whole.rate)
    torch.testing.assert_close(holes.differences, whole.differences)


def test_a_sequence_that_ends_too_early_to_tell_does_not_count() -> None:
    rnn = tauflow.RNN(Linear(2, 2, (-0.2, -2.0)))
    data = _data(3, 200)
    alone = memory_length(rnn, data[:2])
    mask = torch.ones(3, 200, dtype=torch.bool)
    mask[2, 10:] = False
    ragged = memory_length(rnn, SequenceBatch(data.x, data.y, dt=data.dt, mask=mask))
    assert alone.steps is not None
    assert ragged.steps is not None
    assert abs(ragged.steps - alone.steps) <= 0.15 * alone.steps  # from other starts
    assert ragged.samples == 200
    short = memory_length(rnn, _data(3, 10))
    assert short.steps is None
    assert "longer than 10 samples" in str(short)
    mask[:] = False
    mask[:, :10] = True
    padded = memory_length(rnn, SequenceBatch(data.x, data.y, dt=data.dt, mask=mask))
    assert (padded.steps, padded.samples) == (None, 10)
    with pytest.raises(ArgumentError, match="masked"):
        memory_length(rnn, SequenceBatch(data.x, data.y, mask=torch.zeros_like(mask)))


class Calling(nn.Module):
    """Calls its network in one of the ways that sequence modules allow."""

    def __init__(self, rnn: nn.Module, how: str) -> None:
        super().__init__()
        self.rnn, self.how = rnn, how

    def forward(self, x: Tensor, *, dt: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        ways = {
            "gaps": {"x": x, "dt": dt.unsqueeze(-1), "mask": mask},
            "times": {"x": x, "t": dt.cumsum(1), "mask": mask},
            "lengths": {"x": x, "dt": dt, "lengths": mask.sum(1)},
        }
        y, h = self.rnn(**ways[self.how])
        return y, h


@pytest.mark.parametrize("how", ["times", "lengths"])
def test_a_network_may_be_called_in_any_way(how: str) -> None:
    data = _data(3, 200, dt=0.05)
    assert data.dt is not None
    data.dt[:, 0] = 0.0  # as times have it
    mask = torch.arange(200) < torch.tensor([[200], [150], [180]])
    batch = SequenceBatch(data.x, data.y, dt=data.dt, mask=mask)
    rnn = tauflow.RNN(Linear(2, 2, (-3.0, -6.0)))
    told = memory_length(Calling(rnn, "gaps"), batch)
    other = memory_length(Calling(rnn, how), batch)
    assert told.steps == other.steps is not None
    assert told.time == pytest.approx(other.time)
    torch.testing.assert_close(told.differences, other.differences)


def test_exponents_are_those_of_one_sequence() -> None:
    with pytest.raises(ShapeError, match=r"x has shape \(2, 5, 2\).*x\[0\]"):
        lyapunov_exponents(tauflow.GRU(2, 3), torch.randn(2, 5, 2))
    found = [
        lyapunov_exponents(
            tauflow.GRU(2, 3), x, dt=0.5, generator=torch.Generator().manual_seed(0)
        ).shape
        for x in (torch.randn(5, 2), torch.randn(1, 5, 2))
    ]
    assert found == [(3,), (3,)]


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


def test_a_memory_is_as_long_in_any_unit_of_time() -> None:
    torch.manual_seed(0)
    rnn = tauflow.GRUD(2, 6)
    B, T = 8, 120
    dt = torch.rand(B, T) + 0.5
    data = SequenceBatch(torch.randn(B, T, 2), torch.zeros(B, 1), dt=dt)
    data = replace(data, observed=torch.rand(B, T, 2) < 0.5)
    found = memory_length(rnn, data)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.rpartition(".")[2] in ("w_x", "W_delta"):
                parameter.div_(1024.0)
    other = memory_length(rnn, replace(data, dt=1024.0 * dt))
    assert other.steps == found.steps
    assert other.rate == pytest.approx(found.rate, rel=1e-3)
    assert other.time == pytest.approx(1024.0 * found.time)


def test_what_a_step_leaves_nothing_of_does_not_come_back() -> None:
    torch.manual_seed(0)
    cell = tauflow.cells.ElmanCell(1, 30)
    with torch.no_grad():
        cell.W_h.normal_(0, 0.4)
    x = 0.1 * torch.randn(200, 1)
    assert float(lyapunov_exponents(cell, x, count=1)) > 0
    x[100] = 1e6  # tanh is flat here
    for dtype in (torch.float32, torch.float64):
        found = lyapunov_exponents(cell.to(dtype), x.to(dtype))
        assert found.dtype is dtype
        assert (found == -math.inf).all()
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
    found = lyapunov_exponents(cell, torch.zeros(100, 1, dtype=dtype))
    assert found.isfinite().tolist() == [True, True, False, False, False]
    # of the map between the two numbers, whose Jacobian is n^T m times a diagonal
    inner = (cell.n.T @ cell.m).detach().double()
    z, logs, q = torch.zeros(2).double(), torch.zeros(2).double(), torch.eye(2).double()
    for _ in range(100):
        q, r = torch.linalg.qr(inner @ (torch.diag(1 - torch.tanh(z) ** 2) @ q))
        z, logs = inner @ torch.tanh(z), logs + r.diagonal().abs().log()
    expected = (logs / 100).sort(descending=True).values
    torch.testing.assert_close(found[:2].double(), expected, atol=0.03, rtol=0)


def test_a_direction_that_shrinks_fast_is_no_rounding() -> None:
    rates = (-0.1, -15.0)  # e^-15 is 3e-7, near the rounding of float32
    cell = Linear(2, 2, rates).float()
    with torch.no_grad():
        cell.A.copy_(torch.diag(torch.tensor(rates)))
    found = lyapunov_exponents(cell, torch.zeros(50, 2))
    torch.testing.assert_close(found, torch.tensor(rates), rtol=0, atol=0.05)
