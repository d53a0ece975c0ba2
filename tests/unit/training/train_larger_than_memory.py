"""Write, open, train on and score 200 MB with 96 MB of memory; run by ``test_stored_data.py``.

The limit is on the data of the process, of which copy-on-write maps are a part, although pages that
are only read take no memory of it: what is mapped is added to the limit when it is opened.
"""

import re
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data import DatasetCard, open_task, write_task
from tauflow.training import Recipe, evaluate, train

SEQUENCES, STEPS, FEATURES = 12_000, 100, 32  # 154 MB of x, 38 MB of observed
LIMIT = 96 << 20  # about twice what it takes
RECIPE = Recipe(epochs=1, batch_size=512, lr=0.01)
CARD = DatasetCard(
    name="large",
    title="Large",
    task="regress",
    input_size=FEATURES,
    target_size=1,
    time_unit="s",
    sizes=(SEQUENCES, 1000, 1000),
    source="generated",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
)


class Linear(nn.Module):
    """A linear readout of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)

    def forward(
        self,
        x: Tensor,
        *,
        dt: Tensor | None = None,
        mask: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        return self.head(x), None


def pieces(sequences: int) -> Iterator[SequenceBatch]:
    """Yield 500 sequences at a time, each a little different from the ones before."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, STEPS, FEATURES, generator=generator)
    known = torch.rand(500, STEPS, FEATURES, generator=generator) < 0.9
    for number in range(sequences // 500):
        moved = x + number / 100
        there = torch.ones(500, STEPS, dtype=torch.bool)
        yield SequenceBatch(
            moved, moved[..., :1] + 1, torch.ones(500, STEPS), there, known, there.clone()
        )


def run(folder: Path, model: nn.Module, card: DatasetCard) -> float:
    """Write, open, train and score; return the score."""
    count, held, tested = card.sizes
    write_task(folder / "data", card, train=pieces(count), valid=pieces(held), test=pieces(tested))
    allow_maps_of(folder / "data")
    data = open_task(folder / "data", verify=True)
    result = train(
        model,
        train=data.train,
        valid=data.valid,
        test=data.test,
        loss="mse",
        metric="mse",
        recipe=RECIPE,
        seed=0,
        run_dir=folder / "run",
    )
    assert result.test == evaluate(model, data.test, metric="mse")
    return evaluate(model, data.test, metric="mae", batch_size=300)


def allow_maps_of(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        resource.setrlimit(resource.RLIMIT_DATA, (soft + size, hard))


def data_of_process() -> int:
    """Return how much private, writable memory the process has, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    match = re.search(r"VmData:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) << 10


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = replace(CARD, sizes=(1000, 500, 500))
    run(folder / "small", Linear(), small)  # what is imported or kept at the first use
    limit = data_of_process() + LIMIT
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    try:
        torch.zeros(SEQUENCES, STEPS, FEATURES)
    except RuntimeError:
        sys.stdout.write("x does not fit\n")
    try:
        score = run(folder / "large", Linear(), CARD)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(f"error {score}\n")


if __name__ == "__main__":
    main()
