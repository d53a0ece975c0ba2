"""What the machine could do at best: rates measured here, work counted from the equations."""

from typing import NamedTuple

import numpy as np
import torch

from tauflow.kernels.cpu.binding import parallel_for
from tauflow.kernels.cpu.jit import kernel
from tauflow.kernels.cpu.math import sigmoid2

from .timing import interleaved

_SIDE = 1024
_VALUES = 1 << 12
_REPEATS = 1000


@kernel
def _sigmoids(index, low, high, z, sums, repeats):
    """Add sigmoids of slowly moving numbers up, as many as there are numbers times repeats."""
    for row in range(low, high):
        values, totals = z[row], sums[row]
        for repeat in range(repeats):
            shift = np.float32(1e-6) * np.float32(repeat)  # or all repeats would be one
            for i in range(values.shape[0]):
                totals[i] += sigmoid2(values[i] + shift)


class Rates(NamedTuple):
    """Measured rates, per second, with the threads that torch uses."""

    sigmoids: float
    flops: float


def measure_rates() -> Rates:
    """Measure vectorised sigmoids on numbers in cache, and a square matrix product."""
    a, b = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    out = torch.empty(_SIDE, _SIDE)
    z = np.random.default_rng(0).normal(size=(torch.get_num_threads(), _VALUES))
    z = z.astype(np.float32)
    sums = np.zeros_like(z)
    timings = interleaved(
        {
            "sigmoids": lambda: parallel_for(_sigmoids, len(z), z, sums, _REPEATS),
            "product": lambda: torch.mm(a, b, out=out),
        }
    )
    return Rates(
        sigmoids=z.size * _REPEATS / timings["sigmoids"].seconds,
        flops=2 * _SIDE**3 / timings["product"].seconds,
    )


def ltc_limit(
    rates: Rates, batch: int, steps: int, inputs: int, neurons: int, substeps: int = 6
) -> tuple[float, float]:
    """Return the least seconds of a forward pass and of a training step.

    Every synapse takes one sigmoid per sub-step, sensory ones one per step; the backward pass
    computes them again.
    """
    sigmoids = batch * steps * neurons * (inputs + substeps * neurons)
    forward = sigmoids / rates.sigmoids
    return forward, 2 * forward


def cfc_limit(
    rates: Rates, batch: int, steps: int, inputs: int, neurons: int
) -> tuple[float, float]:
    """Return the least seconds of a forward pass and of a training step.

    Four heads of N on a backbone of N units; the backward pass takes two products for each one.
    """
    weights = (inputs + neurons) * neurons + 4 * neurons * neurons
    forward = 2 * batch * steps * weights / rates.flops
    return forward, 3 * forward
