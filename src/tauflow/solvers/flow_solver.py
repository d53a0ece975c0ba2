"""Integrate a flow over one time step with any solver, by name."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_bool, check_one_of, check_within
from tauflow.errors import ArgumentError

from .adaptive import ADAPTIVE_METHODS, integrate_adaptive
from .explicit import TABLEAUS, integrate
from .solver_names import SolverNames

FLOW_SOLVERS = SolverNames(trailing=ADAPTIVE_METHODS)
"""Names of solvers for any flow: those with fixed steps first, added later or not."""


@dataclass(frozen=True)
class FlowSolver:
    """Solver of a cell over one time step.

    Args:
        solver: one of :data:`FLOW_SOLVERS`.
        substeps: steps per time step, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
        adjoint: whether gradients are found by a backward solve, with an adaptive solver; see
            :func:`~tauflow.solvers.integrate_adaptive`.

    Raises:
        ArgumentError: a value is out of range; UnknownNameError: no such solver.
    """

    solver: str
    substeps: int = 1
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: bool = False

    def __post_init__(self) -> None:
        check_one_of(FLOW_SOLVERS, solver=self.solver)
        check_at_least(1, substeps=self.substeps)
        check_within(0.0, 1.0, rtol=self.rtol)
        check_within(1e-15, math.inf, atol=self.atol)
        if check_bool(adjoint=self.adjoint) and self.has_fixed_steps:
            raise ArgumentError(
                f"adjoint=True needs a solver that chooses its steps, and {self.solver!r} takes "
                f"fixed ones. Take one of: {', '.join(ADAPTIVE_METHODS)}."
            )

    @property
    def has_fixed_steps(self) -> bool:
        """Whether the steps are ``substeps`` equal ones."""
        return self.solver in TABLEAUS

    @property
    def max_stable_dt_rate(self) -> float:
        """The longest dt over which a decay of rate 1 does not grow; infinite if adaptive."""
        return TABLEAUS[self.solver].interval * self.substeps if self.has_fixed_steps else math.inf

    def integrate(
        self,
        field: Callable[[Tensor], Tensor],
        h: Float[Tensor, "B S"],
        dt: Float[Tensor, "B 1"],
        parameters: Sequence[Tensor] = (),
    ) -> Float[Tensor, "B S"]:
        """Integrate the autonomous flow ``dh/dt = field(h)`` over the time step of each sample.

        Args:
            field: the vector field, mapping (B, S) to (B, S), each row to its own.
            h: state at the start.
            dt: length of the time step of each sample.
            parameters: with ``adjoint``, all else that the field depends on.

        Raises:
            SolverError: an adaptive solver did not reach the end of a sample's time step.
        """
        if self.has_fixed_steps:
            return integrate(field, h, dt, tableau=TABLEAUS[self.solver], substeps=self.substeps)
        end, _ = integrate_adaptive(
            field,
            h,
            dt,
            method=self.solver,
            rtol=self.rtol,
            atol=self.atol,
            adjoint=self.adjoint,
            parameters=parameters,
        )
        return end
