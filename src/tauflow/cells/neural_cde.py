"""The neural controlled differential equation, driven by a spline that never looks ahead."""

from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least
from tauflow.solvers import FlowSolver

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, torch_uniform_


class NeuralCDECell(AbstractCell):
    r"""Neural controlled differential equation: the state follows a path through the samples.

    .. math::
        dz = f(z)\, dX, \qquad X(t) = (t, x(t)), \qquad z(t_0) = W_0 x_0 + b_0

    where f is an MLP of ``layers`` + 1 layers whose output, after tanh, is a matrix (N, D + 1),
    and x(t) a cubic Hermite spline with backward differences: over the time step :math:`dt` that
    ends at sample k, with u from 0 to 1,

    .. math::
        \frac{dx}{du} = s_{k-1}\, dt + (x_k - x_{k-1} - s_{k-1}\, dt)(4 u - 3 u^2), \qquad
        s_k = \frac{x_k - x_{k-1}}{dt}

    so that the path up to a sample depends on that sample and earlier ones alone; the first piece
    is linear. A time step of 0 takes the jump in a straight line, and leaves the slope s as it is.
    Solvers go through each piece in ``substeps`` equal steps, or adaptively. Of those with fixed
    steps rk4 alone integrates dx/du exactly.

    The first sample sets the state, whatever its time step. The state is [z; x; s; n], with the
    last sample, its slope and the number of samples so far, up to 2, (B, N + 2 D + 1).

    With U = ``units`` and L = ``layers``: N D + N, N U + U + (L - 1) (U^2 + U) and
    (U + 1) N (D + 1) parameters.

    Source: Kidger et al. 2020, "Neural controlled differential equations for irregular time
    series", Section 3; the path of Morrill et al. 2021, "Neural controlled differential equations
    for online prediction tasks", its cubic Hermite splines with backward differences.

    Differs from the papers: what is emitted at a sample is the state itself; missing features are
    filled in before; the time step of two samples may be 0.

    Args:
        input_size: features D per time point.
        hidden_size: width N of z.
        units: width U of the hidden layers of f, with ReLU.
        layers: hidden layers L of f.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"dopri5"`` (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
    """

    paper: ClassVar[str] = "Kidger et al. 2020, Neural controlled differential equations"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        units: int = 64,
        layers: int = 1,
        solver: str = "midpoint",
        substeps: int = 1,
        rtol: float = 1e-3,
        atol: float = 1e-4,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.units = check_at_least(1, units=units)
        self.layers = check_at_least(1, layers=layers)
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol)
        N, channels = hidden_size, input_size + 1
        self.W_0 = nn.Parameter(torch.empty(N, input_size))
        self.b_0 = nn.Parameter(torch.empty(N))
        widths = [N, *repeat_counted(units, layers), N * channels]
        parts: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            parts += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.field = nn.Sequential(*parts[:-1])
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every layer as ``torch.nn.Linear`` does, which the papers' code leaves to it."""
        torch_uniform_(self.W_0, self.input_size, generator)
        torch_uniform_(self.b_0, self.input_size, generator)
        for layer in self.field:
            if isinstance(layer, nn.Linear):
                torch_uniform_(layer.weight, layer.in_features, generator)
                torch_uniform_(layer.bias, layer.in_features, generator)

    @property
    def state_parts(self) -> dict[str, int]:
        """The state z, the last sample, its slope, and how many samples there have been."""
        D = self.input_size
        return {"z": self.hidden_size, "x_last": D, "slope": D, "seen": 1}

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the samples, what the first of them would set, and time steps."""
        return Precomputed((x, F.linear(x, self.W_0, self.b_0), dt))

    def update(
        self,
        h: StateTensor,
        x: Float[Tensor, "B I"],
        z_first: Float[Tensor, "B N"],
        dt: Float[Tensor, "B 1"],
    ) -> StateTensor:
        """Return [z; x; s; n] after the piece of the path that ends at the sample."""
        N, D = self.hidden_size, self.input_size
        z, x_last, slope, count = h.split([N, D, D, 1], dim=-1)
        change = x - x_last
        moves = dt > 0
        straight = torch.where((count > 1.5) & moves, dt * slope, change)
        bend = change - straight

        def velocity(at: Tensor) -> Tensor:
            z, u = at.split([N, 1], dim=-1)
            control = torch.cat([dt, straight + bend * (u * (4 - 3 * u))], dim=-1)
            matrix = torch.tanh(self.field(z)).unflatten(-1, (N, D + 1))
            return torch.cat([(matrix * control.unsqueeze(-2)).sum(-1), torch.ones_like(u)], dim=-1)

        start = torch.cat([z, torch.zeros_like(dt)], dim=-1)
        end = self.flow_solver.integrate(velocity, start, torch.ones_like(dt))
        is_later = count > 0.5
        quotient = change / torch.where(moves, dt, torch.ones_like(dt))
        slope = torch.where(is_later & moves, quotient, slope)
        z = torch.where(is_later, end[..., :N], z_first)
        return torch.cat([z, x, slope, (count + 1).clamp(max=2.0)], dim=-1)
