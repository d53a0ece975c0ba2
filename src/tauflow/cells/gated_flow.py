"""Flows that relax to a target at a gated rate, and what the cells made of them share."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_one_of, check_within
from tauflow.solvers import FlowSolver

from .base import AbstractCell, StateTensor
from .init import Generator
from .initial_state import InitialState
from .weight_schemes import SCHEMES, init_bias_, init_weight_

GateAndField = tuple[Tensor | None, Tensor]
Terms = Callable[[Tensor], GateAndField]


class AbstractGatedFlowCell(AbstractCell):
    """Base of the cells that step a gated flow by dt / tau.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        tau: time constant, in the unit of ``dt``.
        substeps: solver steps per sample.
        initial_state: ``"zeros"``, ``"affine"``, ``"learned"`` or ``"fixed"``.
        init: one of ``schemes``.
        schemes: schemes of random weights that the cell knows.
    """

    is_flow = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        tau: float,
        substeps: int,
        initial_state: str,
        init: str,
        schemes: tuple[str, ...] = SCHEMES,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.tau = float(check_within(1e-12, float("inf"), tau=tau))
        self.substeps = check_at_least(1, substeps=substeps)
        self.init = check_one_of(schemes, init=init)
        self.flow_solver = FlowSolver("euler", substeps)
        self.start = InitialState(initial_state, input_size, self.state_size, hidden_size)

    def max_stable_dt(self) -> float:
        """Return what an open gate allows: the steps' limit, in time constants, times tau."""
        return self.flow_solver.max_stable_dt_rate * self.tau

    def initial_state(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return the state before the first input ``x``."""
        return self.start(x)  # type: ignore[no-any-return]


class AbstractPackedFlowCell(AbstractGatedFlowCell):
    """Base of those whose gates are packed in one weight for the input and one for the state.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        **flow: options of :class:`AbstractGatedFlowCell`.
    """

    gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, **flow: Any) -> None:
        super().__init__(input_size, hidden_size, **flow)
        rows = self.gates * hidden_size
        self.W_x = nn.Parameter(torch.empty(rows, input_size))
        self.W_h = nn.Parameter(torch.empty(rows, hidden_size))
        self.b = nn.Parameter(torch.empty(rows))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw each block as ``init`` says, with its own fans, and biases from N(0, 1e-6)."""
        for weight in (self.W_x, self.W_h):
            init_weight_(weight, self.init, generator, rows=[self.hidden_size] * self.gates)
        init_bias_(self.b, generator)
        self.start.reset_parameters(self.init, generator)


def integrate_gated_flow(terms: Terms, h: Tensor, dt: Tensor, solver: FlowSolver) -> Tensor:
    r"""Integrate :math:`\dot h = z(h) \odot (F(h) - h)` over a time step.

    Args:
        terms: maps a state (B, S) to z, or ``None`` for 1, and F.
        h: state at the start, (B, S).
        dt: (B, 1), in time constants.
        solver: the method.
    """
    if solver.solver != "euler":

        def field(h: Tensor) -> Tensor:
            z, target = terms(h)
            return target - h if z is None else z * (target - h)

        return solver.integrate(field, h, dt)
    alpha = dt / solver.substeps if solver.substeps > 1 else dt
    for _ in range(solver.substeps):
        z, target = terms(h)
        h = lerp(h, target, alpha if z is None else alpha * z)
    return h


def lerp(h: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return ``h + weight * (target - h)``, in one operation and exact at weights 0 and 1."""
    # autocast leaves the parts in different types, which lerp does not take
    return torch.lerp(h, target.to(h.dtype), weight.to(h.dtype))
