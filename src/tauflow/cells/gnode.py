"""The gated neural ODE, with the neural ODE, the minimal gated unit and the Elman flow in it."""

from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_bool, check_one_of
from tauflow.errors import ArgumentError
from tauflow.solvers import FlowSolver

from .activations import ACTIVATIONS, Activation, lecun_tanh
from .activations import get_activation as find_activation
from .base import DtTensor, InputTensor, Precomputed, StateTensor
from .gated_flow import AbstractGatedFlowCell, GateAndField, Terms, integrate_gated_flow
from .init import Generator, inverse_softplus_
from .weight_schemes import (
    SCHEMES,
    critical_gain,
    init_bias_,
    init_weight_,
    variance_per_squared_gain,
)

_CRITICAL = {"critical": "kaiming", "critical-glorot": "glorot"}
_DEFAULT_UNITS = 100


class GNODECell(AbstractGatedFlowCell):
    r"""Gated neural ODE: a dense network as target, another as rate.

    .. math::
        \tau \dot h = G(h, x) \odot (-h + F(h, x))

        F = \varphi_h(W^{L-1} s^{L-1} + b^{L-1}), \quad s^{l+1} = \varphi_a(W^l s^l + b^l), \quad
        s^1 = \varphi_a(W^0 h + U x + b^0), \quad L = L_h

    G is built alike with its own weights, L_z layers and a sigmoid at the end; without layers
    G = 1. With one layer, F is :math:`\varphi_h(W^0 h + U x + b^0)`. By default one Euler step of
    :math:`\alpha = dt / \tau`: stable where alpha is small against ``1 / (G |1 - dF/dh|)``; where F
    is bounded, over time steps of up to 2 tau ``substeps`` (:meth:`max_stable_dt`). Over longer
    ones h may grow until it overflows.

    =======================  =====  =====  ==========================
    model                    L_h    L_z    final activation
    =======================  =====  =====  ==========================
    gated neural ODE         >= 2   >= 1   identity or tanh
    neural ODE               >= 2   0      identity or tanh
    minimal gated unit       1      1      tanh
    Elman network, as flow   1      0      tanh
    =======================  =====  =====  ==========================

    Parameters, for D features, N neurons, H ``units`` and H_z ``gate_units``: F has
    N H + H + D H + (L_h - 2)(H H + H) + H N + N, or N N + N + D N with one layer; G the same with
    L_z and H_z; an affine initial state N (D + 1) more, ``train_tau`` N more.

    Source: Kim et al. 2022, "Gated neural ODEs: trainability, expressivity and interpretability",
    Eq. 1, a submission without names, whose equations, figures and tables are counted here; it was
    published in 2023 as "Trainability, expressivity and interpretability in gated neural ODEs"
    (ICML; arXiv 2307.06398), whose released code is followed for the random weights.

    Differs from the paper: the initial state is zero by default, there affine. The scheme
    ``"critical"`` fixes what Eq. 51 leaves open: input weights, the gate's weights and V are from
    N(0, 1 / fan-in). The released code has, in place of Eq. 51, a rescaling by the measured leading
    eigenvalue. ``"critical-glorot"`` is Eq. 52 with the last layer's factor corrected.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        layers: L_h, weight layers of F.
        units: H, width of the hidden layers of F; by default 100. Only with two layers or more.
        gate_layers: L_z, weight layers of G; 0 for no gate.
        gate_units: H_z, alike for G.
        activation: phi_a, a name of :data:`~tauflow.cells.activations.ACTIVATIONS` or a function;
            by default ``"relu"``. Only with hidden layers.
        final_activation: phi_h, ``"identity"`` or ``"tanh"``.
        tau: time constant, in the unit of ``dt``.
        train_tau: whether every neuron has its time constant, trained from ``tau`` on and
            stored through a softplus. The paper keeps one, and suggests training it (Appendix G.5).
        solver: ``"euler"``, ``"midpoint"``, ``"heun"``, ``"rk4"``, or an adaptive one such as
            ``"tsit5"`` (needs ``tauflow[ode]``).
        substeps: solver steps per sample, where they are fixed.
        rtol: relative tolerance of an adaptive solver.
        atol: its absolute tolerance.
        initial_state: ``"zeros"``, ``"affine"`` (V x_1 + a of the first input), ``"learned"`` or
            ``"fixed"`` (drawn once from N(0, 2 / (N + 1)), not trained).
        init: ``"glorot_normal"``, ``"glorot_uniform"``, ``"kaiming"`` (normal, gain sqrt 2),
            ``"critical"`` or ``"critical-glorot"``; every bias is from N(0, 1e-6).
    """

    paper: ClassVar[str] = "Kim et al. 2022, Gated neural ODEs"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        layers: int = 2,
        units: int | None = None,
        gate_layers: int = 1,
        gate_units: int | None = None,
        activation: str | Activation | None = None,
        final_activation: str = "identity",
        tau: float = 1.0,
        train_tau: bool = False,
        solver: str = "euler",
        substeps: int = 1,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        initial_state: str = "zeros",
        init: str = "glorot_normal",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            tau=tau,
            substeps=substeps,
            initial_state=initial_state,
            init=init,
            schemes=(*SCHEMES, *_CRITICAL),
        )
        self.layers = check_at_least(1, layers=layers)
        self.gate_layers = check_at_least(0, gate_layers=gate_layers)
        if activation is not None and layers == 1 and gate_layers < 2:
            raise ArgumentError(
                f"activation={activation!r} would do nothing, for neither layers={layers} nor "
                f"gate_layers={gate_layers} leaves a hidden layer. Leave it out."
            )
        self.phi_a = find_activation("relu" if activation is None else activation)
        self.final_activation = check_one_of(
            ("identity", "tanh"), final_activation=final_activation
        )
        self.phi_h = ACTIVATIONS[final_activation]
        self.flow_solver = FlowSolver(solver, substeps, rtol, atol)
        widths = _layer_widths(hidden_size, layers, units, "layers", "units")
        gate = _layer_widths(hidden_size, gate_layers, gate_units, "gate_layers", "gate_units")
        self.rows = (widths[1], *gate[1:2])
        self.W_x = nn.Parameter(torch.empty(sum(self.rows), input_size))
        self.W_h = nn.Parameter(torch.empty(sum(self.rows), hidden_size))
        self.b = nn.Parameter(torch.empty(sum(self.rows)))
        self.W_F, self.b_F = _make_deeper_layers(widths)
        self.W_G, self.b_G = _make_deeper_layers(gate)
        self.raw_tau: nn.Parameter | None = None
        if check_bool(train_tau=train_tau):
            self.raw_tau = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the weights as ``init`` says, each layer with its own fans, and small biases."""
        scheme = "unit" if self.init in _CRITICAL else self.init
        init_weight_(self.W_x, scheme, generator, rows=self.rows)
        init_weight_(self.W_h, scheme, generator, rows=self.rows)
        for weight in (*self.W_F, *self.W_G):
            init_weight_(weight, scheme, generator)
        if self.init in _CRITICAL:
            self._init_critical(_CRITICAL[self.init], generator)
        for bias in (self.b, *self.b_F, *self.b_G):
            init_bias_(bias, generator)
        if self.raw_tau is not None:
            inverse_softplus_(self.raw_tau.fill_(self.tau))
        self.start.reset_parameters(scheme, generator)

    def _init_critical(self, scaling: str, generator: Generator) -> None:
        """Draw F's recurrent and deeper weights again, at the edge of stability."""
        weights = [self.W_h[: self.rows[0]], *self.W_F]
        widths = [self.hidden_size, *(weight.shape[0] for weight in weights)]
        gain = critical_gain(widths, self._mean_squared_slope(), scaling)
        for weight in weights:
            variance = variance_per_squared_gain(scaling, weight.shape[1], weight.shape[0])
            nn.init.normal_(weight, std=gain * variance**0.5, generator=generator)

    def _mean_squared_slope(self) -> float:
        """Return the mean of phi_a' squared: at any scale for ReLU, else at the fixed point 0."""
        slopes = {torch.relu: 0.5, torch.tanh: 1.0, lecun_tanh: (1.7159 * 0.666) ** 2}
        if self.layers == 1:
            return 1.0  # there is no hidden layer
        if self.phi_a not in slopes:
            raise ArgumentError(
                f"init={self.init!r} is known for the activations relu, tanh and lecun_tanh. "
                f"Choose one of them, or another init: {', '.join(SCHEMES)}."
            )
        return slopes[self.phi_a]

    @torch.no_grad()
    def max_stable_dt(self) -> float:
        """Return what an open gate allows: the steps' limit times the shortest time constant."""
        shortest = self.tau if self.raw_tau is None else float(F.softplus(self.raw_tau).min())
        return self.flow_solver.max_stable_dt_rate * shortest

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return dt in time constants, the first layers' share of the input; the weights.

        With ``train_tau`` the time step is in the unit of ``dt``, and 1 / tau comes after the
        weights.
        """
        networks = ((self.W_F, self.b_F), (self.W_G, self.b_G))  # torch 2.8's compiler takes
        deeper = [(W[i], b[i]) for W, b in networks for i in range(len(W))]  # no list of them apart
        rates = () if self.raw_tau is None else (1 / F.softplus(self.raw_tau),)
        return Precomputed(
            (dt if rates else dt / self.tau, F.linear(x, self.W_x, self.b)),
            (self.W_h.T, *(tensor for layer in deeper for tensor in layer), *rates),
        )

    def update(
        self,
        h: StateTensor,
        scaled_dt: Float[Tensor, "B 1"],
        input_projection: Float[Tensor, "B G"],
        W_h: Float[Tensor, "S G"],
        *deeper: Tensor,
    ) -> StateTensor:
        """Return the state after the time step."""
        terms = self._terms(input_projection, W_h, *deeper)
        if self.raw_tau is None:
            return integrate_gated_flow(terms, h, scaled_dt, self.flow_solver)

        def scaled_terms(h: Tensor) -> GateAndField:
            G, F = terms(h)
            return deeper[-1] if G is None else deeper[-1] * G, F

        return integrate_gated_flow(scaled_terms, h, scaled_dt, self.flow_solver)

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return G(h, x)."""
        (_, input_projection), weights = self.precompute(x, torch.ones_like(x[..., :1]))
        G, _ = self._terms(input_projection, *weights)(h)
        return torch.ones_like(h) if G is None else G

    def packed_parts(self) -> dict[str, tuple[int, ...]]:
        """Return the rows of the first layers of F and G, two networks."""
        return dict.fromkeys(("W_x", "W_h", "b"), self.rows)

    def _terms(self, input_projection: Tensor, W_h: Tensor, *deeper: Tensor) -> Terms:
        """Return what maps a state to G and F."""
        of_F, of_G = deeper[: 2 * len(self.W_F)], deeper[2 * len(self.W_F) :][: 2 * len(self.W_G)]

        def terms(h: Tensor) -> GateAndField:
            first = torch.addmm(input_projection, h, W_h)
            if not self.gate_layers:
                return None, self.phi_h(self._rest(first, of_F))
            f, z = first.split(self.rows, dim=-1)
            return torch.sigmoid(self._rest(z, of_G)), self.phi_h(self._rest(f, of_F))

        return terms

    def _rest(self, s: Tensor, weights_and_biases: tuple[Tensor, ...]) -> Tensor:
        """Return what the layers after the first make of its sum."""
        for at in range(0, len(weights_and_biases), 2):
            s = F.linear(self.phi_a(s), weights_and_biases[at], weights_and_biases[at + 1])
        return s


def _layer_widths(
    hidden_size: int, layers: int, units: int | None, layers_name: str, units_name: str
) -> list[int]:
    """Return the widths N, H, ..., H, N of a network; N alone without layers."""
    if units is not None and layers < 2:
        raise ArgumentError(
            f"{units_name}={units!r} would do nothing with {layers_name}={layers}, which has no "
            "hidden layer. Leave it out, or add layers."
        )
    width = _DEFAULT_UNITS if units is None else check_at_least(1, **{units_name: units})
    inner = repeat_counted(width, layers - 1)
    return [hidden_size, *inner, hidden_size] if layers else [hidden_size]


def _make_deeper_layers(widths: list[int]) -> tuple[nn.ParameterList, nn.ParameterList]:
    """Return weights and biases of the layers after the first."""
    inner = widths[1:]
    weights = (torch.empty(o, i) for i, o in pairwise(inner))
    return (
        nn.ParameterList(nn.Parameter(weight) for weight in weights),
        nn.ParameterList(nn.Parameter(torch.empty(o)) for o in inner[1:]),
    )
