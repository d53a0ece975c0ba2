"""The one routine that steps every explicit Runge-Kutta table."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from .tableau import ButcherTableau


def integrate(
    field: Callable[[Tensor], Tensor],
    h: Float[Tensor, "B S"],
    dt: Float[Tensor, "B 1"],
    *,
    tableau: ButcherTableau,
    substeps: int,
) -> Float[Tensor, "B S"]:
    """Integrate the autonomous flow ``dh/dt = field(h)`` over ``dt`` in equal sub-steps.

    Args:
        field: the vector field, mapping (B, S) to (B, S).
        h: state at the start.
        dt: length of the gap of each sample, in the unit of the field.
        tableau: the method.
        substeps: number of steps, at least 1.
    """
    delta = dt / substeps
    for _ in range(substeps):
        stages: list[Tensor] = []
        for row in tableau.a:
            at = h
            for weight, stage in zip(row, stages, strict=True):
                if weight:
                    at = at + delta * weight * stage
            stages.append(field(at))
        for weight, stage in zip(tableau.b, stages, strict=True):
            if weight:
                h = h + delta * weight * stage
    return h
