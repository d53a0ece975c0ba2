"""The ODE-RNN of the Latent ODE paper: a flow between samples, a jump at each."""

from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_one_of
from tauflow.cells.base import (
    AbstractCell,
    DtTensor,
    InputTensor,
    ObservedMask,
    Precomputed,
    StateTensor,
)
from tauflow.cells.init import Generator
from tauflow.cells.missing_features import zero_missing
from tauflow.solvers import TABLEAUS, SolverNames, integrate

_WEIGHT_STD = 0.1
_SOLVERS = SolverNames()


class RubanovaODERNNCell(AbstractCell):
    r"""ODE-RNN: the mean y follows a neural ODE over dt, then a gated unit reads the sample.

    With the mask m of the observed features, and MLPs of one hidden layer of tanh units:

    .. math::
        \dot y = f(y) \text{ over } dt, \qquad
        u, r = \sigma(\mathrm{MLP}_{u, r}([y; s; x; m])), \qquad
        [n; \nu] = \mathrm{MLP}_n([r y; r s; x; m])

        y' = (1 - u)\, n + u\, y, \qquad s' = |(1 - u)\, |\nu| + u\, s|

    where s, a spread, stands still during the flow, and f is an MLP of ``ode_layers`` + 1 layers of
    ``ode_units`` tanh units. A step at which nothing is observed only flows. Without ``observed``
    every feature counts as observed. The state is [y; s], (B, 2 N), the output y.

    With U = ``ode_units``, L = ``ode_layers`` and G = ``gru_units``: 2 N U + U + N + L (U^2 + U)
    parameters in f, and 3 G (2 N + 2 D + 1) + 4 (N G + N) in the gates.

    Source: Rubanova et al. 2019, "Latent ODEs for irregularly-sampled time series", Algorithm 1 and
    its released code, where this network is the encoder, run backwards.

    Differs from the released code: it takes a step of the solver for every fiftieth of the span of
    all times, a cell a fixed number for every time step; and the code's forward run of the ODE-RNN
    steps over the wrong time steps, one late and with the wrong sign, which is not copied.

    Args:
        input_size: features D per time point.
        hidden_size: width N of mean and spread.
        ode_units: tanh units U in each layer of f.
        ode_layers: layers L between the first and the last of f.
        gru_units: tanh units G of each MLP of the jump.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"`` or ``"rk4"``.
        substeps: solver steps per time step.
    """

    paper: ClassVar[str] = "Rubanova et al. 2019, Latent ODEs for irregularly-sampled time series"
    state_names = ("y", "s")  # mean and spread
    uses_observed = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        ode_units: int = 100,
        ode_layers: int = 1,
        gru_units: int = 100,
        solver: str = "euler",
        substeps: int = 4,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.ode_units = check_at_least(1, ode_units=ode_units)
        self.ode_layers = check_at_least(0, ode_layers=ode_layers)
        self.gru_units = check_at_least(1, gru_units=gru_units)
        self.solver = check_one_of(_SOLVERS, solver=solver)
        self.substeps = check_at_least(1, substeps=substeps)
        D, N, G = input_size, hidden_size, gru_units
        widths = [N, *repeat_counted(ode_units, ode_layers + 1), N]
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
        self.flow = nn.Sequential(*layers[:-1])
        # Hidden layers of the three MLPs, blocks u, r and n, for [x; m] and for [y; s].
        self.W_x = nn.Parameter(torch.empty(3 * G, 2 * D))
        self.W_ur = nn.Parameter(torch.empty(2 * G, 2 * N))
        self.W_n = nn.Parameter(torch.empty(G, 2 * N))
        self.b = nn.Parameter(torch.empty(3 * G))
        self.V_u, self.V_r = (nn.Parameter(torch.empty(N, G)) for _ in range(2))
        self.V_n = nn.Parameter(torch.empty(2 * N, G))
        self.b_u, self.b_r = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.b_n = nn.Parameter(torch.empty(2 * N))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all weights from N(0, 0.1^2); biases 0, as the released code."""
        for tensor in self.parameters():
            if tensor.ndim == 2:
                nn.init.normal_(tensor, 0.0, _WEIGHT_STD, generator=generator)
            else:
                nn.init.zeros_(tensor)

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return the hidden layers' share of the sample, whether there is one, and dt."""
        x, missing = zero_missing(x, observed)
        known = (missing == 0).any(dim=-1, keepdim=True)
        return Precomputed((torch.cat([x, 1 - missing], dim=-1) @ self.W_x.T + self.b, known, dt))

    def update(
        self,
        h: StateTensor,
        input_projection: Float[Tensor, "B G"],
        is_observed: Bool[Tensor, "B 1"],
        dt: Float[Tensor, "B 1"],
    ) -> StateTensor:
        """Return [y; s] after the flow over the time step and the jump at the sample."""
        y, s = h.chunk(2, dim=-1)
        table = TABLEAUS[self.solver]
        y = integrate(self.flow, y, dt, tableau=table, substeps=self.substeps)
        before = torch.cat([y, s], dim=-1)
        drive_ur, drive_n = input_projection.split([2 * self.gru_units, self.gru_units], dim=-1)
        hidden_u, hidden_r = torch.tanh(drive_ur + before @ self.W_ur.T).chunk(2, dim=-1)
        u = torch.sigmoid(hidden_u @ self.V_u.T + self.b_u)
        r = torch.sigmoid(hidden_r @ self.V_r.T + self.b_r)
        reset = torch.cat([r, r], dim=-1) * before
        new = torch.tanh(drive_n + reset @ self.W_n.T) @ self.V_n.T + self.b_n
        n, nu = new.chunk(2, dim=-1)
        after = torch.cat([(1 - u) * n + u * y, ((1 - u) * nu.abs() + u * s).abs()], dim=-1)
        return torch.where(is_observed, after, before)
