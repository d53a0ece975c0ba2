"""LinODENet: a latent linear differential equation, and a filter that learns how to correct it."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.base import (
    AbstractCell,
    DtTensor,
    InputTensor,
    ObservedMask,
    Precomputed,
    StateTensor,
)
from tauflow.cells.init import Generator, inverse_softplus_
from tauflow.cells.missing_features import zero_missing

_FILTERS = 3
_SMALL = 0.1


class LinODENetCell(AbstractCell):
    r"""Linear ODE network: latent linear dynamics, and a correction in the form of a Kalman gain.

    The state h estimates what there is to be observed, y = H h. It is encoded, follows a linear
    differential equation over the time step, and is decoded:

    .. math::
        h_0 = \pi(e^{J\, dt}\, \phi(h))

    with J of blocks :math:`[-\rho, -\omega; \omega, -\rho]`, so that the exponential needs only
    scalar ones (of an odd N the last neuron has no :math:`\omega`). The encoder :math:`\phi` and
    the decoder :math:`\pi` are residual networks of ``blocks`` steps
    :math:`h + s\, (V' \mathrm{relu}(V \mathrm{relu}(h) + c) + c')` each. Three filters correct the
    prediction where features were measured, with mask m:

    .. math::
        r_k = m \odot (H h_k - x), \qquad
        h_1 = h_0 - (I + \beta B_0) H^T (m \odot (r_0 + \alpha A_0 r_0))

    .. math::
        h_{k+1} = h_k - \epsilon_k W'_k \mathrm{relu}(W_k \mathrm{relu}
        (B_k H^T (m \odot A_k r_k))), \qquad k = 1, 2

    No filter changes a state that predicts what is measured. The numbers s, :math:`\alpha`,
    :math:`\beta` and :math:`\epsilon` start small; were they 0, and J too, H h would be the last
    values measured. A step at which nothing is observed only predicts. Without ``observed`` every
    feature counts as observed. :meth:`predict_features` returns what a state says of the features.

    With L = ``blocks``: N parameters of the equation, 4 L (N^2 + N) + 2 L of encoder and decoder,
    D N + 3 D^2 + 7 N^2 + 4 of the filters.

    Source: Scholz et al. 2023, "Latent linear ODEs with neural Kalman filtering for irregular time
    series forecasting", and the code of its experiments, which Kloetergens et al. 2025,
    "Physiome-ODE", rank first.

    Differs from the released code: the matrix of the equation, there any one that starts
    skew-symmetric and is exponentiated for every time step, is a normal and stable one, in its own
    basis, for which the other matrices make up; latent and estimated state are as wide as each
    other, as in the experiments; the state before the first sample is 0, where the code learns one;
    what is observed is H h with an orthogonal H to start with, where it is the first D neurons;
    small numbers start at 0.1, where they and the matrix start at 0.

    Args:
        input_size: features D per time point.
        hidden_size: width N of the latent state, and of the estimated one.
        blocks: residual steps L of the encoder, and of the decoder.
    """

    paper: ClassVar[str] = "Scholz et al. 2023, Latent linear ODEs with neural Kalman filtering"
    uses_observed = True

    def __init__(self, input_size: int, hidden_size: int, *, blocks: int = 5) -> None:
        super().__init__(input_size, hidden_size)
        L = self.blocks = check_at_least(1, blocks=blocks)
        D, N = input_size, hidden_size
        self.raw_rho = nn.Parameter(torch.empty(N - N // 2))
        self.omega = nn.Parameter(torch.empty(N // 2))
        self.V = nn.Parameter(torch.empty(2, L, 2, N, N))  # of encoder and decoder
        self.c = nn.Parameter(torch.empty(2, L, 2, N))
        self.s = nn.Parameter(torch.empty(2, L))
        self.H = nn.Parameter(torch.empty(D, N))
        self.A = nn.Parameter(torch.empty(_FILTERS, D, D))
        self.B = nn.Parameter(torch.empty(_FILTERS, N, N))
        self.W = nn.Parameter(torch.empty(_FILTERS - 1, 2, N, N))
        self.scales = nn.Parameter(torch.empty(_FILTERS + 1))  # alpha, beta, epsilon
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw V, W and c He uniform, A and B normal, H orthogonal; rates small."""
        D, N = self.input_size, self.hidden_size
        self.raw_rho.uniform_(math.log(_SMALL / 100), math.log(_SMALL), generator=generator).exp_()
        inverse_softplus_(self.raw_rho)
        self.omega.normal_(0.0, _SMALL, generator=generator)
        bound = (6 / N) ** 0.5
        for tensor in (self.V, self.c, self.W):
            tensor.uniform_(-bound, bound, generator=generator)
        nn.init.orthogonal_(self.H, generator=generator)
        self.A.normal_(0.0, D**-0.5, generator=generator)
        self.B.normal_(0.0, N**-0.5, generator=generator)
        self.s.fill_(_SMALL)
        self.scales.fill_(_SMALL)

    def predict_features(self, h: Float[Tensor, "*batch N"]) -> InputTensor:
        """Return the features as a state predicts them, (..., D)."""
        return F.linear(h, self.H)

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return x and mask, what keeps and what turns the latent state; matrices."""
        x, missing = zero_missing(x, observed)
        K = self.hidden_size // 2
        decay = torch.exp(-F.softplus(self.raw_rho) * dt)
        pairs, single = decay[..., :K], decay[..., K:]
        angle = self.omega * dt
        re, im = pairs * torch.cos(angle), pairs * torch.sin(angle)
        keep = torch.cat([re, re, single], dim=-1)
        turn = torch.cat([-im, im, torch.zeros_like(single)], dim=-1)
        alpha, beta = self.scales[0], self.scales[1]
        A, G = self.A, self.B @ self.H.T
        eye = torch.eye(self.input_size, dtype=A.dtype, device=A.device)
        residual_maps = torch.cat([(eye + alpha * A[0]).unsqueeze(0), A[1:]])
        gains = torch.cat([(self.H.T + beta * G[0]).unsqueeze(0), G[1:]])
        return Precomputed((x, 1 - missing, keep, turn), (residual_maps, gains))

    def update(
        self,
        h: StateTensor,
        x: Float[Tensor, "B I"],
        mask: Float[Tensor, "B I"],
        keep: Float[Tensor, "B N"],
        turn: Float[Tensor, "B N"],
        residual_maps: Float[Tensor, "K I I"],
        gains: Float[Tensor, "K N I"],
    ) -> StateTensor:
        """Return the state after the prediction over the time step and the filters."""
        K = self.hidden_size // 2
        z = self._residual(0, h)
        parts = [z[..., K : 2 * K], z[..., :K], z[..., 2 * K :]]
        partner = torch.cat([part for part in parts if part.shape[-1]], dim=-1)
        h = self._residual(1, keep * z + turn * partner)
        for k in range(_FILTERS):
            error = mask * (F.linear(h, self.H) - x)
            change = F.linear(mask * F.linear(error, residual_maps[k]), gains[k])
            if k > 0:
                for weight in (self.W[k - 1, 0], self.W[k - 1, 1]):
                    change = F.linear(torch.relu(change), weight)
                change = self.scales[k + 1] * change
            h = h - change
        return h

    def _residual(self, network: int, h: Tensor) -> Tensor:
        V, c, s = self.V[network], self.c[network], self.s[network]
        for k in range(self.blocks):
            hidden = F.linear(torch.relu(h), V[k, 0], c[k, 0])
            h = h + s[k] * F.linear(torch.relu(hidden), V[k, 1], c[k, 1])
        return h
