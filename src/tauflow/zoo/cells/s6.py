"""The selective state space layer S6, which Mamba is made of."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.cells.base import DtTensor, InputTensor, Precomputed
from tauflow.cells.diagonal import AbstractScanCell
from tauflow.cells.init import Generator, inverse_softplus_, torch_uniform_
from tauflow.errors import ArgumentError


class S6Cell(AbstractScanCell):
    r"""Selective state space layer: each channel is a linear ODE whose rates the input chooses.

    With the channels :math:`u = W x`, which are held over the time step, and for each of them n
    states:

    .. math::
        \Delta = \mathrm{softplus}(W_2 W_1 u + b_\Delta)\, dt, \qquad
        B = W_B u, \qquad C = W_C u

    .. math::
        z_{cj}' = e^{A_{cj} \Delta_c} z_{cj} + \frac{e^{A_{cj} \Delta_c} - 1}{A_{cj}} B_j u_c,
        \qquad y_c = \sum_j C_j z_{cj} + D_c u_c

    where A is negative. The state is [z; C; u], (B, N n + n + N): C and u are those of the last
    sample. Over a sequence it is one scan, on every backend but ``"reference"``.

    Source: Gu & Dao 2024, "Mamba: linear-time sequence modeling with selective state spaces",
    Algorithm 2 with the zero-order hold of its Eq. 4.

    Differs from the paper: the step of the ODE is the learnt one times ``dt``, which is 1 there;
    the released code adds Delta B u, which is the hold for small steps. The projection to channels
    is part of the cell; convolution, gate and normalisation of the block are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: channels N.
        order: states n of each channel.
        step_min: smallest step Delta at the start, for ``dt`` = 1.
        step_max: largest one.
    """

    paper: ClassVar[str] = "Gu & Dao 2024, Mamba: Selective state spaces"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        order: int = 16,
        step_min: float = 0.001,
        step_max: float = 0.1,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.order = check_at_least(1, order=order)
        self.step_min = check_positive(step_min=step_min)
        self.step_max = check_positive(step_max=step_max)
        if step_min > step_max:
            raise ArgumentError(f"step_min={step_min!r} must not be above step_max={step_max!r}.")
        N, rank = hidden_size, -(-hidden_size // 16)
        self.W = nn.Parameter(torch.empty(N, input_size))
        self.W_1 = nn.Parameter(torch.empty(rank, N))
        self.W_2 = nn.Parameter(torch.empty(N, rank))
        self.b_delta, self.D = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.W_B, self.W_C = (nn.Parameter(torch.empty(order, N)) for _ in range(2))
        self.log_A = nn.Parameter(torch.empty(N, order))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Set A_j = -j and D = 1; draw steps log-uniform, and dense layers as torch does."""
        torch_uniform_(self.W, self.input_size, generator)
        for tensor in (self.W_1, self.W_B, self.W_C):
            torch_uniform_(tensor, self.hidden_size, generator)
        torch_uniform_(self.W_2, self.W_2.shape[1], generator)
        bounds = math.log(self.step_min), math.log(self.step_max)
        inverse_softplus_(self.b_delta.uniform_(*bounds, generator=generator).exp_())
        self.log_A.copy_(torch.log(torch.arange(1.0, self.order + 1)))
        self.D.fill_(1.0)

    @property
    def scan_size(self) -> int:
        """Width of z, the states of all channels."""
        return self.hidden_size * self.order

    @property
    def state_parts(self) -> dict[str, int]:
        """The states of the channels, and what the readout takes of the last sample."""
        return {"z": self.scan_size, "C": self.order, "u": self.hidden_size}

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return factors and terms of the linear step, C and u."""
        u = F.linear(x, self.W)
        delta = F.softplus(F.linear(F.linear(u, self.W_1), self.W_2, self.b_delta)) * dt
        A = -torch.exp(self.log_A)
        exponent = (delta.unsqueeze(-1) * A).flatten(-2)
        inflow = (u.unsqueeze(-1) * F.linear(u, self.W_B).unsqueeze(-2)).flatten(-2)
        added = torch.expm1(exponent) / A.flatten() * inflow
        return Precomputed((torch.exp(exponent), added, F.linear(u, self.W_C), u))

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch N"]:
        """Return the output of the channels."""
        N, n = self.hidden_size, self.order
        z, C, u = h.split([N * n, n, N], dim=-1)
        y: Tensor = (z.unflatten(-1, (N, n)) * C.unsqueeze(-2)).sum(-1) + self.D * u
        return y
