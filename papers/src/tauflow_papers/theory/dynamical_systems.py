"""Dynamical systems with known equations, to be approximated by networks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_positive, shape_error
from tauflow._internal.registry import Registry
from tauflow.solvers import RK4, integrate

_STEPS_PER_POINT = 20


@dataclass(frozen=True)
class DynamicalSystem:
    """An autonomous ODE with the region and the duration that are studied.

    Args:
        name: catalog name.
        title: name in pictures.
        field: maps states (B, n) to their rates.
        low: lower corner of the box of initial values.
        high: upper corner.
        span: time of a trajectory.
        axes: the two components that a picture shows.
        source: where it is published.
    """

    name: str
    title: str
    field: Callable[[Tensor], Tensor]
    low: tuple[float, ...]
    high: tuple[float, ...]
    span: float
    axes: tuple[int, int]
    source: str

    def initial_values(self, count: int, generator: torch.Generator) -> Float[Tensor, "B n"]:
        """Draw initial values evenly from the box, in float64."""
        low, high = (torch.tensor(corner, dtype=torch.float64) for corner in (self.low, self.high))
        drawn = torch.rand(count, len(low), generator=generator, dtype=torch.float64)
        return low + (high - low) * drawn

    def trajectories(
        self, start: Float[Tensor, "B n"], points: int, *, span: float | None = None
    ) -> tuple[Float[Tensor, " P"], Float[Tensor, "B P n"]]:
        """Integrate from initial values and return evenly spaced times and states.

        Args:
            start: initial values, float64.
            points: points per trajectory, the initial one included.
            span: time of the last point; by default that of the system.
        """
        if start.ndim != 2 or start.shape[1] != len(self.low):
            raise shape_error(
                f"{self.name}.trajectories", "start", start, f"(B, {len(self.low)})", "Rows."
            )
        span = check_positive(span=self.span if span is None else span)
        gap = torch.full_like(start[:, :1], span / (check_at_least(2, points=points) - 1))
        states = [start]
        for _ in range(points - 1):
            after = integrate(self.field, states[-1], gap, tableau=RK4, substeps=_STEPS_PER_POINT)
            states.append(after)
        return torch.linspace(0, span, points, dtype=start.dtype), torch.stack(states, dim=1)


def _lorenz(x: Tensor) -> Tensor:
    a, b, c = x.unbind(dim=-1)
    return torch.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], dim=-1)


def _van_der_pol(x: Tensor) -> Tensor:
    a, b = x.unbind(dim=-1)
    return torch.stack([b, (1 - a * a) * b - a], dim=-1)


def _lotka_volterra(x: Tensor) -> Tensor:
    prey, predators = x.unbind(dim=-1)
    eaten = prey * predators
    return torch.stack([2 / 3 * prey - 4 / 3 * eaten, eaten - predators], dim=-1)


SYSTEMS: Registry[DynamicalSystem] = Registry(
    "dynamical system",
    {
        system.name: system
        for system in (
            DynamicalSystem(
                name="lorenz",
                title="Lorenz",
                field=_lorenz,
                low=(-10.0, -10.0, 15.0),
                high=(10.0, 10.0, 35.0),
                span=1.0,  # about one turn: long before chaos makes it unpredictable
                axes=(0, 2),
                source="Lorenz 1963, Deterministic nonperiodic flow; sigma 10, rho 28, beta 8/3",
            ),
            DynamicalSystem(
                name="van-der-pol",
                title="van der Pol",
                field=_van_der_pol,
                low=(-2.0, -2.0),
                high=(2.0, 2.0),
                span=8.0,
                axes=(0, 1),
                source="van der Pol 1926, On relaxation-oscillations; mu 1",
            ),
            DynamicalSystem(
                name="lotka-volterra",
                title="Lotka-Volterra",
                field=_lotka_volterra,
                low=(0.5, 0.3),
                high=(1.5, 1.0),
                span=12.0,
                axes=(0, 1),
                source="Lotka 1925, Elements of physical biology; rates 2/3, 4/3, 1, 1",
            ),
        )
    },
)
"""Dynamical systems that networks are trained to approximate, by name."""
