"""Time cells that a user wrote, their steps recorded, beside the same steps taken by PyTorch."""

import argparse
from functools import partial

import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.runs.results import describe_machine, get_versions

from .timing import interleaved
from .zoo import training_step

SHAPES = ((16, 32, 8, 32), (16, 128, 8, 32), (128, 64, 18, 64), (1, 512, 8, 32))


class Leaky(AbstractCell):
    """The state relaxes to what input and state ask for; the exact flow to a held target."""

    compiled = True

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.linear = nn.Linear(input_size + hidden_size, hidden_size)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt``."""
        u = torch.tanh(self.linear(torch.cat((x, h), 1)))
        return u + (h - u) * torch.exp(-dt)


class Oscillators(AbstractCell):
    """Coupled FitzHugh-Nagumo oscillators, four Euler steps a sample."""

    compiled = True

    state_names = ("v", "w")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.inward = nn.Linear(input_size, hidden_size)
        self.across = nn.Linear(hidden_size, hidden_size, bias=False)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt``."""
        v, w = h.chunk(2, 1)
        held = self.inward(x)
        for _ in range(4):
            slope = v - v**3 / 3 - w + held + self.across(torch.tanh(v))
            v, w = v + 0.05 * dt * slope, w + 0.004 * dt * (v + 0.7 - 0.8 * w)
        return torch.cat((v, w), 1)


class Normalised(AbstractCell):
    """An LSTM with normalised layers, which forgets over time steps."""

    compiled = True

    state_names = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.linear = nn.Linear(input_size + hidden_size, 4 * hidden_size)
        self.norm, self.norm_c = nn.LayerNorm(4 * hidden_size), nn.LayerNorm(hidden_size)

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        """Return the state after ``dt``."""
        h, c = h.chunk(2, 1)
        i, f, g, o = self.norm(self.linear(torch.cat((x, h), 1))).chunk(4, 1)
        c = torch.sigmoid(f) * c * torch.exp(-0.1 * dt) + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat((torch.sigmoid(o) * torch.tanh(self.norm_c(c)), c), 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, and print a Markdown table."""
    torch.set_num_threads(arguments.threads)
    print("| cell | B, T, I, N | learning | plain PyTorch | ahead only | plain PyTorch |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for kind in (Leaky, Oscillators, Normalised):
        for shape in SHAPES:
            times = [measure(kind, shape, learns, arguments.rounds) for learns in (True, False)]
            cells = [f"{ms:.2f} ms | {ratio:.1f} times" for ms, ratio in times]
            sizes = ", ".join(map(str, shape))
            print(f"| {kind.__name__} | {sizes} | {' | '.join(cells)} |", flush=True)
    print(f"\n{arguments.threads} threads;", {**describe_machine(), **get_versions()})


def measure(
    kind: type[AbstractCell], shape: tuple[int, int, int, int], learns: bool, rounds: int
) -> tuple[float, float]:
    """Return milliseconds of a call, and how many times that PyTorch's own steps take."""
    B, T, D, N = shape
    torch.manual_seed(0)
    cell, x, dt = kind(D, N), torch.randn(B, T, D), torch.rand(B, T) + 0.5
    jobs = {}
    for backend in ("auto", "reference"):
        model = tauflow.RNN(cell, backend=backend)
        if learns:
            jobs[backend] = training_step(model, lambda model=model: model(x, dt=dt)[0])
        else:
            jobs[backend] = torch.no_grad()(partial(model, x, dt=dt))
    timings = interleaved(jobs, rounds=rounds)
    return timings["auto"].seconds * 1e3, timings["auto"].ratio(timings["reference"])
