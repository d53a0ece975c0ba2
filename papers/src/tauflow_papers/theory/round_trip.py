r"""Solve a flow forwards, then backwards from the final state.

The adjoint method needs the states of the forward pass again, and finds them by solving backwards
in time. Every step has a local truncation error, forwards and backwards, so that the backward pass
is another one than the forward pass.

Sources: Hasani et al. 2020, first draft of "Liquid Time-constant Networks", Figure 2; Lechner &
Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series", Figure 2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_positive
from tauflow.solvers import RK4, TABLEAUS, integrate

_NUM_REFERENCE_SUBSTEPS = 200  # RK4 steps for each step that is judged


@dataclass(frozen=True, eq=False)
class RoundTrip:
    """Forward solution, backward solution, and exact solution.

    Args:
        t: times of the steps.
        truth: the flow from the start.
        forward: what the solver found.
        oracle: where the flow takes each state that the solver found within the next step; what it
            misses from the solver's next state is the local truncation error.
        backward: the solver's backward pass from its own end, at the same times.
    """

    t: Float[Tensor, " P"]
    truth: Float[Tensor, "B P S"]
    forward: Float[Tensor, "B P S"]
    oracle: Float[Tensor, "B Q S"]
    backward: Float[Tensor, "B P S"]

    @property
    def forward_error(self) -> Float[Tensor, " P"]:
        """Root mean square distance of the forward pass from the truth."""
        return _compute_distance(self.forward, self.truth)

    @property
    def local_error(self) -> Float[Tensor, " Q"]:
        """Root mean square local truncation error of each step."""
        return _compute_distance(self.forward[:, 1:], self.oracle)

    @property
    def backward_error(self) -> Float[Tensor, " P"]:
        """Root mean square distance of the backward pass from the forward pass."""
        return _compute_distance(self.backward, self.forward)


@torch.no_grad()
def round_trip(
    field: Callable[[Tensor], Tensor],
    h: Float[Tensor, "B S"],
    span: float,
    *,
    steps: int = 20,
    solver: str = "heun",
) -> RoundTrip:
    """Solve a flow there and back again with steps of one length.

    Args:
        field: maps states (B, S) to rates.
        h: states at the start.
        span: time to the end.
        steps: there, and as many back.
        solver: name of a fixed-step solver of :data:`tauflow.solvers.TABLEAUS`.
    """
    tableau = TABLEAUS[check_one_of(TABLEAUS, solver=solver)]
    dt = torch.full_like(h[:, :1], check_positive(span=span) / check_at_least(1, steps=steps))

    def reversed_field(state: Tensor) -> Tensor:
        return -field(state)

    truth, forward, oracle = [h], [h], []
    for _ in range(steps):
        truth.append(integrate(field, truth[-1], dt, tableau=RK4, substeps=_NUM_REFERENCE_SUBSTEPS))
        oracle.append(
            integrate(field, forward[-1], dt, tableau=RK4, substeps=_NUM_REFERENCE_SUBSTEPS)
        )
        forward.append(integrate(field, forward[-1], dt, tableau=tableau, substeps=1))
    backward = [forward[-1]]
    for _ in range(steps):
        backward.append(integrate(reversed_field, backward[-1], dt, tableau=tableau, substeps=1))
    return RoundTrip(
        torch.linspace(0, span, steps + 1, dtype=h.dtype),
        torch.stack(truth, dim=1),
        torch.stack(forward, dim=1),
        torch.stack(oracle, dim=1),
        torch.stack(backward[::-1], dim=1),
    )


def _compute_distance(states: Tensor, other: Tensor) -> Tensor:
    return (states - other).square().sum(dim=-1).mean(dim=0).sqrt()
