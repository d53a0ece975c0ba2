"""GRU-ODE: the gated recurrent unit as a differential equation."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of
from tauflow.solvers import FlowSolver

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, glorot_blocks_, joint_glorot_


class GRUODECell(AbstractCell):
    r"""Gated recurrent unit in continuous time.

    .. math::
        \dot h = (1 - z) \odot (g - h), \qquad z = \sigma(W_{xz} x + W_{hz} h + b_z)

    integrated over the time step dt in ``substeps`` equal steps with x held. The forms differ in
    what gates the recurrent product of g:

    - ``form="full"``: as in the GRU,
      :math:`r = \sigma(W_{xr} x + W_{hr} h + b_r)`,
      :math:`g = \tanh(W_{xg} x + W_g (r \odot h) + b_g)`;
    - ``form="minimal"``: :math:`g = \tanh(W_{xg} x + W_g (z \odot h) + b_g)`, with no r.

    The flow, and every Euler step of at most 1, keeps h within [-1, 1]. Explicit steps are stable
    over time steps of up to 2 ``substeps``, 8 by default (:meth:`max_stable_dt`); over longer ones
    h may grow until it overflows. The rows of W_x and b are
    those of r (full form only), z and g; W_h has the rows of r and z.

    Parameters: 3 D N + 3 N^2 + 3 N (``"full"``), 2 D N + 2 N^2 + 2 N (``"minimal"``).

    Source: De Brouwer et al. 2019, "GRU-ODE-Bayes: Continuous modeling of sporadically-observed
    time series", Eq. 3; Lechner & Hasani 2020, "Learning long-term dependencies in
    irregularly-sampled time series", whose baseline it is in the full form.

    Differs from the first source: no Bayesian update at the observations; the observation is the
    held input. Its code initialises as here in the minimal form, the second source's code as here
    in the full form.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        form: ``"full"`` or ``"minimal"``.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"dopri5"`` (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
    """

    paper: ClassVar[str] = "De Brouwer et al. 2019, GRU-ODE-Bayes"
    is_flow = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        form: str = "full",
        solver: str = "euler",
        substeps: int = 4,
        rtol: float = 1e-3,
        atol: float = 1e-4,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.form = check_one_of(("full", "minimal"), form=form)
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol)
        self.gates = 2 if form == "full" else 1
        N = hidden_size
        self.W_x = nn.Parameter(torch.empty((self.gates + 1) * N, input_size))
        self.W_h = nn.Parameter(torch.empty(self.gates * N, N))
        self.W_g = nn.Parameter(torch.empty(N, N))
        self.b = nn.Parameter(torch.empty((self.gates + 1) * N))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every weight Glorot uniform.

        Full form: over the joint weight of [x; h] of each gate, b_r = 1, other biases 0. Minimal
        form: each weight on its own, biases 0.05.
        """
        if self.form == "minimal":
            glorot_blocks_(self.W_x, 2, generator=generator)
            nn.init.xavier_uniform_(self.W_h, generator=generator)
            nn.init.xavier_uniform_(self.W_g, generator=generator)
            self.b.fill_(0.05)
            return
        N = self.hidden_size
        joint_glorot_(self.W_x[: 2 * N], self.W_h, blocks=2, generator=generator)
        joint_glorot_(self.W_x[2 * N :], self.W_g, generator=generator)
        self.b.zero_()
        self.b[:N] = 1.0

    def max_stable_dt(self) -> float:
        """Return what the largest rate allows, where z = 0."""
        return self.flow_solver.max_stable_dt_rate

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the gates and of g, dt, and the recurrent weights."""
        input_projection = x @ self.W_x.T + self.b
        gates, g = input_projection.split([self.gates * self.hidden_size, self.hidden_size], dim=-1)
        return Precomputed((gates, g, dt), (self.W_h.T, self.W_g.T))

    def update(
        self,
        h: StateTensor,
        gates_x: Float[Tensor, "B G"],
        g_x: StateTensor,
        dt: Float[Tensor, "B 1"],
        W_h_T: Float[Tensor, "S G"],
        W_g_T: Float[Tensor, "S S"],
    ) -> StateTensor:
        """Integrate over ``dt``, holding the input."""

        def field(at: Tensor) -> Tensor:
            gates = self._gates(gates_x, at, W_h_T)
            z = gates[-1]  # the only gate of the minimal form, where it also takes the place of r
            pull = torch.tanh(torch.addmm(g_x, gates[0] * at, W_g_T)) - at
            return torch.addcmul(pull, z, pull, value=-1)

        return self.flow_solver.integrate(field, h, dt)

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return 1 - z."""
        (gates_x, _, _), (W_h_T, _) = self.precompute(x, torch.ones_like(x[..., :1]))
        return 1 - self._gates(gates_x, h, W_h_T)[-1]

    def _gates(self, gates_x: Tensor, h: Tensor, W_h_T: Tensor) -> tuple[Tensor, ...]:
        """Return r, in the full form, and z."""
        return torch.sigmoid(torch.addmm(gates_x, h, W_h_T)).chunk(self.gates, dim=-1)
