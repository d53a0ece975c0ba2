"""Traced steps do what the steps do, operation by operation and cell by cell."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tauflow
from tauflow.kernels import make_step_engine
from tauflow.kernels.cpu.binding import import_kernels
from tauflow.kernels.streaming import CellEngine, TracedEngine
from tauflow.kernels.trace.program import TracingError

pytest.importorskip("numba")

B, D, S = 2, 3, 4
_WEIGHT = torch.linspace(-2, 2, S * S).view(S, S)
_ROW = torch.linspace(-1, 1, S)
_SCALES = torch.tensor([[0.5, 2.0], [1.0, -1.0]]), torch.tensor([[1.0, 0.0], [0.3, -0.7]])
OPERATIONS = {
    "sums": lambda x, h, dt: torch.add(h, dt, alpha=2) - torch.sub(1, h, alpha=3) + (5 - h),
    "products": lambda x, h, dt: h * dt * 2 / (dt + 3) + _ROW * h + torch.reciprocal(h + 9),
    "extremes": lambda x, h, dt: torch.maximum(h, _ROW) + torch.minimum(h, dt) + h.clamp(-1, 0.5),
    "comparisons": lambda x, h, dt: (
        1.0 * (h < 0) + 2.0 * (h <= _ROW) + 4.0 * (h > dt) + 8.0 * (h >= 0)
    ),
    "logic": lambda x, h, dt: torch.where((h < 0) | (h > 1) & ~(dt > h), h, -h.abs()),
    "truths": lambda x, h, dt: (
        (2 * h).round().bool().float()
        + ~(h > 0).bool()
        + torch.logical_and(h, dt - 0.5)
        + torch.logical_or(h.floor(), -h.abs())
        + h * (-h.abs()).any(1, keepdim=True)
    ),
    "any at all": lambda x, h, dt: h * (h > 2.5).any() + (h.floor() - 3).any(),
    "ends": lambda x, h, dt: torch.cat([h[:, -9:], h[:, -2:], h[:, 1:9]], 1)[:, :S],
    "mixes": lambda x, h, dt: torch.lerp(h, _ROW, dt / 3) + torch.addcmul(h, dt, h, value=0.5),
    "powers": lambda x, h, dt: h**2 + h.abs().sqrt() + h.exp() + h.expm1() + (h.abs() + 1).log(),
    "curves": lambda x, h, dt: h.tanh() + h.sigmoid() + F.silu(h) + F.gelu(h) + F.softplus(3 * h),
    "corners": lambda x, h, dt: h.relu() + F.hardtanh(h) + h.floor() + (3 * h).round() + h.sign(),
    "higher powers": lambda x, h, dt: h**3 + (h.abs() + 1) ** -3 + torch.rsqrt(h * h + 1) - h**8,
    "bends": lambda x, h, dt: F.leaky_relu(h, 0.2) + F.elu(h, 0.5) + F.selu(h),
    "normal layers": lambda x, h, dt: (
        F.layer_norm(h, (S,)) * dt + F.layer_norm(h.view(-1, 2, 2), (2, 2), *_SCALES).view(-1, S)
    ),
    "sums over indices": lambda x, h, dt: torch.einsum("bi,ij->bj", h, _WEIGHT),
    "waves": lambda x, h, dt: torch.sin(7 * h) + torch.cos(h * dt),
    "products of matrices": lambda x, h, dt: h @ _WEIGHT + F.linear(h, _WEIGHT, _ROW),
    "products of states": lambda x, h, dt: h @ (h.T @ h) + (h @ _ROW).unsqueeze(1),
    "sums over axes": lambda x, h, dt: h.sum(1, keepdim=True) * h.mean(0) + h.softmax(1),
    "cubes": lambda x, h, dt: (_WEIGHT * torch.sigmoid(h.unsqueeze(-1) - _ROW)).sum(-2),
    "parts": lambda x, h, dt: torch.cat([h[:, 2:], x[:, 1:], dt], dim=-1)[:, :S] * h[:, :1],
    "piles": lambda x, h, dt: torch.stack([h, 2 * h], dim=2).sum(1) @ torch.ones(2, S),
    "frames": lambda x, h, dt: F.pad(h[:, 1:-1], (1, 1)) + F.pad(h[:, :2], (0, 2), value=3.0),
    "other shapes": lambda x, h, dt: (
        h.view(-1, 2, 2).transpose(1, 2).reshape(-1, S) + h.repeat(1, 1)
    ),
    "what is any": lambda x, h, dt: h * (h > 0.7).any(dim=1, keepdim=True),
    "old states": lambda x, h, dt: h.view(-1, 2, 2).transpose(1, 2).reshape(-1, S)[:, :],
    "changes in place": lambda x, h, dt: h.clone().add_(dt).mul_(2) - h,
    "constants": lambda x, h, dt: torch.zeros_like(h) + torch.arange(S) + h.new_ones(S).add_(1),
}


class Cell(nn.Module):
    """As much of a cell as recording takes."""

    input_size, state_size = D, S

    def __init__(self, step):
        super().__init__()
        self.step = step

    def readout(self, h: Tensor) -> Tensor:
        return h[:, 1:]


@pytest.mark.parametrize("batch", [1, 2, 6])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_torchs(name, batch):
    torch.manual_seed(0)
    cell = Cell(OPERATIONS[name])
    engine = TracedEngine(cell, batch)
    x, h, dt = torch.randn(batch, D), torch.randn(batch, S), torch.rand(batch, 1)
    for _ in range(2):
        engine.state = h
        y = engine(x.numpy(), dt[:, 0].numpy())
        h = cell.step(x, h, dt)
        torch.testing.assert_close(engine.state, h, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(torch.from_numpy(y.copy()), engine.state[:, 1:])


@pytest.mark.parametrize(
    "name", ["extremes", "mixes", "curves", "corners", "bends", "products", "frames"]
)
def test_what_is_no_number_stays_none(name, monkeypatch):
    # With AVX-512 oneDNN's gelu of infinity is NaN; torch's own is infinity everywhere.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    engine = TracedEngine(Cell(OPERATIONS[name]), B)
    h = torch.tensor([[torch.nan, 1.0, torch.inf, -torch.inf]] * B)
    x, dt = torch.zeros(B, D), torch.ones(B, 1)
    engine.state = h
    engine(x.numpy(), dt[:, 0].numpy())
    torch.testing.assert_close(engine.state, OPERATIONS[name](x, h, dt), equal_nan=True)


@pytest.mark.parametrize(
    "step",
    [
        lambda x, h, dt: h if h.sum() > 0 else -h,
        lambda x, h, dt: h + torch.rand(S),
        lambda x, h, dt: (h.double() * 2).float(),
        lambda x, h, dt: h.cumsum(1),
        lambda x, h, dt: torch.div(h, dt, rounding_mode="floor"),
        lambda x, h, dt: h**9,
        lambda x, h, dt: h + ((h > 0) + (h < 1)),
        lambda x, h, dt: h.round(decimals=1),
        lambda x, h, dt: h.abs() ** 1.5,
        lambda x, h, dt: (h[:, :, None] @ h[:, None, :]).sum(1),
        lambda x, h, dt: F.softplus(h, beta=2),
        lambda x, h, dt: F.gelu(h, approximate="tanh"),
        lambda x, h, dt: torch.addmm(h, h, _WEIGHT, alpha=2),
    ],
)
def test_what_the_machine_lacks_is_not_recorded(step):
    with pytest.raises(TracingError):
        TracedEngine(Cell(step), B)


def test_why_a_step_is_not_recorded_can_be_understood():
    with pytest.raises(TracingError, match=r"it computes in float64, .* in float32 only"):
        TracedEngine(Cell(lambda x, h, dt: (h.double() * 2).float()), B)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["gru-d", "rnn-delta-t", "ode-rnn-rubanova"])
def test_observed_features_come_and_go(name, batch):
    torch.manual_seed(0)
    rnn = tauflow.build(name, D, 5)
    assert rnn.cell.uses_observed
    x, dt, seen = torch.randn(batch, 6, D), torch.rand(batch, 6), torch.rand(batch, 6, D) < 0.6
    for steps_with_mask in (range(6), (2, 3, 5)):
        stream, h = rnn.stream(batch), None
        for t in range(6):
            observed = seen[:, t : t + 1] if t in steps_with_mask else None
            y, h = rnn(x[:, t : t + 1], h, dt=dt[:, t : t + 1], observed=observed)
            mask_of_step = None if observed is None else observed[:, 0]
            got = stream.step(x[:, t], dt[:, t], observed=mask_of_step)
            torch.testing.assert_close(got, y[:, 0].detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stream.state, h.detach(), rtol=1e-5, atol=1e-6)


def test_whose_step_is_recorded():
    cell = tauflow.GRU(D, S).cell
    assert type(make_step_engine(cell, 1, "auto")) is TracedEngine
    assert type(make_step_engine(cell, 1, "reference")) is CellEngine
    assert type(make_step_engine(tauflow.GRU(D, S).double().cell, 1, "auto")) is CellEngine
    assert type(make_step_engine(tauflow.PhasedLSTM(D, S).cell, 1, "auto")) is CellEngine


def test_a_change_of_parameters_does_not_reach_a_tape():
    cell = tauflow.Elman(D, S).cell
    engine, x, dt = (
        make_step_engine(cell, 1, "auto"),
        np.ones((1, D), np.float32),
        np.ones(1, np.float32),
    )
    before = engine(x, dt).copy()
    engine.state = torch.zeros(1, S)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.fill_(100.0)
    np.testing.assert_array_equal(engine(x, dt), before)


def test_a_sample_may_be_read_only_and_strided():
    stream = tauflow.GRU(D, S).stream()
    x = np.ones((D, 2), np.float32)
    x.setflags(write=False)
    kinds = list(import_kernels("streaming.numba_steps").run_program.signatures)
    first = stream.step(x[:, 0])
    stream.reset()
    np.testing.assert_array_equal(stream.step(np.ones(D, np.float32)), first)
    assert (
        list(import_kernels("streaming.numba_steps").run_program.signatures) == kinds
    )  # not compiled again
