"""Cover one gap of a flow with any solver there is, by name."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from .adaptive import ADAPTIVE_METHODS, integrate_adaptive
from .explicit import integrate
from .tableau import TABLEAUS

FLOW_SOLVERS: tuple[str, ...] = (*TABLEAUS, *ADAPTIVE_METHODS)
"""Names accepted by :func:`integrate_gap`: those with fixed steps first."""


def integrate_gap(
    field: Callable[[Tensor], Tensor],
    h: Float[Tensor, "B S"],
    dt: Float[Tensor, "B 1"],
    *,
    solver: str,
    substeps: int,
    rtol: float,
    atol: float,
) -> Float[Tensor, "B S"]:
    """Integrate the autonomous flow ``dh/dt = field(h)`` over every sample's own gap.

    Args:
        field: the vector field, mapping (B, S) to (B, S), each row to its own.
        h: state at the start.
        dt: length of the gap of each sample.
        solver: one of :data:`FLOW_SOLVERS`.
        substeps: steps per gap of a solver with fixed steps.
        rtol: relative tolerance of an adaptive solver.
        atol: absolute tolerance of an adaptive solver.

    Raises:
        SolverError: an adaptive solver did not reach the end of a sample's gap.
    """
    if solver in TABLEAUS:
        return integrate(field, h, dt, tableau=TABLEAUS[solver], substeps=substeps)
    return integrate_adaptive(field, h, dt, method=solver, rtol=rtol, atol=atol)[0]
