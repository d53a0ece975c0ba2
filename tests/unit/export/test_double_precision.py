"""C of steps that take numbers in double precision, against the model in double precision."""

import copy
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.export import to_c
from tauflow.export.c_check import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wdouble-promotion", "-Werror", "-O1")
PERIODS = (1.1e-6, 1.7e-6, 2.3e-6)
"""Short beside a time step, so that single precision loses the phase."""


class Clocked(AbstractCell):
    """A cell that reads the phases of a fast cycle in a time step."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.W = nn.Linear(input_size + hidden_size, hidden_size)
        self.register_buffer("periods", torch.tensor(PERIODS, dtype=torch.float64))

    def step(self, x, h, dt):
        cycles = self.cycles(dt)
        phase = torch.sin(6.283185307179586 * (cycles - torch.floor(cycles)))
        return torch.tanh(self.W(torch.cat([x, h], dim=-1)) + phase.to(h.dtype))

    def cycles(self, dt):
        return dt / self.periods


class Product(Clocked):
    def cycles(self, dt):
        return torch.cat([dt, dt], dim=-1).double() @ torch.stack([0.7 / self.periods] * 2)


class Power(Clocked):
    def cycles(self, dt):
        return (1e5 * dt.double() + 1) ** 1.1 + self.periods


class Looped(Clocked):
    def cycles(self, dt):
        cycles = (1e6 * dt.double()).expand(-1, 3)
        for _ in range(5):
            cycles = cycles * 1.0000001 + 0.1
        return cycles


class Compared(Clocked):
    def cycles(self, dt):
        cycles = dt.double() / self.periods
        is_early = cycles - torch.floor(cycles) < 1 / 3
        return torch.where(is_early, dt / 3, dt).double()


def run(folder, x, dt):
    """Return what the C of a folder prints of a sequence."""
    command = [*find_compiler(), *FLAGS, "main.c", "model.c", "-o", "built", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    rows = torch.cat([x[0], dt[0].unsqueeze(1)], dim=1).tolist()
    text = "".join(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows)
    ran = subprocess.run([folder / "built"], input=text, capture_output=True, text=True, check=True)
    return np.array([line.split(",") for line in ran.stdout.splitlines()], float)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [Clocked, Product, Power, Looped, Compared, None])
def test_c_is_near_the_model_in_double_precision_late_too(kind, tmp_path):
    torch.manual_seed(7)
    rnn = (tauflow.PhasedLSTM(2, 3) if kind is None else tauflow.RNN(kind(2, 3))).eval()
    to_c(rnn, tmp_path / "c")
    for first in (1.0, 1e6):
        x, dt = torch.randn(1, 200, 2), 0.5 + torch.rand(1, 200)
        dt[0, 0] = first
        with torch.no_grad():
            exact = copy.deepcopy(rnn).double()(x.double(), dt=dt.double())[0][0].numpy()
        assert np.abs(run(tmp_path / "c", x, dt) - exact).max() < 2e-6
