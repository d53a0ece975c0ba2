"""Run a long sequence as a batch of chunks whose seams are made to agree.

A network that forgets need not be run from its beginning: a state some steps later is the same
from any start. So all chunks are warmed up before their seams and run side by side; where the end
of one and the start of the next differ, the ends become the starts of another sweep, until they
agree. This is multiple shooting with the simplest of updates, which converges as fast as the
network forgets; the adjoint states of the seams obey the same recurrence backwards in time.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tauflow.kernels import KernelCall
from tauflow.kernels.engine.program import under_transform

from .adjoint import Leaves, Problem, Run, Sewn, Tape, in_time
from .chunks import Chunks, Cut, Memory, ParallelReport, plan, random_states, restore_random_states
from .reparametrised import Computed


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
    run = _reading_the_same(call, run)
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


def _reading_the_same(call: KernelCall, run: Run) -> Run:
    """Return the way to run, of which every run reads the parameters that this call began with."""
    computed = Computed(call.cell)

    def reading(part: KernelCall) -> tuple[Tensor, Tensor]:
        computed.put_back()
        return run(part)

    return reading


def _traced(call: KernelCall) -> str | None:
    if torch.compiler.is_compiling() or under_transform(call):
        return "a trace or a transform of torch.func has no numbers to compare"
    return None


@dataclass(frozen=True)
class _Found:
    """Where the sweeps ended: the last one, and how well its seams agree."""

    tape: Tape
    sweeps: int
    residual: float
    rate: float | None
    good: int
    """Chunks, from the first on, that are right."""


def _find(call: KernelCall, run: Run, cut: Cut, memory: Memory) -> _Found:
    """Sweep until the seams agree, or until it is plain that they will not in time."""
    leaves = Leaves.of(call, cut)
    batch, count = call.x.shape[0], cut.count
    starts, cold = _warmed_up(call, run, cut, leaves)
    with_tape = torch.is_grad_enabled()
    limit = cut.tolerance * torch.finfo(starts.dtype).eps
    misfit_before: float | None = None
    for sweep in range(1, cut.sweeps + 1):
        starts = starts.detach().requires_grad_(with_tape)
        y, last = run(leaves.call(call, starts))
        ends = last.unflatten(0, (batch, count))
        with torch.no_grad():
            gaps = (ends[:, :-1] - starts[:, 1:]).abs()
            misfits = (gaps / _scale(ends)).amax(dim=(0, 2))  # (P - 1,)
            good = 1 + int((misfits <= limit).long().cumprod(0).sum())
            apart = float((ends[:, :-1] - cold).abs().max())
        gap, misfit = float(gaps.max()), float(misfits.max())
        if sweep == 1:
            rate = _rate(gap, apart, cut.warm_up)
        found = _Found(Tape(y, ends, starts, leaves), sweep, gap, rate, good)
        if good == count:
            if sweep == 1:
                memory.succeeded()
            return found
        if sweep == 1:  # longer next time, for a sweep costs a chunk's length
            memory.warm_up = min(2 * cut.warm_up, cut.length)
        if not in_time(misfit, misfit_before, limit, cut.sweeps - sweep):
            break
        misfit_before = misfit
        starts = torch.cat((starts.detach()[:, :1], ends.detach()[:, :-1]), dim=1)
    return found


def _scale(ends: Tensor) -> Tensor:
    """Return how large each neuron of each sequence becomes at the seams, 1 at least, (B, 1, S).

    A large one, such as a last sample that is kept as it came, says nothing of the others. Beside
    one that is not finite nothing agrees.
    """
    scale = ends.abs().amax(dim=1, keepdim=True).clamp(min=1.0)
    return scale.where(scale.isfinite(), math.nan)


def _warmed_up(call: KernelCall, run: Run, cut: Cut, leaves: Leaves) -> tuple[Tensor, Tensor]:
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
    leaves = Leaves.of(call, cut)
    starts = found.tape.starts.detach()[:, : cut.count].clone().requires_grad_()
    y, last = run(leaves.call(call, starts))
    ends = last.unflatten(0, (-1, cut.count))
    return replace(found, tape=Tape(y, ends, starts, leaves))


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
        y = found.tape.y.unflatten(0, (batch, cut.count))[:, : found.good].flatten(1, 2)
        return y, found.tape.ends[:, found.good - 1]
    parameters = [p for p in call.cell.parameters() if p.requires_grad]
    result: tuple[Tensor, Tensor] = Sewn.apply(  # type: ignore[no-untyped-call]
        Problem(call, run, cut, memory), found.tape, call.x, call.h, call.dt, *parameters
    )
    return result
