"""Continuous-time recurrent networks and neural ODEs driven by an input."""

import math
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_bool, check_one_of, check_within
from tauflow.errors import ArgumentError
from tauflow.solvers import TABLEAUS, FlowSolver, integrate

from .activations import Activation, get_activation
from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .built_tensors import read_parameter
from .init import Generator, inverse_softplus_, joint_glorot_


class CTRNNConfig(NamedTuple):
    """What a CT-RNN is beside its tensors; see the arguments of :class:`CTRNNCell`."""

    phi: Activation
    damping: float | None  # None: one for each neuron, among the tensors
    flow_solver: FlowSolver
    step_size: float | None
    clip: float | None


class CTRNNCell(AbstractCell):
    r"""Continuous-time recurrent network (CT-RNN); without damping, ODE-RNN or neural ODE.

    .. math::
        \dot h = s \odot \varphi(W_x x + W_h h + b) - \kappa h

    integrated over the time step dt in ``substeps`` equal steps with x held. The defaults are the
    CT-RNN of the ODE-LSTM paper; ``damping=0`` is its ODE-RNN. The LTC paper's baselines have no
    scale s (s = 1), one Glorot weight over [x; h], and steps of a fixed length (``step_size``):
    with them the result does not depend on the time step, and the cell is no flow.

    Explicit steps are stable over time steps of up to 2 ``substeps`` / kappa, 2.79 of them with
    rk4, 8.3 by default (:meth:`max_stable_dt`); over longer ones states grow until they overflow.

    Parameters: D N + N^2 + 2 N; without the scale D N + N^2 + N; N more with ``train_tau``.

    Source: Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time
    series", Eq. 1; Funahashi & Nakamura 1993, "Approximation of dynamical systems by continuous
    time recurrent neural networks"; Hasani et al. 2021, "Liquid Time-constant Networks", for the
    baselines CT-RNN and neural ODE.

    Differs from the papers: the damping kappa is a rate, as in the first source; the LTC paper
    writes 1 / tau, and its 2020 draft counts a tau for every neuron among the parameters (Section
    1, Table S2), which is ``train_tau=True``; tau is stored through a softplus. Both released codes
    keep kappa at 1 and do not train it. The LTC paper divides the sampling period into steps of
    1/6; its code takes six steps of 0.1, whatever the time step.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        activation: phi, a name of :data:`~tauflow.cells.activations.ACTIVATIONS` or a function.
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"dopri5"``, with separate steps for every sample (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        damping: kappa, per unit of ``dt``, a constant unless ``train_tau``.
        scale: whether s is trained; else it is 1.
        init: ``"keras"`` (Glorot uniform input and orthogonal recurrent weights) or ``"tf1"``
            (Glorot uniform over the joint weight of [x; h]); b = 0 and s = 1 in both.
        step_size: length of every solver step, in place of dt / substeps; the time step is then
            ignored, and an adaptive solver covers ``substeps * step_size``, too.
        clip: the state is clipped to [-clip, clip] after every solver step, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
        adjoint: whether an adaptive solver finds gradients by solving backwards: in memory that
            does not grow with its steps, and as exact as ``rtol`` and ``atol`` make them.
        train_tau: whether every neuron has its time constant tau, trained from
            1 / ``damping`` on; kappa is then 1 / tau.
    """

    paper: ClassVar[str] = "Funahashi & Nakamura 1993, Approximation of dynamical systems"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: str | Activation = "tanh",
        solver: str = "rk4",
        substeps: int = 3,
        damping: float = 1.0,
        scale: bool = True,
        init: str = "keras",
        step_size: float | None = None,
        clip: float | None = None,
        rtol: float = 1e-2,
        atol: float = 1e-4,
        adjoint: bool = False,
        train_tau: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.phi = _activation(activation)
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol, adjoint)
        self.solver, self.substeps = solver, substeps
        self.damping = check_within(0.0, math.inf, damping=damping)
        self.init = check_one_of(("keras", "tf1"), init=init)
        self.step_size = (
            None if step_size is None else check_within(1e-12, math.inf, step_size=step_size)
        )
        self.clip = None if clip is None else check_within(1e-12, math.inf, clip=clip)
        if clip is not None and not self.flow_solver.has_fixed_steps:
            raise ArgumentError(
                f"clip acts between fixed solver steps, and {solver!r} chooses its own. Leave clip "
                f"out, or take one of: {', '.join(TABLEAUS)}."
            )
        self.uses_dt = step_size is None
        self.is_flow = step_size is None and clip is None
        self.W_x = nn.Parameter(torch.empty(hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b = nn.Parameter(torch.empty(hidden_size))
        self.s: nn.Parameter | None = None
        if check_bool(scale=scale):
            self.s = nn.Parameter(torch.empty(hidden_size))
        self.raw_tau: nn.Parameter | None = None
        if check_bool(train_tau=train_tau):
            if not damping:
                raise ArgumentError(
                    "train_tau=True starts from tau = 1 / damping, and damping is 0. Pass a "
                    "positive damping."
                )
            self.raw_tau = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the weights as ``init`` says; b = 0, s = 1, tau = 1 / damping."""
        if self.init == "keras":
            nn.init.xavier_uniform_(self.W_x, generator=generator)
            nn.init.orthogonal_(self.W_h, generator=generator)
        else:
            joint_glorot_(self.W_x, self.W_h, generator=generator)
        nn.init.zeros_(self.b)
        if self.s is not None:
            nn.init.ones_(self.s)
        if self.raw_tau is not None:
            inverse_softplus_(nn.init.constant_(self.raw_tau, 1 / self.damping))

    @property
    def time_constant(self) -> float | None:
        """That of the damping."""
        return 1 / self.damping if self.damping else None

    @property
    def tau(self) -> Tensor | None:
        """Trained time constants, (N,), in the unit of ``dt``; ``None`` without ``train_tau``."""
        return None if self.raw_tau is None else F.softplus(self.raw_tau)

    @torch.no_grad()
    def max_stable_dt(self) -> float:
        """Return what the damping allows; without any, phi bounds the rate of change."""
        if not self.damping or not self.uses_dt or self.clip is not None:
            return math.inf
        shortest = 1 / self.damping if self.tau is None else float(self.tau.min())
        return self.flow_solver.max_stable_dt_rate * shortest

    def static_config(self) -> CTRNNConfig:
        """Return activation, damping and solver."""
        damping = self.damping if self.raw_tau is None else None
        return CTRNNConfig(self.phi, damping, self.flow_solver, self.step_size, self.clip)

    def input_parameters(self) -> tuple[Tensor, Tensor]:
        """Return W_x and b."""
        N = self.hidden_size
        return read_parameter(self, "W_x", N, self.input_size), read_parameter(self, "b", N)

    def packed_parameters(self) -> tuple[Tensor, ...]:
        """Return W_h and, where they are trained, s and 1 / tau."""
        N = self.hidden_size
        scale = () if self.s is None else (read_parameter(self, "s", N),)
        raw_tau = () if self.raw_tau is None else (read_parameter(self, "raw_tau", N),)
        return read_parameter(self, "W_h", N, N), *scale, *(1 / F.softplus(raw) for raw in raw_tau)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the argument of phi, and the time to cover."""
        W_x, b = self.input_parameters()
        length, substeps = self.step_size, self.flow_solver.substeps
        span = dt if length is None else torch.full_like(dt, substeps * length)
        return Precomputed((x @ W_x.T + b, span), self.packed_parameters())

    def update(
        self,
        h: StateTensor,
        input_projection: StateTensor,
        span: Float[Tensor, "B 1"],
        *fixed: Tensor,
    ) -> StateTensor:
        """Integrate over the time to cover, holding the input."""
        return ct_rnn_update(self.static_config(), h, input_projection, span, *fixed)


def ct_rnn_update(
    config: CTRNNConfig,
    h: StateTensor,
    input_projection: StateTensor,
    span: Float[Tensor, "B 1"],
    W_h: Float[Tensor, "S S"],
    *vectors: Float[Tensor, " S"],
) -> StateTensor:
    """Return the state after the time to cover, given the input's share of the argument of phi.

    ``vectors`` are the scale, if there is one, and the rates 1 / tau, if they are trained.
    """
    W_h_T = W_h.T
    scale, rates = (vectors, ()) if config.damping is not None else (vectors[:-1], vectors[-1:])

    def field(at: Tensor) -> Tensor:
        f = config.phi(torch.addmm(input_projection, at, W_h_T))
        f = scale[0] * f if scale else f
        if rates:
            return f - rates[0] * at
        return torch.sub(f, at, alpha=config.damping) if config.damping else f

    if config.clip is None:
        return config.flow_solver.integrate(field, h, span, (input_projection, W_h, *vectors))
    tableau, substeps = TABLEAUS[config.flow_solver.solver], config.flow_solver.substeps
    for _ in range(substeps):
        after = integrate(field, h, span / substeps, tableau=tableau, substeps=1)
        h = after.clamp(-config.clip, config.clip)
    return h


_activation = get_activation  # the constructor's argument of the same name hides it
