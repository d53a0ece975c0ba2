"""Liquid-S4: a diagonal state space layer whose transition the input changes."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_positive
from tauflow.cells.base import DtTensor, InputTensor
from tauflow.cells.diagonal import AbstractDiagonalCell, complex_multiply
from tauflow.cells.init import Generator
from tauflow.errors import ArgumentError


class LiquidS4Cell(AbstractDiagonalCell):
    r"""Liquid structural state-space model: the input enters the transition and the state.

    .. math::
        \dot z = (\Lambda + B u)\, z + B u, \qquad y = 2\, \mathrm{Re}(C z) + D u

    with products of z taken entry by entry, and u held over the time step
    :math:`\Delta = s \odot dt`, whose unit s every state learns. By the bilinear rule

    .. math::
        z' = \frac{1 + \Lambda \Delta / 2}{1 - \Lambda \Delta / 2}\, z + v\, (z + 1), \qquad
        v = \frac{\Delta\, B u}{1 - \Lambda \Delta / 2}

    The output passes the GLU of :class:`~tauflow.cells.LRUCell`, unless ``glu=False``. The state is
    [Re z; Im z; u], (B, 2 N + D). Over a sequence it is one scan, on every backend but
    ``"reference"``. Large inputs over long time steps can make states grow, as nothing bounds v.

    Parameters: 3 N D + 2 N^2 + 3 N, and 2 N^2 + 2 N for the GLU.

    Source: Hasani et al. 2023, "Liquid structural state-space models", Section 3.

    Differs from the paper: it takes the recurrence itself, with the correlations of inputs of every
    order, where the paper's kernel cuts them off at a few; the state matrix is diagonal, without
    the low-rank term, with several inputs to one state space; normalisation and the skip connection
    around the layer are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: complex states N, and outputs.
        step_min: smallest unit s of the time step at the start.
        step_max: largest one.
        glu: whether the output passes a gated linear unit.
    """

    paper: ClassVar[str] = "Hasani et al. 2023, Liquid structural state-space models"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        step_min: float = 0.001,
        step_max: float = 0.1,
        glu: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, glu=glu)
        self.step_min = check_positive(step_min=step_min)
        self.step_max = check_positive(step_max=step_max)
        if step_min > step_max:
            raise ArgumentError(f"step_min={step_min!r} must not be above step_max={step_max!r}.")
        N, D = hidden_size, input_size
        self.log_rate, self.frequency, self.log_step = (
            nn.Parameter(torch.empty(N)) for _ in range(3)
        )
        self.B = nn.Parameter(torch.empty(2 * N, D))
        self.C = nn.Parameter(torch.empty(N, 2 * N))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Set eigenvalues -1/2 + i pi n; draw B and C normal, and steps log-uniform."""
        N = self.hidden_size
        self.log_rate.fill_(math.log(0.5))
        self.frequency.copy_(math.pi * torch.arange(N))
        bounds = math.log(self.step_min), math.log(self.step_max)
        self.log_step.uniform_(*bounds, generator=generator)
        self.B.normal_(0, (2 * self.input_size) ** -0.5, generator=generator)
        self.C.normal_(0, (4 * N) ** -0.5, generator=generator)
        self._reset_readout(generator)

    def coefficients(
        self, x: InputTensor, dt: DtTensor
    ) -> tuple[Float[Tensor, "*batch Z"], Float[Tensor, "*batch Z"]]:
        """Return the transition, which holds the input, and what the input adds."""
        step = torch.exp(self.log_step) * dt
        re, im = -torch.exp(self.log_rate) * step / 2, self.frequency * step / 2
        square = (1 - re) ** 2 + im**2
        inverse = torch.cat([(1 - re) / square, im / square], dim=-1)  # 1 / (1 - Lambda Delta / 2)
        added = complex_multiply(inverse, torch.cat([step, step], dim=-1) * (x @ self.B.T))
        ratio = complex_multiply(inverse, torch.cat([1 + re, im], dim=-1))
        return ratio + added, added

    def output_weight(self) -> Float[Tensor, "N Z"]:
        """Return 2 [Re C, -Im C]."""
        return 2 * self.C
