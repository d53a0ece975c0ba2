r"""Flows that are linear in the state once their conductances are frozen.

.. math::
    C \dot h = u(h) - g(h)\, h

Both forms of the liquid time-constant network are of this kind, with drive u and decay rate g.
The *fused* solver takes u and g at the old state and the linear h at the new one, which keeps the
state between the old state and the equilibrium u / g for any step size.

Source: Hasani et al. 2021, "Liquid Time-constant Networks", Eq. 3 and Algorithm 1.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from .explicit import integrate
from .tableau import TABLEAUS

SOLVERS: tuple[str, ...] = ("fused", *TABLEAUS)
"""Names accepted by :func:`integrate_semilinear`."""


def integrate_semilinear(
    terms: Callable[[Tensor], tuple[Tensor, Tensor]],
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
        dt: length of the gap of each sample.
        solver: ``"fused"`` or the name of an explicit table.
        substeps: number of steps, at least 1.
        capacity: C, positive.
    """
    if solver == "fused":
        delta = dt / substeps
        for _ in range(substeps):
            drive, decay = terms(h)
            # Multiplied through by delta, so that a gap of zero gives h and not 0 * inf.
            h = (capacity * h + delta * drive) / (capacity + delta * decay)
        return h

    def field(at: Tensor) -> Tensor:
        drive, decay = terms(at)
        return (drive - decay * at) / capacity

    return integrate(field, h, dt, tableau=TABLEAUS[solver], substeps=substeps)
