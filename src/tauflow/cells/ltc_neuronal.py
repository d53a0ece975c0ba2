"""The liquid time-constant cell as Algorithm 1 of the AAAI paper writes it."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_bool
from tauflow.solvers import TABLEAUS, integrate_semilinear
from tauflow.solvers.semi_implicit import Pair, check_semilinear_solver

from .activations import Activation, get_activation
from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, inverse_softplus_


class NeuronalLTCCell(AbstractCell):
    r"""Liquid time-constant cell, neuronal form.

    .. math::
        \dot h = -(1/\tau + f) \odot h + f \odot A, \qquad f = \varphi(W_h h + W_x x + b)

        h' = (h + d f A) / (1 + d (1/\tau + f)), \qquad d = dt / \mathrm{substeps}

    With ``scale``, :math:`f = w \odot \varphi(W_h h + W_x x + b)`.

    Source: Hasani et al. 2021, "Liquid Time-constant Networks", Eq. 1 and Algorithm 1; its 2020
    draft, Section 2, for the scale.

    Differs from the paper: tau is stored through a softplus, so that it stays positive, and each
    sub-step starts from the state of the one before. The bounds on the time constant and on the
    state (Theorems 1 and 2) need an activation with values in (0, 1), and w of 0 or more. Where f
    can be negative the flow is locally unstable where f < -1/tau; the fused denominator stays
    positive for f > -1 and any tau as long as d <= 1.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        activation: phi, a name of :data:`~tauflow.cells.activations.ACTIVATIONS` or a function.
        solver: ``"fused"``, ``"exponential"``, ``"euler"``, ``"midpoint"``, ``"heun"`` or
            ``"rk4"``. The first two follow any time step where phi is not negative; the explicit
            ones need d (1/tau + max f) below 2 (2.79 with rk4; :meth:`max_stable_dt`, for f up to
            1), and blow up beyond.
        substeps: solver steps per sample.
        scale: whether f has a trained factor w for every neuron, from 1 on; else it is 1.
    """

    paper: ClassVar[str] = "Hasani et al. 2021, Liquid Time-constant Networks"
    is_flow = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: str | Activation = "tanh",
        solver: str = "fused",
        substeps: int = 6,
        scale: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.phi = _activation(activation)
        self.solver = check_semilinear_solver(solver)
        self.substeps = check_at_least(1, substeps=substeps)
        self.W_x = nn.Parameter(torch.empty(hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b, self.A, self.raw_tau = (nn.Parameter(torch.empty(hidden_size)) for _ in range(3))
        self.w: nn.Parameter | None = None
        if check_bool(scale=scale):
            self.w = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    @property
    def tau(self) -> Tensor:
        """Time constants, (N,), in the unit of ``dt``."""
        return F.softplus(self.raw_tau)

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform, W_h orthogonal, A from U(-1, 1); b = 0, tau = 1, w = 1.

        The papers give no distributions; these keep f of order one and its Jacobian well scaled.
        """
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        self.A.uniform_(-1.0, 1.0, generator=generator)
        self.b.zero_()
        inverse_softplus_(self.raw_tau.fill_(1.0))
        if self.w is not None:
            self.w.fill_(1.0)

    @torch.no_grad()
    def max_stable_dt(self) -> float:
        """Return what the explicit solvers can follow where phi is at most 1."""
        if self.solver not in TABLEAUS:
            return math.inf
        most = torch.ones_like(self.tau) if self.w is None else self.w.abs()
        fastest = float((most + 1.0 / self.tau).max())
        return TABLEAUS[self.solver].interval * self.substeps / fastest

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the argument of phi, and dt in the unit of tau."""
        scale = () if self.w is None else (self.w,)
        fixed = self.W_h, self.A, 1 / self.tau, *scale
        return Precomputed((x @ self.W_x.T + self.b, dt), fixed)

    def update(
        self,
        h: StateTensor,
        input_projection: StateTensor,
        dt: Float[Tensor, "B 1"],
        W_h: Float[Tensor, "S S"],
        A: Float[Tensor, " S"],
        leak: Float[Tensor, " S"],
        *scale: Float[Tensor, " S"],
    ) -> StateTensor:
        """Advance the state over the time step, holding the input."""

        def terms(h: Tensor) -> Pair:
            f = self.phi(input_projection + h @ W_h.T)
            f = scale[0] * f if scale else f
            return f * A, leak + f

        return integrate_semilinear(terms, h, dt, solver=self.solver, substeps=self.substeps)


_activation = get_activation  # the constructor's argument of the same name hides it
