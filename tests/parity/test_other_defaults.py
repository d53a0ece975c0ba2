"""Kernels of float32 models on the CPU, whatever PyTorch's default dtype and device are."""

from dataclasses import dataclass

import pytest
import torch

import tauflow
from tauflow import CTGRU, GRU, LTC, RNN, CfC
from tauflow.cells import AbstractCell
from tauflow.errors import NonFiniteError


class Kept(AbstractCell):
    compiled = True

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.mix = torch.nn.Linear(input_size + hidden_size, hidden_size)
        self.register_buffer("keep", torch.arange(hidden_size) % 2 == 0)

    def step(self, x, h, dt):
        return torch.where(
            self.keep, torch.tanh(self.mix(torch.cat([x, h], -1))), 0.5 * h + 0.1 * dt
        )


@pytest.fixture
def float64_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_buffers_of_other_dtypes_under_another_default_dtype(float64_default):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fast = RNN(Kept(3, 6).float(), backend="numba")
        x = torch.randn(2, 9, 3, dtype=torch.float32)
    slow = RNN(fast.cell, backend="reference")
    results = []
    for rnn in (fast, slow):
        rnn.zero_grad()
        y, _ = rnn(x)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in rnn.parameters())])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("kind", [GRU, CfC], ids=lambda kind: kind.__name__)
def test_streams_under_another_default_dtype(kind, float64_default):
    rnn = kind(3, 4).float()
    x = torch.ones(5, 3, dtype=torch.float32)
    stream = rnn.stream()
    y = torch.stack([torch.as_tensor(stream.step(row)) for row in x])
    expected = rnn(x[None])[0][0].detach()
    torch.testing.assert_close(y.reshape(expected.shape), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [GRU, CfC, LTC], ids=lambda kind: kind.__name__)
def test_models_on_the_cpu_under_another_default_device(kind):
    rnn, x = kind(3, 4), torch.ones(2, 9, 3)
    for _ in range(2):  # the first call may trace
        with torch.device("meta"):
            y, last = rnn(x)
            y.sum().backward()
        reference = kind(3, 4, backend="reference")
        reference.load_state_dict(rnn.state_dict())
        torch.testing.assert_close((y, last), reference(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("row", [0, 57, 63])
def test_overflows_of_a_ct_gru_are_seen_in_every_row(row):
    x = torch.zeros(64, 5, 3)
    x[row, 2] = 3e38
    with pytest.raises(NonFiniteError):
        CTGRU(3, 16)(x)


@dataclass
class Stretched:
    factor: float = 1.0

    def __call__(self, z):
        return torch.tanh(self.factor * z)


def test_activations_that_cannot_be_hashed():
    torch.manual_seed(0)
    fast = tauflow.CTRNN(3, 4, activation=Stretched())
    x = torch.randn(2, 9, 3)
    slow = tauflow.CTRNN(3, 4, activation=torch.tanh)
    slow.load_state_dict(fast.state_dict())
    torch.testing.assert_close(fast(x)[0], slow(x)[0], atol=1e-5, rtol=1e-4)
