"""The backward pass of a sequence that ran as chunks, and what it shares with the forward pass."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tauflow.kernels import KernelCall

from .chunks import ChunkHistory, ChunkPlan

RunCall = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Maps a call to the outputs at every step and the last state."""


@dataclass(frozen=True)
class ChunkedInputs:
    """A call's tensors cut into chunks, (B P, L, ...), apart from the graph that they come from."""

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None

    @classmethod
    def from_call(cls, call: KernelCall, plan: ChunkPlan) -> "ChunkedInputs":
        """Cut a call."""

        def cut_up(tensor: Tensor) -> Tensor:
            cut_steps = tensor.detach()[:, : plan.count * plan.length]
            return cut_steps.reshape(-1, plan.length, *tensor.shape[2:])

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


def is_convergence_expected(
    residual: float, previous: float | None, limit: float, remaining: int
) -> bool:
    """Whether the seams will agree within the sweeps that are left, as far as the largest shows."""
    if remaining < 1 or not math.isfinite(residual):
        return False
    if previous is None:
        return True
    if residual >= previous:
        return False
    if not residual:
        return True
    return math.log(limit / residual) / math.log(residual / previous) <= remaining


def scale_seams(values: Tensor, limit: float) -> Tensor:
    """Return how large the values at each seam are, (B, P, S), for differences to be compared with.

    A difference is right within ``limit`` of the largest component of the same seam, for steps mix
    components and round them alike. That says nothing of components that are much smaller, such as
    other features that are kept as they came: theirs is also within a larger share of themselves.
    Where one of these crosses zero, it is as large as it usually is at the other seams, or as the
    median component of this seam if that is smaller. Beside what is not finite nothing agrees.
    """
    sizes = values.abs()
    usual = torch.minimum(_upper_median(sizes, 1), _upper_median(sizes, 2))
    component = torch.maximum(sizes, usual) * limit**0.8 / limit
    scale = torch.minimum(sizes.amax(2, keepdim=True), component)
    least = torch.finfo(sizes.dtype).tiny
    return scale.clamp(min=least).where(scale.isfinite(), math.nan)


def _upper_median(sizes: Tensor, dim: int) -> Tensor:
    return sizes.kthvalue(1 + sizes.shape[dim] // 2, dim=dim, keepdim=True).values


@dataclass(frozen=True)
class ChunkRun:
    """A run of all chunks: outputs (B P, L, H), ends and starts (B, P, S), and what it read."""

    y: Tensor
    ends: Tensor
    starts: Tensor
    leaves: ChunkedInputs

    def gradients(
        self, parameters: Sequence[Tensor], grad_y: Tensor | None, grad_ends: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients of the starts, and of x, dt and the parameters."""
        others = [t for t in (self.leaves.x, self.leaves.dt) if t.requires_grad]
        outputs = [(self.ends, grad_ends)] + ([] if grad_y is None else [(self.y, grad_y)])
        grad_starts, *gradients = torch.autograd.grad(
            [output for output, _ in outputs],
            [self.starts, *others, *parameters],
            [pull for _, pull in outputs],
            retain_graph=True,
            allow_unused=True,
        )
        missing = torch.zeros_like(self.starts) if grad_starts is None else grad_starts
        remaining = iter(gradients)
        grad_x, grad_dt = (
            next(remaining) if t.requires_grad else None for t in (self.leaves.x, self.leaves.dt)
        )
        return missing, [grad_x, grad_dt, *remaining]


@dataclass(frozen=True)
class ChunkContext:
    """What the backward pass runs again, and how."""

    call: KernelCall
    run: RunCall
    cut: ChunkPlan
    memory: ChunkHistory


class ChunkedFunction(torch.autograd.Function):
    """The chunks as one node of the graph; the graph of the chunks belongs to it."""

    @staticmethod
    def forward(
        ctx: Any,
        context: ChunkContext,
        chunk_run: ChunkRun,
        x: Tensor,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, P L, H) and the last state, (B, S)."""
        leaves = chunk_run.leaves
        ctx.save_for_backward(
            chunk_run.y,
            chunk_run.ends,
            chunk_run.starts,
            leaves.x,
            leaves.dt,
            leaves.mask,
            leaves.observed,
            x,
            h,
            dt,
            *parameters,
        )
        call = context.call
        ctx.problem = replace(context, call=replace(call, x=x.new_empty(0), h=h.new_empty(0)))
        ctx.autocast = _capture_autocast(x.device.type)
        ctx.set_materialize_grads(False)
        y = chunk_run.y.detach().unflatten(0, (x.shape[0], context.cut.count)).flatten(1, 2)
        return y, chunk_run.ends.detach()[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        y, ends, starts, x, dt, mask, observed, *inputs = ctx.saved_tensors
        problem: ChunkContext = ctx.problem
        wants = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True: its graph is that of the sequential run
            return None, None, *_sequential_gradients(problem, inputs, wants, grad_outputs)
        chunk_run = ChunkRun(y, ends, starts, ChunkedInputs(x, dt, mask, observed))
        with ctx.autocast():
            gradients = _solve_adjoint(problem, chunk_run, inputs[3:], wants, grad_outputs)
        if gradients is None:
            return None, None, *_sequential_gradients(problem, inputs, wants, grad_outputs)
        grad_x, grad_h, grad_dt, *grad_parameters = gradients
        cut_length = problem.cut.count * problem.cut.length
        return (
            None,
            None,
            _pad_gradient(grad_x, inputs[0], cut_length),
            grad_h,
            _pad_gradient(grad_dt, inputs[2], cut_length),
            *grad_parameters,
        )


def _capture_autocast(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Return what sets autocast as it is now."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return lambda: torch.autocast(device, dtype=dtype, enabled=enabled)


def _pad_gradient(gradient: Tensor | None, like: Tensor, cut_length: int) -> Tensor | None:
    """Return the gradient of a tensor of whose steps the first ones were cut up."""
    if gradient is None:
        return None
    gradient = gradient.reshape(like.shape[0], cut_length, *like.shape[2:])
    rest = like.shape[1] - cut_length
    return (
        gradient
        if not rest
        else torch.cat((gradient, like.new_zeros(*like[:, cut_length:].shape)), 1)
    )


def _solve_adjoint(
    context: ChunkContext,
    chunk_run: ChunkRun,
    parameters: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
    grad_outputs: Sequence[Tensor | None],
) -> list[Tensor | None] | None:
    """Return the gradients of x, h, dt and parameters, or ``None`` if the seams do not agree.

    The pass is linear in what is pulled, so that a sweep that finds other adjoint states at the
    seams than it was given adds the gradients of the difference.
    """
    cut, (grad_y, grad_last) = context.cut, grad_outputs
    if grad_y is not None:
        grad_y = grad_y.unflatten(1, (cut.count, cut.length)).flatten(0, 1)
    grad_ends = torch.zeros_like(chunk_run.ends)
    if grad_last is not None:
        grad_ends[:, -1] = grad_last
    guess = _adjoint_burn_in(context, chunk_run, grad_y)
    grad_ends[:, :-1] = guess
    grad_starts, total = chunk_run.gradients(parameters, grad_y, grad_ends)
    change, before, sweeps = grad_starts[:, 1:] - guess, None, 1
    eps = torch.finfo(grad_starts.dtype).eps
    limit = cut.tolerance * eps
    largest = grad_starts.abs().amax((1, 2), keepdim=True)
    # what reaches a seam from a loss far behind it becomes as small as one likes
    scale = torch.maximum(scale_seams(grad_starts[:, 1:], limit), largest * eps)
    while not float((change.abs() / scale).max()) <= limit:  # NaN is not: step by step
        size = float((change.abs() / largest).max())
        if not is_convergence_expected(size, before, limit, cut.max_iterations - sweeps):
            return None
        grad_ends = torch.zeros_like(chunk_run.ends)
        grad_ends[:, :-1] = change
        more, extra = chunk_run.gradients(parameters, None, grad_ends)
        grad_starts = grad_starts + more
        total = [_add_optional(a, b) for a, b in zip(total, extra, strict=True)]
        change, before, sweeps = more[:, 1:], size, sweeps + 1
    report = context.memory.report
    if report is not None:
        context.memory.report = replace(report, adjoint_iterations=sweeps)
    grad_x, grad_dt, *grad_parameters = total
    return [grad_x, grad_starts[:, 0] if needs_input_grad[1] else None, grad_dt, *grad_parameters]


def _add_optional(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _adjoint_burn_in(context: ChunkContext, chunk_run: ChunkRun, grad_y: Tensor | None) -> Tensor:
    """Return a guess of the seams' adjoint states: what the steps right behind each seam pull."""
    cut, batch = context.cut, chunk_run.starts.shape[0]
    starts = chunk_run.starts.detach()[:, 1:]
    if grad_y is None or cut.burn_in == cut.length:
        return torch.zeros_like(starts)
    steps = slice(0, cut.burn_in)
    with torch.enable_grad():
        leaf = starts.flatten(0, 1).requires_grad_()
        window = chunk_run.leaves.window(context.call, slice(1, None), steps, cut.count)
        y, _ = context.run(replace(window, h=leaf))
    grads = grad_y.unflatten(0, (batch, cut.count))[:, 1:, steps].flatten(0, 1)
    guess: Tensor | None = torch.autograd.grad(y, leaf, grads, allow_unused=True)[0]
    return torch.zeros_like(starts) if guess is None else guess.view_as(starts)


def _sequential_gradients(
    context: ChunkContext,
    inputs: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
    grad_outputs: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return the gradients by running the steps once more, one after the other."""
    create_graph = torch.is_grad_enabled()
    cut, (x, h, dt, *parameters) = context.cut, inputs
    cut_length = cut.count * cut.length
    with torch.enable_grad():
        inputs_with_grad = [
            (t.view_as(t) if create_graph else t.detach().requires_grad_()) if want else t
            for t, want in zip((x, h, dt), needs_input_grad, strict=False)
        ]
        mask, observed = (
            None if m is None else m[:, :cut_length]
            for m in (context.call.mask, context.call.observed)
        )
        y, last = context.run(
            replace(
                context.call,
                x=inputs_with_grad[0][:, :cut_length],
                h=inputs_with_grad[1],
                dt=inputs_with_grad[2][:, :cut_length],
                mask=mask,
                observed=observed,
            )
        )
        outputs = [(o, p) for o, p in zip((y, last), grad_outputs, strict=True) if p is not None]
        leaves = [
            t for t, want in zip(inputs_with_grad, needs_input_grad, strict=False) if want
        ] + parameters
        gradients = torch.autograd.grad(
            [o for o, _ in outputs],
            leaves,
            [p for _, p in outputs],
            retain_graph=True,  # what parameters come of is shared with steps outside of the chunks
            create_graph=create_graph,
            allow_unused=True,
        )
    if context.memory.report is not None:
        context.memory.report = replace(context.memory.report, adjoint_iterations=0)
    given_back = iter(gradients)
    return [next(given_back) if want else None for want in needs_input_grad[:3]] + list(given_back)
