"""The Lipschitz recurrent cell, whose matrices are held near the edge of stability."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_finite, check_one_of, check_positive, check_within
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.time_feature import AbstractTimeFeatureCell
from tauflow.solvers import TABLEAUS, integrate

_SOLVERS = ("euler", "midpoint")


class LipschitzRNNCell(AbstractTimeFeatureCell):
    r"""Lipschitz recurrent cell: a linear part and a tanh, both with constrained matrices.

    .. math::
        \dot h = \alpha A h + \tanh(W h + W_x x + b)

        A = \beta (B - B^\top) + (1 - \beta) (B + B^\top) - \gamma I, \qquad
        W = \text{the same of } C

    One step of ``solver`` over the time eps per sample, whatever the time step; ``append_dt`` lets
    the cell feel the time step. beta = 1 leaves the skew-symmetric parts, whose eigenvalues have
    the real part -gamma; beta = 1/2 leaves B - gamma I, without any constraint. The state is h, (B,
    N).

    Parameters: F N + N + 2 N² with F = D features, or D + 1 with ``append_dt``.

    Source: Erichson et al. 2021, "Lipschitz recurrent neural networks"
    and its released code.

    Differs from the released code: A and W act from the left, which is B and C transposed; its
    midpoint variant has no alpha.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        beta: weight of the skew-symmetric parts against the symmetric ones, 0 to 1.
        gamma: shift of the eigenvalues to the left.
        eps: the step.
        alpha: weight of the linear part.
        solver: ``"euler"`` or ``"midpoint"``.
        init_std: B and C have the standard deviation ``init_std / N``.
        append_dt: whether the time step is appended to the input as a feature.
    """

    paper: ClassVar[str] = "Erichson et al. 2021, Lipschitz recurrent neural networks"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        beta: float = 0.8,
        gamma: float = 0.01,
        eps: float = 0.01,
        alpha: float = 1.0,
        solver: str = "euler",
        init_std: float = 1.0,
        append_dt: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.beta = check_within(0.0, 1.0, beta=beta)
        self.gamma = check_within(0.0, math.inf, gamma=gamma)
        self.eps = check_positive(eps=eps)
        self.alpha = check_finite(alpha=alpha)
        self.solver = check_one_of(_SOLVERS, solver=solver)
        self.init_std = check_positive(init_std=init_std)
        self.W_x = nn.Parameter(torch.empty(hidden_size, self.feature_size))
        self.b = nn.Parameter(torch.empty(hidden_size))
        self.B, self.C = (nn.Parameter(torch.empty(hidden_size, hidden_size)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw B and C normal, W_x and b as ``torch.nn.Linear`` does (the released code)."""
        torch_uniform_(self.W_x, self.feature_size, generator)
        torch_uniform_(self.b, self.feature_size, generator)
        for square in (self.B, self.C):
            nn.init.normal_(square, 0.0, self.init_std / self.hidden_size, generator=generator)

    def constrain(self, square: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
        """Return the matrix that stands for B or C in the equation."""
        skew, symmetric = square - square.T, square + square.T
        eye = torch.eye(self.hidden_size, dtype=square.dtype, device=square.device)
        return self.beta * skew + (1 - self.beta) * symmetric - self.gamma * eye

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share, ``(*batch, N)``, the step, and [alpha A; W] transposed."""
        from_input = self.features(x, dt) @ self.W_x.T + self.b
        both = torch.cat([self.alpha * self.constrain(self.B), self.constrain(self.C)])
        return Precomputed((from_input, torch.full_like(dt, self.eps)), (both.T,))

    def update(
        self,
        h: StateTensor,
        input_projection: Float[Tensor, "B N"],
        eps: Float[Tensor, "B 1"],
        weights_T: Float[Tensor, "N M"],
    ) -> StateTensor:
        """Return the state after a new input."""

        def field(h: Tensor) -> Tensor:
            linear, inner = (h @ weights_T).chunk(2, dim=-1)
            return linear + torch.tanh(inner + input_projection)

        return integrate(field, h, eps, tableau=TABLEAUS[self.solver], substeps=1)
