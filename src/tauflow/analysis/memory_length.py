"""How long a network remembers where it started: forgetting, and Lyapunov exponents."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.cells.base import AbstractCell
from tauflow.checks import at_least, positive
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.training.metrics import evaluating, predict

from .cell_runs import CellRun, cell_of, run_cell


@dataclass(frozen=True, eq=False)
class MemoryLength:
    """How fast two states of a network become one under the same inputs.

    Args:
        steps: samples after which the slowest sequence has forgotten its start; ``None`` if it had
            not by the end of the data.
        time: the same in the unit of the gaps, for the slowest sequence; ``None`` likewise.
        rate: mean logarithmic growth of the difference, per sample, of the slowest sequence while
            the difference could be told from rounding; negative where the network forgets.
        after: numbers of samples at which the difference was looked at.
        differences: largest difference of the two states there, relative to the difference that
            they began with, for every sequence.
    """

    steps: int | None
    time: float | None
    rate: float
    after: tuple[int, ...]
    differences: Float[Tensor, "B L"]

    def __str__(self) -> str:
        if self.steps is None:
            return (
                f"remembers longer than {self.after[-1]} samples (rate {self.rate:+.3g} a sample)"
            )
        return f"remembers {self.steps} samples, {self.time:.4g} in time (rate {self.rate:+.3g})"


@torch.no_grad()
def memory_length(
    model: nn.Module,
    data: SequenceBatch,
    *,
    tolerance: float = 1e-6,
    most: int = 64,
) -> MemoryLength:
    """Return how many samples, and how much time, a network remembers on given data.

    Every sequence is run from two states: the network's own initial one, and the one in which
    another sequence left it. A sequence has forgotten its start where the two differ by less than
    ``tolerance`` times what they differed by in the beginning, or by no more than rounding.

    Args:
        model: a sequence module that runs in one direction, or a model with one as ``rnn``.
        data: sequences to run it on; the longer, the longer a memory can be told.
        tolerance: share of the first difference at which the start counts as forgotten.
        most: sequences looked at, from the first on.

    Raises:
        ArgumentError: the model has no such sequence module, or runs backwards too; or ``data`` is
            empty.
    """
    positive(tolerance=tolerance)
    rnn = _forward_only(model)
    if not len(data):
        raise ArgumentError("memory_length: the data have no sequence to run the network on.")
    batch = data[: at_least(1, most=most)]
    with evaluating(model):
        x, given, last = _what_it_gets(model, rnn, batch)
        starts = _initial(rnn, x), last.roll(1, 0)
        return _follow(rnn, x, given, starts, tolerance)


def _what_it_gets(
    model: nn.Module, rnn: SequenceModule, batch: SequenceBatch
) -> tuple[Tensor, dict[str, Any], Tensor]:
    """Return what a model hands to its sequence module, (B, T, I), and the state it ends in.

    Embeddings, convolutional heads and whatever else a model does before are its own business, so
    the call is overheard instead of repeated.
    """
    calls: list[tuple[Tensor, dict[str, Any], Tensor]] = []

    def overhear(
        _: nn.Module, args: Any, given: dict[str, Any], out: tuple[Tensor, Tensor]
    ) -> None:
        calls.append((args[0], given, out[1]))

    handle = rnn.register_forward_hook(overhear, with_kwargs=True)
    try:
        predict(model, batch)
    finally:
        handle.remove()
    x, given, last = calls[-1]
    steps = x.shape[:2]
    dt = given.get("dt")
    mask = given.get("mask")
    parts: dict[str, Any] = {
        "dt": _of_steps(1.0 if dt is None else dt, steps).to(device=x.device, dtype=x.dtype),
        "mask": None if mask is None else _of_steps(mask, steps),
    }
    if rnn.cell.uses_observed:
        parts["observed"] = given.get("observed")
    return x, parts, last


def _of_steps(value: Tensor | float, steps: torch.Size) -> Tensor:
    """Return gaps or a mask as (B, T), given as a number, (B, T) or (B, T, 1)."""
    given = torch.as_tensor(value)
    return given.reshape(steps) if given.ndim == 3 else given.expand(steps)


def _forward_only(model: nn.Module) -> SequenceModule:
    rnn = model if isinstance(model, SequenceModule) else getattr(model, "rnn", None)
    if not isinstance(rnn, SequenceModule):
        raise ArgumentError(
            "memory_length: expected a sequence module such as tauflow.LTC or a model with one as "
            f"rnn, got {type(model).__name__}."
        )
    if rnn.bidirectional:
        raise ArgumentError(
            "memory_length: a bidirectional module has no state that goes on. Pass one that runs "
            "forwards."
        )
    return rnn


def _initial(rnn: SequenceModule, x: Tensor) -> Tensor:
    """Return the state that a module starts from, (B, S)."""
    nothing = torch.zeros_like(x[:, :1, 0], dtype=torch.bool)
    h: Tensor = rnn(x[:, :1], dt=0.0, mask=nothing)[1]
    return h


def _follow(
    rnn: SequenceModule,
    x: Tensor,
    given: dict[str, Any],
    starts: tuple[Tensor, Tensor],
    tolerance: float,
) -> MemoryLength:
    """Run all sequences from both starts, a stretch at a time, and compare at its end."""
    first = (starts[0] - starts[1]).abs().amax(1)  # (B,)
    eps = torch.finfo(x.dtype).eps
    ends = _looks(x.shape[1])
    h, found, floor, done = starts, [], torch.zeros_like(first), 0
    for end in ends:
        stretch = {k: None if v is None else v[:, done:end] for k, v in given.items()}
        h = tuple(rnn(x[:, done:end], part, **stretch)[1] for part in h)
        found.append((h[0] - h[1]).abs().amax(1))
        floor = torch.maximum(floor, 16 * eps * h[0].abs().amax(1).clamp_min(1.0))
        done = end
    differences = torch.stack(found, dim=1)  # (B, L)
    forgotten = differences <= torch.maximum(tolerance * first, floor).unsqueeze(1)
    index = _first_for_good(forgotten)
    slowest = int(index.argmax())
    known = int(index[slowest])
    mask = given["mask"]
    passed = given["dt"] if mask is None else given["dt"] * mask
    steps = None if known == len(ends) else ends[known]
    return MemoryLength(
        steps=steps,
        time=None if steps is None else float(passed[slowest, :steps].sum()),
        rate=_rate(first[slowest], differences[slowest], floor[slowest], ends),
        after=ends,
        differences=differences / first.clamp_min(torch.finfo(x.dtype).tiny).unsqueeze(1),
    )


def _looks(steps: int) -> tuple[int, ...]:
    """Return where to look: at every step first, then every sixteenth of the way."""
    ends, end = [], 0
    while end < steps:
        end = min(steps, end + max(1, end // 16))
        ends.append(end)
    return tuple(ends)


def _first_for_good(forgotten: Tensor) -> Tensor:
    """Return from which look on all are true, (B,); the number of looks if the last is not."""
    return forgotten.shape[1] - forgotten.flip(1).long().cumprod(1).sum(1)


def _rate(first: Tensor, differences: Tensor, floor: Tensor, ends: tuple[int, ...]) -> float:
    """Return the mean logarithmic growth per step until the last look above rounding."""
    clear = (differences > floor) & differences.isfinite()
    if not bool(clear.any()) or not float(first) > 0:
        return -math.inf
    last = int(clear.nonzero()[-1])
    return float((differences[last] / first).log()) / ends[last]


def lyapunov_exponents(
    model: nn.Module,
    x: Float[Tensor, "T I"],
    *,
    dt: Tensor | float | None = None,
    count: int | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " count"]:
    r"""Return the largest Lyapunov exponents of a cell along one driven trajectory.

    Tangent vectors are carried along by the Jacobian of each step and made orthonormal again by QR
    (Benettin et al. 1980, "Lyapunov characteristic exponents for smooth dynamical systems"); the
    logarithms of what that divides by, over the time that has passed, are the exponents. All are
    negative for a network that forgets its start; a positive one means chaos.

    Args:
        model: a cell, or a sequence module of one cell.
        x: the input along one sequence.
        dt: its gaps; by default 1.
        count: how many exponents, from the largest on; by default all S.
        generator: of the first tangent vectors.

    Returns:
        Exponents per unit of time, in descending order.

    Raises:
        ArgumentError: the model has several cells, no time passes, or ``count`` is not in 1 to S.
    """
    cell = cell_of("lyapunov_exponents", model)
    size = cell.state_size
    count = size if count is None else at_least(1, count=count)
    if count > size:
        raise ArgumentError(f"lyapunov_exponents: count={count}, but the state has {size} numbers.")
    with evaluating(cell), torch.no_grad():
        run = run_cell("lyapunov_exponents", cell, x, dt=dt)
        time = float(run.dt.sum())
        if not time > 0:
            raise ArgumentError("lyapunov_exponents: no time passes; give gaps dt above 0.")
        tangents = torch.randn(size, count, generator=generator, dtype=x.dtype).to(x.device)
        tangents, _ = torch.linalg.qr(tangents)
        logs = x.new_zeros(count)
        for k in range(run.x.shape[1]):
            tangents, shrunk = torch.linalg.qr(_carried(cell, run.x[:, k], run, k, tangents))
            logs += shrunk.diagonal().abs().clamp_min(torch.finfo(x.dtype).tiny).log()
    return logs.div(time).sort(descending=True).values


def _carried(cell: AbstractCell, x: Tensor, run: CellRun, k: int, tangents: Tensor) -> Tensor:
    """Return what one step makes of tangent vectors, (S, count)."""
    observed = () if run.observed is None else (run.observed[:, k],)

    def advance(h: Tensor) -> Tensor:
        return cell.step(x, h.unsqueeze(0), run.dt[:, k], *observed)[0]

    jacobian: Tensor = torch.func.jacrev(advance)(run.states[0, k])
    return jacobian @ tangents
