"""Hypersolvers: explicit steps with a network that learned what they leave out."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_within
from tauflow.errors import SolverError

from .explicit import EULER, RK4, ButcherTableau, integrate


class Hypersolver(nn.Module):
    r"""An explicit method of order p, and a network g that corrects each step of length e.

    .. math::
        h_{k+1} = h_k + e\, \psi(h_k) + e^{p+1} g(h_k, f(h_k), e)

    where e psi is the step of the method. g is trained on one flow, with :meth:`fit`; if it leaves
    a share delta of the true residual, a step has an error of O(delta e^(p + 1)). A step costs the
    stages of the method and one call of g. Untrained, g is zero and the method is the plain one.

    Source: Poli et al. 2020, "Hypersolvers: toward fast continuous-depth models", Section 3; row
    of Table 1 of Hasani et al. 2022, "Closed-form continuous-time neural networks".

    Differs from the paper: the flow is autonomous, and targets come from a fixed fine grid.

    Args:
        size: components S of the state.
        tableau: the explicit method.
        units: tanh units of each of the two hidden layers of g.
        generator: source of g's initial weights; PyTorch's global one by default.

    Raises:
        ArgumentError: a size is not a positive integer.
    """

    def __init__(
        self,
        size: int,
        *,
        tableau: ButcherTableau = EULER,
        units: int = 64,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_at_least(1, size=size)
        check_at_least(1, units=units)
        self.tableau = tableau
        layers = [nn.Linear(2 * size + 1, units), nn.Linear(units, units), nn.Linear(units, size)]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(layers[-1].weight)
        self.g = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def integrate(
        self,
        field: Callable[[Tensor], Tensor],
        h: Float[Tensor, "B S"],
        dt: Float[Tensor, "B 1"],
        *,
        substeps: int = 1,
    ) -> Float[Tensor, "B S"]:
        """Integrate the autonomous flow ``dh/dt = field(h)`` over ``dt`` in equal sub-steps.

        Args:
            field: the vector field, mapping (B, S) to (B, S).
            h: state at the start.
            dt: length of the time step of each sample, in the unit of the field.
            substeps: number of steps, at least 1.
        """
        step = dt / check_at_least(1, substeps=substeps)
        for _ in range(substeps):
            slope = field(h)
            correction = self.g(torch.cat([h, slope, step.expand(len(h), 1)], dim=-1))
            plain = integrate(_reuse_first(field, slope), h, step, tableau=self.tableau, substeps=1)
            h = plain + step ** (self.tableau.order + 1) * correction
        return h

    def fit(
        self,
        field: Callable[[Tensor], Tensor],
        h: Float[Tensor, "B S"],
        step: float,
        *,
        steps: int = 1000,
        lr: float = 3e-3,
        fine_steps: int = 16,
    ) -> float:
        """Train g on the residuals of single steps from given states; the field stays as it is.

        Args:
            field: the vector field.
            h: states to step from, such as those of trajectories.
            step: length of a step; also half and a quarter of it are trained.
            steps: full-batch steps of Adam, with a rate that falls to zero.
            lr: its first learning rate.
            fine_steps: sub-steps of RK4 that give the target of one step.

        Returns:
            delta, the error that is left in steps of length ``step`` over that of the plain method.

        Raises:
            SolverError: the plain method is exact here but for rounding, so that there is no
                residual to learn, or steps are not finite.
        """
        check_within(1e-12, math.inf, step=step)
        check_at_least(1, steps=steps)
        check_at_least(1, fine_steps=fine_steps)
        start = h.detach().repeat(3, 1)
        gaps = torch.tensor([1.0, 0.5, 0.25], dtype=h.dtype, device=h.device) * step
        dt = gaps.repeat_interleave(len(h)).unsqueeze(-1)
        with torch.no_grad():
            slope = field(start)
            target = integrate(field, start, dt, tableau=RK4, substeps=fine_steps)
            plain = integrate(field, start, dt, tableau=self.tableau, substeps=1)
            residual = (target - plain) / dt ** (self.tableau.order + 1)
        self._check_residual(target, plain, fine_steps)
        scale = float(residual.square().mean())
        inputs = torch.cat([start, slope, dt], dim=-1)
        optimizer = torch.optim.Adam(self.g.parameters(), lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (self.g(inputs) - residual).square().mean() / scale
            loss.backward()
            optimizer.step()
            schedule.step()
        every_row = slice(0, len(h))
        with torch.no_grad():
            left = (self.g(inputs[every_row]) - residual[every_row]).square().mean()
        return float((left / residual[every_row].square().mean()).sqrt())

    def _check_residual(self, target: Tensor, plain: Tensor, fine_steps: int) -> None:
        """Raise :class:`SolverError` if two ends of steps are not finite, or differ by rounding."""
        if not bool(target.isfinite().all() and plain.isfinite().all()):
            raise SolverError(
                "Hypersolver.fit: steps from these states are not finite. Choose a shorter step, "
                "or states where the field is finite."
            )
        rounding = 4 * fine_steps * torch.finfo(target.dtype).eps * target.abs().max()
        if bool((target - plain).abs().max() <= rounding):
            raise SolverError(
                f"Hypersolver.fit: steps of {self.tableau.name} from these states are exact within "
                f"the rounding of {target.dtype}, so that there is nothing to learn. Use the plain "
                "method, longer steps, or double precision."
            )


def _reuse_first(field: Callable[[Tensor], Tensor], slope: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the field, whose first call is answered by what is known already."""
    known = [slope]
    return lambda at: known.pop() if known else field(at)
