"""The continuous recurrent unit: a Kalman filter on a latent linear stochastic equation."""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.cells.base import (
    AbstractCell,
    DtTensor,
    InputTensor,
    ObservedMask,
    Precomputed,
    StateTensor,
)
from tauflow.cells.init import Generator, inverse_softplus_, torch_uniform_
from tauflow.cells.missing_features import zero_missing
from tauflow.cells.precision import ConstantBufferMixin

from .orthogonal import rotation, skew_symmetric_indices

_MIN_VARIANCE = 1e-6
_SMALL_EXPONENT = 1e-5


class CRUCell(ConstantBufferMixin, AbstractCell):
    r"""Continuous recurrent unit, in its fast form: a continuous-discrete Kalman filter.

    A latent state of 2 N entries follows a linear stochastic differential equation whose
    eigenvalues are mixed again after every sample, by the mean that follows it:

    .. math::
        dz = A z\, dt + dw, \qquad A = E\, \mathrm{diag}(d)\, E^T, \qquad
        d = \sum_k \alpha_k d^{(k)}, \qquad \alpha = \mathrm{softmax}(W_\alpha \mu + b_\alpha)

    with E orthogonal and noise of covariance Q = diag(q) per unit of time. Over the time step,

    .. math::
        \mu^- = E\, e^{\mathrm{diag}(d)\, dt} E^T \mu, \qquad
        \Sigma^- = E \left( E^T \Sigma E \odot e^{(d_i + d_j) dt} +
        E^T Q E \odot \frac{e^{(d_i + d_j) dt} - 1}{d_i + d_j} \right) E^T

    of which the diagonals of its four N x N blocks are kept: u of the upper half of the state, l of
    the lower, s between them. A sample is encoded as an observation y of the upper half with
    variance v,

    .. math::
        y = V_y e, \qquad v = \mathrm{softplus}(V_v e), \qquad
        e = \mathrm{relu}(W_e [m x; m] + b_e)

    with the mask m of the observed features, and corrects the state by the Kalman gain
    [g; k] = [u; s] / (u + v):

    .. math::
        \mu' = \mu^- + [g; k] \odot [y - \mu^-_u; y - \mu^-_u], \quad
        u' = (1 - g) u, \quad l' = l - k s, \quad s' = (1 - g) s

    A step at which nothing is observed only predicts. Without ``observed`` every feature counts as
    observed. The state is [mu; u; l; s], (B, 5 N), and so is the output: means and variances, the
    latter fit for an estimate of uncertainty.

    With S = 2 N, U = ``units`` and K = ``bases``: S (S - 1) / 2 + S + K (2 S + 1) parameters of the
    transition, U (2 D + 1) + 2 N (U + 1) of the encoder.

    In single precision variances keep three digits where v, or q, is at least a thousandth of
    ``initial_variance``; where both are less, as little as none: use double precision there.

    Source: Schirmer et al. 2022, "Modeling irregular time series with continuous recurrent units",
    Section 3; the fast form f-CRU and its closed form by eigenvectors, Section 3.5; the update of
    Becker et al. 2019, "Recurrent Kalman networks".

    Differs from the paper: the eigenvalues d are negative by construction, and start between -1 and
    -0.01; the encoder is one hidden layer that reads the mask, and does not normalise y; the
    decoder is the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: width N of the latent observation, half of the latent state.
        units: hidden units U of the encoder.
        bases: sets K of eigenvalues that are mixed.
        initial_variance: of every entry of the latent state at the start.
    """

    paper: ClassVar[str] = "Schirmer et al. 2022, Continuous recurrent units"
    uses_observed = True
    places: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        units: int = 50,
        bases: int = 15,
        initial_variance: float = 10.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.units = check_at_least(1, units=units)
        self.bases = check_at_least(1, bases=bases)
        self.initial_variance = check_positive(initial_variance=initial_variance)
        D, N, S = input_size, hidden_size, 2 * hidden_size
        self.S = nn.Parameter(torch.empty(S * (S - 1) // 2))
        self.raw_d = nn.Parameter(torch.empty(bases, S))
        self.raw_q = nn.Parameter(torch.empty(S))
        self.W_alpha = nn.Parameter(torch.empty(bases, S))
        self.b_alpha = nn.Parameter(torch.empty(bases))
        self.W_e = nn.Parameter(torch.empty(units, 2 * D))
        self.b_e = nn.Parameter(torch.empty(units))
        self.V = nn.Parameter(torch.empty(2 * N, units))
        self.b_v = nn.Parameter(torch.empty(2 * N))
        with torch.device("cpu"):
            places = skew_symmetric_indices(S)
        self.register_constant("places", places, persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Set E = I and q = 0.1, as the released code; draw d log-uniform, the rest as torch."""
        self.S.zero_()
        inverse_softplus_(self.raw_q.fill_(0.1))
        self.raw_d.uniform_(math.log(0.01), 0.0, generator=generator).exp_()
        inverse_softplus_(self.raw_d)
        for weight, bias in (
            (self.W_alpha, self.b_alpha),
            (self.W_e, self.b_e),
            (self.V, self.b_v),
        ):
            for tensor in (weight, bias):
                torch_uniform_(tensor, weight.shape[1], generator)

    @property
    def state_parts(self) -> dict[str, int]:
        """The mean, and the covariances that are kept."""
        N = self.hidden_size
        return {"mean": 2 * N, "variance_upper": N, "variance_lower": N, "covariance": N}

    @property
    def output_size(self) -> int:
        """The width of the output, which is that of the state."""
        return self.state_size

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        """Return means and covariances."""
        return h

    def initial_state(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return means of 0, initial variances, and no covariances."""
        B, N = x.shape[0], self.hidden_size
        variances = x.new_full((B, 2 * N), self.initial_variance)
        return torch.cat([x.new_zeros(B, 2 * N), variances, x.new_zeros(B, N)], dim=-1)

    @property
    def E(self) -> Float[Tensor, "S S"]:
        """The orthogonal matrix of eigenvectors, in columns."""
        return rotation(self.S, self.places)

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return observations and variances, whether there are any, time steps; matrices."""
        x, missing = zero_missing(x, observed)
        known = (missing == 0).any(dim=-1, keepdim=True)
        hidden = torch.relu(F.linear(torch.cat([x, 1 - missing], dim=-1), self.W_e, self.b_e))
        y, v = F.linear(hidden, self.V, self.b_v).chunk(2, dim=-1)
        E = self.E
        noise = (E.T * F.softplus(self.raw_q)) @ E
        fixed = E, _products_of_eigenvectors(E), noise.flatten()
        return Precomputed((y, F.softplus(v) + _MIN_VARIANCE, known, dt), fixed)

    def update(
        self,
        h: StateTensor,
        y: Float[Tensor, "B N"],
        v: Float[Tensor, "B N"],
        is_observed: Bool[Tensor, "B 1"],
        dt: Float[Tensor, "B 1"],
        E: Float[Tensor, "Z Z"],
        products: Float[Tensor, "C Y"],
        noise: Float[Tensor, " Y"],
    ) -> StateTensor:
        """Return the state after the prediction over the time step and the sample's correction."""
        N = self.hidden_size
        mean, covariances = h.split([2 * N, 3 * N], dim=-1)
        alpha = torch.softmax(F.linear(mean, self.W_alpha, self.b_alpha), dim=-1)
        d = -(alpha @ F.softplus(self.raw_d))
        mean = (torch.exp(d * dt) * (mean @ E)) @ E.T
        covariances = _predict_covariances(d, dt, covariances, products, noise)
        u, lower, s = covariances.chunk(3, dim=-1)
        gain, side_gain, rest = u / (u + v), s / (u + v), v / (u + v)
        residual = y - mean[..., :N]
        corrected = torch.cat(
            [
                mean + torch.cat([gain * residual, side_gain * residual], dim=-1),
                rest * u,  # (1 - g) u without its cancellation
                torch.maximum(lower - side_gain * s, rest * lower),  # as s^2 <= u l
                rest * s,
            ],
            dim=-1,
        )
        after = torch.where(is_observed, corrected, torch.cat([mean, covariances], dim=-1))
        return after.to(h.dtype)  # under autocast products are in half precision


def _products_of_eigenvectors(E: Tensor) -> Tensor:
    """Return what maps u, l and s to the covariance in the eigenbasis, (3 N, 4 N^2)."""
    upper, lower = E.chunk(2, dim=0)

    def outer(a: Tensor, b: Tensor) -> Tensor:
        return (a.unsqueeze(2) * b.unsqueeze(1)).flatten(1)

    between = outer(upper, lower) + outer(lower, upper)
    return torch.cat([outer(upper, upper), outer(lower, lower), between])


def _predict_covariances(
    d: Tensor, dt: Tensor, covariances: Tensor, products: Tensor, noise: Tensor
) -> Tensor:
    """Return [u; l; s] after a time step, (B, 3 N).

    Args:
        d: eigenvalues, (B, 2 N).
        dt: time steps, (B, 1).
        covariances: [u; l; s] before it, (B, 3 N).
        products: of :func:`_products_of_eigenvectors`.
        noise: E^T Q E, (4 N^2,).
    """
    exponent = (d.unsqueeze(-1) + d.unsqueeze(-2)).flatten(-2) * dt
    grown = torch.expm1(exponent)
    # (e^r - 1) / r, by its series where the quotient would cancel
    is_small = exponent.abs() < _SMALL_EXPONENT
    safe = torch.where(is_small, torch.ones_like(exponent), exponent)
    mean_growth = torch.where(is_small, 1 + exponent / 2, grown / safe)
    # Only the change goes through the eigenbasis: so it rounds relative to itself, 0 over no time
    change = (covariances @ products) * grown + noise * mean_growth * dt
    u, lower, twice_s = (change @ products.T).chunk(3, dim=-1)  # both places of s
    return covariances + torch.cat([u, lower, twice_s / 2], dim=-1)
