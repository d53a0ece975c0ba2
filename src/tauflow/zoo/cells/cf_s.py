"""The closed-form solution of a liquid time-constant network as a network."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of
from tauflow.cells.activations import ACTIVATIONS
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator

_POSITIVE = ("sigmoid", "relu", "softplus")


class CfSCell(AbstractCell):
    r"""Closed-form solution network (Cf-S) as Equation 9 has it.

    .. math::
        h' = B \odot e^{-(w_\tau + f(x, h))\, dt} \odot f(-x, -h) + A, \qquad
        f(x, h) = \varphi(W_x x + W_h h + b)

    The state enters through f alone. For large dt it goes to A, whatever the inputs, which is what
    the gates of :class:`~tauflow.cells.CfCCell` were introduced against.

    N^2 + D N + 4 N parameters.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Eq. 9.

    Differs from the paper: w_tau is taken by its absolute value, with slope 1 at 0, and starts at
    0, as in the released code; A starts from U(-1, 1) and B, which stands for x_0 - A, at -A. The
    paper names neither phi nor initial values. Its published Cf-S is another form, with a backbone:
    ``CfCCell(mode="pure")``.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        activation: phi, positive: ``"sigmoid"``, ``"relu"`` or ``"softplus"``.
    """

    paper: ClassVar[str] = "Hasani et al. 2022, Closed-form continuous-time neural networks"

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "sigmoid") -> None:
        super().__init__(input_size, hidden_size)
        self.phi = ACTIVATIONS[check_one_of(_POSITIVE, activation=activation)]
        self.W_x = nn.Parameter(torch.empty(hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b, self.w_tau, self.A, self.B = (
            nn.Parameter(torch.empty(hidden_size)) for _ in range(4)
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform, W_h orthogonal, A from U(-1, 1); B = -A, b = 0, w_tau = 0."""
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        self.A.uniform_(-1.0, 1.0, generator=generator)
        self.B.copy_(-self.A)
        self.b.zero_()
        self.w_tau.zero_()

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the argument of phi, and the time step."""
        rate = torch.where(self.w_tau >= 0, self.w_tau, -self.w_tau)
        return Precomputed((x @ self.W_x.T, dt), (self.W_h, self.b, rate, self.A, self.B))

    def update(
        self,
        h: StateTensor,
        from_input: StateTensor,
        dt: Float[Tensor, "B 1"],
        W_h: Float[Tensor, "S S"],
        b: Float[Tensor, " S"],
        rate: Float[Tensor, " S"],
        A: Float[Tensor, " S"],
        B: Float[Tensor, " S"],
    ) -> StateTensor:
        """Return the state after the time step."""
        s = from_input + h @ W_h.T
        return B * torch.exp(-(rate + self.phi(s + b)) * dt) * self.phi(b - s) + A
