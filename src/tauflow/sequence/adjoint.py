"""The backward pass of a sequence that ran as chunks, and what it shares with the forward pass."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tauflow.kernels import KernelCall

from .chunks import Cut, Memory

Run = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Maps a call to the outputs at every step and the last state."""


@dataclass(frozen=True)
class Leaves:
    """A call's tensors cut into chunks, (B P, L, ...), apart from the graph that they come from."""

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None

    @classmethod
    def of(cls, call: KernelCall, cut: Cut) -> "Leaves":
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


def in_time(gap: float, before: float | None, limit: float, left: int) -> bool:
    """Whether the seams will agree within the sweeps that are left, as far as one can tell."""
    if left < 1 or not math.isfinite(gap):
        return False
    if before is None:
        return True
    if gap >= before:
        return False
    return math.log(limit / gap) / math.log(gap / before) <= left


@dataclass(frozen=True)
class Tape:
    """A run of all chunks: outputs (B P, L, H), ends and starts (B, P, S), and what it read."""

    y: Tensor
    ends: Tensor
    starts: Tensor
    leaves: Leaves

    def gradients(
        self, parameters: Sequence[Tensor], to_y: Tensor | None, to_ends: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients of the starts, and of x, dt and the parameters."""
        others = [t for t in (self.leaves.x, self.leaves.dt) if t.requires_grad]
        outputs = [(self.ends, to_ends)] + ([] if to_y is None else [(self.y, to_y)])
        to_starts, *found = torch.autograd.grad(
            [output for output, _ in outputs],
            [self.starts, *others, *parameters],
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


@dataclass(frozen=True)
class Problem:
    """What the backward pass runs again, and how."""

    call: KernelCall
    run: Run
    cut: Cut
    memory: Memory


class Sewn(torch.autograd.Function):
    """The chunks as one node of the graph; the tape of the chunks hangs on it."""

    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        tape: Tape,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, P L, H) and the last state, (B, S)."""
        leaves = tape.leaves
        ctx.save_for_backward(
            tape.y,
            tape.ends,
            tape.starts,
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
        y = tape.y.detach().unflatten(0, (x.shape[0], problem.cut.count)).flatten(1, 2)
        return y, tape.ends.detach()[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        y, ends, starts, x, dt, mask, observed, *inputs = ctx.saved_tensors
        problem: Problem = ctx.problem
        wants = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True: its graph is that of the sequential run
            return None, None, *_sequential(problem, inputs, wants, pulls)
        tape = Tape(y, ends, starts, Leaves(x, dt, mask, observed))
        with ctx.autocast():
            found = _adjoint(problem, tape, inputs[3:], wants, pulls)
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


def _adjoint(
    problem: Problem,
    tape: Tape,
    parameters: Sequence[Tensor],
    wants: Sequence[bool],
    pulls: Sequence[Tensor | None],
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
    guess = _adjoint_warm_up(problem, tape, to_y)
    to_ends[:, :-1] = guess
    to_starts, total = tape.gradients(parameters, to_y, to_ends)
    change, before, sweeps = to_starts[:, 1:] - guess, None, 1
    eps = torch.finfo(to_starts.dtype).eps
    scale, limit = _scale(to_starts, eps), cut.tolerance * eps
    while not (size := float((change.abs() / scale).max())) <= limit:  # NaN is not: step by step
        if not in_time(size, before, limit, cut.sweeps - sweeps):
            return None
        to_ends = torch.zeros_like(tape.ends)
        to_ends[:, :-1] = change
        more, extra = tape.gradients(parameters, None, to_ends)
        to_starts = to_starts + more
        total = [_added(a, b) for a, b in zip(total, extra, strict=True)]
        change, before, sweeps = more[:, 1:], size, sweeps + 1
    report = problem.memory.report
    if report is not None:
        problem.memory.report = replace(report, adjoint_sweeps=sweeps)
    to_x, to_dt, *to_parameters = total
    return [to_x, to_starts[:, 0] if wants[1] else None, to_dt, *to_parameters]


def _scale(to_starts: Tensor, eps: float) -> Tensor:
    """Return how large the adjoints of each neuron of each sequence become, (B, 1, S).

    What is smaller than the roundings of the largest one counts as those.
    """
    sizes = to_starts.abs()
    least = max(eps * float(sizes.max()), torch.finfo(sizes.dtype).tiny)
    return sizes.amax(dim=1, keepdim=True).clamp(min=least)


def _added(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _adjoint_warm_up(problem: Problem, tape: Tape, to_y: Tensor | None) -> Tensor:
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
    problem: Problem,
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
            retain_graph=True,  # what parameters come of is shared with steps outside of the chunks
            create_graph=create_graph,
            allow_unused=True,
        )
    if problem.memory.report is not None:
        problem.memory.report = replace(problem.memory.report, adjoint_sweeps=0)
    given_back = iter(found)
    return [next(given_back) if want else None for want in wants[:3]] + list(given_back)
