"""Time several ways to do one thing, fairly: interleaved, warm, medians, ratios round by round."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Forward = Callable[[Tensor, Tensor], Tensor]
"""Returns outputs, of inputs and time steps."""
Job = Callable[[], object]
Clock = Callable[[Job, int], float]
"""Returns the seconds that one call takes, from so many."""


@dataclass(frozen=True)
class Timing:
    """Times of one contender.

    Args:
        seconds: median time of a call.
        rounds: time of a call in each round.
    """

    seconds: float
    rounds: tuple[float, ...]

    def ratio(self, other: "Timing") -> float:
        """Return how many times as long as this one the other takes: the median over rounds."""
        pairs = zip(other.rounds, self.rounds, strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)


def interleaved(
    jobs: Mapping[str, Job],
    *,
    rounds: int = 7,
    least: float = 0.05,
    clock: Clock | None = None,
) -> dict[str, Timing]:
    """Time jobs in turns, so that a machine that slows down slows all of them.

    Args:
        jobs: name and call; each is called once before, to warm up.
        rounds: turns of each.
        least: seconds that a turn takes at least; quick jobs are called repeatedly.
        clock: measures calls; that of the host by default, which a device does not wait for.
    """
    clock = clock or host_clock
    calls = {name: _calls(job, least, clock) for name, job in jobs.items()}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds):
        order = list(jobs) if turn % 2 else list(reversed(jobs))
        for name in order:
            times[name].append(clock(jobs[name], calls[name]))
    return {name: Timing(statistics.median(t), tuple(t)) for name, t in times.items()}


def _calls(job: Job, least: float, clock: Clock) -> int:
    job()
    return max(1, round(least / clock(job, 1)))


def host_clock(job: Job, calls: int) -> float:
    """Time calls by the host's clock."""
    started = time.perf_counter()
    for _ in range(calls):
        job()
    return (time.perf_counter() - started) / calls


def processor_clock(job: Job, calls: int) -> float:
    """Time calls by the processor's clock, which other programs of the machine hardly change."""
    started = time.process_time()
    for _ in range(calls):
        job()
    return (time.process_time() - started) / calls


def forward(module: nn.Module, call: Forward, x: Tensor, dt: Tensor) -> Job:
    """Return a call of the forward pass alone."""

    def job() -> Tensor:
        with torch.no_grad():
            return call(x, dt)

    return job


def training_step(module: nn.Module, call: Forward, x: Tensor, dt: Tensor) -> Job:
    """Return a call of forward pass, loss and backward pass."""

    def job() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        call(x, dt).square().mean().backward()

    return job
