"""Times, memory and ceilings of a CUDA device."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from .timing import Clock, Job, host_clock, interleaved

_COPY = 1 << 30  # bytes, many times what the caches hold
_SIDE = 8192


def event_clock(job: Job, calls: int) -> float:
    """Time calls by events on the device, which do not see the host."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        job()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def clock_of(device: str) -> Clock:
    """Return the clock of a device."""
    return event_clock if device == "cuda" else host_clock


def wait_for(device: str) -> None:
    """Let the host wait until a device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def captured(job: Job) -> Job:
    """Capture a job as a CUDA graph, and return its replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries set themselves up, which cannot be captured
        for _ in range(3):
            job()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


def peak_bytes(job: Job, device: str) -> int:
    """Return the memory that a job adds at its peak; 0 where it is not counted."""
    if device != "cuda":
        job()
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    job()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


class Ceilings(NamedTuple):
    """What the device reaches at best, measured.

    Args:
        bytes: per second, read and written, by a copy.
        flops: per second, by a square matrix product in the dtype of the benchmark.
    """

    bytes: float
    flops: float


def measure_ceilings(dtype: torch.dtype, device: str, side: int = _SIDE) -> Ceilings:
    """Measure both on random numbers: zeros would be faster."""
    count = _COPY // 4 if device == "cuda" else side**2
    source = torch.randn(count, device=device)
    target = torch.empty_like(source)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    jobs: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "product": lambda: torch.mm(a, b, out=out),
    }
    timings = interleaved(jobs, clock=clock_of(device))
    moved = 2 * source.numel() * source.element_size()
    return Ceilings(moved / timings["copy"].seconds, 2 * side**3 / timings["product"].seconds)


class Work(NamedTuple):
    """The least that a pass must do.

    Args:
        bytes: inputs, outputs and what is kept for the backward pass, each written or read once.
        flops: operations of the equations; an exponential or a root counts as one.
    """

    bytes: float
    flops: float


def ltc_work(
    batch: int, steps: int, inputs: int, neurons: int, substeps: int, size: int, training: bool
) -> Work:
    """Count an LTC: 6 operations a sigmoid and 4 for its two sums, 21 more to go back through it.

    Kept are the potentials and 1 / m of every sub-step, in single precision.
    """
    points = batch * steps
    synapses = points * neurons * (inputs + substeps * neurons)
    flows = points * (inputs + 1 + neurons) * size
    if not training:
        return Work(flows, 10 * synapses)
    saved = 2 * points * substeps * neurons * 4
    return Work(3 * flows + 2 * saved, 31 * synapses)


def cfc_work(
    batch: int, steps: int, inputs: int, neurons: int, units: int, size: int, training: bool
) -> Work:
    """Count a CfC with one backbone layer and four heads: products, and twice as many to go back.

    Kept are the values of layer and heads, and written are the gradients before them.
    """
    points = batch * steps
    products = 2 * points * ((inputs + neurons) * units + 4 * neurons * units)
    flows = points * (inputs + 1 + neurons) * size
    if not training:
        return Work(flows, products)
    saved = points * (units + 4 * neurons) * size
    return Work(3 * flows + 4 * saved, 3 * products)
