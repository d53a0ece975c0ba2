"""The linear oscillatory state-space cell LinOSS."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.cells.base import DtTensor, InputTensor
from tauflow.cells.diagonal import AbstractDiagonalCell
from tauflow.cells.init import Generator, inverse_softplus_, torch_uniform_


class LinOSSCell(AbstractDiagonalCell):
    r"""Linear oscillatory state-space cell: forced harmonic oscillators, and a gated readout.

    .. math::
        \dot v = -\omega^2 y + B u, \qquad \dot y = v, \qquad o = C y + D u

    with u the input, stepped by implicit Euler over :math:`\Delta = \sigma(s) \odot dt`, which
    every oscillator measures in its learned unit (LinOSS-IM). In the complex state
    :math:`z = v + i \omega y` that step is diagonal, whatever the time step:

    .. math::
        z' = \frac{z + \Delta B u}{1 - i \omega \Delta}

    The output is :math:`(V g + c) \odot \sigma(W g + b)` of :math:`g = \mathrm{GELU}(o)`, or o with
    ``glu=False``. The state is [v; omega y; u], (B, 2 N + D).
    Over a sequence it is one scan, on every backend but ``"reference"``.

    Parameters: 2 N D + N^2 + 2 N, and 2 N^2 + 2 N for the GLU.

    Source: Rusch & Rus 2025, "Oscillatory state-space models", the implicit form LinOSS-IM of its
    Section 2; the GLU is that of its block.

    Differs from the paper: the squared frequency is positive through a softplus, where the paper
    takes a ReLU; the time step multiplies the learned one; D is a matrix, as the output has another
    width than the input; normalisation and the skip connection around the block are the caller's.
    The implicit-explicit form, LinOSS-IMEX, has no diagonal form where time steps vary, and is not
    offered.

    Args:
        input_size: features D per time point.
        hidden_size: oscillators N, and outputs.
        glu: whether the output passes a gated linear unit.
    """

    paper: ClassVar[str] = "Rusch & Rus 2025, Oscillatory state-space models"
    state_part_names = ("v", "omega_y")

    def __init__(self, input_size: int, hidden_size: int, *, glu: bool = True) -> None:
        super().__init__(input_size, hidden_size, glu=glu)
        N = hidden_size
        self.raw_A, self.s = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.B = nn.Parameter(torch.empty(N, input_size))
        self.C = nn.Parameter(torch.empty(N, N))
        self.reset_parameters()

    @property
    def omega(self) -> Float[Tensor, " N"]:
        """Frequencies of the oscillators, in radians per learned unit of time."""
        return torch.sqrt(F.softplus(self.raw_A))

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw omega^2 and s from U(0, 1), as the released code, and B and C as dense layers."""
        self.raw_A.uniform_(0.0, 1.0, generator=generator).clamp_(min=1e-3)
        inverse_softplus_(self.raw_A)
        self.s.uniform_(0.0, 1.0, generator=generator)
        torch_uniform_(self.B, self.input_size, generator)
        torch_uniform_(self.C, self.hidden_size, generator)
        self._reset_readout(generator)

    def coefficients(
        self, x: InputTensor, dt: DtTensor
    ) -> tuple[Float[Tensor, "*batch Z"], Float[Tensor, "*batch Z"]]:
        """Return 1 / (1 - i omega Delta), and its product with what the input adds."""
        step = torch.sigmoid(self.s) * dt
        angle = self.omega * step
        a_re = 1 / (1 + angle * angle)
        a = torch.cat([a_re, angle * a_re], dim=-1)
        force = step * (x @ self.B.T)
        return a, a * torch.cat([force, force], dim=-1)

    def output_weight(self) -> Float[Tensor, "N Z"]:
        """Return [0, C / omega]."""
        return torch.cat([torch.zeros_like(self.C), self.C / self.omega], dim=1)
