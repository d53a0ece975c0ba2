"""Liquid-resistance liquid-capacitance cells: an LTC whose conductances saturate."""

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_one_of

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, inverse_softplus_, joint_glorot_

SOLVERS = ("explicit", "hybrid")
ELASTANCES = ("asymmetric", "symmetric", "none")


class LRCConfig(NamedTuple):
    """What an LRC is beside its tensors; see the arguments of :class:`LRCCell`."""

    elastance: str
    solver: str
    substeps: int


class LRCCell(AbstractCell):
    r"""Liquid-resistance liquid-capacitance cell, and without elastance the saturated LTC (STC).

    Every synapse from j to i has a slope sigma, a midpoint mu, and two weights, w of the
    conductance that forgets and k of the drive; sources z are the inputs and the states.

    .. math::
        f_i = g_i + \sum_j w_{ji}\, \sigma(\sigma_{ji} (z_j - \mu_{ji})), \qquad
        u_i = g_i + \sum_j k_{ji}\, \sigma(\sigma_{ji} (z_j - \mu_{ji}))

    .. math::
        \dot h_i = \epsilon_i\, (e_i \tanh(u_i) - \sigma(f_i)\, h_i)

    The elastance, one over the capacitance, depends on inputs and states, with s above 0:

    .. math::
        \epsilon = \sigma(q) \quad \text{(asymmetric)}, \qquad
        \epsilon = \sigma(q + s) - \sigma(q - s) \quad \text{(symmetric)}, \qquad
        q = W_x x + W_h h + b

    or is 1, which makes it the STC. With :math:`\delta = dt\, \epsilon / \mathrm{substeps}`, the
    explicit step (with one sub-step the paper's LRCU) is
    :math:`h' = h + \delta\, (e \tanh(u) - \sigma(f)\, h)`, the hybrid one, which takes the linear h
    at the new time, :math:`h' = (h + \delta e \tanh(u)) / (1 + \delta \sigma(f))`.

    Parameters: 4 N (D + N) + 2 N, and N (D + N + 1) for an elastance, N more if symmetric.

    Source: Farsang et al. 2024, "Liquid resistance liquid capacitance networks"; the equations
    stand again as Eqs. 1 to 3 of Farsang et al. 2025, "Parallelization of non-linear state-space
    models".

    Differs from the released code: w, g and s stay positive by construction, where it clips them
    after every step of the optimizer; no affine maps of inputs and outputs; the time step is
    ``dt``.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N, fully connected.
        elastance: ``"asymmetric"``, ``"symmetric"`` or ``"none"``.
        solver: ``"explicit"``, which is stable over time steps of up to 2 ``substeps``
            (:meth:`max_stable_dt`), or ``"hybrid"``, bounded for any time step.
        substeps: solver steps per sample.
    """

    paper: ClassVar[str] = "Farsang et al. 2024, Liquid resistance liquid capacitance networks"
    is_flow = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        elastance: str = "asymmetric",
        solver: str = "explicit",
        substeps: int = 1,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.elastance = check_one_of(ELASTANCES, elastance=elastance)
        self.solver = check_one_of(SOLVERS, solver=solver)
        self.substeps = check_at_least(1, substeps=substeps)
        D, N = input_size, hidden_size
        self.sigma, self.mu, self.w, self.k = (nn.Parameter(torch.empty(N, N)) for _ in range(4))
        self.sigma_x, self.mu_x, self.w_x, self.k_x = (
            nn.Parameter(torch.empty(D, N)) for _ in range(4)
        )
        self.g, self.e = (nn.Parameter(torch.empty(N)) for _ in range(2))
        liquid, shifted = elastance != "none", elastance == "symmetric"
        self.W_x = nn.Parameter(torch.empty(N, D)) if liquid else None
        self.W_h = nn.Parameter(torch.empty(N, N)) if liquid else None
        self.b = nn.Parameter(torch.empty(N)) if liquid else None
        self.s = nn.Parameter(torch.empty(N)) if shifted else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw synapses as an LTC's, k orthogonal, the elastance Glorot uniform; b is 0, s is 1."""
        for sigma, mu, w, k in (
            (self.sigma, self.mu, self.w, self.k),
            (self.sigma_x, self.mu_x, self.w_x, self.k_x),
        ):
            sigma.uniform_(3.0, 8.0, generator=generator)
            mu.uniform_(0.3, 0.8, generator=generator)
            inverse_softplus_(w.uniform_(0.001, 1.0, generator=generator))
            nn.init.orthogonal_(k, generator=generator)
        inverse_softplus_(self.g.uniform_(0.001, 1.0, generator=generator))
        self.e.uniform_(-0.2, 0.2, generator=generator)
        if self.W_x is not None and self.W_h is not None and self.b is not None:
            joint_glorot_(self.W_x, self.W_h, generator=generator)
            self.b.zero_()
        if self.s is not None:
            inverse_softplus_(self.s.fill_(1.0))

    def max_stable_dt(self) -> float:
        """Return what the largest rate, 1, allows the explicit solver."""
        return 2.0 * self.substeps if self.solver == "explicit" else math.inf

    def static_config(self) -> LRCConfig:
        """Return elastance and solver."""
        return LRCConfig(self.elastance, self.solver, self.substeps)

    def packed_parameters(self) -> tuple[Tensor, ...]:
        """Return synapses (4, D, N) and (4, N, N), neurons (2, N), and what makes the elastance.

        Synapses are sigma, mu, w and k, neurons g and e; the elastance is made of W_x, b and W_h,
        and s if symmetric, or of nothing.
        """
        return (
            torch.stack((self.sigma_x, self.mu_x, F.softplus(self.w_x), self.k_x)),
            torch.stack((self.sigma, self.mu, F.softplus(self.w), self.k)),
            torch.stack((F.softplus(self.g), self.e)),
            *self._gate_tensors(),
        )

    def _gate_tensors(self) -> tuple[Tensor, ...]:
        if self.W_x is None or self.W_h is None or self.b is None:
            return ()
        shift = () if self.s is None else (F.softplus(self.s),)
        return self.W_x, self.b, self.W_h, *shift

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the inputs, beside them their share of q if there is one, and the time steps.

        Synapses of the inputs are left to the step: for all steps at once they would take D N
        numbers each.
        """
        fixed = self.packed_parameters()
        gate = fixed[3:5]
        read = torch.cat((x, F.linear(x, *gate)), dim=-1) if gate else x
        return Precomputed((read, dt), fixed)

    def update(
        self, h: StateTensor, read: Float[Tensor, "B K"], dt: Float[Tensor, "B 1"], *fixed: Tensor
    ) -> StateTensor:
        """Advance the states over the time step, holding the input."""
        return lrc_update(self.static_config(), h, read, dt, *fixed)

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return the elastance."""
        if not (gate := self._gate_tensors()):
            return torch.ones_like(h)
        return _compute_elastance(F.linear(x, *gate[:2]), h, *gate[2:])


def lrc_update(
    config: LRCConfig, h: Tensor, read: Tensor, dt: Tensor, *fixed: Tensor
) -> StateTensor:
    """Return the states after the time step, given what :meth:`LRCCell.precompute` returns."""
    of_x, of_h, (g, e), *gate = fixed
    D = of_x.shape[1]
    x, inputs = read[..., :D], read[..., D:]
    f_x, u_x = _synaptic_sums(x, *of_x.unbind())
    f_x, u_x = f_x + g, u_x + g
    for _ in range(config.substeps):
        f, u = _synaptic_sums(h, *of_h.unbind())
        rate, aim = torch.sigmoid(f_x + f), e * torch.tanh(u_x + u)
        delta = dt / config.substeps
        if gate:
            delta = _compute_elastance(inputs, h, *gate[2:]) * delta
        if config.solver == "hybrid":
            h = (h + delta * aim) / (1 + delta * rate)
        else:
            h = h + delta * (aim - rate * h)
    return h


def _compute_elastance(
    input_projection: Tensor, h: Tensor, W_h: Tensor, s: Tensor | None = None
) -> Tensor:
    """Return the elastance, given the input's share of q."""
    q = input_projection + h @ W_h.T
    return torch.sigmoid(q) if s is None else torch.sigmoid(q + s) - torch.sigmoid(q - s)


def _synaptic_sums(
    z: Tensor, sigma: Tensor, mu: Tensor, w: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return both weighted sums of the synapses that sources z, (B, J), drive, (B, N) each."""
    active = torch.sigmoid(sigma * (z.unsqueeze(-1) - mu))  # (B, J, N)
    return (active * w).sum(-2), (active * k).sum(-2)
