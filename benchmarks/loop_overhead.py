"""Measure what :func:`tauflow.training.train` costs above forward, backward and optimizer.

Run with ``python -m benchmarks.loop_overhead``. The task is tiny on purpose: a step of a fraction
of a millisecond shows every microsecond of book-keeping. The bare loop gets its batches cut
beforehand, so that shuffling and slicing count as overhead.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.training import Recipe, train

BATCH, STEPS, INPUT, HIDDEN = 16, 16, 5, 16


class Model(nn.Module):
    """An LSTM and a readout at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUT, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(
        self, x: Tensor, *, dt: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return predictions (B, T, 1) and the state; times and masks are ignored."""
        y, h = self.lstm(x)
        return self.head(y), h


def bare(data: SequenceBatch, epochs: int) -> float:
    """Return the seconds of a loop with nothing but forward, backward and optimizer."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pairs = list(zip(data.x.split(BATCH), data.y.split(BATCH), strict=True))
    started = time.perf_counter()
    for _ in range(epochs):
        for x, y in pairs:
            prediction, _ = model(x)
            loss = F.mse_loss(prediction, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return time.perf_counter() - started


def ours(data: SequenceBatch, epochs: int) -> float:
    """Return the seconds of the library's loop, without evaluation and files."""
    recipe = Recipe(epochs=epochs, batch_size=BATCH, select="last")
    model = Model()
    started = time.perf_counter()
    train(
        model,
        train=data,
        valid=None,
        test=None,
        loss="mse",
        metric="mse",
        recipe=recipe,
        seed=0,
        progress=False,
    )
    return time.perf_counter() - started


def measure(*, repeats: int, batches: int, epochs: int) -> tuple[float, float]:
    """Return median microseconds per step, bare and ours, of interleaved repeats."""
    torch.manual_seed(0)
    data = SequenceBatch(
        torch.randn(batches * BATCH, STEPS, INPUT), torch.randn(batches * BATCH, STEPS, 1)
    )
    loops = (bare, ours)
    for loop in loops:
        loop(data, 1)
    times: list[list[float]] = [[], []]
    for repeat in range(repeats):
        for which in (0, 1) if repeat % 2 else (1, 0):
            times[which].append(loops[which](data, epochs) / (batches * epochs) * 1e6)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    base, full = measure(**vars(arguments))
    print(f"bare loop    {base:8.1f} us per step")
    print(f"train()      {full:8.1f} us per step")
    print(f"overhead     {100 * (full / base - 1):8.1f} %")


if __name__ == "__main__":
    main()
