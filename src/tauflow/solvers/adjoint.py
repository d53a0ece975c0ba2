r"""Gradients by solving backwards: memory that does not grow with the number of steps.

.. math::
    \dot h = f(h), \qquad \dot a = -a^\top \partial f / \partial h, \qquad
    dL/d\theta = \int_0^{dt} a^\top \partial f / \partial\theta \; dt'

The pair (h, a) is solved from the end of the time step to its start, sample by sample. The integral
over parameters follows the steps that (h, a) take but does not rule their size (Kidger et al.
2021), so it is summed over the batch as it arises. As a is linear in its end value, that is scaled
to one: the absolute tolerance then means the same whatever the scale of the loss.

Gradients that are to be differentiated themselves (``create_graph=True``) run through the steps of
the solve instead, taken once more: the steps backwards leave no graph.

Source: Chen et al. 2018, "Neural ordinary differential equations", section 2 and appendix B;
Kidger, Chen & Lyons 2021, "Hey, that's not an ODE".
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError

from .torchode_loop import METHODS, Field, SolverSettings, SolverStatistics, solve

Edge = tuple[Any, int]
"""A node of autograd's graph, and the number of one of its outputs."""


class BacksolveAdjoint(torch.autograd.Function):
    """A solve whose backward pass is another solve; gradients for state, dt and parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        field: Field,
        settings: SolverSettings,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, SolverStatistics]:
        """Solve without a graph."""
        end, statistics = solve(field, h, dt, settings)
        ctx.field, ctx.settings = field, settings
        start = h if ctx.needs_input_grad[2] else h.clone()  # the caller's, who may change it
        ctx.save_for_backward(end, start, dt, *parameters)
        return end, statistics

    @staticmethod
    def backward(ctx: Any, grad_end: Tensor, _statistics: None) -> tuple[Tensor | None, ...]:
        """Solve state and adjoint backwards."""
        end, h, gap, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            inputs, needs = (h, gap, *parameters), ctx.needs_input_grad[2:]
            return (
                None,
                None,
                *_differentiate_steps(ctx.field, ctx.settings, inputs, needs, grad_end),
            )
        scale = grad_end.abs().amax(dim=-1, keepdim=True)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        wanted = [p for p, need in zip(parameters, ctx.needs_input_grad[4:], strict=True) if need]
        system = _AdjointSystem(ctx.field, gap, scale, wanted, ctx.settings.method)
        settings = replace(ctx.settings, where=f"{ctx.settings.where} (backward)")
        start, _ = solve(
            system.field,
            torch.cat([end, grad_end / scale], dim=-1),
            gap,
            settings,
            after_step=system.accumulate_gradients,
        )
        grad_h = start[:, end.shape[-1] :] * scale
        # The end moves with the field when the time step grows.
        grad_gap = (grad_end * ctx.field(end)).sum(dim=-1, keepdim=True)
        gradients = iter(system.gradients)
        grads = [next(gradients) if need else None for need in ctx.needs_input_grad[4:]]
        return (None, None, grad_h, grad_gap, *grads)


def _differentiate_steps(
    field: Field,
    settings: SolverSettings,
    inputs: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
    grad_output: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of state, time step and parameters, with their own graph."""
    # Separate nodes, past which nothing is pulled; the field holds the parameters themselves.
    h, gap, *parameters = *(tensor.view_as(tensor) for tensor in inputs[:2]), *inputs[2:]
    end, _ = solve(field, h, gap, settings)
    sources = [
        tensor for tensor, need in zip((h, gap, *parameters), needs_input_grad, strict=True) if need
    ]
    gradients = iter(
        torch.autograd.grad(end, sources, grad_output, create_graph=True, allow_unused=True)
    )
    return [next(gradients) if need else None for need in needs_input_grad]


class _AdjointSystem:
    """The field of (h, a) in reversed time, and the integral over the parameters."""

    def __init__(
        self,
        field: Field,
        gap: Tensor,
        scale: Tensor,
        grad_parameters: Sequence[Tensor],
        method: str,
    ) -> None:
        torchode = require("torchode", extra="ode")
        self.flow, self.gap, self.scale, self.wanted = field, gap, scale, list(grad_parameters)
        self.weights: list[float] = METHODS[method](torchode).tableau.b.tolist()
        self.stages: list[Tensor] = []
        self.gradients = [torch.zeros_like(p) for p in self.wanted]

    def field(self, z: Tensor) -> Tensor:
        """Return the rates of h and a, (B, 2 S), while time runs backwards."""
        self.stages.append(z)
        h, a = z.chunk(2, dim=-1)
        with torch.enable_grad():
            h = h.detach().requires_grad_()
            slope = self.flow(h)
        pulled = _vector_jacobian_product(slope, [h], a)[0]
        return torch.cat([-slope.detach(), torch.zeros_like(a) if pulled is None else pulled], -1)

    def accumulate_gradients(self, start: Tensor, step: Tensor, taken: Tensor) -> None:
        """Add what a step contributes to the parameters' gradients."""
        # The first stage is the state that the step starts from; others may have come before.
        stages = [start, *self.stages[len(self.stages) - len(self.weights) + 1 :]]
        self.stages.clear()
        if not self.wanted:
            return
        length = (step * taken).unsqueeze(-1).to(start.dtype) * self.gap * self.scale
        for weight, stage in zip(self.weights, stages, strict=True):
            if weight:
                h, a = stage.chunk(2, dim=-1)
                with torch.enable_grad():
                    slope = self.flow(h.detach())
                for total, grad in zip(
                    self.gradients,
                    _vector_jacobian_product(slope, self.wanted, weight * length * a),
                    strict=True,
                ):
                    if grad is not None:
                        total += grad


def _vector_jacobian_product(
    slope: Tensor, inputs: list[Tensor], grad_output: Tensor
) -> Sequence[Tensor | None]:
    """Return a cotangent's products with the Jacobians of ``slope``, None where it has none."""
    if not slope.requires_grad:
        return [None] * len(inputs)
    # A parameter may be computed outside the field; that part of the graph serves every stage.
    return torch.autograd.grad(slope, inputs, grad_output, retain_graph=True, allow_unused=True)


@torch.enable_grad()
def check_adjoint_parameters(
    field: Field, h: Tensor, parameters: Sequence[Tensor], where: str
) -> None:
    """Raise unless every tensor that the field depends on and that needs a gradient is listed once.

    The backward solve would leave it without a gradient, or count it twice, and silently.
    """
    slope = field(h.detach())
    listed = {id(p) for p in parameters}
    # By output too: the parts of a split have one node between them.
    computed = {(p.grad_fn, p.output_nr) for p in parameters if p.grad_fn is not None}
    leaves, _ = _find_leaves([(slope.grad_fn, slope.output_nr)], computed)
    missing = [tuple(leaf.shape) for leaf in leaves if id(leaf) not in listed]
    if missing:
        raise ArgumentError(
            f"{where}: the field depends on {len(missing)} tensor(s) that need gradients but are "
            f"not in parameters, of shapes {missing}. With adjoint=True list every such tensor, "
            "e.g. parameters=tuple(module.parameters())."
        )
    leaves, is_reached = _find_leaves(
        [edge for node, _ in computed for edge in node.next_functions], computed
    )
    if is_reached or any(id(leaf) in listed for leaf in leaves):
        raise ArgumentError(
            f"{where}: parameters has a tensor and another one that it was computed from, whose "
            "gradient would count twice. Leave out the computed one."
        )


def _find_leaves(edges: Sequence[Edge], stop: AbstractSet[Edge]) -> tuple[list[Tensor], bool]:
    """Return the leaves that a graph comes from, not past ``stop``, and whether it came there."""
    seen, todo, leaves, is_reached = set(), list(edges), [], False
    while todo:
        edge = todo.pop()
        if edge in stop:
            is_reached = True
            continue
        node = edge[0]
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves.append(leaf)
        todo.extend(node.next_functions)
    return leaves, is_reached
