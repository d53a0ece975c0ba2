"""Explicit Runge-Kutta methods as Butcher tableaus."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_positive
from tauflow._internal.registry import Registry, make_entry_check
from tauflow.errors import ArgumentError


@dataclass(frozen=True)
class ButcherTableau:
    """An explicit Runge-Kutta method.

    Args:
        name: what users call it.
        order: order of the global error.
        a: one row per stage, row i holding its i weights of the earlier stages.
        b: weights of the stages in the step.
        interval: length of the real interval of stability: a decay of rate r dies out in steps of
            up to ``interval / r``, and grows without limit in longer ones.
        source: where the coefficients are published.
    """

    name: str
    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    interval: float
    source: str

    def __post_init__(self) -> None:
        if [len(row) for row in self.a] != list(range(len(self.b))):
            raise ArgumentError(
                f"{self.name}: row i of a must hold i weights, one row per entry of b."
            )
        check_positive(interval=self.interval)
        if not math.isclose(sum(self.b), 1.0, abs_tol=1e-12):
            raise ArgumentError(f"{self.name}: b sums to {sum(self.b)}, expected 1.")


_HAIRER = "Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.1"

EULER = ButcherTableau("euler", 1, ((),), (1.0,), 2.0, _HAIRER)
"""Explicit Euler method, of order 1."""
MIDPOINT = ButcherTableau("midpoint", 2, ((), (1 / 2,)), (0.0, 1.0), 2.0, _HAIRER)
"""Midpoint method, of order 2."""
HEUN = ButcherTableau("heun", 2, ((), (1.0,)), (1 / 2, 1 / 2), 2.0, _HAIRER)
"""Heun's method, of order 2."""
RK4 = ButcherTableau(
    "rk4",
    4,
    ((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    2.785293563405282,
    _HAIRER,
)
"""Classical Runge-Kutta method, of order 4."""

TABLEAUS: Registry[ButcherTableau] = Registry(
    "explicit solver",
    {table.name: table for table in (EULER, MIDPOINT, HEUN, RK4)},
    plugins=False,
)
"""Explicit methods by name. One of your own is added by ``TABLEAUS.add(table.name, table)``, under
a name that no other solver has; cells with an option ``solver`` then take it."""
TABLEAUS.add_check(make_entry_check(ButcherTableau))


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
        dt: length of the time step of each sample, in the unit of the field.
        tableau: the method.
        substeps: number of steps, at least 1.
    """
    delta = dt / substeps
    for _ in range(substeps):
        stages: list[Tensor] = []
        for row in tableau.a:
            state = h
            for weight, stage in zip(row, stages, strict=True):
                if weight:
                    state = state + delta * weight * stage
            stages.append(field(state))
        for weight, stage in zip(tableau.b, stages, strict=True):
            if weight:
                h = h + delta * weight * stage
    return h
