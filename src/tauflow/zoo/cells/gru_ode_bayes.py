"""GRU-ODE-Bayes: a gated flow between samples, and an update by what was predicted of each."""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, ObservedMask, Precomputed
from tauflow.cells.gated import gru_update
from tauflow.cells.init import Generator, glorot_blocks_
from tauflow.cells.missing_features import zero_missing
from tauflow.solvers import FlowSolver

_MAX_LOG_VARIANCE = 20.0


class GRUODEBayesCell(AbstractCell):
    r"""GRU-ODE-Bayes: an autonomous gated flow, and a gated update at what was observed.

    Over the time step the state follows the flow of a GRU without inputs,

    .. math::
        \dot h = (1 - z) \odot (g - h), \qquad
        r, z = \sigma(W_r h),\, \sigma(W_z h), \qquad g = \tanh(W_g (r \odot h))

    It then predicts every feature by a normal distribution, and reads each that was observed, with
    mask m, as its value, the prediction and how far off that was:

    .. math::
        [\mu; \log \sigma^2] = V_2\, \mathrm{relu}(V_1 h + c_1) + c_2, \qquad
        q_d = m_d\, \mathrm{relu}\left(P_d
        \left[x_d, \mu_d, \log \sigma_d^2, \frac{x_d - \mu_d}{\sigma_d}\right] + p_d\right)

    .. math::
        h' = \mathrm{GRU}([q_1; \ldots; q_D], h)

    with torch's GRU, :class:`~tauflow.cells.GRUCell`. A step at which nothing is observed only
    flows. Without ``observed`` every feature counts as observed. The flow keeps h within [-1, 1];
    explicit steps are stable over time steps of up to 2 ``substeps``. :meth:`predict_features`
    returns mean and variance that a state predicts.

    With P = ``prediction_units`` and R = ``read_units``: 3 N^2 parameters of the flow,
    P (N + 1) + 2 D (P + 1) of the prediction and 5 D R + 3 N D R + 3 N^2 + 6 N of the update.

    Source: De Brouwer et al. 2019, "GRU-ODE-Bayes: Continuous modeling of sporadically-observed
    time series", Section 2, with the full GRU-ODE, and its released code.

    Differs from the released code: a cell takes a fixed number of solver steps for every time step,
    where the code steps by a fixed time; it starts at 0, not at a map of static features; log
    sigma^2 is kept within 20 of 0; the loss is the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        prediction_units: hidden units P of the prediction.
        read_units: units R that read each feature.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"dopri5"`` (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
    """

    paper: ClassVar[str] = "De Brouwer et al. 2019, GRU-ODE-Bayes"
    uses_observed = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        prediction_units: int = 32,
        read_units: int = 8,
        solver: str = "euler",
        substeps: int = 4,
        rtol: float = 1e-3,
        atol: float = 1e-4,
    ) -> None:
        super().__init__(input_size, hidden_size)
        P = check_at_least(1, prediction_units=prediction_units)
        R = check_at_least(1, read_units=read_units)
        self.prediction_units, self.read_units = P, R
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol)
        D, N = input_size, hidden_size
        self.W_rz = nn.Parameter(torch.empty(2 * N, N))
        self.W_g = nn.Parameter(torch.empty(N, N))
        self.V_1 = nn.Parameter(torch.empty(P, N))
        self.c_1 = nn.Parameter(torch.empty(P))
        self.V_2 = nn.Parameter(torch.empty(2 * D, P))
        self.c_2 = nn.Parameter(torch.empty(2 * D))
        self.P = nn.Parameter(torch.empty(D, 4, R))
        self.p = nn.Parameter(torch.empty(D, R))
        self.W_x = nn.Parameter(torch.empty(3 * N, D * R))
        self.W_h = nn.Parameter(torch.empty(3 * N, N))
        self.b, self.b_h = (nn.Parameter(torch.empty(3 * N)) for _ in range(2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers Glorot uniform with biases 0.05, P normal, the GRU as torch does."""
        glorot_blocks_(self.W_rz, 2, generator=generator)
        for weight in (self.W_g, self.V_1, self.V_2):
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (self.c_1, self.c_2):
            bias.fill_(0.05)
        self.P.normal_(0.0, math.sqrt(2 / (4 + self.read_units)), generator=generator)
        self.p.fill_(0.1)
        bound = 1 / math.sqrt(self.hidden_size)
        for tensor in (self.W_x, self.W_h, self.b, self.b_h):
            tensor.uniform_(-bound, bound, generator=generator)

    def max_stable_dt(self) -> float:
        """Return what the largest rate allows, where z = 0."""
        return self.flow_solver.max_stable_dt_rate

    def predict_features(self, h: Float[Tensor, "*batch N"]) -> tuple[InputTensor, InputTensor]:
        """Return mean and variance of every feature, as a state predicts them, (..., D) each."""
        mean, log_variance = self._predict(h)
        return mean, torch.exp(log_variance)

    def _predict(self, h: Tensor) -> tuple[Tensor, Tensor]:
        both = F.linear(torch.relu(F.linear(h, self.V_1, self.c_1)), self.V_2, self.c_2)
        mean, log_variance = both.chunk(2, dim=-1)
        return mean, log_variance.clamp(-_MAX_LOG_VARIANCE, _MAX_LOG_VARIANCE)

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return x (0 where missing), what is missing, if not all, and time steps."""
        x, missing = zero_missing(x, observed)
        return Precomputed((x, missing, (missing == 0).any(dim=-1, keepdim=True), dt))

    def update(
        self,
        h: Float[Tensor, "B N"],
        x: Float[Tensor, "B I"],
        missing: Float[Tensor, "B I"],
        is_observed: Bool[Tensor, "B 1"],
        dt: Float[Tensor, "B 1"],
    ) -> Float[Tensor, "B N"]:
        """Return the state after the flow over the time step and the update by the sample."""
        h = self.flow_solver.integrate(self._velocity, h, dt)
        mean, log_variance = self._predict(h)
        error = (x - mean) * torch.exp(-0.5 * log_variance)
        read: Tensor = self.p
        for index, value in enumerate((x, mean, log_variance, error)):
            read = read + value.unsqueeze(-1) * self.P[:, index]
        read = (1 - missing).unsqueeze(-1) * torch.relu(read)
        gates = F.linear(read.flatten(-2), self.W_x, self.b)
        after = gru_update(gates, F.linear(h, self.W_h, self.b_h), h)
        return torch.where(is_observed, after, h)

    def _velocity(self, h: Tensor) -> Tensor:
        r, z = torch.sigmoid(h @ self.W_rz.T).chunk(2, dim=-1)
        return (1 - z) * (torch.tanh((r * h) @ self.W_g.T) - h)
