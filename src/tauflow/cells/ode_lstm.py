"""ODE-LSTM: a gated memory whose output state flows in continuous time."""

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_finite, check_one_of
from tauflow.solvers import FlowSolver

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .ct_rnn import CTRNNCell
from .gated import lstm_update, shift_forget_gate
from .init import Generator, torch_uniform_


class _Defaults(NamedTuple):
    solver: str
    substeps: int
    forget_bias: float


_FORMS = {"tensorflow": _Defaults("euler", 4, 3.0), "torch": _Defaults("rk4", 3, 0.0)}


class ODELSTMCell(AbstractCell):
    r"""ODE-LSTM: an LSTM memory c, untouched by time, and an output state h that flows.

    With i, f, g, o the four blocks of W_x x + W_h h + b:

    .. math::
        c' = \sigma(f + b_f)\, c + \sigma(i) \tanh(g), \qquad u = \sigma(o) \tanh(c')

    The two published forms differ in the flow over the time step dt that gives h':

    - ``form="tensorflow"`` (all published tables): it starts at the old h, with u as input,

      .. math:: \dot h = s \odot \tanh(W_c u + R_c h + b_c) - h

    - ``form="torch"``: it starts at u and has no input,

      .. math:: \dot h = W_2 \tanh(W_1 h + b_1) + b_2

    The state is [h; c], (B, 2 N); the output is h. A time step of zero leaves h alone in the first
    form and gives h' = u, a plain LSTM, in the second.

    In the first form, explicit steps are stable over time steps of up to 2 ``substeps``, 8 by
    default (:meth:`max_stable_dt`); over longer ones h grows until it overflows.

    Parameters: 4 D N + 6 N^2 + 6 N (``"tensorflow"``; the flow is a
    :class:`~tauflow.cells.ct_rnn.CTRNNCell` named ``flow``), 4 D N + 6 N^2 + 10 N (``"torch"``).

    Source: Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time
    series", Eqs. 2-7 and Algorithm 1.

    Differs from the paper: its forget bias is 1, that of the TensorFlow code 3, that of the PyTorch
    code 0. Algorithm 1 starts from the old h, as the first form; Table 1 has the second. The
    PyTorch code's adaptive solver hands the rows of a batch each other's time steps; here every row
    has its own time step and its own steps. That code's cell solves with dopri5 by default, the
    second form here with three steps of rk4, which need no extra; ``solver="dopri5"`` brings it
    back.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        form: ``"tensorflow"`` or ``"torch"``.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"dopri5"`` (needs ``tauflow[ode]``); by default ``"euler"`` (``"tensorflow"``) or
            ``"rk4"`` (``"torch"``).
        substeps: solver steps per sample, where they are fixed; by default 4 or 3.
        forget_bias: b_f, a constant, not a parameter; by default 3 or 0.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
    """

    paper: ClassVar[str] = "Lechner & Hasani 2020, Learning long-term dependencies"
    state_names = ("h", "c")  # the output state and the memory

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        form: str = "tensorflow",
        solver: str | None = None,
        substeps: int | None = None,
        forget_bias: float | None = None,
        rtol: float = 1e-2,
        atol: float = 1e-4,
    ) -> None:
        super().__init__(input_size, hidden_size)
        default = _FORMS[check_one_of(_FORMS, form=form)]
        self.form = form
        self.solver = default.solver if solver is None else solver
        self.substeps = default.substeps if substeps is None else substeps
        self.flow_solver = FlowSolver(self.solver, self.substeps, rtol, atol)
        self.forget_bias = (
            default.forget_bias if forget_bias is None else check_finite(forget_bias=forget_bias)
        )
        N = hidden_size
        self.W_x = nn.Parameter(torch.empty(4 * N, input_size))
        self.W_h = nn.Parameter(torch.empty(4 * N, N))
        self.b = nn.Parameter(torch.empty(4 * N))
        if form == "tensorflow":
            self.flow = CTRNNCell(
                N, N, solver=self.solver, substeps=self.substeps, rtol=rtol, atol=atol
            )
        else:
            self.b_h = nn.Parameter(torch.empty(4 * N))
            self.W_1, self.W_2 = (nn.Parameter(torch.empty(N, N)) for _ in range(2))
            self.b_1, self.b_2 = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform, W_h orthogonal, b = 0; in the torch form, all as torch does."""
        if self.form == "torch":
            for tensor in self.parameters():  # every fan-in but that of W_x, drawn alike, is N
                torch_uniform_(tensor, self.hidden_size, generator)
            return
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        nn.init.zeros_(self.b)
        self.flow.reset_parameters(generator)

    def max_stable_dt(self) -> float:
        """Return that of the flow; the field of the second form is bounded."""
        return self.flow.max_stable_dt() if self.form == "tensorflow" else math.inf

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of the input, and dt; W_h and the flow's parameters."""
        b = self.b + self.b_h if self.form == "torch" else self.b
        gates = x @ self.W_x.T + shift_forget_gate(b, self.forget_bias)
        if self.form == "tensorflow":
            flow = *self.flow.input_parameters(), *self.flow.packed_parameters()
        else:
            flow = self.W_1, self.b_1, self.W_2, self.b_2
        return Precomputed((gates, dt), (self.W_h, *flow))

    def update(
        self,
        h: StateTensor,
        gates: Float[Tensor, "B G"],
        dt: Float[Tensor, "B 1"],
        W_h: Float[Tensor, "G N"],
        *flow: Tensor,
    ) -> StateTensor:
        """Return [h; c] after ``dt``, given the new input."""
        h, c = h.chunk(2, dim=-1)
        c, u = lstm_update(torch.addmm(gates, h, W_h.T), c)
        if self.form == "tensorflow":
            W_u, b_u, *parameters = flow
            h = self.flow.update(h, torch.addmm(b_u, u, W_u.T), dt, *parameters)
            return torch.cat([h, c], dim=-1)
        W_1, b_1, W_2, b_2 = flow

        def field(at: Tensor) -> Tensor:
            return torch.addmm(b_2, torch.tanh(torch.addmm(b_1, at, W_1.T)), W_2.T)

        h = self.flow_solver.integrate(field, u, dt)
        return torch.cat([h, c], dim=-1)
