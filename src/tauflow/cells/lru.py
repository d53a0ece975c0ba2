"""The linear recurrent unit."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_positive, check_within
from tauflow.errors import ArgumentError

from .base import DtTensor, InputTensor
from .diagonal import AbstractDiagonalCell
from .init import Generator


class LRUCell(AbstractDiagonalCell):
    r"""Linear recurrent unit: a stable complex diagonal recurrence, and a gated readout.

    .. math::
        z' = e^{\lambda\, dt} \odot z + \gamma \odot (B u), \qquad
        \lambda = -e^{\nu} + i e^{\theta}, \qquad y = \mathrm{Re}(C z') + D u

    with u the input, and the output :math:`(V g + c) \odot \sigma(W g + b)` of
    :math:`g = \mathrm{GELU}(y)`, or y with ``glu=False``. The state is [Re z; Im z; u],
    (B, 2 N + D).
    Over a sequence it is one scan, on every backend but ``"reference"``. The rows of B are those of
    Re B and Im B, the columns of C those of Re C and -Im C.

    Parameters: 3 N D + 2 N^2 + 3 N, and 2 N^2 + 2 N for the GLU.

    Source: Orvieto et al. 2023, "Resurrecting recurrent neural networks for long sequences",
    Section 3 and Appendix A; the GLU is that of its block.

    Differs from the paper: the eigenvalues depend on the time step, which is 1 there; D is a
    matrix, as the output has another width than the input; normalisation and the skip connection
    around the block are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: complex states N, and outputs.
        r_min: smallest modulus of an eigenvalue at the start.
        r_max: largest one.
        max_phase: largest phase of an eigenvalue at the start, in radians per unit of ``dt``.
        glu: whether the output passes a gated linear unit.
    """

    paper: ClassVar[str] = "Orvieto et al. 2023, Resurrecting recurrent neural networks"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
        glu: bool = True,
    ) -> None:
        super().__init__(input_size, hidden_size, glu=glu)
        self.r_min = check_within(0.0, 1.0, r_min=r_min)
        self.r_max = check_within(0.0, 1.0, r_max=r_max)
        if not r_min < r_max:
            raise ArgumentError(f"r_min={r_min!r} must be below r_max={r_max!r}.")
        self.max_phase = check_positive(max_phase=max_phase)
        N, D = hidden_size, input_size
        self.nu, self.theta, self.log_gamma = (nn.Parameter(torch.empty(N)) for _ in range(3))
        self.B = nn.Parameter(torch.empty(2 * N, D))
        self.C = nn.Parameter(torch.empty(N, 2 * N))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw eigenvalues uniform on the ring, B and C normal, gamma = sqrt(1 - abs(lambda)^2)."""
        low, high = self.r_min**2, self.r_max**2
        squares = torch.rand_like(self.nu).uniform_(low, high, generator=generator)
        squares.clamp_(1e-6, 1 - 1e-6)  # a draw of 0 or 1 would make nu infinite
        torch.log(-0.5 * torch.log(squares), out=self.nu.data)
        self.log_gamma.copy_(0.5 * torch.log1p(-squares))
        phases = torch.rand_like(self.theta).uniform_(0, self.max_phase, generator=generator)
        self.theta.copy_(torch.log(phases.clamp_(min=1e-6)))
        self.B.normal_(0, (2 * self.input_size) ** -0.5, generator=generator)
        self.C.normal_(0, self.hidden_size**-0.5, generator=generator)
        self._reset_readout(generator)

    def coefficients(
        self, x: InputTensor, dt: DtTensor
    ) -> tuple[Float[Tensor, "*batch Z"], Float[Tensor, "*batch Z"]]:
        """Return the powers of the eigenvalues, and the scaled inputs."""
        decay, phase = torch.exp(-torch.exp(self.nu) * dt), torch.exp(self.theta) * dt
        a = torch.cat([decay * torch.cos(phase), decay * torch.sin(phase)], dim=-1)
        return a, (x @ self.B.T) * torch.exp(self.log_gamma).repeat(2)

    def output_weight(self) -> Float[Tensor, "N Z"]:
        """Return [Re C, -Im C]."""
        return self.C
