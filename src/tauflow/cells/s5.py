"""The simplified state space layer S5."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_positive
from tauflow.errors import ArgumentError

from .base import DtTensor, InputTensor
from .diagonal import AbstractDiagonalCell, complex_multiply
from .init import Generator, glorot_truncated_


def hippo_eigenbasis(pairs: int) -> tuple[Tensor, Tensor]:
    r"""Return the normal part of the HiPPO-LegS matrix of order 2 ``pairs``, in its eigenbasis.

    That part is :math:`-\tfrac12 I + K` with :math:`K_{nk} = -\tfrac12 \mathrm{sign}(n - k)
    \sqrt{(2 n + 1)(2 k + 1)}`. Its eigenvalues are conjugate pairs with real part -1/2.

    Args:
        pairs: of eigenvalues.

    Returns:
        The positive imaginary parts of the eigenvalues, (pairs,), and their eigenvectors, complex
        (2 pairs, pairs), with first entries that are real and positive; in double precision.
    """
    n = torch.arange(2 * pairs, dtype=torch.float64, device="cpu")
    root = torch.sqrt(2 * n + 1)
    skew = -0.5 * torch.sign(n[:, None] - n) * root[:, None] * root
    imaginary, vectors = torch.linalg.eigh(-1j * skew)
    imaginary, vectors = imaginary[pairs:], vectors[:, pairs:]
    # Eigenvectors are known up to a phase, which differs between builds of LAPACK.
    return imaginary, vectors * (vectors[0].abs() / vectors[0])


class S5Cell(AbstractDiagonalCell):
    r"""Simplified state space layer: a linear ODE in its eigenbasis, and a gated readout.

    .. math::
        \dot z = \Lambda z + B u, \qquad y = 2\, \mathrm{Re}(C z) + D u

    with u the input, held over the time step (zero-order hold) of
    :math:`\Delta = s \odot dt`, which every state measures in its learned unit:

    .. math::
        z' = e^{\Lambda \Delta} z + \Lambda^{-1} (e^{\Lambda \Delta} - 1) B u

    Of conjugate pairs one is kept, hence the 2. The output is :math:`g \odot \sigma(W g + b)` of
    :math:`g = \mathrm{GELU}(y)`, or y with ``glu=False``. The state is [Re z; Im z; u],
    (B, 2 N + D). Over a sequence it is one scan, on every backend but
    ``"reference"``. The rows of B are those of Re B and Im B, the columns of C those of Re C and
    -Im C.

    Parameters: 3 N D + 2 N^2 + 3 N, and N^2 + N for the GLU.

    Source: Smith et al. 2023, "Simplified state space layers for sequence modeling", Section 3;
    irregular time steps as in its Section 6.3.

    Differs from the released code: one block of HiPPO-N; the real parts of the eigenvalues are
    negative by construction; D is a matrix, as the output has another width than the input, and the
    gate has a bias; normalisation and the skip connection around the layer are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: complex states N, half of the paper's P, and outputs.
        step_min: smallest unit s of the time step at the start.
        step_max: largest one.
        glu: whether the output passes a gated linear unit.
    """

    paper: ClassVar[str] = "Smith et al. 2023, Simplified state space layers"
    gates_are_square = False

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
        """Set the eigenvalues of HiPPO-N; draw B and C in its basis, and steps log-uniform."""
        N = self.hidden_size
        frequencies, vectors = hippo_eigenbasis(N)
        self.log_rate.fill_(math.log(0.5))
        self.frequency.copy_(frequencies)
        bounds = math.log(self.step_min), math.log(self.step_max)
        self.log_step.uniform_(*bounds, generator=generator)
        like, plain = self.B.new_empty, torch.complex128
        drawn = glorot_truncated_(like(2 * N, self.input_size), generator).to("cpu", plain)
        B = vectors.mH @ drawn
        self.B.copy_(torch.cat([B.real, B.imag]))
        parts = (like(N, 2 * N).normal_(0, (4 * N) ** -0.5, generator=generator) for _ in "ri")
        C = torch.complex(*(part.double().cpu() for part in parts)) @ vectors
        self.C.copy_(torch.cat([C.real, -C.imag], dim=1))
        self._reset_readout(generator)

    def coefficients(
        self, x: InputTensor, dt: DtTensor
    ) -> tuple[Float[Tensor, "*batch Z"], Float[Tensor, "*batch Z"]]:
        """Return exp(Lambda Delta), and what a held input adds."""
        rate, step = torch.exp(self.log_rate), torch.exp(self.log_step) * dt
        decay, phase = torch.exp(-rate * step), self.frequency * step
        a_re, a_im = decay * torch.cos(phase), decay * torch.sin(phase)
        # exp - 1 without the cancellation of short steps: cos(p) - 1 = -2 sin(p / 2)^2
        rest = torch.expm1(-rate * step) - 2 * decay * torch.sin(phase / 2) ** 2
        square = rate**2 + self.frequency**2
        inverse = torch.cat([-rate / square, -self.frequency / square], dim=-1)
        input_gain = complex_multiply(torch.cat([rest, a_im], dim=-1), inverse)
        return torch.cat([a_re, a_im], dim=-1), complex_multiply(input_gain, x @ self.B.T)

    def output_weight(self) -> Float[Tensor, "N Z"]:
        """Return 2 [Re C, -Im C]."""
        return 2 * self.C
