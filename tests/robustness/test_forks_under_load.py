"""A process forks while its other threads compute, compile or import: the child computes too."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from children import ended, fork

import tauflow
from tauflow.kernels.engine import workspace

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

NAMES = ["ltc", "cfc", "ct-rnn", "ode-lstm", "ltc-neuronal", "lstm"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Let blocks of any size come from the pool, so that small and quick networks use it."""
    monkeypatch.setattr(workspace, "_MIN_BLOCK_BYTES", 0)


@pytest.fixture(autouse=True)
def _frequent_switches():
    """Let threads take turns within a statement or two, so that some fork meets a held lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def _one_thread():
    """Torch's own pool, libgomp, hangs in a child of a process that has used it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(rnn: torch.nn.Module, batch: int) -> None:
    """Run forward and backward on memory of the pool."""
    x = torch.ones(batch, 8, 3)
    torch.autograd.grad(rnn(x)[0].square().sum(), list(rnn.parameters()))


@contextmanager
def load(work: Callable[[int], None]) -> Iterator[list[BaseException]]:
    """Let two threads work; yields the errors that end them."""
    over, errors = threading.Event(), []

    def run(number: int) -> None:
        try:
            while not over.is_set():
                work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", NAMES)
def test_children_of_a_process_that_trains(name, tries):
    random_ = random.Random(name)
    rnns = [tauflow.build(name, 3, 8) for _ in range(3)]
    for rnn in rnns:
        train(rnn, 8)
    expected = rnns[2](torch.ones(8, 8, 3))[0]

    def child() -> None:
        for _ in range(2):
            train(rnns[2], 8)
        assert torch.equal(rnns[2](torch.ones(8, 8, 3))[0], expected)

    with load(lambda number: train(rnns[number], random_.choice([8, 10, 12]))) as errors:
        for number in range(tries("forks under load", few=4, full=60)):
            time.sleep(random_.uniform(0, 0.01))
            status = ended(fork(child))
            assert status == 0, f"{name}: child {number} ended with {status}"
    assert errors == []


@pytest.mark.thorough
def test_children_of_a_process_that_compiles(tries):
    numba = pytest.importorskip("numba")
    from tauflow.kernels.cpu.jit import f4
    from tauflow.kernels.cpu.math import sigmoid

    def fresh() -> Callable[[np.ndarray], float]:
        @numba.njit(nogil=True)
        def total(values):
            s = f4(0.0)
            for value in values:
                s += sigmoid(value)
            return s

        return total

    rnn = tauflow.build("ltc", 3, 8)
    train(rnn, 8)

    def child() -> None:
        assert fresh()(np.zeros(4, np.float32)) == 2.0
        train(rnn, 8)

    random_ = random.Random(0)
    with load(lambda _: fresh()(np.zeros(4, np.float32))) as errors:
        for number in range(tries("forks while compiling", few=2, full=60)):
            time.sleep(random_.uniform(0, 0.3))
            status = ended(fork(child))
            assert status == 0, f"child {number} ended with {status}"
    assert errors == []


FIRST_CALLS = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import torch
import tauflow
from children import ended, fork

def first() -> None:
    rnn = tauflow.build(sys.argv[3], 3, 8)
    rnn(torch.ones(2, 5, 3))[0].sum().backward()

other = threading.Thread(target=first)
other.start()
time.sleep(float(sys.argv[2]))
status = ended(fork(first, seconds=120), seconds=120)
other.join()
sys.exit("the child hung" if status is None else status)
"""


@pytest.mark.thorough
def test_children_of_a_process_whose_kernels_are_being_imported(tries):
    pytest.importorskip("numba")
    random_ = random.Random(1)
    for number in range(tries("forks while importing", few=1, full=10)):
        pause, name = random_.uniform(0.0, 1.5), random_.choice(["ltc", "cfc", "ode-lstm"])
        ran = subprocess.run(
            [sys.executable, "-c", FIRST_CALLS, str(Path(__file__).parent), str(pause), name],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, f"try {number}, {name}, after {pause:.3f} s:\n{ran.stderr}"
