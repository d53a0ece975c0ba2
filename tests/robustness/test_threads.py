"""Many threads, and worker processes, forward and backward: each gets what one alone gets."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_networks import TRAINED, build
from torch import Tensor
from torch.utils.data import DataLoader

from tauflow.kernels.engine import workspace

sys.path.append(str(Path(__file__).parents[1] / "unit" / "kernels"))

from samples_through_a_network import SamplesThroughANetwork

THREADS = 6


@pytest.fixture(autouse=True)
def _small_blocks_and_frequent_switches(monkeypatch):
    """Let small networks use the pool of memory, and threads meet in every line of it."""
    monkeypatch.setattr(workspace, "_MIN_BLOCK_BYTES", 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def batch(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(3 + number, 6 + number, 3, generator=generator)


def seeded(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build(name)


def step(rnn: torch.nn.Module, number: int) -> list[Tensor]:
    """Return outputs and gradients of a batch."""
    y, h = rnn(batch(number))
    return [y, h, *torch.autograd.grad(y.square().sum() + h.sum(), list(rnn.parameters()))]


def at_once(work: Callable[[int], None]) -> None:
    """Run work(0), work(1), ... in threads that begin together; raise what ends one."""
    errors, start = [], threading.Event()

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    start.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("shared", [True, False], ids=["one model", "several"])
def test_threads_train_side_by_side(name, shared, tries):
    rnn_of_all, others = seeded(name), [seeded(name) for _ in range(THREADS)]
    expected = [step(rnn_of_all, number) for number in range(THREADS)]
    rounds = tries(f"steps of {THREADS} threads", few=6, full=300)

    def work(number: int) -> None:
        rnn = rnn_of_all if shared else others[number]
        for turn in range(rounds):
            for got, right in zip(step(rnn, number), expected[number], strict=True):
                assert torch.equal(got, right), f"{name}, thread {number}, turn {turn}"

    at_once(work)


@pytest.mark.parametrize("name", ["ltc", "cfc", "lstm"])
def test_threads_step_streams_side_by_side(name, tries):
    rnn = seeded(name)
    x = np.random.default_rng(0).standard_normal((THREADS, 50, 1, 3)).astype(np.float32)

    def run(number: int) -> np.ndarray:
        stream = rnn.stream()
        return np.stack([np.array(stream.step(row)) for row in x[number]])

    expected = [run(number) for number in range(THREADS)]
    rounds = tries(f"streams of {THREADS} threads", few=2, full=100)

    def work(number: int) -> None:
        for turn in range(rounds):
            assert (run(number) == expected[number]).all(), f"{name}, {number}, turn {turn}"

    at_once(work)


METHODS = ["spawn", "fork"] if sys.platform == "linux" else ["spawn"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_workers_beside_a_thread_that_trains(method, tries):
    epochs = tries(
        f"epochs of workers by {method}",
        few=0 if method == "spawn" else 1,  # which starts two interpreters
        full=3 if method == "spawn" else 40,
    )
    if not epochs:
        pytest.skip("only under --full")
    samples = SamplesThroughANetwork("ltc")
    expected = torch.stack([samples[i] for i in range(len(samples))])
    trained, over = seeded("ltc"), threading.Event()

    def train() -> None:
        while not over.is_set():
            step(trained, 0)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(epochs):
            loader = DataLoader(samples, 2, num_workers=2, multiprocessing_context=method)
            torch.testing.assert_close(torch.cat(list(loader)), expected)
    finally:
        over.set()
        thread.join()
