"""Measure what :func:`tauflow.training.train` costs above forward, backward and optimizer.

Run with ``python -m benchmarks.loop_overhead``. The task is tiny on purpose: a step of a fraction
of a millisecond shows every microsecond of book-keeping. The bare loop gets its batches cut
beforehand, so that shuffling and slicing count as overhead.
"""

import argparse
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.batch import SequenceBatch
from tauflow.training import Recipe, train

from .timing import interleaved

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


def bare(data: SequenceBatch, epochs: int) -> None:
    """Run a loop with nothing but forward, backward and optimizer."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pairs = list(zip(data.x.split(BATCH), data.y.split(BATCH), strict=True))
    for _ in range(epochs):
        for x, y in pairs:
            prediction, _ = model(x)
            loss = F.mse_loss(prediction, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def ours(data: SequenceBatch, epochs: int) -> None:
    """Run the library's loop, without evaluation and files."""
    train(
        Model(),
        train=data,
        valid=None,
        test=None,
        loss="mse",
        metric="mse",
        recipe=Recipe(epochs=epochs, batch_size=BATCH, select="last"),
        seed=0,
        progress=False,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sequences = arguments.batches * BATCH
    data = SequenceBatch(torch.randn(sequences, STEPS, INPUT), torch.randn(sequences, STEPS, 1))
    timings = interleaved(
        {
            "bare loop": partial(bare, data, arguments.epochs),
            "train()": partial(ours, data, arguments.epochs),
        },
        rounds=arguments.rounds,
    )
    steps = arguments.batches * arguments.epochs
    for name, timing in timings.items():
        print(f"{name:<10} {timing.seconds / steps * 1e6:8.1f} us per step")
    overhead = timings["bare loop"].ratio(timings["train()"]) - 1
    print(f"{'overhead':<10} {100 * overhead:8.1f} %")


if __name__ == "__main__":
    main()
