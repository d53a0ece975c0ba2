"""Run a long sequence as a batch of chunks whose seams are made to agree.

A network that forgets need not be run from its beginning: a state some steps later is the same
from any start. So all chunks are warmed up before their seams and run side by side; where the end
of one and the start of the next differ, the ends become the starts of another sweep, until they
agree. This is multiple shooting with the simplest of updates, which converges as fast as the
network forgets; the adjoint states of the seams obey the same recurrence backwards in time.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from tauflow.errors import ArgumentError
from tauflow.kernels import KernelCall
from tauflow.kernels.engine.kernel_call import is_under_transform
from tauflow.sequence.base import SequenceModuleBase
from tauflow.sequence.inputs import Lengths, PaddedOrPacked, TimeSteps
from tauflow.sequence.run_call import run_call
from tauflow.sequence.states import State

from .adjoint import (
    ChunkContext,
    ChunkedFunction,
    ChunkedInputs,
    ChunkRun,
    RunCall,
    is_convergence_expected,
    scale_seams,
)
from .chunks import (
    ChunkHistory,
    ChunkPlan,
    Chunks,
    ParallelReport,
    get_rng_states,
    plan_chunks,
    set_rng_states,
)

if TYPE_CHECKING:
    from tauflow.sequence.sequence_module import SequenceModule


def run_in_parallel(
    rnn: "SequenceModule",
    x: Tensor | PackedSequence,
    hx: State | None = None,
    *,
    dt: TimeSteps | None = None,
    t: PaddedOrPacked | None = None,
    mask: Tensor | None = None,
    lengths: Lengths | None = None,
    observed: PaddedOrPacked | None = None,
    chunks: Chunks | None = None,
) -> tuple[Tensor | PackedSequence, Tensor]:
    """Return what ``rnn(x, hx, dt=dt, ...)`` does, with chunks of its sequences side by side.

    For long sequences of a network that forgets. Results and gradients equal those of the
    sequential run within the tolerance of the chunks; a network that remembers too long, or a cell
    that draws random numbers, is run sequentially. ``rnn.parallel_report()`` says how it went.

    Args:
        rnn: a sequence module.
        x: as for the call of the module, and so all others.
        hx: state.
        dt: time steps.
        t: times.
        mask: valid steps.
        lengths: valid lengths.
        observed: measured features.
        chunks: how to cut the sequences.

    Returns:
        The outputs and the final state, as the module does.

    Raises:
        ArgumentError: ``rnn`` is no sequence module, or ``chunks`` is invalid.
        ShapeError, DtypeError, TimeError, NonFiniteError: as the module raises.
    """
    cut = Chunks() if chunks is None else chunks
    if not (isinstance(rnn, SequenceModuleBase) and isinstance(cut, Chunks)):
        raise ArgumentError(
            "run_in_parallel takes a sequence module, such as tauflow.LTC or the rnn of a "
            f"SequenceModel, and chunks of the class Chunks, got {type(rnn).__name__} and {cut!r}."
        )

    def run(index: int, call: KernelCall) -> tuple[Tensor, Tensor]:
        history = rnn._chunk_history.setdefault(index, ChunkHistory())
        return _run_chunks(call, partial(rnn._unroll, index), cut, history)

    arguments = {"dt": dt, "t": t, "mask": mask, "lengths": lengths, "observed": observed}
    return run_call(rnn, "run_in_parallel", x, hx, run, **arguments)


def _run_chunks(
    call: KernelCall, run: RunCall, requested: Chunks, history: ChunkHistory
) -> tuple[Tensor, Tensor]:
    """Return what ``run(call)`` does, to the tolerance, with chunks of its sequences side by side.

    Args:
        call: the run.
        run: the sequential way.
        requested: the cut.
        history: what is remembered of the cell; its report is written.
    """
    name, steps = type(call.cell).__name__, call.x.shape[1]
    cut = _find_unsupported_reason(call) or plan_chunks(call, requested, history)
    if isinstance(cut, str):
        history.report = ParallelReport(name, steps, sequential_from=0, reason=cut)
        return run(call)
    if torch.is_grad_enabled():  # the backward pass reads the masks, which the caller may refill
        observed = None if call.observed is None else call.observed.clone()
        call = replace(call, mask=call.copy_mask(), observed=observed)
    before = get_rng_states(call.x.device)
    result = _iterate_to_agreement(call, run, cut, history)
    if not all(map(torch.equal, before, get_rng_states(call.x.device))):
        set_rng_states(before, call.x.device)
        reason = "the cell draws random numbers, which belong to the steps' order"
        history.report = ParallelReport(name, steps, sequential_from=0, reason=reason)
        return run(call)
    return _assemble_run(call, run, cut, result, history)


def _find_unsupported_reason(call: KernelCall) -> str | None:
    if torch.compiler.is_compiling() or is_under_transform(call):
        return "a trace or a transform of torch.func has no numbers to compare"
    return None


@dataclass(frozen=True)
class _ShootingResult:
    """Where the sweeps ended: the last one, and how well its seams agree."""

    chunk_run: ChunkRun
    iterations: int
    residual: float
    rate: float | None
    converged_count: int
    """Chunks, from the first on, that are right."""


def _iterate_to_agreement(
    call: KernelCall, run: RunCall, plan: ChunkPlan, history: ChunkHistory
) -> _ShootingResult:
    """Sweep until the seams agree, or until it is plain that they will not in time."""
    leaves = ChunkedInputs.from_call(call, plan)
    batch, count = call.x.shape[0], plan.count
    starts, cold = _run_burn_in(call, run, plan, leaves)
    with_tape = torch.is_grad_enabled()
    limit = plan.tolerance * torch.finfo(starts.dtype).eps
    residual_before: float | None = None
    for sweep in range(1, plan.max_iterations + 1):
        starts = starts.detach().requires_grad_(with_tape)
        y, last = run(leaves.call(call, starts))
        ends = last.unflatten(0, (batch, count))
        with torch.no_grad():
            gaps = (ends[:, :-1] - starts[:, 1:]).abs()
            misfits = (gaps / scale_seams(ends[:, :-1], limit)).amax(dim=(0, 2))  # (P - 1,)
            good = 1 + int((misfits <= limit).long().cumprod(0).sum())
            apart = float((ends[:, :-1] - cold).abs().max())
            largest = max(float(ends[:, :-1].abs().max()), torch.finfo(ends.dtype).tiny)
        gap = float(gaps.max())
        if sweep == 1:
            rate = _contraction_rate(gap, apart, plan.burn_in)
        result = _ShootingResult(ChunkRun(y, ends, starts, leaves), sweep, gap, rate, good)
        if good == count:
            return result
        if sweep == 1:  # longer next time, for a sweep costs a chunk's length
            history.burn_in = min(2 * plan.burn_in, plan.length)
        residual = gap / largest
        if not is_convergence_expected(
            residual, residual_before, limit, plan.max_iterations - sweep
        ):
            break
        residual_before = residual
        starts = torch.cat((starts.detach()[:, :1], ends.detach()[:, :-1]), dim=1)
    return result


def _run_burn_in(
    call: KernelCall, run: RunCall, plan: ChunkPlan, inputs: ChunkedInputs
) -> tuple[Tensor, Tensor]:
    """Return the chunks' starts, (B, P, S), and what the warm-ups began with, (B, P - 1, S)."""
    steps = slice(plan.length - plan.burn_in, plan.length)
    with torch.no_grad():
        window = inputs.window(call, slice(None, -1), steps, plan.count)
        cold = call.cell.initial_state(window.x[:, 0]).to(call.h.dtype)
        _, warm = run(replace(window, h=cold))
        shape = (call.x.shape[0], plan.count - 1)
        warm, cold = warm.unflatten(0, shape), cold.unflatten(0, shape)
        return torch.cat((call.h.detach().unsqueeze(1), warm), dim=1), cold


def _contraction_rate(current: float, previous: float, steps: int) -> float | None:
    """Return the factor per step by which a difference shrank."""
    if not (math.isfinite(current) and math.isfinite(previous) and previous > 0):
        return None
    return float(
        (max(current, previous * torch.finfo(torch.float64).eps) / previous) ** (1 / steps)
    )


def _assemble_run(
    call: KernelCall, run: RunCall, plan: ChunkPlan, result: _ShootingResult, history: ChunkHistory
) -> tuple[Tensor, Tensor]:
    """Return the whole run: the chunks that are right, and the rest one step after the other."""
    steps, good = call.x.shape[1], result.converged_count
    is_complete = good == plan.count
    report = ParallelReport(
        cell=type(call.cell).__name__,
        steps=steps,
        chunks=plan.count,
        length=plan.length,
        burn_in=plan.burn_in,
        iterations=result.iterations,
        residual=result.residual,
        rate=result.rate,
        bound=_error_bound(result, plan),
        sequential_from=None if is_complete else good * plan.length,
        reason=None if is_complete else "the states at the seams did not agree within the budget",
    )
    if not is_complete and good * 2 < plan.count and torch.is_grad_enabled():
        history.report = replace(report, sequential_from=0)
        return run(call)  # so little is right that its graph is not worth building again
    history.report = report
    if not is_complete and torch.is_grad_enabled():
        plan = replace(plan, count=good)
        result = _rerun_converged(call, run, plan, result)
    y, h = _apply_chunked(call, run, plan, result, history)
    done = good * plan.length
    if done == steps:
        return y, h
    parts = (call.x, call.dt, call.mask, call.observed)
    x, dt, mask, observed = (None if part is None else part[:, done:] for part in parts)
    assert x is not None
    assert dt is not None
    rest, h = run(KernelCall(call.cell, x, h, dt, mask, observed))
    return torch.cat((y, rest), dim=1), h


def _rerun_converged(
    call: KernelCall, run: RunCall, plan: ChunkPlan, result: _ShootingResult
) -> _ShootingResult:
    """Run the chunks that are right once more, with a graph of these chunks alone."""
    leaves = ChunkedInputs.from_call(call, plan)
    starts = result.chunk_run.starts.detach()[:, : plan.count].clone().requires_grad_()
    y, last = run(leaves.call(call, starts))
    ends = last.unflatten(0, (-1, plan.count))
    return replace(result, chunk_run=ChunkRun(y, ends, starts, leaves))


def _error_bound(result: _ShootingResult, plan: ChunkPlan) -> float:
    if result.rate is None or result.rate >= 1:
        return math.inf if result.residual else 0.0
    q = result.rate**plan.length
    return result.residual * q / (1 - q) + result.residual


def _apply_chunked(
    call: KernelCall,
    run: RunCall,
    plan: ChunkPlan,
    shooting: _ShootingResult,
    history: ChunkHistory,
) -> tuple[Tensor, Tensor]:
    """Return outputs (B, P L, H) and last state of the good chunks, with their graph if any."""
    if not torch.is_grad_enabled():
        batch = call.x.shape[0]
        y = shooting.chunk_run.y.unflatten(0, (batch, plan.count))[
            :, : shooting.converged_count
        ].flatten(1, 2)
        return y, shooting.chunk_run.ends[:, shooting.converged_count - 1]
    parameters = [p for p in call.cell.parameters() if p.requires_grad]
    result: tuple[Tensor, Tensor] = ChunkedFunction.apply(  # type: ignore[no-untyped-call]
        ChunkContext(call, run, plan, history),
        shooting.chunk_run,
        call.x,
        call.h,
        call.dt,
        *parameters,
    )
    return result
