"""Run a long sequence as a batch of chunks whose seams are made to agree.

A network that forgets need not be run from its beginning: a state some steps later is the same
from any start. So all chunks are warmed up before their seams and run side by side; where the end
of one and the start of the next differ, the ends become the starts of another sweep, until they
agree. This is multiple shooting with the simplest of updates, which converges as fast as the
network forgets; the adjoint states of the seams obey the same recurrence backwards in time.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tauflow.kernels import KernelCall
from tauflow.kernels.spec import under_transform

from .chunks import Chunks, Cut, Memory, ParallelReport, plan, random_states, restore_random_states

Run = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Maps a call to the outputs at every step and the last state."""


def run_in_parallel(
    call: KernelCall, run: Run, asked: Chunks | Literal["auto"], memory: Memory
) -> tuple[Tensor, Tensor]:
    """Return what ``run(call)`` does, to the tolerance, with chunks of its sequences side by side.

    Args:
        call: the run.
        run: the sequential way.
        asked: the cut, or ``"auto"``.
        memory: what is remembered of the cell; its report is written.
    """
    name, steps = type(call.cell).__name__, call.x.shape[1]
    cut = _traced(call) or plan(call, asked, memory)
    if isinstance(cut, str):
        memory.report = ParallelReport(name, steps, sequential_from=0, reason=cut)
        return run(call)
    if torch.is_grad_enabled():  # the backward pass reads the masks, which the caller may refill
        observed = None if call.observed is None else call.observed.clone()
        call = replace(call, mask=call.own_mask(), observed=observed)
    before = random_states(call.x.device)
    found = _find(call, run, cut, memory)
    if not all(map(torch.equal, before, random_states(call.x.device))):
        restore_random_states(before, call.x.device)
        reason = "the cell draws random numbers, which belong to the steps' order"
        memory.report = ParallelReport(name, steps, sequential_from=0, reason=reason)
        memory.failed()
        return run(call)
    return _finished(call, run, cut, found, memory)


def _traced(call: KernelCall) -> str | None:
    if torch.compiler.is_compiling() or under_transform(call):
        return "a trace or a transform of torch.func has no numbers to compare"
    return None


@dataclass
class _Found:
    """Where the sweeps ended: the chunks' starts (B, P, S), and the last sweep's results."""

    starts: Tensor
    leaves: "_Leaves"
    y: Tensor
    ends: Tensor
    sweeps: int
    residual: float
    rate: float | None
    good: int
    """Chunks, from the first on, that are right."""


@dataclass(frozen=True)
class _Leaves:
    """A call's tensors cut into chunks, (B P, L, ...), apart from the graph that they come from."""

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None

    @classmethod
    def of(cls, call: KernelCall, cut: Cut) -> "_Leaves":
        """Cut a call."""

        def cut_up(tensor: Tensor) -> Tensor:
            whole = tensor.detach()[:, : cut.count * cut.length]
            return whole.reshape(-1, cut.length, *tensor.shape[2:])

        x, dt = (
            cut_up(tensor).requires_grad_(tensor.requires_grad and torch.is_grad_enabled())
            for tensor in (call.x, call.dt)
        )
        mask, observed = (None if m is None else cut_up(m) for m in (call.mask, call.observed))
        return cls(x, dt, mask, observed)

    def call(self, call: KernelCall, starts: Tensor) -> KernelCall:
        """Return the run of all chunks from their starts, (B, P, S)."""
        return replace(
            call,
            x=self.x,
            h=starts.flatten(0, 1),
            dt=self.dt,
            mask=self.mask,
            observed=self.observed,
        )

    def window(self, call: KernelCall, chunks: slice, steps: slice, count: int) -> KernelCall:
        """Return the run of some steps of some chunks, without a start."""

        def part(tensor: Tensor | None) -> Any:
            if tensor is None:
                return None
            cut = tensor.detach().unflatten(0, (-1, count))[:, chunks, steps]
            return cut.flatten(0, 1)

        return replace(
            call,
            x=part(self.x),
            dt=part(self.dt),
            mask=part(self.mask),
            observed=part(self.observed),
        )


def _find(call: KernelCall, run: Run, cut: Cut, memory: Memory) -> _Found:
    """Sweep until the seams agree, or until it is plain that they will not in time."""
    leaves = _Leaves.of(call, cut)
    batch, count = call.x.shape[0], cut.count
    starts, cold = _warmed_up(call, run, cut, leaves)
    with_tape = torch.is_grad_enabled()
    gap_before: float | None = None
    for sweep in range(1, cut.sweeps + 1):
        starts = starts.detach().requires_grad_(with_tape)
        y, last = run(leaves.call(call, starts))
        ends = last.unflatten(0, (batch, count))
        with torch.no_grad():
            gaps = (ends[:, :-1] - starts[:, 1:]).abs().amax(dim=(0, 2))  # (P - 1,)
            scale = max(1.0, float(ends.abs().max()))
            limit = cut.tolerance * torch.finfo(ends.dtype).eps * scale
            good = 1 + int((gaps <= limit).long().cumprod(0).sum())
            apart = float((ends[:, :-1] - cold).abs().max())
        gap = float(gaps.max())
        if sweep == 1:
            rate = _rate(gap, apart, cut.warm_up)
        found = _Found(starts, leaves, y, ends, sweep, gap, rate, good)
        if good == count:
            if sweep == 1:
                memory.succeeded()
            return found
        if sweep == 1:  # longer next time, for a sweep costs a chunk's length
            memory.warm_up = min(2 * cut.warm_up, cut.length)
        if not _in_time(gap, gap_before, limit, cut.sweeps - sweep):
            break
        gap_before = gap
        starts = torch.cat((starts.detach()[:, :1], ends.detach()[:, :-1]), dim=1)
    return found


def _warmed_up(call: KernelCall, run: Run, cut: Cut, leaves: _Leaves) -> tuple[Tensor, Tensor]:
    """Return the chunks' starts, (B, P, S), and what the warm-ups began with, (B, P - 1, S)."""
    steps = slice(cut.length - cut.warm_up, cut.length)
    with torch.no_grad():
        window = leaves.window(call, slice(None, -1), steps, cut.count)
        cold = call.cell.initial_state(window.x[:, 0]).to(call.h.dtype)
        _, warm = run(replace(window, h=cold))
        shape = (call.x.shape[0], cut.count - 1)
        warm, cold = warm.unflatten(0, shape), cold.unflatten(0, shape)
        return torch.cat((call.h.detach().unsqueeze(1), warm), dim=1), cold


def _rate(after: float, before: float, steps: int) -> float | None:
    """Return the factor per step by which a difference shrank."""
    if not (math.isfinite(after) and math.isfinite(before) and before > 0):
        return None
    return float((max(after, before * torch.finfo(torch.float64).eps) / before) ** (1 / steps))


def _in_time(gap: float, before: float | None, limit: float, left: int) -> bool:
    """Whether the seams will agree within the sweeps that are left, as far as one can tell."""
    if left < 1 or not math.isfinite(gap):
        return False
    if before is None:
        return True
    if gap >= before:
        return False
    return math.log(limit / gap) / math.log(gap / before) <= left


def _finished(
    call: KernelCall, run: Run, cut: Cut, found: _Found, memory: Memory
) -> tuple[Tensor, Tensor]:
    """Return the whole run: the chunks that are right, and the rest one step after the other."""
    steps, good = call.x.shape[1], found.good
    whole = good == cut.count
    if not whole:
        memory.failed()
    report = ParallelReport(
        cell=type(call.cell).__name__,
        steps=steps,
        chunks=cut.count,
        length=cut.length,
        warm_up=cut.warm_up,
        sweeps=found.sweeps,
        residual=found.residual,
        rate=found.rate,
        bound=_bound(found, cut),
        sequential_from=None if whole else good * cut.length,
        reason=None if whole else "the states at the seams did not agree within the budget",
    )
    if not whole and good * 2 < cut.count and torch.is_grad_enabled():
        memory.report = replace(report, sequential_from=0)
        return run(call)  # so little is right that its tape is not worth making again
    memory.report = report
    if not whole and torch.is_grad_enabled():
        cut = replace(cut, count=good)
        found = _again(call, run, cut, found)
    y, h = _sewn(call, run, cut, found, memory)
    done = good * cut.length
    if done == steps:
        return y, h
    parts = (call.x, call.dt, call.mask, call.observed)
    x, dt, mask, observed = (None if part is None else part[:, done:] for part in parts)
    assert x is not None
    assert dt is not None
    rest, h = run(KernelCall(call.cell, x, h, dt, mask, observed))
    return torch.cat((y, rest), dim=1), h


def _again(call: KernelCall, run: Run, cut: Cut, found: _Found) -> _Found:
    """Run the chunks that are right once more, for a tape of their own."""
    leaves = _Leaves.of(call, cut)
    starts = found.starts.detach()[:, : cut.count].clone().requires_grad_()
    y, last = run(leaves.call(call, starts))
    return replace(
        found, starts=starts, leaves=leaves, y=y, ends=last.unflatten(0, (-1, cut.count))
    )


def _bound(found: _Found, cut: Cut) -> float:
    if found.rate is None or found.rate >= 1:
        return math.inf if found.residual else 0.0
    q = found.rate**cut.length
    return found.residual * q / (1 - q) + found.residual


def _sewn(
    call: KernelCall, run: Run, cut: Cut, found: _Found, memory: Memory
) -> tuple[Tensor, Tensor]:
    """Return outputs (B, P L, H) and last state of the good chunks, with their graph if any."""
    if not torch.is_grad_enabled():
        batch = call.x.shape[0]
        y = found.y.unflatten(0, (batch, cut.count))[:, : found.good].flatten(1, 2)
        return y, found.ends[:, found.good - 1]
    parameters = [p for p in call.cell.parameters() if p.requires_grad]
    result: tuple[Tensor, Tensor] = _Sewn.apply(  # type: ignore[no-untyped-call]
        _Problem(call, run, cut, memory), found, call.x, call.h, call.dt, *parameters
    )
    return result


@dataclass(frozen=True)
class _Problem:
    """What the backward pass runs again, and how."""

    call: KernelCall
    run: Run
    cut: Cut
    memory: Memory


class _Sewn(torch.autograd.Function):
    """The chunks as one node of the graph; the tape of the chunks hangs on it."""

    @staticmethod
    def forward(
        ctx: Any,
        problem: _Problem,
        found: _Found,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, P L, H) and the last state, (B, S)."""
        leaves = found.leaves
        ctx.save_for_backward(
            found.y,
            found.ends,
            found.starts,
            leaves.x,
            leaves.dt,
            leaves.mask,
            leaves.observed,
            x,
            h,
            dt,
            *parameters,
        )
        call = problem.call
        ctx.problem = replace(problem, call=replace(call, x=x.new_empty(0), h=h.new_empty(0)))
        ctx.autocast = _autocast_like(x.device.type)
        ctx.set_materialize_grads(False)
        y = found.y.detach().unflatten(0, (x.shape[0], problem.cut.count)).flatten(1, 2)
        return y, found.ends.detach()[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        y, ends, starts, x, dt, mask, observed, *inputs = ctx.saved_tensors
        problem: _Problem = ctx.problem
        wants = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True: its graph is that of the sequential run
            return None, None, *_sequential(problem, inputs, wants, pulls)
        tape = _Tape(y, ends, starts, _Leaves(x, dt, mask, observed), inputs[3:])
        with ctx.autocast():
            found = _adjoint(problem, tape, wants, pulls)
        if found is None:
            return None, None, *_sequential(problem, inputs, wants, pulls)
        to_x, to_h, to_dt, *to_parameters = found
        whole = problem.cut.count * problem.cut.length
        return (
            None,
            None,
            _grown(to_x, inputs[0], whole),
            to_h,
            _grown(to_dt, inputs[2], whole),
            *to_parameters,
        )


def _autocast_like(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Return what sets autocast as it is now."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype, enabled=enabled)


def _grown(gradient: Tensor | None, like: Tensor, whole: int) -> Tensor | None:
    """Return the gradient of a tensor of whose steps the first ones were cut up."""
    if gradient is None:
        return None
    gradient = gradient.reshape(like.shape[0], whole, *like.shape[2:])
    rest = like.shape[1] - whole
    return (
        gradient if not rest else torch.cat((gradient, like.new_zeros(*like[:, whole:].shape)), 1)
    )


@dataclass(frozen=True)
class _Tape:
    """The chunks' graph: results, and the leaves to differentiate by."""

    y: Tensor
    ends: Tensor
    starts: Tensor
    leaves: _Leaves
    parameters: Sequence[Tensor]

    def gradients(self, to_y: Tensor | None, to_ends: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients of the starts, and of x, dt and the parameters."""
        others = [t for t in (self.leaves.x, self.leaves.dt) if t.requires_grad]
        outputs = [(self.ends, to_ends)] + ([] if to_y is None else [(self.y, to_y)])
        to_starts, *found = torch.autograd.grad(
            [output for output, _ in outputs],
            [self.starts, *others, *self.parameters],
            [pull for _, pull in outputs],
            retain_graph=True,
            allow_unused=True,
        )
        missing = torch.zeros_like(self.starts) if to_starts is None else to_starts
        given = iter(found)
        to_x, to_dt = (
            next(given) if t.requires_grad else None for t in (self.leaves.x, self.leaves.dt)
        )
        return missing, [to_x, to_dt, *given]


def _adjoint(
    problem: _Problem, tape: _Tape, wants: Sequence[bool], pulls: Sequence[Tensor | None]
) -> list[Tensor | None] | None:
    """Return the gradients of x, h, dt and parameters, or ``None`` if the seams do not agree.

    The pass is linear in what is pulled, so that a sweep that finds other adjoint states at the
    seams than it was given adds the gradients of the difference.
    """
    cut, (to_y, to_last) = problem.cut, pulls
    if to_y is not None:
        to_y = to_y.unflatten(1, (cut.count, cut.length)).flatten(0, 1)
    to_ends = torch.zeros_like(tape.ends)
    if to_last is not None:
        to_ends[:, -1] = to_last
    guess = _adjoint_warm_up(problem, tape, to_y, to_ends)
    to_ends[:, :-1] = guess
    to_starts, total = tape.gradients(to_y, to_ends)
    change, before, sweeps = to_starts[:, 1:] - guess, None, 1
    scale = max(float(to_starts.abs().max()), torch.finfo(to_starts.dtype).tiny)
    limit = cut.tolerance * torch.finfo(to_starts.dtype).eps * scale
    while (size := float(change.abs().max())) > limit:
        if not _in_time(size, before, limit, cut.sweeps - sweeps):
            return None
        to_ends = torch.zeros_like(tape.ends)
        to_ends[:, :-1] = change
        more, extra = tape.gradients(None, to_ends)
        to_starts = to_starts + more
        total = [_added(a, b) for a, b in zip(total, extra, strict=True)]
        change, before, sweeps = more[:, 1:], size, sweeps + 1
    report = problem.memory.report
    if report is not None:
        problem.memory.report = replace(report, adjoint_sweeps=sweeps)
    to_x, to_dt, *to_parameters = total
    return [to_x, to_starts[:, 0] if wants[1] else None, to_dt, *to_parameters]


def _added(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _adjoint_warm_up(
    problem: _Problem, tape: _Tape, to_y: Tensor | None, to_ends: Tensor
) -> Tensor:
    """Return a guess of the seams' adjoint states: what the steps right behind each seam pull."""
    cut, batch = problem.cut, tape.starts.shape[0]
    starts = tape.starts.detach()[:, 1:]
    if to_y is None or cut.warm_up == cut.length:
        return torch.zeros_like(starts)
    steps = slice(0, cut.warm_up)
    with torch.enable_grad():
        leaf = starts.flatten(0, 1).requires_grad_()
        window = tape.leaves.window(problem.call, slice(1, None), steps, cut.count)
        y, _ = problem.run(replace(window, h=leaf))
    pulls = to_y.unflatten(0, (batch, cut.count))[:, 1:, steps].flatten(0, 1)
    guess: Tensor | None = torch.autograd.grad(y, leaf, pulls, allow_unused=True)[0]
    return torch.zeros_like(starts) if guess is None else guess.view_as(starts)


def _sequential(
    problem: _Problem,
    inputs: Sequence[Tensor],
    wants: Sequence[bool],
    pulls: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return the gradients by running the steps once more, one after the other."""
    create_graph = torch.is_grad_enabled()
    cut, (x, h, dt, *parameters) = problem.cut, inputs
    whole = cut.count * cut.length
    with torch.enable_grad():
        given = [
            (t.view_as(t) if create_graph else t.detach().requires_grad_()) if want else t
            for t, want in zip((x, h, dt), wants, strict=False)
        ]
        mask, observed = (
            None if m is None else m[:, :whole] for m in (problem.call.mask, problem.call.observed)
        )
        y, last = problem.run(
            replace(
                problem.call,
                x=given[0][:, :whole],
                h=given[1],
                dt=given[2][:, :whole],
                mask=mask,
                observed=observed,
            )
        )
        outputs = [(o, p) for o, p in zip((y, last), pulls, strict=True) if p is not None]
        leaves = [t for t, want in zip(given, wants, strict=False) if want] + parameters
        found = torch.autograd.grad(
            [o for o, _ in outputs],
            leaves,
            [p for _, p in outputs],
            create_graph=create_graph,
            allow_unused=True,
        )
    if problem.memory.report is not None:
        problem.memory.report = replace(problem.memory.report, adjoint_sweeps=0)
    given_back = iter(found)
    return [next(given_back) if want else None for want in wants[:3]] + list(given_back)
