"""Damped Newton's method from many starts at once, with Levenberg-Marquardt as a fallback.

Sources: Nocedal & Wright 2006, "Numerical optimization", Sections 10.3 and 11.2, for the methods;
Fan & Yuan 2005, "On the quadratic convergence of the Levenberg-Marquardt method without
nonsingularity assumption", for its use where solutions form a continuum.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .flow import Flow

_MAX_HALVINGS = 8  # of a Newton step, before the fallback
_MAX_DAMPING_INCREASES = 10  # of the fallback's damping, each four times the one before
_SUFFICIENT_DECREASE = 1e-4  # share of the predicted decrease that a step must bring (Armijo)


@dataclass(frozen=True)
class Roots:
    """Results of the searches from a set of starts.

    Args:
        states: the last iterate of each start.
        residuals: its speed.
        converged: whether the speed came below the tolerance.
        iterations: Jacobians that were computed on the way.
    """

    states: Float[Tensor, "B S"]
    residuals: Float[Tensor, " B"]
    converged: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]


@torch.no_grad()
def find_roots(
    flow: Flow, starts: Float[Tensor, "B S"], *, tolerance: float, max_iterations: int
) -> Roots:
    """Search for a state with zero velocity from each start.

    A Newton step is halved until the speed falls enough. Where that does not help, or where the
    Jacobian is singular (as it is on a continuum of fixed points, along which a Newton step would
    be noise), the step of least squares takes over, damped as much as it needs. A start stops when
    its speed is below the tolerance, when no step lowers it, or after the last iteration.

    Args:
        flow: the system.
        starts: where to start.
        tolerance: speed at which to stop.
        max_iterations: most Jacobians for each start.
    """
    search = _NewtonSearch(flow, starts)
    rows = flow.chunk_rows(starts.shape[-1])
    for _ in range(max_iterations):
        left = ((search.residuals > tolerance) & ~search.is_stuck).nonzero().squeeze(-1)
        if not len(left):
            break
        for part in left.split(rows):
            search.iterate(part)
    return Roots(search.h, search.residuals, search.residuals <= tolerance, search.iterations)


class _NewtonSearch:
    """The searches under way."""

    def __init__(self, flow: Flow, starts: Tensor) -> None:
        self.flow, self.h = flow, starts.clone()
        self.residuals = flow.speed(starts)
        self.is_stuck = ~self.residuals.isfinite()
        self.iterations = torch.zeros_like(self.residuals, dtype=torch.long)
        self.damping = torch.zeros_like(self.residuals)  # of the fallback, kept between iterations

    def iterate(self, rows: Tensor) -> None:
        """Take one step from some of the states."""
        velocity, jacobian = self.flow.linearise(self.h[rows])
        self.iterations[rows] += 1
        direction, usable = _compute_newton_direction(velocity, jacobian)
        done = self._line_search(rows, direction, usable)
        failed = (~done).nonzero().squeeze(-1)
        if len(failed):
            self._least_squares(rows[failed], velocity[failed], jacobian[failed])

    def _line_search(self, rows: Tensor, direction: Tensor, usable: Tensor) -> Tensor:
        """Halve each usable step until the speed falls enough; return where it did."""
        done = torch.zeros_like(usable)
        pending = usable.nonzero().squeeze(-1)
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            if not len(pending):
                break
            trial = self.h[rows[pending]] + share * direction[pending]
            better = self._accept(rows[pending], trial, 1 - _SUFFICIENT_DECREASE * share)
            done[pending[better]] = True
            pending = pending[~better]
            share /= 2
        return done

    def _least_squares(self, rows: Tensor, velocity: Tensor, jacobian: Tensor) -> None:
        """Take a step of Levenberg and Marquardt, or give the start up."""
        gram = jacobian.mT @ jacobian
        slope = jacobian.mT @ velocity.unsqueeze(-1)
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        scale = diagonal.mean(dim=-1)
        previous = self.damping[rows]
        damping = previous.where(previous > 0, 1e-3 * scale)
        unit = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        pending = torch.arange(len(rows), device=rows.device)
        for _ in range(_MAX_DAMPING_INCREASES):
            if not len(pending):
                break
            damped = gram[pending] + damping[pending, None, None] * unit
            step, _ = torch.linalg.solve_ex(damped, slope[pending])
            trial = self.h[rows[pending]] - step.squeeze(-1)
            better = self._accept(rows[pending], trial, 1.0)
            pending = pending[~better]
            damping[pending] *= 4
        floor = torch.finfo(gram.dtype).eps * scale
        self.damping[rows] = torch.maximum(damping / 10, floor)
        self.is_stuck[rows[pending]] = True

    def _accept(self, rows: Tensor, trial: Tensor, below: float) -> Tensor:
        """Move to the trial states that are slower than ``below`` times before; say which."""
        speed = self.flow.speed(trial)
        better = speed < below * self.residuals[rows]  # false for NaN
        self.h[rows[better]] = trial[better]
        self.residuals[rows[better]] = speed[better]
        return better


def _compute_newton_direction(velocity: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Newton steps, and where the Jacobian is regular enough to trust them."""
    factors, pivots, info = torch.linalg.lu_factor_ex(jacobian)
    sizes = factors.diagonal(dim1=-2, dim2=-1).abs()
    smallest = torch.finfo(jacobian.dtype).eps ** 0.75  # pivots below it are rounding
    usable = (info == 0) & (sizes.amin(dim=-1) > smallest * sizes.amax(dim=-1))
    direction = torch.linalg.lu_solve(factors, pivots, -velocity.unsqueeze(-1)).squeeze(-1)
    return direction, usable & direction.isfinite().all(dim=-1)
