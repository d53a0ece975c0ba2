"""Long runs of training and of streams: resident memory stays as it is."""

import ctypes
import gc
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from guard import MIB
from small_networks import build

from tauflow.kernels import release_memory
from tauflow.kernels.engine import workspace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

NAMES = ["ltc", "cfc", "ode-lstm", "ct-rnn", "lstm"]
STREAMS = ["ltc", "cfc", "wired-cfc", "cfc-mmrnn"]
_LEAST = 4 * MIB  # what the allocators' own lists take


def resident() -> int:
    """Return the bytes of this process in memory, without what malloc keeps."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def trainer(rnn: torch.nn.Module):
    optimizer = torch.optim.Adam(rnn.parameters(), 1e-3)

    def step(batch: int, steps: int) -> None:
        optimizer.zero_grad()
        rnn(torch.randn(batch, steps, 3))[0].square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_training_does_not_grow(name, tries):
    step = trainer(build(name))
    for _ in range(50):
        step(4, 8)
    before = resident()
    for _ in range(tries("training steps", few=60, full=10_000)):
        step(4, 8)
    grown = resident() - before
    assert grown < _LEAST, f"{name}: {grown / MIB:.1f} MiB"


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_training_with_varying_sizes_does_not_grow(name, tries):
    """Of sizes that were all there before: PyTorch's own kernels are kept for each new size."""
    random_, most = random.Random(name), 96
    number = tries("training steps of varying sizes", few=4, full=300)
    sizes = [(random_.randint(1, most), random_.randint(1, most)) for _ in range(number)]
    step = trainer(build(name))
    for size in [(most, most), *sizes]:
        step(*size)
    release_memory()
    before = resident()
    for size in random_.sample(sizes, len(sizes)):
        step(*size)
    cached = sum(block.nbytes for block in (*workspace._cached_blocks, *workspace._returned_blocks))
    grown = resident() - before
    assert grown < _LEAST + cached, (
        f"{name}: {grown / MIB:.1f} MiB, of which {cached / MIB:.1f} kept"
    )
    release_memory()
    assert resident() - before < _LEAST


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_do_not_grow(name, tries):
    stream = build(name).stream()
    rows = np.random.default_rng(0).standard_normal((64, 1, 3)).astype(np.float32)
    for row in rows:
        stream.step(row, dt=0.5)
    before = resident()
    for number in range(tries("stream steps", few=3_000, full=250_000)):
        stream.step(rows[number % 64], dt=0.5)
    grown = resident() - before
    assert grown < _LEAST, f"{name}: {grown / MIB:.1f} MiB"
    assert np.isfinite(np.asarray(stream.step(rows[0], dt=0.5))).all()
