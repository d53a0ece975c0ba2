r"""Flows that are linear in the state once their conductances are frozen.

.. math::
    C \dot h = u(h) - g(h)\, h

Both forms of the liquid time-constant network are of this kind, with drive u and decay rate g.
The *fused* solver takes u and g at the old state and the linear h at the new one, which keeps the
state between the old state and the equilibrium u / g for any step size. The *exponential* solver
takes u and g at the old state too, and follows the linear flow that is left exactly:

.. math::
    h' = e^{-r} h + \frac{d}{C} \varphi(r)\, u, \qquad r = d g / C, \quad
    \varphi(r) = (1 - e^{-r}) / r

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Eq. 3 and Algorithm 1; Hochbruck &
Ostermann 2010, "Exponential integrators", for the exponential Euler step.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_one_of
from tauflow.errors import UnknownNameError

from .adaptive import ADAPTIVE_METHODS
from .explicit import TABLEAUS, integrate
from .solver_names import SolverNames

SOLVERS = SolverNames(leading=("fused", "exponential"))
"""Names accepted by :func:`integrate_semilinear`, of tables that are added later too."""


Pair = tuple[Tensor, Tensor]
"""By a name, as the compiler of torch 2.6 reads no such annotation in a function inside another."""


def check_semilinear_solver(solver: str) -> str:
    """Return a name of :data:`SOLVERS`.

    Raises:
        UnknownNameError: no solver has that name; of an adaptive one the error says why.
    """
    if solver in ADAPTIVE_METHODS:
        raise UnknownNameError(
            f"solver={solver!r} is not offered for LTCs: small capacitances make them stiff, so "
            "that explicit steps of adapted length would be too many. Take 'exponential' or "
            "'fused', which are bounded for any time step, with more substeps for more accuracy."
        )
    return check_one_of(SOLVERS, solver=solver)


def integrate_semilinear(
    terms: Callable[[Tensor], Pair],
    h: Float[Tensor, "B S"],
    dt: Float[Tensor, "B 1"],
    *,
    solver: str,
    substeps: int,
    capacity: Float[Tensor, " S"] | float = 1.0,
) -> Float[Tensor, "B S"]:
    """Integrate ``capacity * dh/dt = drive - decay * h`` over ``dt`` in equal sub-steps.

    Args:
        terms: maps a state (B, S) to its drive and decay rate, each (B, S).
        h: state at the start.
        dt: length of the time step of each sample.
        solver: ``"fused"``, ``"exponential"`` or the name of an explicit table.
        substeps: number of steps, at least 1.
        capacity: C, positive.
    """
    delta = dt / substeps
    if solver == "fused":
        for _ in range(substeps):
            constant, decay = terms(h)
            # Multiplied through by delta, so that a time step of zero gives h and not 0 * inf.
            h = (capacity * h + delta * constant) / (capacity + delta * decay)
        return h
    if solver == "exponential":
        for _ in range(substeps):
            constant, decay = terms(h)
            r = delta * decay / capacity
            h = torch.exp(-r) * h + delta / capacity * constant * _relative_expm1(r)
        return h

    def field(at: Tensor) -> Tensor:
        constant, decay = terms(at)
        return (constant - decay * at) / capacity

    return integrate(field, h, dt, tableau=TABLEAUS[solver], substeps=substeps)


def _relative_expm1(r: Tensor) -> Tensor:
    """Return (1 - exp(-r)) / r, which is 1 at r = 0, with a gradient there too."""
    is_zero = r == 0
    moving = torch.where(is_zero, torch.ones_like(r), r)
    return torch.where(is_zero, 1 - r / 2, -torch.expm1(-moving) / moving)
