r"""Backpropagation through a solver against the adjoint method, measured.

Table 1 of the paper says of a solve of L steps over T: backpropagation (BPTT) needs memory O(L T)
and is as accurate backwards as forwards; the adjoint method solves backwards as well, needs memory
O(1), and is less accurate backwards. Here the three numbers are measured for one flow.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Table 1; Chen et al. 2018, "Neural
ordinary differential equations", for the adjoint method.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.solvers import RK4, integrate, integrate_adaptive

GRADIENT_METHODS: tuple[str, ...] = ("bptt-fixed", "bptt-adaptive", "adjoint")
"""Backpropagation through steps of RK4, through adaptive steps, and the adjoint method."""


@dataclass(frozen=True)
class GradientMethodCost:
    """Cost and accuracy of one method.

    Args:
        method: one of :data:`GRADIENT_METHODS`.
        span: length of the solve.
        forward_seconds: time of the forward solve, the least of the repeats.
        backward_seconds: time of the backward pass, likewise.
        evaluations: calls of the field in the forward solve.
        saved_bytes: memory held for the backward pass, without parameters.
        forward_error: largest error of the final state, relative to its largest entry.
        backward_error: norm of the error of all gradients, relative to their norm, against those of
            the flow itself.
        own_error: the same against the exact derivatives of the forward solve that was made; 0 for
            backpropagation, which computes these.
    """

    method: str
    span: float
    forward_seconds: float
    backward_seconds: float
    evaluations: int
    saved_bytes: int
    forward_error: float
    backward_error: float
    own_error: float


def compare_gradient_methods(
    field: nn.Module,
    h: Float[Tensor, "B S"],
    span: float,
    *,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    substeps: int = 20,
    repeats: int = 3,
    seed: int = 0,
) -> tuple[GradientMethodCost, ...]:
    """Solve a flow by each method and compare costs and accuracy.

    The loss weighs the final state at random. Both errors are against a solve in float64 with
    tolerances of 1e-10.

    Args:
        field: the vector field, mapping (B, S) to (B, S); its parameters get gradients.
        h: states at the start.
        span: length of the solve.
        rtol: of the adaptive methods, forwards and backwards.
        atol: likewise.
        substeps: steps of RK4.
        repeats: how often to measure the time.
        seed: of the loss.
    """
    check_positive(span=span)
    check_at_least(1, repeats=repeats)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h)
    exact = _SolverProblem(copy.deepcopy(field).double(), h.double(), span, 1e-10, 1e-10, substeps)
    truth = _measure_method("bptt-adaptive", exact, weights.double(), 1)
    solve = _SolverProblem(field, h, span, rtol, atol, substeps)
    runs = [_measure_method(method, solve, weights, repeats) for method in GRADIENT_METHODS]
    costs = []
    for method, run in zip(GRADIENT_METHODS, runs, strict=True):
        # The adjoint method's forward solve is that of the adaptive backpropagation.
        timed = runs[1] if method == "adjoint" else run
        gap = (run.end.double() - truth.end).abs().max() / truth.end.abs().max()
        costs.append(
            GradientMethodCost(
                method=method,
                span=span,
                forward_seconds=run.forward_seconds,
                backward_seconds=run.backward_seconds,
                evaluations=run.evaluations,
                saved_bytes=run.saved_bytes,
                forward_error=float(gap),
                backward_error=_compute_relative_error(run.gradients, truth.gradients),
                own_error=_compute_relative_error(run.gradients, timed.gradients),
            )
        )
    return tuple(costs)


@dataclass(frozen=True, eq=False)
class _SolverProblem:
    """A flow to solve, and how."""

    field: nn.Module
    h: Tensor
    span: float
    rtol: float
    atol: float
    substeps: int

    def run(self, method: str, h: Tensor, field: Callable[[Tensor], Tensor]) -> Tensor:
        dt = torch.full_like(h[:, :1], self.span)
        if method == "bptt-fixed":
            return integrate(field, h, dt, tableau=RK4, substeps=self.substeps)
        end, _ = integrate_adaptive(
            field,
            h,
            dt,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=100_000,
            adjoint=method == "adjoint",
            parameters=tuple(self.field.parameters()),
        )
        return end


@dataclass(frozen=True, eq=False)
class _SolverRun:
    end: Tensor
    gradients: tuple[Tensor, ...]
    forward_seconds: float
    backward_seconds: float
    evaluations: int
    saved_bytes: int


def _measure_method(
    method: str, solve: _SolverProblem, weights: Tensor, repeats: int
) -> _SolverRun:
    """Solve and differentiate, several times, and keep the best times."""
    calls = 0

    def counted(at: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        rates: Tensor = solve.field(at)
        return rates

    h = solve.h.detach().clone().requires_grad_()
    leaves = (h, *(p for p in solve.field.parameters() if p.requires_grad))
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        start = _get_synchronized_time(h)
        end = solve.run(method, h, solve.field)
        middle = _get_synchronized_time(h)
        torch.autograd.grad((end * weights).sum(), leaves)
        times.append((middle - start, _get_synchronized_time(h) - middle))
    saved = _SavedBytes(leaves)
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        end = solve.run(method, h, counted)
        loss = (end * weights).sum()
    evaluations = calls  # the backward pass of the adjoint method calls the field too
    gradients = torch.autograd.grad(loss, leaves)
    forward, backward = (min(column) for column in zip(*times, strict=True))
    return _SolverRun(end.detach(), gradients, forward, backward, evaluations, saved.total)


class _SavedBytes:
    """Counts the memory that autograd holds, every storage once."""

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        self.known = {leaf.untyped_storage().data_ptr() for leaf in leaves}
        self.total = 0
        # Kept alive, so that no freed storage is met again as another tensor's.
        self.held: list[Tensor] = []

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.known:
            self.known.add(storage.data_ptr())
            self.total += storage.nbytes()
            self.held.append(tensor.detach())
        return tensor.detach()  # itself, a result would hold itself

    def unpack(self, tensor: Tensor) -> Tensor:
        return tensor


def _get_synchronized_time(like: Tensor) -> float:
    if like.device.type == "cuda":
        torch.cuda.synchronize(like.device)
    return time.perf_counter()


def _compute_relative_error(value: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    difference = sum(
        float((a.double() - b.double()).square().sum()) for a, b in zip(value, truth, strict=True)
    )
    size = sum(float(b.double().square().sum()) for b in truth)
    return float((difference / size) ** 0.5) if size else float(difference**0.5)
