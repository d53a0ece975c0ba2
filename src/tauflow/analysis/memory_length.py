"""How long a network remembers where it started: forgetting, and Lyapunov exponents."""

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.checks import at_least, positive, shape_error
from tauflow.errors import ArgumentError
from tauflow.sequence import SequenceModule
from tauflow.sequence.inputs import SequenceInputs, prepare
from tauflow.training.metrics import evaluating, predict

from .cell_runs import cell_of, row_jacobians, run_cell

_ROUNDED = 16.0
"""Units of rounding below which what a step leaves of a direction is no number."""


@dataclass(frozen=True, eq=False)
class MemoryLength:
    """How fast two states of a network become one under the same inputs.

    Args:
        steps: samples after which the slowest sequence has forgotten its start; ``None`` if it had
            not by its end.
        time: the same in the unit of the gaps, for the slowest sequence; ``None`` likewise.
        rate: mean logarithmic growth of the difference, per sample, of the slowest sequence while
            the difference could be told from rounding; negative where the network forgets.
        samples: how many samples the slowest sequence has.
        after: numbers of samples at which the difference was looked at.
        differences: largest difference of the two states there, or at the end of a shorter
            sequence, for every sequence. Each part of the state is compared with what it began
            with itself, as parts have units of their own: ages that of time.
    """

    steps: int | None
    time: float | None
    rate: float
    samples: int
    after: tuple[int, ...]
    differences: Float[Tensor, "B L"]

    def __str__(self) -> str:
        if self.steps is None:
            return f"remembers longer than {self.samples} samples (rate {self.rate:+.3g} a sample)"
        told = f"remembers {self.steps} samples, {self.time:.4g} in time"
        return f"{told} (rate {self.rate:+.3g} a sample)"


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
    ``tolerance`` times what they differed by in the beginning, or by no more than rounding, in each
    part of the state (:attr:`~tauflow.cells.AbstractCell.state_parts`). Samples
    are counted, not padding or other masked steps. A sequence that ended before it had forgotten
    says no more than that it takes longer: it counts if no other sequence took as long to forget.

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
        seen, last = _what_it_gets(model, rnn, batch)
        starts = _initial(rnn, seen.x), last.roll(1, 0)
        return _follow(rnn, seen, starts, tolerance)


@dataclass(frozen=True, eq=False)
class _Samples:
    """What a sequence module gets, the samples of each sequence in front and padding behind.

    Args:
        x: the inputs, (B, T, I).
        companions: gaps and whatever else goes with the inputs, each (B, T) or (B, T, I).
        counts: samples of each sequence, (B,).
    """

    x: Tensor
    companions: dict[str, Tensor]
    counts: Tensor

    def stretch(self, begin: int, end: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return inputs and companions of the samples from one number up to another."""
        places = torch.arange(begin, end, device=self.counts.device)
        parts = {name: value[:, begin:end] for name, value in self.companions.items()}
        return self.x[:, begin:end], {**parts, "mask": places < self.counts.unsqueeze(1)}


def _what_it_gets(
    model: nn.Module, rnn: SequenceModule, batch: SequenceBatch
) -> tuple[_Samples, Tensor]:
    """Return what a model hands to its sequence module, and the state it ends in.

    Embeddings, convolutional heads and whatever else a model does before are its own business, so
    the call is overheard instead of repeated.
    """
    calls: list[tuple[dict[str, Any], Tensor]] = []
    signature = inspect.signature(rnn.forward)

    def overhear(
        _: nn.Module, args: Any, given: dict[str, Any], out: tuple[Tensor, Tensor]
    ) -> None:
        calls.append((signature.bind(*args, **given).arguments, out[1]))

    handle = rnn.register_forward_hook(overhear, with_kwargs=True)
    try:
        predict(model, batch)
    finally:
        handle.remove()
    given, last = calls[-1]
    names = ("x", "dt", "t", "mask", "lengths", "observed", "reset")
    inputs = prepare(
        type(rnn).__name__,
        rnn.input_size,
        **{name: given[name] for name in names if name in given},
        goes_on=given.get("hx") is not None,
    )
    return _in_front(inputs), last


def _in_front(inputs: SequenceInputs) -> _Samples:
    """Return the samples of a call without the masked steps between them, which change nothing."""
    x, B, T = inputs.x, *inputs.x.shape[:2]
    companions = {"dt": inputs.dt.squeeze(-1), "observed": inputs.observed, "reset": inputs.reset}
    known = {name: value for name, value in companions.items() if value is not None}
    if inputs.mask is None:
        return _Samples(x, known, torch.full((B,), T, device=x.device))
    order = inputs.mask.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    counts = inputs.mask.sum(1)
    order = order[:, : int(counts.max())]
    if not order.numel():
        raise ArgumentError("memory_length: all steps of the data are masked.")
    row = torch.arange(B, device=x.device).unsqueeze(1)
    return _Samples(x[row, order], {name: v[row, order] for name, v in known.items()}, counts)


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
    rnn: SequenceModule, seen: _Samples, starts: tuple[Tensor, Tensor], tolerance: float
) -> MemoryLength:
    """Run all sequences from both starts, a stretch at a time, and compare at its end."""
    widths = [width for cell in rnn.each_cell for width in cell.state_parts.values()]

    def largest(values: Tensor) -> Tensor:  # of each part, (B, P)
        return torch.stack([one.abs().amax(1) for one in values.split(widths, dim=1)], dim=1)

    first = largest(starts[0] - starts[1])
    rounding = 16 * torch.finfo(seen.x.dtype).eps
    ends = _looks(seen.x.shape[1])
    h, found, floor, done = starts, [], rounding * largest(starts[0]).clamp_min(1.0), 0
    # A part that both starts have alike is told by the others.
    unit = torch.where(first > floor, first, first.amax(1, keepdim=True))
    for end in ends:
        x, given = seen.stretch(done, end)
        h = tuple(rnn(x, part, **given)[1] for part in h)
        found.append(largest(h[0] - h[1]))
        floor = torch.maximum(floor, rounding * largest(h[0]).clamp_min(1.0))
        done = end
    parts = torch.stack(found, dim=1)  # (B, L, P)
    forgotten = parts <= torch.maximum(tolerance * first, floor).unsqueeze(1)
    index = _first_for_good(forgotten.all(2))
    shares = parts / unit.clamp_min(torch.finfo(unit.dtype).tiny).unsqueeze(1)
    differences = shares.amax(2)
    told = (parts > floor.unsqueeze(1)) & parts.isfinite()
    clear = torch.where(told, shares, torch.zeros_like(shares)).amax(2)
    looks = torch.tensor(ends, device=index.device)
    forgot = index < len(ends)
    # A sequence is looked at on after its end, where nothing changes any more.
    passed = seen.counts.minimum(looks[index.clamp_max(len(ends) - 1)])
    slowest = _slowest(forgot, passed)
    steps = int(passed[slowest]) if bool(forgot[slowest]) else None
    counted = seen.counts[slowest].minimum(looks)
    return MemoryLength(
        steps=steps,
        time=None if steps is None else float(seen.companions["dt"][slowest, :steps].sum()),
        rate=_rate(clear[slowest], counted),
        samples=int(seen.counts[slowest]),
        after=ends,
        differences=differences,
    )


def _slowest(forgot: Tensor, passed: Tensor) -> int:
    """Return which sequence remembered longest, given the samples until it forgot, or its end.

    Of two that took as long the one that had not forgotten is the slower.
    """
    return int((2 * passed + (~forgot)).argmax())


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


def _rate(clear: Tensor, counted: Tensor) -> float:
    """Return the mean logarithmic growth per sample until the last look above rounding.

    Args:
        clear: shares of the first difference, (L,), 0 where they are no more than rounding.
        counted: samples until each look, (L,).
    """
    if not bool((clear > 0).any()):
        return -math.inf
    last = int((clear > 0).nonzero()[-1])
    return float(clear[last].log()) / max(1, int(counted[last]))


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
        Exponents per unit of time, in descending order; -inf of directions of which a step leaves
        nothing, as where the state does not depend on the one before, or of which more than half of
        the steps leave nothing that can be told from the rounding of their Jacobians.

    Raises:
        ArgumentError: the model has several cells, no time passes, or ``count`` is not in 1 to S.
        ShapeError: ``x`` is not one sequence.
    """
    cell = cell_of("lyapunov_exponents", model)
    size = cell.state_size
    count = size if count is None else at_least(1, count=count)
    if count > size:
        raise ArgumentError(f"lyapunov_exponents: count={count}, but the state has {size} numbers.")
    with evaluating(cell), torch.no_grad():
        run = run_cell("lyapunov_exponents", cell, x, dt=dt)
        if len(run.x) > 1:
            one = f"(T, {cell.input_size})"
            raise shape_error("lyapunov_exponents", "x", x, one, "Give one sequence, as x[0].")
        time = float(run.dt.sum())
        if not time > 0:
            raise ArgumentError("lyapunov_exponents: no time passes; give gaps dt above 0.")
        tangents = torch.randn(size, count, generator=generator, dtype=x.dtype).to(x.device)
        tangents, _ = torch.linalg.qr(tangents.double())
        logs, lost = x.new_zeros(2, count, dtype=torch.float64)
        for k in range(run.x.shape[1]):
            _, jacobian = row_jacobians(run.advance(cell, k), run.states[:, k])
            step = jacobian[0].double()
            rounding = torch.linalg.vector_norm(step.abs() @ tangents.abs(), dim=0)
            tangents, shrunk = torch.linalg.qr(step @ tangents)
            length = shrunk.diagonal().abs()
            lost += length <= _ROUNDED * torch.finfo(x.dtype).eps * rounding
            left = length > torch.finfo(x.dtype).tiny  # what is gone does not come back
            logs, lost, tangents = (logs + length.log())[left], lost[left], tangents[:, left]
        # While tangents turn to their directions, some may be lost for a few steps.
        logs[lost > run.x.shape[1] / 2] = -math.inf
    found = x.new_full((count,), -math.inf)
    found[: len(logs)] = logs.div(time).sort(descending=True).values.to(x.dtype)
    return found
