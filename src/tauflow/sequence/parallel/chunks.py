"""How a long sequence is cut for running its pieces side by side, and what came of it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.kernels import KernelCall


@dataclass(frozen=True)
class Chunks:
    """Division of a sequence into chunks that run as one batch.

    Args:
        length: steps of a chunk; ``None`` for about 64 chunks' rows on a CPU and 1024 on a GPU, of
            at least 64 steps.
        burn_in: steps that are run before each seam, from the cell's own initial state, to find the
            state there; ``None`` begins with 32, doubles them when they did not suffice, and
            remembers them with the module.
        tolerance: by how many units in the last place the two sides of a seam may differ, relative
            to the largest component of the state there, of the same sequence. Components that are
            much smaller than that agree to a share of themselves, too: 3e-5 in float32.
        budget: share of the sequence's steps that rounds over all chunks may take in sequence
            before the rest of it is run step by step; two rounds are always tried.

    Raises:
        ArgumentError: a number is not positive.
    """

    length: int | None = None
    burn_in: int | None = None
    tolerance: float = 16.0
    budget: float = 0.125

    def __post_init__(self) -> None:
        for name in ("length", "burn_in"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        for name in ("tolerance", "budget"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ArgumentError(
                    f"Chunks: {name}={getattr(self, name)!r} must be positive and finite."
                )


@dataclass(frozen=True)
class ParallelReport:
    """How the last parallel call ran one cell.

    Args:
        cell: class of the cell.
        steps: T, of the call.
        chunks: chunks that ran side by side; 1 if the sequence was not cut.
        length: steps of each.
        burn_in: steps before each seam.
        iterations: rounds over all chunks; 1 where the warm-up sufficed.
        residual: largest difference between the two sides of a seam, at the end.
        rate: factor by which a difference of states shrinks in one step, as measured; below the
            resolution of the dtype it is an upper limit. ``None`` if nothing was measured.
        bound: largest difference to the sequential result that residual and rate allow, at a seam.
        sequential_from: the step from which the loop ran sequentially, or ``None``.
        reason: why it did.
        adjoint_iterations: rounds that the last backward pass took over all chunks; 0 before.
    """

    cell: str
    steps: int
    chunks: int = 1
    length: int = 0
    burn_in: int = 0
    iterations: int = 0
    residual: float = 0.0
    rate: float | None = None
    bound: float = 0.0
    sequential_from: int | None = None
    reason: str | None = None
    adjoint_iterations: int = 0


INITIAL_BURN_IN = 32


@dataclass
class ChunkHistory:
    """What a module remembers of one cell's runs, to begin the next one with.

    Args:
        burn_in: steps that sufficed before a seam, or the next number to try.
        report: of the last call.
    """

    burn_in: int = INITIAL_BURN_IN
    report: ParallelReport | None = None


@dataclass(frozen=True)
class ChunkPlan:
    """A decided cut: ``count`` chunks of ``length`` steps; the steps left over follow alone."""

    count: int
    length: int
    burn_in: int
    max_iterations: int
    tolerance: float


def plan_chunks(call: KernelCall, requested: Chunks, history: ChunkHistory) -> ChunkPlan | str:
    """Return how to cut a call, or why it is not to be cut."""
    batch, steps = call.x.shape[:2]
    rows = 64 if call.x.device.type == "cpu" else 1024
    length = requested.length or max(64, math.ceil(steps * batch / rows))
    warm_up = min(requested.burn_in or history.burn_in, length)
    count = steps // length
    if count < 2:
        return f"{format_count(steps, 'step')}, fewer than two chunks of {length}"
    sweeps = max(2, int(requested.budget * steps / length))
    return ChunkPlan(count, length, warm_up, sweeps, requested.tolerance)


def get_rng_states(device: torch.device) -> list[Tensor]:
    """Return the states of the generators that a cell on this device may draw from."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_rng_states(states: list[Tensor], device: torch.device) -> None:
    """Set the generators back."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)
